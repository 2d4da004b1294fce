"""Strategies for collecting steps: on the device with JAX, or on the host with Gymnasium and EnvPool."""
