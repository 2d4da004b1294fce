"""Symbolic indexing: reads such as `x[t + 1]` and `x[t:T]`, branches such as `x[t == 0] = ...`."""
