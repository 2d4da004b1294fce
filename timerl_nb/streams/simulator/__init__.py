"""Discrete-event simulator of kernel streams on a GPU model, under six strategies. Source: ACS §V.

The entry point is `simulated_comparison.compare`. `gpu_constants.Gpu` describes the GPU and its host.
"""
