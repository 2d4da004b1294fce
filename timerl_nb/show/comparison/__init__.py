"""Comparison of programs: differences, shared figures, sweeps over an argument."""
