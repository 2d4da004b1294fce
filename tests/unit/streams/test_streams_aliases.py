"""Segments of arrays that share memory in various ways."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import timerl_nb as trl
from timerl_nb.base.errors import CallError
from timerl_nb.streams import Segment, segment_of
from timerl_nb.streams.dependence_analysis import FINDERS, finder
from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.memory_segments import HOST, segments_of
from timerl_nb.streams.stream_file import load, save


class Interface:
    def __init__(self, of: np.ndarray) -> None:
        self.of, self.__array_interface__ = of, of.__array_interface__


def pointed_at(x: np.ndarray) -> np.ndarray:
    return np.ctypeslib.as_array(
        ctypes.cast(x.ctypes.data, ctypes.POINTER(ctypes.c_double)), x.shape
    )


VIEWS: dict[str, Callable[[np.ndarray], Any]] = {
    "slice": lambda x: x[2:],
    "as_strided": lambda x: as_strided(x[3:], (4,), (8,)),
    "sliding_window_view": lambda x: sliding_window_view(x[2:], 3),
    "windows of rows": lambda x: sliding_window_view(x.reshape(4, 4)[1:], (2, 2)),
    "from_dlpack": lambda x: np.from_dlpack(x[5:]),
    "memoryview": lambda x: np.asarray(memoryview(x[5:])),
    "frombuffer": lambda x: np.frombuffer(memoryview(x)[4:], np.float64),
    "ctypes": lambda x: pointed_at(x[4:9]),
    "interface": lambda x: np.asarray(Interface(x[6:])),
    "ndarray": lambda x: np.ndarray((3,), np.float64, x[4:], 8),
    "broadcast": lambda x: np.broadcast_to(x[5:6], (2, 3)),
    "reversed": lambda x: x[9:2:-2],
    "diagonal": lambda x: np.diagonal(x.reshape(4, 4), 1),
    "masked": lambda x: np.ma.masked_array(x[1:]),
    "record": lambda x: x.view([("a", "f8"), ("b", "f8")])["b"],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_lie_within_their_array_and_meet_it(name: str) -> None:
    x = np.arange(16.0)
    view, whole = VIEWS[name](x), segment_of(x)
    found = segment_of(view)
    low, high = np.lib.array_utils.byte_bounds(np.asarray(view))
    assert found == Segment(HOST, low, high)
    assert whole.start <= found.start < found.stop <= whole.stop
    for other in VIEWS.values():
        against = other(x)
        assert found.overlaps(segment_of(against)) or not np.shares_memory(view, against)


def test_objects_with_other_owners_share_addresses(tmp_path: Path) -> None:
    numbers = (ctypes.c_double * 8)()
    all_of = segment_of(np.ctypeslib.as_array(numbers))
    part = segment_of(np.ctypeslib.as_array((ctypes.c_double * 2).from_buffer(numbers, 16)))
    assert part == Segment(HOST, all_of.start + 16, all_of.start + 32)
    path = tmp_path / "numbers"
    path.write_bytes(bytes(4096))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as mapped:
        low, high = np.frombuffer(mapped, np.uint8), np.frombuffer(mapped, np.uint8, 96, 4000)
        assert segment_of(low).overlaps(segment_of(high))
        del low, high


def test_lists_mappings_masks_and_jax_arrays_are_memory() -> None:
    a, b = np.zeros(2), np.zeros(3)
    assert segments_of({"a": a, "rest": [(b,), a[:0]]}) == (segment_of(a), segment_of(b))
    masked = np.ma.masked_array(a, mask=[True, False])
    assert segments_of(masked) == (segment_of(a), segment_of(masked.mask))
    x = jnp.arange(4.0)
    assert segments_of(x) == (segment_of(np.asarray(x)),)  # NumPy sees the same memory
    with pytest.raises(CallError, match="a kernel cannot write a JAX array"):
        segments_of([x], written=True)


@trl.kernel(writes=lambda x: x)
def produce(x):
    time.sleep(0.01)
    x[:] = np.arange(len(x))


@trl.kernel(reads=lambda view, out: view, writes=lambda view, out: out)
def total(view, out):
    out[0] = view.sum()


@pytest.mark.parametrize("deps", [name for name in FINDERS if name != "printed"])
def test_a_window_waits_for_who_writes_the_memory_of_a_view(deps: str) -> None:
    for name, make in VIEWS.items():
        if name == "record":
            continue
        x, out = np.zeros(16), np.zeros(1)
        view = make(x)
        with trl.streams.window(deps=deps):
            produce(x)
            total(view, out)
        assert out[0] == make(np.arange(16.0)).sum(), name


def test_ranges_that_connect_groups_wait_for_all_of_them() -> None:
    """Also in finders of whole buffers: readers of one part do not hide the writer of another."""
    parts = [Segment(HOST, 64 * k, 64 * k + 64) for k in range(3)]
    everything = Segment(HOST, 32, 160)
    for name in FINDERS:
        if name == "printed":
            continue
        found = finder(name)
        for slot, part in enumerate(parts):
            assert found.add(slot, Kernel("w", (), (part,))) == 0
        assert found.add(3, Kernel("r", (parts[0],), ())) == 0b1
        assert found.add(4, Kernel("all", (), (everything,))) | 0b1 == 0b1111
        for slot in range(5):
            found.remove(slot)
        assert found.add(0, Kernel("again", (), (parts[1],))) == 0


def test_a_stored_stream_counts_addresses_from_the_buffers_begin(tmp_path: Path) -> None:
    a, b = np.zeros(8), np.zeros(4)
    calls = [produce.kernel(a[:4]), produce.kernel(a[2:6]), total.kernel(a, b), total.kernel(b, a)]
    stream = Stream("views", tuple(calls))
    save(stream, tmp_path / "views.stream.gz")
    found = load(tmp_path / "views.stream.gz")
    assert found.edges == stream.edges
    starts = [(s.start, s.stop) for k in found.kernels[:2] for s in k.writes]
    assert starts == [(0, 32), (16, 48)]
    assert all(s.buffer >= 0 for k in found.kernels for s in (*k.reads, *k.writes))
