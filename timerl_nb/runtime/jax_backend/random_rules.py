"""Random bits in JAX (`compiler/ir/random_bits`).

XLA recomputes fused values in each reader, and an `argmax` over a fused draw computes each number many times.
On a CPU, a draw is therefore a call that XLA does not inline: one kernel computes the bits of all points and
elements, and stores them. Large draws are fused with their readers if these are elementwise, which saves
memory.
"""

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
from timerl_nb.compiler.ir.random_bits import DEFAULT, MOST_LOOPED, ROTATIONS, Words
from timerl_nb.compiler.symbolic.index_expressions import sym
from timerl_nb.runtime.jax_backend.arrays_and_devices import (
    as_jax_promotes,
    is_accelerated,
    prevent_inlining,
)
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray, Scope, grid_of

_CALLED: Final = 32  # fewest numbers worth a call on a CPU
_WORTH: Final = 1 << 8  # fewest numbers worth a loop elsewhere

# traced once per shape
_unrolled = jax.jit(as_jax_promotes(random_bits.threefry))
_generated = jax.jit(as_jax_promotes(random_bits.generate), static_argnums=(0, 3))
_called = prevent_inlining(random_bits.generate, (0, 3))


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
    drawn = random_bits.bits(
        seed,
        (high, low),
        coords,
        elements,
        prod(shape),
        generator=attrs.generator,
        encrypt=partial(threefry, once=scope.once),
        generate=partial(
            generate,
            once=scope.once,
            is_divided=scope.division is not None,
            is_recomputed=op.id in scope.recomputed,
        ),
        far=far,
    )
    return jnp.broadcast_to(drawn, (*lead, prod(shape))).reshape((*lead, *shape))


def _in_words(coord: JaxArray, turn: Sequence[JaxArray]) -> Words:
    """Return the low and the high word of a coordinate near the current iteration."""
    seen, low, high = turn
    by = coord - seen  # modulo 2**32: a negative difference is a large number
    moved, back = low + by, by >> 31 != 0
    over = (~back & (moved < low)).astype(jnp.uint32)
    under = (back & (moved > low)).astype(jnp.uint32)
    return moved, high + over - under


def generate(
    generator: str,
    key: Words,
    coord: JaxArray,
    count: int,
    element: JaxArray,
    *,
    once: bool,
    is_divided: bool = False,
    is_recomputed: bool = False,
) -> JaxArray:
    """Compute `random_bits.generate`: in a call, unrolled, or in a loop.

    Args:
        generator: Name of the generator.
        key: Words of the key.
        coord: First coordinate; None for a draw without coordinates.
        count: Number of elements of the value.
        element: Numbers of the elements.
        once: As for `threefry`.
        is_divided: Whether the arrays are distributed over devices; XLA distributes no calls.
        is_recomputed: Whether a reader would compute each number many times.
    """
    size = _size(*key, element, *(() if coord is None else (coord,)))
    if generator == DEFAULT and once and size <= MOST_LOOPED:
        return _generate_in_loop(key, coord, count, element)
    if size < _CALLED or (size > MOST_LOOPED and not is_recomputed):
        return _generated(generator, key, coord, count, element)
    if not is_divided and not is_accelerated():
        return _called(generator, key, coord, count, element)
    if generator == DEFAULT and _WORTH <= size <= MOST_LOOPED:
        return _generate_in_loop(key, coord, count, element)
    return _generated(generator, key, coord, count, element)


def _generate_in_loop(key: Words, coord: JaxArray, count: int, element: JaxArray) -> JaxArray:
    x0, x1 = _threefry_in_loop(key, random_bits.counter(coord, count, element))
    return x0 ^ x1


def threefry(key: Words, counter: Words, *, once: bool) -> Words:
    """Compute `random_bits.threefry` for keys, unrolled or in a loop.

    Args:
        key: Words of the key.
        counter: Words of the counter.
        once: Whether the code runs outside of all loops; a loop is then preferred, as it compiles faster.
    """
    looped = once and _size(*key, *counter) <= MOST_LOOPED
    return (_threefry_in_loop if looped else _unrolled)(key, counter)


def _size(*arrays: JaxArray) -> int:
    """Return the number of elements of arrays that broadcast against each other."""
    return prod(jnp.broadcast_shapes(*(x.shape for x in arrays)))


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
