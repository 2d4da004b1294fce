"""Reductions in blocks, and rematerialisation block by block (000_9a2364bc51ddf94b.txt §5.3)."""
