"""Reads and writes of buffer slots in traced programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.runtime.jax_backend.trace_context_and_masks import JaxArray

EVERY: Mapping[int, JaxArray] = MappingProxyType({})


@dataclass(frozen=True)
class AxisRange:
    """Range of positions along an axis of every value."""

    axis: int
    start: Any
    size: int

    def starts(self, count: int) -> list[Any]:
        """Return the start of the range along each of `count` axes of a value."""
        return [self.start if k == self.axis else 0 for k in range(count)]

    def read_part(self, array: JaxArray, places: int) -> JaxArray:
        """Return the range of all values in a buffer."""
        return lax.dynamic_slice_in_dim(array, self.start, self.size, places + self.axis)

    def write_part(self, array: JaxArray, part: JaxArray, places: int) -> JaxArray:
        """Replace the range of all values in a buffer."""
        return lax.dynamic_update_slice_in_dim(array, part, self.start, places + self.axis)


@dataclass(frozen=True)
class InPlace:
    """Buffer accessed in memory by a Pallas kernel; it replaces an array."""

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
    within: AxisRange | None = None,
    elements: Mapping[int, JaxArray] = EVERY,
    divided: int | None = None,
) -> JaxArray:
    """Return the value at scalar coordinates, or the values at arrays of coordinates.

    Invalid coordinates return an arbitrary value of the buffer.

    Args:
        array: The buffer.
        buffer: Its layout, with the shape of the result's range.
        coordinates: A coordinate per axis of the tensor's domain.
        within: Range of each value to return; None for all of it.
        elements: Positions to select along axes of each value, as arrays that broadcast with the
            coordinates. These axes are missing in the result.
        divided: Axis of the buffer that is divided among devices. Its positions in `elements` are consecutive
            numbers along one axis, and each device looks up its own.
    """
    places = [axis.place(coordinates[axis.coordinate]) for axis in buffer.axes]
    if elements:
        assert within is None
        own = [elements.get(k, slice(None)) for k in range(len(buffer.shape))]
        index = [*(jnp.asarray(p) for p in places), *own]
        if divided is None or isinstance(index[divided], slice) or index[divided].size == 1:
            return _at(array, index)
        return _at_each(array, index, divided)
    if not places:
        return array
    if all(jnp.ndim(place) == 0 for place in places):
        pairs = zip(places, buffer.axes, strict=True)
        near = [min(max(at, 0), x.size - 1) if isinstance(at, int) else at for at, x in pairs]
        if isinstance(array, InPlace):
            return array.read_at(near)
        return cut(array, near, [1] * len(near), within).reshape(buffer.shape)
    if isinstance(array, InPlace):
        raise NotImplementedError("it reads many slots of a buffer in one operation")
    if within is not None:
        array = within.read_part(array, len(places))
    return array.at[tuple(jnp.asarray(p) for p in places)].get(mode="clip")


def _at(array: JaxArray, index: Sequence[Any]) -> JaxArray:
    return array.at[tuple(index)].get(mode="clip")


def _at_each(array: JaxArray, index: Sequence[Any], axis: int) -> JaxArray:
    """Return `_at(array, index)`, if `index[axis]` is a range along one axis of the positions.

    `jax.vmap` tells XLA that no element depends on another one, so a divided array needs no communication.
    """
    along = next(k for k, n in enumerate(index[axis].shape) if n > 1)
    others = [x for k, x in enumerate(index) if k != axis]
    mapped = [not isinstance(x, slice) and x.ndim > 0 and x.shape[along] > 1 for x in others]
    chosen = [x for x, is_mapped in zip(others, mapped, strict=True) if is_mapped]

    def look_up_one(part: JaxArray, *own: JaxArray) -> JaxArray:
        left = iter(own)
        pairs = zip(others, mapped, strict=True)
        return _at(
            part, [next(left) if is_mapped else _without(x, along) for x, is_mapped in pairs]
        )

    found = jax.vmap(look_up_one, (axis, *(along for _ in chosen)), along)(array, *chosen)
    lead = jnp.broadcast_shapes(*(x.shape for x in index if not isinstance(x, slice)))
    rest = [n for n, x in zip(array.shape, index, strict=True) if isinstance(x, slice)]
    return found.reshape(*lead, *rest)


def _without(x: Any, axis: int) -> Any:
    """Remove an axis of size 1 from an array of positions; scalars and slices have none."""
    return x if isinstance(x, slice) or x.ndim == 0 else x.squeeze(axis)


def cut(
    array: JaxArray, starts: Sequence[Any], counts: Sequence[int], within: AxisRange | None = None
) -> JaxArray:
    """Return a range of existing slots along each axis of a buffer."""
    rank = len(starts)
    if isinstance(array, InPlace):
        raise NotImplementedError("it reads many slots of a buffer in one operation")
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


def _starts(within: AxisRange | None, count: int) -> list[Any]:
    return [0] * count if within is None else within.starts(count)


def put(
    array: JaxArray,
    buffer: Buffer,
    coordinates: Sequence[Any],
    value: JaxArray,
    within: AxisRange | None = None,
) -> JaxArray:
    """Write one value to a buffer. Coordinates outside of it write nothing."""
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


def put_row(
    array: JaxArray,
    buffer: Buffer,
    coordinates: Sequence[Any],
    value: JaxArray,
    inside: Any,
    within: AxisRange | None = None,
) -> JaxArray:
    """Write like `put`, unless `inside` is false or the coordinates have no slot."""
    for axis in buffer.axes:
        inside = inside & axis.has_slot(coordinates[axis.coordinate])
    if isinstance(inside, bool):  # known while tracing
        return put(array, buffer, coordinates, value, within) if inside else array
    old = look_up(array, buffer, coordinates, within)
    new = jnp.where(inside, value.astype(array.dtype), old)
    return put(array, buffer, coordinates, new, within)


def clear(array: JaxArray, buffer: Buffer, coordinates: Sequence[Any], inside: Any) -> JaxArray:
    """Reset slots of a buffer to their initial value.

    Args:
        array: The buffer.
        buffer: Its layout.
        coordinates: Coordinates of the slots.
        inside: Mask of the coordinates to reset.
    """
    fill = jnp.asarray(buffer.fill, array.dtype)
    places = [axis.place(coordinates[axis.coordinate]) for axis in buffer.axes]
    if not places:
        return jnp.full_like(array, fill)
    first = jnp.where(inside, places[0], buffer.axes[0].size)  # the size is an invalid slot
    rest = [jnp.asarray(place) for place in places[1:]]
    return array.at[(first, *rest)].set(fill, mode="drop")
