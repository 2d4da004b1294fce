"""PyTorch as the engine of interpreted programs.

Each kernel is traced once to straight-line calls of ATen. Only `torch_engine` is imported from outside, by
`runtime.engine.named`.
"""
