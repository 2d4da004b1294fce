"""Random programs held against plain Python loops.

Nothing here knows how the compiler thinks: of `timerl_nb` it imports the public face alone, and of
the other tests nothing (`tests/test_layers.py`). `draw` makes a program from a seed, `texts` writes
it twice, as recurrent tensors and as loops over dictionaries (which `loops` runs), `verdict`
compares the two, `shrink` makes a disagreement small, and `python -m tests.independent` tries many
(`make fuzz`).
"""
