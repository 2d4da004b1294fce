"""Random programs compared with plain Python loops.

This package is independent of the compiler: it imports only the public names of `timerl_nb`, and
nothing of the other tests (`tests/test_layers.py`). `draw` makes a program from a seed. `texts`
writes it twice, as recurrent tensors and as loops over dictionaries (run by `loops`). `verdict`
compares the two, and `shrink` minimises a disagreement. `python -m tests.independent` tries many
programs (`make fuzz`).
"""
