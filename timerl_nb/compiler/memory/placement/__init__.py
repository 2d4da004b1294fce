"""Storage of values: storage kinds, ring sizes, blocks, buffers and donation."""
