"""The language: contexts, symbolic indices, recurrent tensors, gradients.

Input: Python code inside `with trl.Context(...)`. Output: a dependence graph (`compiler.ir`) whose
operations remember the user's lines. Entry points: `program_context`, `recurrent_tensor`.
Source: 000_9a2364bc51ddf94b.txt §4.
"""
