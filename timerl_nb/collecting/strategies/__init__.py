"""Collection strategies on the device with JAX, and on the host.

Each module implements `collecting.strategy.Way`; its `name` is the value of `how` in `trl.collect`.
"""
