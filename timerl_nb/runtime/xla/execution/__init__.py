"""Execution of a lowered program: calls to XLA, host operations, swapping, outputs."""
