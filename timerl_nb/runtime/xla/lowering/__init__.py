"""Lowering of the loop nest to JAX: loops, carried buffers, tiles, sharding."""
