"""Passes: transformations of dependence graphs, each an immutable object with a `run` method.

Input and output are valid graphs, with a map from old to new operations and a list of named steps.
`pass_pipeline` defines the interface. Source: TimeRL §5.
"""
