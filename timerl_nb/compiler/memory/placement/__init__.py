"""Storage of values: storage kinds, ring sizes, buffers, coalescing and donation."""
