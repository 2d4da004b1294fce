"""Tiling of reductions over long axes (000_9a2364bc51ddf94b.txt §5.3)."""
