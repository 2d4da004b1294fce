"""Lifting: recurrences become batch operations over their dimension (TimeRL §5.2)."""
