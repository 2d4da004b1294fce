"""Time of compilations, of launches, and of a click in the explorer."""
