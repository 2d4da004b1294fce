"""Policy of a program: its acting operations as a slice of the graph."""
