"""A run while it goes on: what controls it, what is seen of it, and what it returns."""
