"""Whether kernels change what they say, and say something of all that they are given."""

from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.errors import ExecutionError, Origin
from timerl_nb.streams.kernels import Kernel
from timerl_nb.streams.segments import Segment, extent, is_memory, segment_of


class CheckError(ExecutionError):
    """A kernel that does not do what it says."""


class Check:
    """Runs kernels one by one, and compares all memory that any of them named or was given before and after."""

    def __init__(self) -> None:
        self._known: dict[
            int, tuple[Array, Any]
        ] = {}  # by buffer: its bytes, and what keeps it alive

    def run(self, kernel: Kernel) -> None:
        """
        Raises:
            CheckError: an argument is in neither `reads` nor `writes`; or bytes have changed that are not in `writes`.
        """
        given = dict(_arguments(kernel))
        for name, view in given.items():
            self._know(view)
            if not any(segment_of(view).overlaps(s) for s in (*kernel.reads, *kernel.writes)):
                raise CheckError(
                    f"the kernel {kernel.name!r} says nothing of its argument {name!r}.",
                    origin=Origin(kernel.line),
                    hint=f"let its reads or writes return {name}, or else do not pass it.",
                )
        for view in _views(kernel.keep):
            self._know(view)
        before = {buffer: held.copy() for buffer, (held, _) in self._known.items()}
        assert kernel.run is not None
        kernel.run()
        for buffer, (held, _) in self._known.items():
            changed = np.flatnonzero(held != before[buffer])
            for s in kernel.writes:
                if s.buffer in (buffer, -1):
                    changed = changed[(changed < s.start) | (changed >= s.stop)]
            if changed.size:
                spot = Segment(buffer, int(changed[0]), int(changed[-1]) + 1)
                named = [name for name, view in given.items() if segment_of(view).overlaps(spot)]
                of = f"its argument {named[0]!r}" if named else "a buffer that it was not given"
                if named and isinstance(view := given[named[0]], np.ndarray):
                    seen = _element(named[0], view, before[buffer], changed)
                else:
                    seen = f"bytes {spot.start} to {spot.stop} of a buffer of {held.size} are others now"
                raise CheckError(
                    f"the kernel {kernel.name!r} has changed {of}, which its writes do not say.",
                    origin=Origin(kernel.line),
                    evidence=f"{seen}.",
                    hint=f"let writes return {named[0] if named else 'it'} too.",
                )

    def _know(self, view: Any) -> None:
        buffer, length = extent(view)
        if buffer not in self._known and length:
            memory = (ctypes.c_uint8 * length).from_address(buffer)
            self._known[buffer] = np.ctypeslib.as_array(memory), view


def _element(name: str, view: Array, before: Array, changed: Array) -> str:
    """The first element of an array that has a changed byte, what it was, and what it is."""
    buffer, length = extent(view)
    marks = np.zeros(length, np.uint8)
    marks[changed] = 1
    first, bytes_of = view.ctypes.data - buffer, (*view.shape, view.itemsize)
    touched = np.ndarray(bytes_of, np.uint8, marks, first, (*view.strides, 1)).any(axis=-1)
    old = np.ndarray(view.shape, view.dtype, before, first, view.strides)
    at = tuple(int(k) for k in np.argwhere(touched)[0])
    place = f"{name}[{', '.join(map(str, at))}]" if at else name
    return f"{place} was {old[at].item()!r} and is {view[at].item()!r}"


def _arguments(kernel: Kernel) -> Iterator[tuple[str, Any]]:
    """What memory a kernel is given, by the names of its function's arguments."""
    call = kernel.run
    if isinstance(call, functools.partial):
        bound = inspect.signature(call.func).bind(*call.args, **call.keywords)
        for name, value in bound.arguments.items():
            views = list(_views(value))
            yield from (
                (name if len(views) == 1 else f"{name}[{k}]", v) for k, v in enumerate(views)
            )


def _views(value: Any) -> Iterator[Any]:
    """The arrays in main memory that a value is, or holds; not the empty ones."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _views(one)
    elif is_memory(value):
        device = getattr(getattr(value, "device", None), "type", "cpu")
        if device == "cpu" and value.nbytes:
            yield value
