"""Comparison of programs: differences, figures with shared axes, sweeps over an argument."""
