"""Collection strategies on the device with JAX, and on the host.

Each module implements `collecting.strategy.Strategy`; its `name` is the value of `how` in `trl.collect`.
"""
