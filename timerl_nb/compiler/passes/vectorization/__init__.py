"""Vectorisation: a symbolic dimension becomes an array axis (000_9a2364bc51ddf94b.txt §5.2, Alg. 2)."""
