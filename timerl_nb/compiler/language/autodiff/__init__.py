"""Reverse-mode differentiation through symbolic dimensions (000_9a2364bc51ddf94b.txt §5.1)."""
