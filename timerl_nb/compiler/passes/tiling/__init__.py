"""Reductions over long axes in blocks (000_9a2364bc51ddf94b.txt §5.3)."""
