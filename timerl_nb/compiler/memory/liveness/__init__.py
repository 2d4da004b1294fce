"""Liveness analysis: definition, last use and live range of every value."""
