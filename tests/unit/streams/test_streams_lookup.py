"""Memory lookup of called kernels: the C and the Python implementation, and memory that moves or is reused."""

from __future__ import annotations

import datetime
import gc
import os
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import CallError
from timerl_nb.streams import Segment, memory_segments
from timerl_nb.streams.memory_segments import HOST, segments_of


@pytest.fixture(params=["c", "python"], autouse=True)
def lookup_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the language of the lookup."""
    if request.param == "python":
        monkeypatch.setattr(memory_segments, "native", None)
    elif memory_segments.native is None:
        if os.environ.get("TIMERL_REQUIRE_C"):
            pytest.fail("the memory lookup in C was not built")
        pytest.skip("the memory lookup in C was not built")
    return request.param


def whole(array: Any) -> Segment:
    """Return the segment of a contiguous array by NumPy's interface."""
    first = array.__array_interface__["data"][0]
    return Segment(HOST, first, first + array.nbytes)


def read_only() -> np.ndarray:
    array = np.zeros(3)
    array.flags.writeable = False
    return array


def arrays() -> dict[str, Any]:
    return {
        "vector": np.zeros(5),
        "scalar": np.array(2.0),
        "fortran": np.zeros((3, 4), order="F"),
        "read only": read_only(),
        "dates": np.array([datetime.date(2026, 1, 1)], "datetime64[D]"),
        "objects": np.array([None, "a"], object),
        "bytes": np.zeros(7, np.uint8),
        "big endian": np.zeros(2, ">f4"),
        "structured": np.zeros(2, [("a", "i1"), ("b", "f8")]),
        "long": np.zeros((2, 1, 3, 1, 2), np.complex128),
    }


@pytest.mark.parametrize("name", arrays())
def test_an_array_is_the_range_of_its_bytes(name: str) -> None:
    array = arrays()[name]
    assert segments_of(array) == segments_of([array]) == (whole(array),)
    assert segments_of((array, array), written=True) == (whole(array),) * 2
    assert all(type(one) is Segment for one in segments_of((array,)))


def test_empty_arrays_have_no_segment() -> None:
    empty, x = np.zeros((3, 0)), np.zeros(2)
    assert segments_of(empty) == segments_of([empty, empty]) == segments_of(()) == ()
    assert segments_of([empty, x, empty, x]) == (whole(x), whole(x))
    assert segments_of(np.zeros(0, [])) == segments_of(np.zeros(3, "V0")) == ()


def test_views_and_other_memory_stand_beside_arrays() -> None:
    x, part = np.zeros((4, 4)), trl.streams.segment(7, 0, 8)
    lower = Segment(HOST, whole(x).start + 32, whole(x).start + 64)
    assert segments_of((x, x[1:2], part, [x], {"a": x})) == (
        whole(x),
        lower,
        part,
        whole(x),
        whole(x),
    )
    column = segments_of((x, x[:, 1]))[1]
    assert (column.start, column.stop) == (whole(x).start + 8, whole(x).start + 8 + 3 * 32 + 8)
    masked = np.ma.masked_array(np.zeros(3), [True, False, True])
    assert segments_of((x, masked)) == (whole(x), whole(masked.data), whole(masked.mask))
    assert segments_of(part) == (part,)
    with pytest.raises(CallError, match="str is not memory"):
        segments_of((x, "x"))
    with pytest.raises(CallError, match="int is not memory"):
        segments_of(3)


def test_an_array_that_is_resized_or_moved_is_looked_up_anew() -> None:
    x = np.zeros(4)
    before = segments_of(x)
    x.resize(100_000, refcheck=False)
    assert segments_of(x) == segments_of((x,)) == (whole(x),) != before
    x.resize(3, refcheck=False)  # often at the same address
    assert segments_of(x) == (whole(x),)
    x.__setstate__((1, (6,), np.dtype("f8"), False, bytes(48)))
    assert segments_of(x) == (whole(x),)


def test_a_new_array_at_a_known_address_or_with_a_known_id_has_its_own_segment() -> None:
    seen = set[int]()
    for k in range(300):
        x = np.zeros(1 + k % 5)
        seen.add(id(x))
        assert segments_of((x,)) == (whole(x),)
        del x
    assert len(seen) < 300  # ids have been used again


def test_known_segments_are_limited_and_keep_no_array() -> None:
    memory = np.zeros(2 * memory_segments._MOST_KNOWN, np.uint8)
    for k in range(0, len(memory), 1):
        memory_segments._host_segment(k, k + 1)
    assert len(memory_segments._of_address) <= memory_segments._MOST_KNOWN
    x = np.zeros(2)
    owners = len(gc.get_referrers(x))
    assert segments_of(x) == (whole(x),)
    assert len(gc.get_referrers(x)) == owners


def test_windows_find_the_same_dependences_in_both_languages() -> None:
    @trl.kernel(reads=lambda a, b: (a, b), writes=lambda a, b: b)
    def add(a: Any, b: Any) -> None:
        b += a

    buffers = [np.full(3, float(k)) for k in range(5)]
    views = [*buffers, buffers[0][1:], buffers[1][:2]]
    order = np.random.default_rng(0).integers(0, len(views), (60, 2))
    with trl.streams.window(size=8, streams=2) as w:
        for a, b in order:
            if len(views[a]) == len(views[b]):
                add(views[a], views[b])
    expected = [np.full(3, float(k)) for k in range(5)]
    again = [*expected, expected[0][1:], expected[1][:2]]
    for a, b in order:
        if len(views[a]) == len(views[b]):
            again[b] += again[a]
    assert all((x == y).all() for x, y in zip(buffers, expected, strict=True))
    assert w.report.count > 20


def test_a_kernel_names_the_line_of_each_call() -> None:
    @trl.kernel(reads=lambda a: a)
    def use(a: Any) -> None: ...

    x, made = np.zeros(2), []
    for _ in range(2):
        made.append(use.kernel(x))
        made += [use.kernel(x), use.kernel(x)]
    lines = [int(one.line.rpartition(":")[2]) for one in made]
    first = lines[0]
    assert lines == [first, first + 1, first + 1] * 2
    assert made[0] == made[3] and hash(made[0]) == hash(made[3]) and made[0] != made[1]
    assert made[0].to_json()["registers"] == 32 and made[0].op_ids == () and made[0].nbytes == 0.0
