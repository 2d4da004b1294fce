"""Index expressions, conditions, dimensions and domains, without isl.

Input: the index arithmetic of a program (`t + 1`, `trl.min(t + 5, T)`). Output: simplified, hash-consed
expressions (`index_expressions`), and their values at points or whole arrays of points.
"""
