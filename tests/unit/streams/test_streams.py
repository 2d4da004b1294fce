"""Kernel streams: declared memory and dependences."""

from __future__ import annotations

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import CallError, OptionError, ShapeError
from timerl_nb.streams import ANY, Kernel, Segment, Stream, segment, segment_of
from timerl_nb.streams.dependence_analysis import FINDERS, KEPT, finder
from timerl_nb.streams.memory_segments import HOST
from timerl_nb.streams.scheduling_window import SchedulingWindow


def kernel(reads: str, writes: str) -> Kernel:
    """Return a kernel from letters: buffers of ten bytes; `*` is all memory."""

    def named(letters: str) -> tuple[Segment, ...]:
        return tuple(ANY if c == "*" else Segment(ord(c), 0, 10) for c in letters)

    return Kernel(f"{reads}->{writes}", named(reads), named(writes))


def test_views_of_one_array_are_of_one_buffer() -> None:
    a = np.zeros((4, 6), np.float32)
    whole = segment_of(a)
    assert whole.stop - whole.start == 96 and whole.buffer == HOST
    assert segment_of(a[1]) == segment(a, 24, 48)
    assert segment_of(a.T[2:4, ::-1][::1]) == segment(a, 8, 88)  # with its gaps
    assert segment_of(a.reshape(-1)[::-2]) == segment(a, 4, 96)
    assert not segment_of(a).overlaps(segment_of(a.copy()))


def test_arrays_of_one_memory_are_of_one_buffer() -> None:
    memory = bytearray(64)
    low, high = np.frombuffer(memory, np.uint8, 32), np.frombuffer(memory, np.uint8, 32, 32)
    start = segment_of(low).start
    assert segment_of(high) == Segment(HOST, start + 32, start + 64)
    part = np.frombuffer(memoryview(memory)[16:], np.uint8)
    assert segment_of(part) == Segment(HOST, start + 16, start + 64)


def test_segments_by_hand() -> None:
    a = np.zeros(10, np.float64)
    assert segment(a, 8, 16) == segment_of(a[1:2])
    assert segment(a[5:], 8) == segment_of(a[6:])
    assert segment(7, 0, 4) == Segment(7, 0, 4)
    with pytest.raises(
        ShapeError, match="the bytes 8 to 88 are not a range in the buffer of 80 bytes"
    ):
        segment(a, 8, 88)
    with pytest.raises(ShapeError, match="the bytes 3 to 3 are not a range"):
        segment(7, 3, 3)
    with pytest.raises(ShapeError, match="has no length"):
        segment(7)
    with pytest.raises(ShapeError, match="an empty array occupies no memory"):
        segment_of(a[3:3])
    with pytest.raises(CallError, match="list is not memory for a kernel's reads"):
        segment_of([1.0])
    for given in ("a", ["a", "b"]):
        with pytest.raises(CallError, match="(?s)contains a name.*writes=lambda"):
            trl.kernel(reads=a, writes=given)
    with pytest.raises(CallError, match="3 is not a stream"):
        trl.streams.compare(3)  # type: ignore[arg-type]
    part = a[4:]
    a.resize(2, refcheck=False)
    with pytest.raises(ShapeError, match="buffer of 16 bytes: its memory has been freed") as raised:
        segment_of(part)
    assert "keep buffers alive until their kernels have run" in str(raised.value)


def test_a_call_names_what_its_arguments_are() -> None:
    @trl.kernel(reads=lambda a, b, out: [a, b[:0]], writes=lambda a, b, out: out, blocks=3)
    def total(a, b, out):
        np.add(a, b.sum(), out=out)

    a, out = np.ones(3), np.zeros(3)
    made = total.kernel(a, a, out=out)
    assert (made.reads, made.writes) == ((segment_of(a),), (segment_of(out),))
    assert made.blocks == 3 and made.line.startswith("test_streams.py:") and not out.any()
    assert made.run is not None
    made.run()
    assert (out == 4).all()
    total(a, a, out=a)  # outside a window it runs immediately
    assert (a == 4).all()


