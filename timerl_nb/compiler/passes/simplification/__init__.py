"""Simplification: algebra, dead code, common subexpressions, contractions, smaller domains."""
