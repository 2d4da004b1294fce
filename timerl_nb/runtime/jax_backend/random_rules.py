"""Random bits in JAX, with the rounds of threefry unrolled or in a loop (`compiler/ir/random_bits`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from timerl_nb.compiler.ir import random_bits
from timerl_nb.compiler.ir.operation_attributes import RngAttrs
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.random_bits import MOST_LOOPED, ROTATIONS, Words
from timerl_nb.compiler.symbolic.index_expressions import sym
from timerl_nb.runtime.jax_backend.jax_engine import as_jax_promotes
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray, Scope, grid_of

# XLA recomputes unrolled rounds in each fused loop that reads them, often ten times. A loop avoids this, but
# starting it costs as much as a few hundred numbers. Arrays above MOST_LOOPED are unrolled, as a loop passes
# over the whole array in every round.
_WORTH: Final = 1 << 8

_written_out = jax.jit(as_jax_promotes(random_bits.threefry))  # traced once per shape


def draw(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    """Return the random bits of a draw."""
    attrs: RngAttrs = op.attrs
    lead, shape = scope.shape(attrs.sizes), scope.shape(attrs.shape)
    along = grid_of(scope, attrs.axes, attrs.sizes, attrs.starts)

    def at(d: str) -> JaxArray:
        coord = along[d] if d in along else scope.value(sym(d))
        coord = jnp.asarray(coord).astype(jnp.uint32)
        return coord[..., None] if coord.ndim else coord.reshape((1,) * (len(lead) + 1))

    seed = (
        scope.seed if scope.seeds is None else random_bits.advance_seed(scope.seed, at(scope.seeds))
    )
    coords, far = [at(d) for d in attrs.dims], None
    if scope.endless in attrs.dims:
        k = attrs.dims.index(scope.endless)
        coords[k], far = _in_words(coords[k], scope.turn)
    words = (np.uint32(w) for w in random_bits.stream_words(attrs.stream))
    high, low = (jnp.full((1,), w) for w in words)
    elements = jnp.arange(prod(shape), dtype=jnp.uint32)
    encrypt = partial(threefry, once=scope.once)
    drawn = random_bits.bits(seed, (high, low), coords, elements, prod(shape), encrypt, far)
    return jnp.broadcast_to(drawn, (*lead, prod(shape))).reshape((*lead, *shape))


def _in_words(coord: JaxArray, turn: Sequence[JaxArray]) -> Words:
    """Return the low and the high word of a coordinate near the current iteration."""
    seen, low, high = turn
    by = coord - seen  # modulo 2**32: a negative difference is a large number
    moved, back = low + by, by >> 31 != 0
    over = (~back & (moved < low)).astype(jnp.uint32)
    under = (back & (moved > low)).astype(jnp.uint32)
    return moved, high + over - under


def threefry(key: Words, counter: Words, *, once: bool) -> Words:
    """Compute `random_bits.threefry`, unrolled or in a loop.

    Args:
        key: Words of the key.
        counter: Words of the counter.
        once: Whether the code runs outside of all loops; a loop is then preferred, as it compiles faster.
    """
    count = prod(jnp.broadcast_shapes(*(x.shape for x in (*key, *counter))))
    looped = count <= MOST_LOOPED and (once or count >= _WORTH)
    return (_threefry_in_loop if looped else _written_out)(key, counter)


@jax.jit
@as_jax_promotes
def _threefry_in_loop(key: Words, counter: Words) -> Words:
    k0, k1, c0, c1 = jnp.broadcast_arrays(*key, *counter)
    rotations = jnp.asarray(ROTATIONS, jnp.uint32)

    def group(k: JaxArray, state: tuple[JaxArray, ...]) -> tuple[JaxArray, ...]:
        x0, x1, now, following, last = state
        for r in rotations[k % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << r) | (x1 >> (32 - r)))
        return x0 + now, x1 + following + jnp.uint32(k + 1), following, last, now

    third = k0 ^ k1 ^ np.uint32(random_bits.PARITY)
    x0, x1, *_ = lax.fori_loop(0, 5, group, (c0 + k0, c1 + k1, k1, third, k0))
    return x0, x1
