"""Fusion: groups of operations become regions that run as one kernel (000_9a2364bc51ddf94b.txt §5.4)."""
