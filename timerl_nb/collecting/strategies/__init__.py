"""Strategies for collecting steps: on the device with JAX, or on the host.

Each module implements `collecting.strategy.Way` under the name that `trl.collect(..., how=...)` takes.
"""
