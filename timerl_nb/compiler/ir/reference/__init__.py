"""Reference evaluator in NumPy: it defines the meaning of a graph, and tests compare all else with it."""
