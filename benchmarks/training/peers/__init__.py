"""The works written by hand in JAX, as one would without this project. Frozen once checked.

Every program is an iteration(carry) -> (carry, (loss, mean return)), where the carry is
(parameters, Adam's state, key).
"""
