"""JAX backend: kernels, arrays, random bits and compilation caches.

`operation_rules`, `reduction_rules` and `gather_scatter_rules` translate operations to `jax.numpy`.
"""
