"""Modules without knowledge of programs: errors, options, files, caches, conversion of arrays.

All other packages may import this one. It imports none of them.
"""
