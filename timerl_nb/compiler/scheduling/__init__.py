"""Execution order: constraints from the graph, isl's schedule, its validation."""
