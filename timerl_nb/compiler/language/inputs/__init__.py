"""Program inputs: bounds, arrays, parameters, host functions, JAX functions."""
