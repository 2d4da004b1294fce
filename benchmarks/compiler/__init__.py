"""Time of compilation, of launches, and of a click in the explorer."""
