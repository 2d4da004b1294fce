"""Prioritised sampling: the sum tree and its implementations in C, Numba and NumPy. Source: PEARL §4.1."""
