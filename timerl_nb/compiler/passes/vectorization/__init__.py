"""Vectorisation: a symbolic dimension becomes an array axis (TimeRL §5.2, Alg. 2)."""
