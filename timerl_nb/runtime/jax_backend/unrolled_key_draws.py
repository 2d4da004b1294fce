"""Draws by JAX's random keys with unrolled rounds, for user functions inside a loop on a CPU.

JAX compiles the rounds of threefry to a loop on a CPU, which copies all keys and counters in each of its
five iterations. If every row has a key of its own, the copies cost more than the rounds. The rounds are
unrolled here, with the same results, in a call that XLA does not inline: otherwise it computes them again for
every reader of the bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from timerl_nb.compiler.ir import random_bits
from timerl_nb.runtime.jax_backend.arrays_and_devices import prevent_inlining

_THREEFRY = "threefry2x32"
_MOST = 1 << 14  # draws of one row with more numbers keep JAX's loop, as their copies matter less


_rounds = prevent_inlining(random_bits.threefry)


def with_unrolled_draws(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """Return a function with the same results, whose draws by keys are unrolled.

    Args:
        function: A pure function of arrays; it returns a tuple of arrays.
    """

    def call(*arrays: Any) -> tuple[Any, ...]:
        config: Any = jax.config
        # the order of older versions of JAX; and a check that sees only JAX's own draws
        if not config.jax_threefry_partitionable or config.jax_debug_key_reuse:
            return function(*arrays)
        closed = jax.make_jaxpr(function)(*arrays)
        if not any(map(_draw_of, _inlined(closed.jaxpr))):
            return function(*arrays)
        # if JAX cannot map an operation, its own error has the user's line
        with suppress(Exception):
            return tuple(_evaluate(closed.jaxpr, closed.consts, arrays))
        return function(*arrays)

    return call


def _evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Evaluate a jaxpr, with its draws replaced."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

    def read(x: Any) -> Any:
        return x.val if isinstance(x, Literal) else known[x]

    for eqn in jaxpr.eqns:
        values, draw, inner = [*map(read, eqn.invars)], _draw_of(eqn), _inner(eqn)
        if draw is not None:
            made = [draw(values[0])]
        elif inner is not None and any(map(_draw_of, _inlined(inner.jaxpr))):
            made = _evaluate(inner.jaxpr, inner.consts, values)
        else:
            with eqn.ctx.manager:  # the JAX settings at this line of the function
                found = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
            made = found if eqn.primitive.multiple_results else [found]
        known.update(zip(eqn.outvars, made, strict=True))
    return [*map(read, jaxpr.outvars)]


def _inlined(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of a jaxpr and of all called functions."""
    for eqn in jaxpr.eqns:
        yield eqn
        inner = _inner(eqn)
        if inner is not None:
            yield from _inlined(inner.jaxpr)


def _inner(eqn: Any) -> Any:
    """Return the jaxpr of a call of a jitted function; None for another equation."""
    return eqn.params["jaxpr"] if eqn.primitive.name in ("jit", "pjit") else None


def _draw_of(eqn: Any) -> Callable[[Any], Any] | None:
    """Return a function of a key that replaces a draw; None for another equation."""
    name, params = eqn.primitive.name, eqn.params
    if name not in ("random_bits", "random_split"):
        return None
    key, shape = eqn.invars[0].aval, params["shape"]
    is_known = key.shape == () and key.dtype == _threefry_keys()
    if not is_known or prod(shape) > _MOST or params.get("bit_width", 32) != 32:
        return None
    return lambda key: _draw(key, shape, is_split=name == "random_split")


@cache
def _threefry_keys() -> Any:
    """Return the element type of threefry keys."""
    return jax.eval_shape(lambda: jax.random.key(0, impl=_THREEFRY)).dtype


def _draw(key: Any, shape: tuple[int, ...], *, is_split: bool) -> Any:
    """Return bits, or keys, of a shape."""
    words = jax.random.key_data(key)
    counter = jnp.arange(prod(shape), dtype=jnp.uint32).reshape(shape)
    high, low = _rounds((words[0], words[1]), (random_bits.zero(counter), counter))
    if is_split:
        return jax.random.wrap_key_data(jnp.stack([high, low], -1), impl=_THREEFRY)
    return high ^ low
