"""Hand-written JAX versions of the benchmark programs. Frozen after verification.

Every program is a function iteration(carry) -> (carry, (loss, mean return)). The carry is
(parameters, Adam's state, key).
"""
