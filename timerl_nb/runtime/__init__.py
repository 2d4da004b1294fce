"""Executors: the interpreter of the loop nest, and its lowering to XLA.

Input: a loop nest, a memory plan and kernels. Output: values of outputs, and counts of bytes.
`run_protocol` is the interface of a run, and `executable` the artifact of the last stage.
"""
