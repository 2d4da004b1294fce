"""Memory segments that kernels read and write: address ranges in one address space per device. Source: ACS
§III-C, §IV-A.
"""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import addressof, c_char
from typing import Any, Final, NamedTuple

import numpy as np

from timerl_nb.base.c_extensions import load_extension
from timerl_nb.base.errors import CallError, ShapeError
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import explain_call_errors


class Segment(NamedTuple):
    """Range of bytes in an address space: `start` inclusive, `stop` exclusive.

    Attributes:
        buffer: the address space. Negative numbers are memories of devices, in which `start` and `stop` are
            addresses; -2 is main memory. Numbers from 0 on are buffers numbered by the user or by a
            recording, in which offsets count from the buffer's first byte. `ANY` has a separate number.
        start: the first byte.
        stop: the byte after the last one.

    Example:
        >>> first, second = trl.streams.segment(0, 0, 8), trl.streams.segment(0, 4, 12)
        >>> first.overlaps(second)
        True
    """

    buffer: int
    start: int
    stop: int

    def __str__(self) -> str:
        if self.buffer == ANY.buffer:
            return "ANY"
        if self.buffer >= 0:
            return f"{self.buffer:#x}[{self.start}:{self.stop}]"
        name = next(name for name, space in _SPACES.items() if space == self.buffer)
        return f"{name}[{self.start:#x}:{self.stop:#x}]"

    def overlaps(self, other: Segment) -> bool:
        if ANY.buffer in (self.buffer, other.buffer):
            return True
        return self.buffer == other.buffer and self.start < other.stop and other.start < self.stop


ANY: Final = Segment(-1, 0, 2**63 - 1)  # all memory, for kernels with unknown accesses
HOST: Final = -2
_Array: Final = np.ndarray
_at_buffer: Final = c_char.from_buffer
# Segments in main memory by their first address, for reuse: fewer objects for the garbage collector.
_of_address: Final[dict[int, Segment]] = {}
_MOST_KNOWN: Final = 4_096
# the C extension, or None without a C compiler
native: Any = load_extension("timerl_nb.streams._segments", "memory lookup")
_SPACES: Final = {"cpu": HOST}  # by device; other devices get the next lower numbers


@explain_call_errors
def segment(of: Any, start: int | None = None, stop: int | None = None) -> Segment:
    """Return a part of a buffer, by its first byte and the byte after its last one.

    Args:
        of: an array (NumPy, PyTorch or JAX), or a number that the caller has assigned to a buffer.
        start, stop: offsets in bytes from the start of `of`. By default all bytes of the array.

    Returns:
        The segment, to be returned by a kernel's `reads` or `writes`.

    Raises:
        ShapeError: the range is empty or outside the buffer.
        CallError: `of` is neither an array nor a number.

    Example:
        >>> x = np.zeros(10)
        >>> part = trl.streams.segment(x, 0, 16)
        >>> part.stop - part.start
        16
    """
    if isinstance(of, int | np.integer) and not isinstance(of, bool):
        whole = Segment(integer("a buffer", of, least=0), 0, ANY.stop)
        if stop is None:
            raise ShapeError(
                "a buffer given by a number has no length.",
                hint="pass both offsets: segment(buffer, start, stop).",
            )
    else:
        whole = segment_of(of)
    first = integer("start", 0 if start is None else start)
    last = integer("stop", whole.stop - whole.start if stop is None else stop)
    if not 0 <= first < last <= whole.stop - whole.start:
        length = "" if whole.stop == ANY.stop else f" of {whole.stop - whole.start} bytes"
        raise ShapeError(
            f"the bytes {first} to {last} are not a range in the buffer{length}.",
            hint="choose 0 <= start < stop, both in bytes. Omit empty parts from reads and writes.",
        )
    return Segment(whole.buffer, whole.start + first, whole.start + last)


@explain_call_errors
def segment_of(view: Any) -> Segment:
    """Return the address range of an array. For a strided view it includes the gaps.

    Arrays over the same addresses share memory, however they were created: by slicing, `as_strided`,
    `from_dlpack`, `memoryview`, `ctypes` or `torch.from_numpy`. Two mappings of the same file have two
    different ranges, and so have a masked array and its mask.

    Args:
        view: an array of NumPy, PyTorch or JAX.

    Raises:
        CallError: the argument is not an array.
        ShapeError: the array is empty, or its memory has been freed.

    Example:
        >>> x = np.zeros((4, 4))
        >>> trl.streams.segment_of(x).overlaps(trl.streams.segment_of(x[1:]))
        True
    """
    found = next(_ranges(view))
    if found.start == found.stop:
        raise ShapeError(
            "an empty array occupies no memory.", hint="omit it from reads and writes."
        )
    return found


def is_memory(value: Any) -> bool:
    """Return whether a value is an array of NumPy, PyTorch or JAX."""
    return isinstance(value, np.ndarray) or _is_tensor(value) or _is_jax(value)


