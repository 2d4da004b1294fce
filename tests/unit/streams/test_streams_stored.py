"""Stored streams: round trips through files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from timerl_nb.base.errors import ExecutionError
from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.memory_segments import ANY, Segment
from timerl_nb.streams.stream_file import load, save


def a_stream() -> Stream:
    return Stream(
        "small",
        (
            Kernel("a", (Segment(900, 0, 8),), (Segment(70, 0, 8), Segment(900, 4, 8)), blocks=3),
            Kernel("b", (Segment(70, 2, 4), Segment(5, 0, 1)), (Segment(5, 0, 1),), operations=2.5),
            Kernel("c", (ANY,), (), nbytes=7.0, registers=64),
            Kernel("a", (), (Segment(70, 0, 8),)),
        ),
    )


def test_a_stream_is_read_as_it_was_written(tmp_path: Path) -> None:
    stream, path = a_stream(), tmp_path / "small.stream.gz"
    save(stream, path)
    found = load(path)
    assert found.name == "small"
    assert found.edges == stream.edges == ((), (0,), (0, 1), (0, 1, 2))
    # buffers are renumbered in order of appearance; all else is equal
    numbers = {900: 0, 70: 1, 5: 2, -1: -1}
    for a, b in zip(stream.kernels, found.kernels, strict=True):
        assert [(numbers[s.buffer], s.start, s.stop) for s in (*a.reads, *a.writes)] == [
            (s.buffer, s.start, s.stop) for s in (*b.reads, *b.writes)
        ]
        assert (a.name, a.blocks, a.operations, a.nbytes, a.registers) == (
            b.name,
            b.blocks,
            b.operations,
            b.nbytes,
            b.registers,
        )
    again = tmp_path / "again.stream.gz"
    save(found, again)
    assert again.read_bytes() == path.read_bytes()


def test_turns_of_a_loop_take_little(tmp_path: Path) -> None:
    kernels = [
        Kernel(f"k{k % 50}", (Segment(k, 0, 64),), (Segment(k + 1, 0, 64),)) for k in range(10_000)
    ]
    path = tmp_path / "loop.stream.gz"
    save(Stream("loop", tuple(kernels)), path)
    assert path.stat().st_size < 10_000
    assert load(path).edges[9_999] == (9_998,)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"text", "is not a stream"),
        (gzip.compress(b"{}"), "is not a stream"),
        (gzip.compress(b"[1]"), "is not a stream"),
        (gzip.compress(b'{"stream":9}'), "format 9"),
        (gzip.compress(b'{"stream":1,"name":"a","names":[],"kernels":[[0]]}'), "is not a stream"),
    ],
    ids=["text", "an object", "a list", "another format", "kernels of nothing"],
)
def test_what_is_no_stream_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "wrong.stream.gz"
    path.write_bytes(content)
    with pytest.raises(ExecutionError, match=message):
        load(path)
