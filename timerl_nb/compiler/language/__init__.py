"""Language front end: contexts, symbolic indices, recurrent tensors, gradients.

Python code inside `with trl.Context(...)` writes a dependence graph (`compiler.ir`). Every operation records
the user's line. Entry points: `program_context`, `recurrent_tensor`. Source: TimeRL §4.
"""
