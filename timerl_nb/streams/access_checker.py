"""Check of the accesses of a kernel against its declaration."""

from __future__ import annotations

import ctypes
import reprlib
from math import prod
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import CallError, ExecutionError, Origin, ShapeError
from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.memory_segments import ANY, HOST, Segment, segments_of
from timerl_nb.streams.reachable_arrays import ReachableMemory, reachable


class CheckError(ExecutionError):
    """A kernel accesses memory outside its declaration."""


def run_checked(kernel: Kernel) -> None:
    """Run a kernel, and check its accesses by comparing the reachable memory before and after.

    The cost is linear in the size of this memory. `docs/explanation/concurrent-kernels.md` lists the undetected accesses.

    Raises:
        CheckError: the kernel has an argument or names a variable outside `reads` and `writes`; it changes
            bytes outside `writes`; or it replaces or moves an array.
    """
    assert kernel.run is not None
    before = reachable(kernel)
    snapshots: dict[object, _Snapshot] = {}
    for found in before:
        ranges = _ranges(found.value)
        declared = (*kernel.reads, *kernel.writes)
        if found.is_used and ranges and not any(a.overlaps(b) for a in ranges for b in declared):
            what = "the captured variable" if found.is_captured else "its argument"
            raise CheckError(
                f"the kernel {kernel.name!r} does not declare {what} {found.name!r}.",
                origin=Origin(kernel.line),
                hint=f"add {found.name} to its reads or writes, or do not pass it.",
            )
        for one in ranges:
            if not any(_covers(s, one) for s in kernel.writes):
                snapshot = _Snapshot(found, one)
                snapshots.setdefault(snapshot.key, snapshot)
    for snapshot in snapshots.values():
        snapshot.take()
    places = {found.name: _place(found.value) for found in before if found.name}
    kernel.run()
    for found in reachable(kernel):
        if found.name in places and places[found.name] != _place(found.value):
            raise CheckError(
                f"the kernel {kernel.name!r} has replaced or moved the array {found.name!r}.",
                origin=Origin(kernel.line),
                hint=f"write into the array, as in {found.name}[...] = value: other kernels still use the old one.",
            )
    for snapshot in snapshots.values():
        snapshot.compare(kernel)


def _covers(declared: Segment, one: Segment) -> bool:
    if declared.buffer == ANY.buffer:
        return True
    same = declared.buffer == one.buffer
    return same and declared.start <= one.start and one.stop <= declared.stop


def _array(value: Any) -> Any:
    """Return tensors unchanged, and other memory as a plain NumPy array."""
    if hasattr(value, "untyped_storage"):
        return value
    if isinstance(value, np.ndarray):
        return np.asarray(value)  # the data of a masked array
    return np.frombuffer(memoryview(value).cast("B"), np.uint8)


def _ranges(value: Any) -> tuple[Segment, ...]:
    """Return the address ranges in main memory. JAX arrays are immutable and have none."""
    if hasattr(value, "addressable_shards"):
        return ()
    try:
        return tuple(s for s in segments_of(_array(value)) if s.buffer == HOST)
    except (CallError, TypeError, ValueError):  # sparse, strided or closed memory
        return ()


def _place(value: Any) -> object:
    """Return a value that changes if the name is bound to other memory."""
    if hasattr(value, "addressable_shards"):
        return id(value)
    try:
        return _ranges(value)
    except ShapeError:  # a view of moved memory
        return None


class _Snapshot:
    """Copy of an array's bytes. Overlapping elements, such as those of a sliding window, are copied once,
    including the gaps between them.

    Attributes:
        key: equal for arrays with the same elements.
    """

    def __init__(self, found: ReachableMemory, within: Segment) -> None:
        self._found, self._range = found, within
        array = _array(found.value)
        if isinstance(array, np.ndarray):
            size, strides = array.itemsize, array.strides
            self._first = array.__array_interface__["data"][0]
        else:
            size = array.element_size()
            strides = tuple(k * size for k in array.stride())
            self._first = array.data_ptr()
        # one element of each dimension with stride 0
        shape = tuple(n if k else 1 for n, k in zip(array.shape, strides, strict=True))
        self._is_by_element = prod(shape) * size <= within.stop - within.start
        if self._is_by_element:
            self._shape, self._strides = (*shape, size), (*strides, 1)
        else:
            self._first, self._shape = within.start, (within.stop - within.start,)
            self._strides = (1,)
        self.key = self._first, self._shape, self._strides

    def _live(self) -> Array:
        """Return the current bytes; the last dimension indexes the bytes of an element."""
        lo, hi = self._range.start, self._range.stop
        memory: Any = (ctypes.c_uint8 * (hi - lo)).from_address(lo)
        return np.ndarray(self._shape, np.uint8, memory, self._first - lo, self._strides)

    def take(self) -> None:
        value = self._found.value
        has_objects = isinstance(value, np.ndarray) and value.dtype.hasobject
        self._objects = np.array(value) if has_objects else None  # the copy keeps the objects alive
        self._before = self._live().copy()

    def compare(self, kernel: Kernel) -> None:
        """Compare the bytes with the copy.

        Raises:
            CheckError: bytes outside the kernel's `writes` have changed.
        """
        at = np.argwhere(self._live() != self._before)
        places = at @ np.array(self._strides) + self._first
        is_declared = np.zeros(len(places), bool)
        for s in kernel.writes:
            if s.buffer == HOST:
                is_declared |= (places >= s.start) & (places < s.stop)
        if is_declared.all():
            return
        first = at[int(np.argmin(is_declared))]
        name, is_captured = self._found.name, self._found.is_captured
        what = "the captured variable" if is_captured else "its argument"
        of = f"{what} {name!r}" if name else "an array that its reads declare"
        raise CheckError(
            f"the kernel {kernel.name!r} has changed {of}, which is not in its writes.",
            origin=Origin(kernel.line),
            evidence=f"{self._describe_change(tuple(int(k) for k in first))}.",
            hint=f"add {name or 'it'} to its writes.",
        )

    def _describe_change(self, at: tuple[int, ...]) -> str:
        """Describe the change of a byte in terms of its element."""
        name, value = self._found.name or "the array", self._found.value
        if not self._is_by_element:
            return f"byte {at[0]} of {name} has changed"
        index = at[:-1]
        place = f"{name}[{', '.join(map(str, index))}]" if index else name
        if not isinstance(value, np.ndarray):
            return f"{place} has changed"
        if self._objects is not None:
            old = self._objects[index]
        else:
            old = np.frombuffer(self._before[index].tobytes(), value.dtype)[0].item()
        new = np.asarray(value)[index]
        return f"{place} was {_repr(old)} and is {_repr(new)}"


def _repr(value: Any) -> str:
    return reprlib.repr(value.item() if isinstance(value, np.generic) else value)
