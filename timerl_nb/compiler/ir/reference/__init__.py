"""Reference evaluator in NumPy. It defines the meaning of a dependence graph (semantics.md)."""
