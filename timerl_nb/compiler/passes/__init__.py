"""Passes: transformations of dependence graphs, each a frozen object with a `run` method.

Input and output: a valid `Pdg`, with a map from old to new operations and a list of named steps.
`pass_pipeline` defines the interface. Source: 000_9a2364bc51ddf94b.txt §5.
"""
