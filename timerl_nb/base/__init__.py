"""Modules without knowledge of programs: errors, options, files, caches and array conversion.

All other packages may import this one. It imports none of them.
"""
