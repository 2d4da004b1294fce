"""Benchmarks: `make bench` runs all of them; figures are medians and ratios within one run."""