def segments_of(
    views: Any, written: bool = False, known: dict[int, Segment] | None = None
) -> tuple[Segment, ...]:
    """Return the non-empty segments of arrays, segments, and lists, tuples and mappings of them.

    Args:
        known: segments of plain NumPy arrays by id. Calls for the same living arrays may share it.

    Raises:
        CallError: a value is not memory, or it is `written` but immutable.
    """
    if native is not None:
        of_arrays = native.array_segments(views, _Array, _of_address, _host_segment)
        if of_arrays is not None:
            return of_arrays
    found: list[Segment] = []
    known = {} if known is None else known
    kind = type(views)
    if kind is _Array or kind is Segment:
        views = (views,)
    elif kind is not tuple and kind is not list:
        _add_segments(found, views, written, known)
        return tuple(found)
    # plain arrays without a function call: a window looks up the memory of every call
    for view in views:
        if type(view) is _Array:
            name = id(view)
            one = known.get(name)
            if one is None:
                one = _of_array(view)
                if one.start == one.stop:
                    continue
                known[name] = one
            found.append(one)
        else:
            _add_segments(found, view, written, known)
    return tuple(found)


def _add_segments(
    found: list[Segment], views: Any, written: bool, known: dict[int, Segment]
) -> None:
    kind = type(views)
    if kind is _Array:
        found.extend(segments_of(views, written, known))
    elif kind is Segment:
        if views.start < views.stop:
            found.append(views)
    elif isinstance(views, list | tuple):
        for part in views:
            _add_segments(found, part, written, known)
    elif isinstance(views, dict):
        for part in views.values():
            _add_segments(found, part, written, known)
    elif written and _is_jax(views):
        raise CallError(
            "a kernel cannot write a JAX array: it is immutable.",
            hint="write a NumPy array or a PyTorch tensor.",
        )
    else:
        found.extend(one for one in _ranges(views) if one.start < one.stop)


def _ranges(view: Any) -> Iterator[Segment]:
    """Yield the ranges of an array, including empty ones. A masked array yields its data, then its mask."""
    if isinstance(view, np.ndarray):
        yield _of_array(view)
        if isinstance(view, np.ma.MaskedArray) and view.mask is not np.ma.nomask:
            yield _of_array(np.asarray(view.mask))
    elif _is_tensor(view):
        yield _of_tensor(view)
    elif _is_jax(view):
        for shard in view.addressable_shards:
            first, device = shard.data.unsafe_buffer_pointer(), shard.device
            name = "cpu" if device.platform == "cpu" else f"cuda:{device.local_hardware_id}"
            yield Segment(_space(name), first, first + shard.data.nbytes)
    else:
        raise CallError(
            f"{type(view).__name__} is not memory for a kernel's reads or writes.",
            hint="return an array of NumPy, PyTorch or JAX, a list or mapping of arrays, "
            "trl.streams.segment(buffer, start, stop) or trl.streams.ANY.",
        )


def _is_tensor(value: Any) -> bool:
    return callable(getattr(value, "untyped_storage", None))


def _is_jax(value: Any) -> bool:
    return hasattr(value, "addressable_shards") and hasattr(value, "unsafe_buffer_pointer")


def _space(device: str) -> int:
    """Return the number of a device's address space."""
    return _SPACES.setdefault(device, HOST - len(_SPACES))


def _of_array(view: Any) -> Segment:
    root = view.base
    if root is None and view.flags.carray and (count := view.nbytes):
        try:  # a quarter of the time of the interface that `_bounds` reads
            first = addressof(_at_buffer(view))
        except ValueError:  # a date, which buffers cannot contain
            pass
        else:
            return _host_segment(first, first + count)
    first, last = _bounds(view)
    while isinstance(root, np.ndarray) and isinstance(root.base, np.ndarray):
        root = root.base
    owns_memory = isinstance(root, np.ndarray) and root.base is None
    if owns_memory and first < last:
        start, stop = _bounds(root)
        _check_owned(first - start, last - start, stop - start)
    return Segment(HOST, first, last)


def _host_segment(first: int, stop: int) -> Segment:
    """Return the segment of addresses in main memory."""
    known = _of_address.get(first)
    if known is None or known.stop != stop:
        if len(_of_address) >= _MOST_KNOWN:
            _of_address.clear()
        known = _of_address[first] = Segment(HOST, first, stop)
    return known


def _bounds(view: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return the lowest address of an array's elements, and the address after the highest."""
    first = last = view.__array_interface__["data"][0]
    if view.flags.forc:
        return first, first + view.nbytes
    if not view.size:
        return first, first
    for length, stride in zip(view.shape, view.strides, strict=True):
        reach = (length - 1) * stride
        if reach > 0:
            last += reach
        else:
            first += reach
    return first, last + view.itemsize


def _of_tensor(view: Any) -> Segment:
    try:
        storage = view.untyped_storage()
        start, length = storage.data_ptr(), storage.nbytes()
    except (NotImplementedError, RuntimeError) as error:
        raise CallError(
            f"a tensor of layout {view.layout} is not one range of memory: {error}",
            hint="return its parts instead, such as tensor.values() and tensor.indices().",
        ) from None
    size, device = view.element_size(), view.device
    if device.type == "meta":
        raise CallError("a tensor on device 'meta' has no memory.", hint="use another device.")
    first = last = view.storage_offset() * size
    if view.numel():
        reach = sum((n - 1) * k for n, k in zip(view.shape, view.stride(), strict=True)) + 1
        last = first + reach * size
        _check_owned(first, last, length)
    space = HOST if device.type == "cpu" else _space(str(device))
    return Segment(space, start + first, start + last)


def _check_owned(first: int, last: int, length: int) -> None:
    if first < 0 or last > length:
        raise ShapeError(
            f"the view covers the bytes {first} to {last} of a buffer of {length} bytes: its memory has been freed.",
            hint="keep buffers alive until their kernels have run.",
        )
