"""Fusion: groups of operations become regions that run as one kernel (TimeRL §5.4)."""
