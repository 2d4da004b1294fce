"""Simulator: a kernel stream on a GPU model, under six strategies (004_5c654ad594bcdc3c, §V).

Entry point: `simulated_comparison.compare`. `gpu_constants.Gpu` describes the GPU and its host.
"""
