"""Execution of kernels operation by operation, without compiling each program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import pytest

from timerl_nb.compiler.ir.random_bits import Words
from timerl_nb.runtime.jax_backend import random_rules as jax_random


@contextmanager
def eagerly() -> Iterator[None]:
    """Disable jit, except for the rounds of random bits.

    The rounds are a hundred operations, equal in all programs, and would dominate the time without
    jit.
    """
    encrypt, generate = jax_random.threefry, jax_random.generate

    def compiled(key: Words, counter: Words, *, once: bool) -> Words:
        with jax.disable_jit(False):
            return encrypt(key, counter, once=once)

    def generated(*args: Any, **named: Any) -> Any:
        with jax.disable_jit(False):
            return generate(*args, **named)

    with jax.disable_jit(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax_random, "threefry", compiled)
        patch.setattr(jax_random, "generate", generated)
        yield
