"""Reading and writing places of a buffer inside a traced program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from timerl_nb.memory.buffer import Buffer
from timerl_nb.runtime.backends.jax_scope import JaxArray


def look_up(array: JaxArray, buffer: Buffer, coordinates: Sequence[Any]) -> JaxArray:
    """The values at coordinates: one where they are scalars, many where some are arrays.

    Where there is no such place it is any value of the buffer.
    """
    places = [axis.place(coordinates[axis.coordinate]) for axis in buffer.axes]
    if not places:
        return array
    if all(jnp.ndim(place) == 0 for place in places):
        pairs = zip(places, buffer.axes, strict=True)
        near = [min(max(at, 0), x.size - 1) if isinstance(at, int) else at for at, x in pairs]
        return cut(array, near, [1] * len(near)).reshape(buffer.shape)
    return array.at[tuple(jnp.asarray(p) for p in places)].get(mode="clip")


def cut(array: JaxArray, starts: Sequence[Any], counts: Sequence[int]) -> JaxArray:
    """Consecutive places, all of which there are, along each axis of a buffer."""
    rank = len(starts)
    if all(isinstance(start, int) for start in starts):
        if all(s == 0 and n == have for s, n, have in zip(starts, counts, array.shape)):  # noqa: B905
            return array
        ends = [start + n for start, n in zip(starts, counts, strict=True)]
        rest = array.shape[rank:]
        return lax.slice(array, [*starts, *(0 for _ in rest)], [*ends, *rest])
    starts = [*starts, *(0 for _ in array.shape[rank:])]
    sizes = [*counts, *array.shape[rank:]]
    return lax.dynamic_slice(array, starts, sizes, allow_negative_indices=False)


def put(array: JaxArray, buffer: Buffer, coordinates: Sequence[Any], value: JaxArray) -> JaxArray:
    """The buffer with one value written; as it is where there is no such place."""
    value = value.astype(array.dtype)
    places = [axis.place(coordinates[axis.coordinate]) for axis in buffer.axes]
    if not places:
        return value
    return lax.dynamic_update_slice(
        array,
        value.reshape((*[1] * len(places), *buffer.shape)),
        [*places, *(0 for _ in buffer.shape)],
        allow_negative_indices=False,
    )


def put_within(
    array: JaxArray, buffer: Buffer, coordinates: Sequence[Any], value: JaxArray
) -> JaxArray:
    """As `put`, where some of the coordinates may lie outside of the buffer."""
    inside: Any = True
    for axis in buffer.axes:
        inside = inside & axis.inside(coordinates[axis.coordinate])
    if isinstance(inside, bool):  # known while tracing
        return put(array, buffer, coordinates, value) if inside else array
    old = look_up(array, buffer, coordinates)
    return put(array, buffer, coordinates, jnp.where(inside, value.astype(array.dtype), old))


def clear(array: JaxArray, buffer: Buffer, coordinates: Sequence[Any], inside: Any) -> JaxArray:
    """The buffer with places as they were before anything was written.

    Args:
        inside: which of the coordinates are meant.
    """
    fill = jnp.asarray(buffer.fill, array.dtype)
    places = [axis.place(coordinates[axis.coordinate]) for axis in buffer.axes]
    if not places:
        return jnp.full_like(array, fill)
    first = jnp.where(inside, places[0], buffer.axes[0].size)  # which is no place
    rest = [jnp.asarray(place) for place in places[1:]]
    return array.at[(first, *rest)].set(fill, mode="drop")
