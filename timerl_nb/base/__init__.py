"""Modules without knowledge of programs: errors, options, files, caches, conversion of arrays."""
