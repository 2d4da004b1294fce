"""Prioritised sampling: the sum tree and its NumPy and Numba implementations. Source: PEARL §4.1."""
