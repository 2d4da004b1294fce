"""Methods and functions that create operations: arithmetic, axes, windows, random draws."""
