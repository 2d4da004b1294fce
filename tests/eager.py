"""Kernels whose contents run operation by operation, without a compilation for each program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import pytest

from timerl_nb.compiler.ir.random_bits import Words
from timerl_nb.runtime.jax_backend import random_rules as jax_random


@contextmanager
def eagerly() -> Iterator[None]:
    """`jax.disable_jit()`, but for the rounds of random bits.

    These are a hundred operations, the same in all programs, and would take longer than all others.
    """
    encrypt = jax_random.threefry

    def compiled(key: Words, counter: Words, *, once: bool) -> Words:
        with jax.disable_jit(False):
            return encrypt(key, counter, once=once)

    with jax.disable_jit(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax_random, "threefry", compiled)
        yield
