"""Rows whose frames are stored once: equal arrays, such as an observation and the next one, share memory.

A row has references to frames. A frame is stored while a row refers to it, so nothing depends on the order of rows,
on environments or on the end of the ring.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError, ShapeError, one_of
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.replay.storage.ring_rows import Field, Rows


class FrameStore:
    """Distinct arrays of one shape with the number of references to each.

    Args:
        field: shape and element type of a frame.
        allocate: a function that creates an array of a shape and element type.
        size: the number of frames per block of memory.
    """

    def __init__(
        self, field: Field, allocate: Callable[[tuple[int, ...], np.dtype[Any]], Array], size: int
    ) -> None:
        self.field, self._allocate, self._size = field, allocate, size
        self._blocks: list[Array] = []
        self.clear()

    def clear(self) -> None:
        """Remove all frames; the memory remains."""
        count = len(self._blocks) * self._size
        self._uses = np.zeros(count, np.int64)
        self._keys: list[int] = [0] * count
        self._free = [*range(count - 1, -1, -1)]
        self._slots: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """The size of the allocated memory in bytes."""
        return len(self._blocks) * self._size * self.field.nbytes

    @property
    def count(self) -> int:
        """The number of stored frames."""
        return len(self._keys) - len(self._free)

    def acquire(self, frames: Array) -> Array:
        """Add a reference to each frame of [count, …], and return their slots, i32[count]."""
        slots = np.array([self._slot_of(one) for one in frames], np.int32).reshape(len(frames))
        self.retain(slots)
        return slots

    def retain(self, slots: Array) -> None:
        """Add a reference for each slot."""
        np.add.at(self._uses, slots, 1)

    def release(self, slots: Array) -> None:
        """Remove a reference for each slot. The slots of frames without references become free."""
        np.subtract.at(self._uses, slots, 1)
        for slot in np.unique(slots[self._uses[slots] == 0]).tolist():
            if self._slots.get(self._keys[slot]) == slot:
                del self._slots[self._keys[slot]]
            self._free.append(slot)

    def gather(self, slots: Array) -> Array:
        """Return copies of the frames in some slots, [count, …]."""
        found = np.empty((len(slots), *self.field.shape), self.field.dtype)
        block, at = np.divmod(slots, self._size)
        for number in np.unique(block).tolist():
            here = block == number
            found[here] = self._blocks[number][at[here]]
        return found

    def _slot_of(self, frame: Array) -> int:
        """Return the slot of a frame with the same bits; store the frame if there is none."""
        content = frame.tobytes()
        key = hash(content)
        slot = self._slots.get(key)
        if slot is not None and self._at(slot).tobytes() == content:
            return slot
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self._at(slot)[...] = frame
        self._keys[slot] = key
        self._slots.setdefault(key, slot)  # of two frames with one key, the second is not shared
        return slot

    def _at(self, slot: int) -> Array:
        block, at = divmod(slot, self._size)
        return self._blocks[block][at]

    def _grow(self) -> None:
        first = len(self._keys)
        self._blocks.append(self._allocate((self._size, *self.field.shape), self.field.dtype))
        self._uses = np.concatenate([self._uses, np.zeros(self._size, np.int64)])
        self._keys += [0] * self._size
        self._free += range(first + self._size - 1, first - 1, -1)


class FrameRows(Rows):
    """Rows with references to frames.

    Args:
        capacity, fields, folder, above: as for `Rows`.
        lead: the number of axes before those of a frame, by field.
        extension: the C extension of the buffer, or None.
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Field],
        lead: Mapping[str, int],
        folder: str | os.PathLike[str] | None,
        above: int,
        extension: Any = None,
    ) -> None:
        stored, frame_of = dict(fields), dict[str, Field]()
        for name, axes in lead.items():
            shape = fields[name].shape
            stored[name] = Field(shape[:axes], np.dtype(np.int32))
            frame_of[name] = Field(shape[axes:], fields[name].dtype)
        kinds = [*dict.fromkeys(frame_of.values())]
        expected = capacity * sum(f.nbytes for f in kinds)  # one new frame per row
        super().__init__(capacity, stored, folder, above, extension, expected)
        self.fields = dict(fields)
        size = max(1, -(-capacity // _BLOCKS))
        self._stores = [FrameStore(f, self._allocate_frames, size) for f in kinds]
        self._store_of = {n: self._stores[kinds.index(f)] for n, f in frame_of.items()}
        for name in lead:
            self._arrays[name][...] = _EMPTY

    @property
    def nbytes(self) -> int:
        """The present size in bytes of frames and of all rows."""
        return super().nbytes + sum(one.nbytes for one in self._stores)

    def _allocate_frames(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return self._allocate(f"frames {len(self._files)}", shape, dtype)

    def insert_plain(
        self, start: int, rows: Mapping[str, Any], priority: float, tree: tuple[Any, ...] | None
    ) -> int:
        return -1  # `write` looks for equal frames

    def write(self, start: int, rows: Mapping[str, Array]) -> None:
        count = len(next(iter(rows.values())))
        at = (start + np.arange(count)) % self.capacity
        stored, old = dict(rows), list[tuple[FrameStore, Array]]()
        for name, store in self._store_of.items():
            shape = self.stored_fields[name].shape
            frames = rows[name].reshape(count * prod(shape), *store.field.shape)
            stored[name] = store.acquire(frames).reshape(count, *shape)
            replaced = self._arrays[name][at].reshape(-1)
            old.append((store, replaced[replaced != _EMPTY]))
        super().write(start, stored)
        for store, slots in old:
            store.release(slots)

    def gather(self, index: Array) -> dict[str, Array]:
        found = super().gather(index)
        for name, store in self._store_of.items():
            frames = store.gather(found[name].reshape(-1))
            found[name] = frames.reshape(len(index), *self.fields[name].shape)
        return found

    def saved(self, count: int) -> dict[str, Array]:
        found = super().saved(count)
        for k, store in enumerate(self._stores):
            names = [f"row {n}" for n, one in self._store_of.items() if one is store]
            flat = np.concatenate([found[n].reshape(-1) for n in names])
            slots, numbers = np.unique(flat, return_inverse=True)
            found[f"frame {k}"] = store.gather(slots)
            ends = np.cumsum([found[n].size for n in names])[:-1]
            for name, part in zip(names, np.split(numbers.reshape(-1), ends), strict=True):
                found[name] = part.reshape(found[name].shape).astype(np.int32)
        return found

    def check_saved(self, arrays: Mapping[str, Array]) -> None:
        for k, store in enumerate(self._stores):
            frames = arrays[f"frame {k}"]
            if frames.shape[1:] != store.field.shape or frames.dtype != store.field.dtype:
                raise ValueError(f"its frames do not have the shape {[*store.field.shape]}")
            for name, one in self._store_of.items():
                numbers = arrays[f"row {name}"]
                is_foreign = (numbers < 0) | (numbers >= len(frames))
                if one is store and is_foreign.any():
                    raise ValueError(f"{name} refers to a missing frame")

    def load(self, arrays: Mapping[str, Array]) -> None:
        self._check_process()
        translated = dict(arrays)
        for k, store in enumerate(self._stores):
            store.clear()
            slots = store.acquire(arrays[f"frame {k}"])
            for name, one in self._store_of.items():
                if one is store:
                    numbers = arrays[f"row {name}"]
                    translated[f"row {name}"] = mine = slots[numbers]
                    store.retain(mine.reshape(-1))
                    self._arrays[name][...] = _EMPTY
            store.release(slots)
        super().load(translated)


def leading_axes(
    frames: Any, fields: Mapping[str, Field], entries: Mapping[str, Field]
) -> dict[str, int]:
    """Return the number of axes before those of a frame, by field.

    Args:
        frames: the user's argument: the number of frames along the first axis, by field.
        fields: the fields of a step.
        entries: the fields of an entry, with axes before those of a step.

    Raises:
        OptionError, ShapeError: a field is unknown, or has another number of frames.
    """
    if not isinstance(frames, Mapping):
        raise OptionError(
            f"frames={frames!r} is not a mapping.", hint='write frames={"obs": 4, "next_obs": 4}.'
        )
    found: dict[str, int] = {}
    for name, given in frames.items():
        if name not in fields:
            raise OptionError(
                f"frames= names {name!r}, which is not a field of the buffer.",
                hint=one_of(str(name), [*fields]),
            )
        shape, count = fields[name].shape, integer(f"frames of {name!r}", given, least=1)
        if count > 1 and shape[:1] != (count,):
            raise ShapeError(
                f"{name!r} has the shape {[*shape]}, so its first axis does not have {count} frames.",
                hint="choose the size of the first axis, or 1 for fields without stacked frames.",
            )
        found[name] = len(entries[name].shape) - len(shape) + (count > 1)
    return found


_BLOCKS: Final = 16  # blocks of frames, if every row adds one frame
_EMPTY: Final = -1  # a reference of an unused row
