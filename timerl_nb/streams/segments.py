"""Which memory a kernel reads or writes: ranges of bytes of buffers (004_5c654ad594bcdc3c, §III-C and §IV-A)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.errors import CallError, ShapeError
from timerl_nb.frontend.arguments import integer


@dataclass(frozen=True, slots=True)
class Segment:
    """The bytes from `start` up to `stop` of a buffer, of which there is at least one.

    Attributes:
        buffer: which: of arrays, the address of its first byte. Only `ANY` has a negative one.
    """

    buffer: int
    start: int
    stop: int

    def __str__(self) -> str:
        return "ANY" if self.buffer < 0 else f"{self.buffer:#x}[{self.start}:{self.stop}]"

    def overlaps(self, other: Segment) -> bool:
        if self.buffer < 0 or other.buffer < 0:
            return True
        return self.buffer == other.buffer and self.start < other.stop and other.start < self.stop


ANY = Segment(-1, 0, 2**63 - 1)  # all memory: what a kernel touches that nobody knows


def segment(of: Any, start: int | None = None, stop: int | None = None) -> Segment:
    """A part of a buffer by hand.

    Args:
        of: a NumPy array or a PyTorch tensor, or a number that stands for a buffer of one's own.
        start, stop: bytes, counted from the first one of `of`; of arrays by default all of them.

    Raises:
        ShapeError: there are no such bytes.
        CallError: `of` is of another kind.
    """
    if isinstance(of, int | np.integer) and not isinstance(of, bool):
        whole = Segment(integer("a buffer", of, least=0), 0, ANY.stop)
        if stop is None:
            raise ShapeError(
                "a buffer that is a number has no length.", hint="segment(buffer, start, stop)."
            )
    else:
        whole = segment_of(of)
    first = integer("start", 0 if start is None else start)
    last = integer("stop", whole.stop - whole.start if stop is None else stop)
    if not 0 <= first < last <= whole.stop - whole.start:
        length = "" if whole.stop == ANY.stop else f", which has {whole.stop - whole.start} bytes"
        raise ShapeError(
            f"bytes {first} up to {last} are outside the buffer{length}.",
            hint="0 <= start < stop, both in bytes; leave out of reads and writes what is empty.",
        )
    return Segment(whole.buffer, whole.start + first, whole.start + last)


def segment_of(view: Any) -> Segment:
    """The range of bytes in which an array or a tensor lies; of one with gaps, with its gaps.

    Arrays over the same memory are of one buffer. Where PyTorch has a part of NumPy's memory, or the other way
    round, both must see it from its first byte, else they are taken for two buffers.

    Raises:
        CallError: it is no NumPy array nor PyTorch tensor.
        ShapeError: it is empty, or its memory has been given back.
    """
    found = _range(view)
    if found.start == found.stop:
        raise ShapeError("an empty array is no memory.", hint="leave it out of reads and writes.")
    return found


def is_memory(value: Any) -> bool:
    """Whether a value is a NumPy array or a PyTorch tensor."""
    return isinstance(value, np.ndarray) or callable(getattr(value, "untyped_storage", None))


def segments_of(views: Any) -> tuple[Segment, ...]:
    """Those of one or several views and segments, but for empty ones."""
    if isinstance(views, Segment) or is_memory(views):
        views = (views,)
    found = [v if isinstance(v, Segment) else _range(v) for v in views]
    return tuple(s for s in found if s.start < s.stop)


def extent(view: Any) -> tuple[int, int]:
    """The buffer of an array or a tensor, and how many bytes that has."""
    if isinstance(view, np.ndarray):
        return _owned(view)
    storage = view.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def _range(view: Any) -> Segment:
    """As `segment_of`, and of nothing a segment without bytes."""
    if not is_memory(view):
        raise CallError(
            f"{type(view).__name__} is no memory that a kernel reads or writes.",
            hint="a NumPy array, a PyTorch tensor, trl.streams.segment(buffer, start, stop) or trl.streams.ANY; "
            "JAX arrays never change: no kernel waits for who reads them.",
        )
    buffer, length = extent(view)
    if isinstance(view, np.ndarray):
        first, last = (at - buffer for at in np.lib.array_utils.byte_bounds(view))
        last = last if view.size else first
    else:
        reach = sum((n - 1) * k for n, k in zip(view.shape, view.stride(), strict=True)) + 1
        first = view.storage_offset() * view.element_size()
        last = first + (reach * view.element_size() if view.numel() else 0)
    if first < 0 or last > length:
        raise ShapeError(
            f"the view is bytes {first} up to {last} of a buffer that has {length}: its memory has been given back.",
            hint="keep buffers until the kernels that name them have run.",
        )
    return Segment(buffer, first, last)


def _owned(view: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The address and the bytes of the memory that a view is of."""
    root: Any = view
    while isinstance(root.base, np.ndarray):
        root = root.base
    if root.base is not None:  # of another object, of which there may be several arrays
        owner: Any = root.base.obj if isinstance(root.base, memoryview) else root.base
        with suppress(TypeError, ValueError, BufferError):  # it does not say where its memory is
            root = np.frombuffer(owner, np.uint8)
    first, last = np.lib.array_utils.byte_bounds(root)
    return first, last - first
