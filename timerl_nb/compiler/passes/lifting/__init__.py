"""Lifting: recurrences become batch operations over their dimension (000_9a2364bc51ddf94b.txt §5.2)."""
