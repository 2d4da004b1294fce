"""Reference evaluator in NumPy: defines the meaning of a graph, and tests compare everything else with it."""
