"""A graph without dimensions as a function of arrays, for many rows at once; arrays in and out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from timerl_nb.ir.ops import Read, reached_from
from timerl_nb.ir.pdg import Pdg
from timerl_nb.ir.shapes import Size
from timerl_nb.runtime.backends import jax as backend
from timerl_nb.runtime.backends import jax_rules as rules
from timerl_nb.runtime.backends.jax_scope import JaxArray, Scope

Weights = Mapping[str, Any]


def without_rule(pdg: Pdg, wanted: Read) -> str | None:
    """The kind of an operation that is needed and cannot be computed so; None where all can."""
    needed = reached_from([wanted.source], lambda k: pdg[k].sources)
    return next((pdg[k].kind for k in needed if pdg[k].kind not in rules.RULES), None)


def draws(pdg: Pdg, wanted: Read) -> bool:
    """Whether chance is in it."""
    needed = reached_from([wanted.source], lambda k: pdg[k].sources)
    return any(pdg[k].kind == "rng" for k in needed)


def by_rows(
    pdg: Pdg, wanted: Read, row: int, weights: Mapping[str, int]
) -> Callable[[Weights, Any, int], JaxArray]:
    """A function of weights by name, rows and a seed, to what is wanted of each row.

    Row k draws what it draws whatever other rows there are.

    Args:
        row, weights: the operations that stand for a row, and for each weight.
    """
    needed = reached_from([wanted.source], lambda k: pdg[k].sources)
    inner = [pdg[k] for k in pdg.order if k in needed and k != row and k not in weights.values()]

    def one(values: Weights, x: JaxArray, words: JaxArray) -> JaxArray:
        scope = Scope({}, {}, (words[0:1], words[1:2]), _whole, lambda size: False)
        done = {weights[name]: value for name, value in values.items()} | {row: x}
        for op in inner:
            shapes = [pdg.read_type(read).shape for read in op.inputs]
            args = [done[read.source] for read in op.inputs]
            done[op.id] = rules.compute(scope, op, args, shapes)
        return done[wanted.source]

    @jax.jit
    def rows(values: Weights, x: JaxArray, high: JaxArray, low: JaxArray) -> JaxArray:
        key = jax.random.wrap_key_data(jnp.concatenate([high, low]), impl="threefry2x32")
        words = jax.random.bits(key, (x.shape[0], 2), jnp.uint32)
        return jax.vmap(one, in_axes=(None, 0, 0))(values, x, words)

    return lambda values, x, seed: rows(values, x, *backend.seed_words(seed))


def _whole(size: Size) -> int:
    assert isinstance(size, int)  # there are no dimensions
    return size


# --- arrays of others ----------------------------------------------------------------------------


def taken(x: Any) -> Any:
    """An array of anyone's as NumPy's or JAX's, without a copy where that is possible."""
    if isinstance(x, jax.Array | np.ndarray | np.generic) or not hasattr(x, "__dlpack__"):
        return x if isinstance(x, jax.Array) else np.asarray(x)
    plain = x.detach() if hasattr(x, "detach") else x
    on_host = plain.__dlpack_device__()[0] == 1
    return np.from_dlpack(plain) if on_host else jnp.from_dlpack(plain)


def given_back(made: JaxArray, like: Any) -> Any:
    """An array of JAX's as one of the kind of `like`: JAX's, NumPy's, or by DLPack another's."""
    if isinstance(like, jax.Array):
        return made
    if isinstance(like, np.ndarray | np.generic) or not hasattr(like, "__dlpack__"):
        return np.array(made)[()]  # a number where it has no axes
    return sys.modules[type(like).__module__.partition(".")[0]].from_dlpack(made)
