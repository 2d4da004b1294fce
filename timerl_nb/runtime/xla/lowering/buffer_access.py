"""Reading and writing places of a buffer inside a traced program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
from jax import lax

from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray

EVERY: Mapping[int, JaxArray] = MappingProxyType({})


@dataclass(frozen=True)
class Within:
    """Positions of an axis of every value: `size` of them from `start` on."""

    axis: int
    start: Any
    size: int

    def starts(self, count: int) -> list[Any]:
        """Where they start along each of the axes of a value."""
        return [self.start if k == self.axis else 0 for k in range(count)]

    def read_part(self, array: JaxArray, places: int) -> JaxArray:
        """That part of all values of a buffer."""
        return lax.dynamic_slice_in_dim(array, self.start, self.size, places + self.axis)

    def write_part(self, array: JaxArray, part: JaxArray, places: int) -> JaxArray:
        """The buffer with that part of all values."""
        return lax.dynamic_update_slice_in_dim(array, part, self.start, places + self.axis)


@dataclass(frozen=True)
class InPlace:
    """A buffer that a kernel of Pallas' reads and writes where it is, in the place of an array."""

    ref: Any

    @property
    def dtype(self) -> Any:
        return self.ref.dtype

    def read_at(self, places: Sequence[Any]) -> JaxArray:
        return self.ref[tuple(places)]

    def write_at(self, places: Sequence[Any], value: JaxArray) -> InPlace:
        self.ref[tuple(places)] = value
        return self


def look_up(
    array: JaxArray,
    buffer: Buffer,
    coordinates: Sequence[Any],
    within: Within | None = None,
    elements: Mapping[int, JaxArray] = EVERY,
) -> JaxArray:
    """The values at coordinates: one where they are scalars, many where some are arrays.

    Where there is no such place it is any value of the buffer.

    Args:
        within: what of each value is asked for, which the buffer's shape is of.
        elements: by axis of a value, the position that is asked for, as arrays that go together with
            the coordinates; these axes are not in the result.
    """
    places = [axis.place(coordinates[axis.coordinate]) for axis in buffer.axes]
    if elements:
        assert within is None
        own = [elements.get(k, slice(None)) for k in range(len(buffer.shape))]
        return array.at[(*(jnp.asarray(p) for p in places), *own)].get(mode="clip")
    if not places:
        return array
    if all(jnp.ndim(place) == 0 for place in places):
        pairs = zip(places, buffer.axes, strict=True)
        near = [min(max(at, 0), x.size - 1) if isinstance(at, int) else at for at, x in pairs]
        if isinstance(array, InPlace):
            return array.read_at(near)
        return cut(array, near, [1] * len(near), within).reshape(buffer.shape)
    if isinstance(array, InPlace):
        raise NotImplementedError("many of its places are looked up at once")
    if within is not None:
        array = within.read_part(array, len(places))
    return array.at[tuple(jnp.asarray(p) for p in places)].get(mode="clip")


def cut(
    array: JaxArray, starts: Sequence[Any], counts: Sequence[int], within: Within | None = None
) -> JaxArray:
    """Consecutive places, all of which there are, along each axis of a buffer."""
    rank = len(starts)
    if isinstance(array, InPlace):
        raise NotImplementedError("many of its places are looked up at once")
    if within is None and all(isinstance(start, int) for start in starts):
        if all(s == 0 and n == have for s, n, have in zip(starts, counts, array.shape)):  # noqa: B905
            return array
        ends = [start + n for start, n in zip(starts, counts, strict=True)]
        rest = array.shape[rank:]
        return lax.slice(array, [*starts, *(0 for _ in rest)], [*ends, *rest])
    value = list(array.shape[rank:])
    starts = [*starts, *_starts(within, len(value))]
    if within is not None:
        value[within.axis] = within.size
    sizes = [*counts, *value]
    return lax.dynamic_slice(array, starts, sizes, allow_negative_indices=False)


def _starts(within: Within | None, count: int) -> list[Any]:
    return [0] * count if within is None else within.starts(count)


def put(
    array: JaxArray,
    buffer: Buffer,
    coordinates: Sequence[Any],
    value: JaxArray,
    within: Within | None = None,
) -> JaxArray:
    """The buffer with one value written; as it is where there is no such place."""
    value = value.astype(array.dtype)
    places = [axis.place(coordinates[axis.coordinate]) for axis in buffer.axes]
    if not places:
        return value
    if isinstance(array, InPlace):
        return array.write_at(places, value.reshape(buffer.shape))
    return lax.dynamic_update_slice(
        array,
        value.reshape((*[1] * len(places), *buffer.shape)),
        [*places, *_starts(within, len(buffer.shape))],
        allow_negative_indices=False,
    )


def put_within(
    array: JaxArray,
    buffer: Buffer,
    coordinates: Sequence[Any],
    value: JaxArray,
    within: Within | None = None,
) -> JaxArray:
    """As `put`, where some of the coordinates may lie outside of the buffer."""
    inside: Any = True
    for axis in buffer.axes:
        inside = inside & axis.has_slot(coordinates[axis.coordinate])
    if isinstance(inside, bool):  # known while tracing
        return put(array, buffer, coordinates, value, within) if inside else array
    old = look_up(array, buffer, coordinates, within)
    new = jnp.where(inside, value.astype(array.dtype), old)
    return put(array, buffer, coordinates, new, within)


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
