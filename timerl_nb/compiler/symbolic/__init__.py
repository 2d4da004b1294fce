"""Maths of the compiler: index expressions, dimensions, and the one door to isl."""