@pytest.mark.parametrize("name", [n for n in FINDERS if n != "printed"])
def test_finders_keep_the_three_orders_and_barriers(name: str) -> None:
    made = ["a->b", "b->c", "->b", "d->e", "*->f", "->g", "g->*", "a->h"]
    found = finder(name)
    masks = [found.add(k, kernel(*one.split("->"))) for k, one in enumerate(made)]
    assert masks[0] == 0 and masks[3] == 0
    assert masks[1] == 0b1  # RAW
    assert masks[2] & 0b10  # WAR
    assert masks[4] == 0b1111  # reads all memory
    assert masks[5] == 0b10000  # may have read this
    assert masks[6] == 0b111111
    assert masks[7] & 0b1000000


def test_a_buffer_is_one_until_it_is_cut() -> None:
    """Afterwards its parts are independent; kernels on the whole buffer precede all of them."""
    found = finder("auto")
    made = [kernel("", "a"), kernel("a", "b"), kernel("", "b")]
    for half in (0, 5), (5, 10), (0, 5):
        made.append(Kernel("half", (), (Segment(ord("a"), *half),)))
    masks = [found.add(k, one) for k, one in enumerate(made)]
    assert masks[:3] == [finder("buffers").add(0, made[0]), 0b1, 0b10]
    assert masks[3] & 0b10 and masks[4] & 0b10 and not masks[4] & 0b1000
    assert masks[5] & 0b1000 and not masks[5] & 0b10000
    for k in (0, 1, 3, 4, 5):
        found.remove(k)
    assert found.add(0, kernel("a", "")) == 0 and found.add(1, kernel("b", "")) == 0b100


def test_the_printed_algorithm_lets_a_kernel_read_too_early() -> None:
    wrong, right = finder("printed"), finder("pairwise")
    for found in (wrong, right):
        found.add(0, kernel("", "a"))
    assert (wrong.add(1, kernel("a", "b")), right.add(1, kernel("a", "b"))) == (0, 1)
    with pytest.raises(OptionError, match="the dependence analysis 'pairs' is unknown") as raised:
        finder("pairs")
    assert "did you mean 'pairwise'?" in str(raised.value)


def test_a_window_holds_pending_ready_and_executing_kernels() -> None:
    window = SchedulingWindow(3, finder("auto"))
    first, second, third = (window.insert(kernel(*k.split("->"))) for k in ("->a", "a->b", "->c"))
    assert [window.state(s) for s in (first, second, third)] == ["ready", "pending", "ready"]
    assert window.is_full and window.take() == first
    assert window.state(first) == "executing"
    window.complete(first)
    assert list(window.ready) == [third, second] and window.count == 2
    assert not window.is_full and window.state(first) == "free"


def test_a_stream_knows_its_width() -> None:
    stream = Stream("fork", tuple(kernel(*k.split("->")) for k in ("->a", "a->b", "a->c", "bc->d")))
    assert stream.edges == ((), (0,), (0,), (1, 2))
    assert stream.width == 4 / 3
    assert str(stream).startswith("fork: 4 kernels, longest chain 3, width 1.33")
    assert stream.to_json()["kernels"][3]["upstream"] == (1, 2)
    assert "1 -> 3" in stream.to_dot()
    assert Stream("none", ()).width == 0
    with pytest.raises(OptionError, match="no strategy 'twice' for run"):
        stream.run("twice")


@pytest.mark.parametrize("name", ["buffers", "ranges", "auto"])
def test_finders_forget_buffers_of_which_no_kernel_knows(name: str) -> None:
    found = finder(name)
    for k in range(6_000):
        halves = tuple(Segment(k, *half) for half in ((0, 8), (4, 12)))
        assert found.add(0, Kernel("k", halves[:1], halves[1:])) == 0
        found.remove(0)
        assert len(vars(found)["_groups"]) <= KEPT + 1
