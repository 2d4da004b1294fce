"""Methods and functions that record operations: arithmetic, axes, windows, random draws."""
