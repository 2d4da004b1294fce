"""Executors: kernels, stores, the memory ledger, and the interpreter of the loop AST."""
