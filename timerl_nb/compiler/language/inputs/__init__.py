"""Inputs of a program: bounds, arrays, parameters, user-defined functions, JAX functions."""
