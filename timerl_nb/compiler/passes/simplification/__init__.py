"""Simplification: algebra, dead code, contractions, smaller domains."""
