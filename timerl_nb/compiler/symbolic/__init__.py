"""Index expressions, conditions, dimensions and domains, without isl.

Index arithmetic of a program (`t + 1`, `trl.min(t + 5, T)`) becomes simplified, hash-consed
expressions (`index_expressions`). They are evaluated at single points (`expression_evaluation`) or
on arrays of points (`array_evaluation`).
"""
