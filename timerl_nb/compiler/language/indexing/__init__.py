"""Reads and definitions by symbolic indices: `x[t + 1]`, `x[t:T]`, `x[t == 0] = ...`."""
