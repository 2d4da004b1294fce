"""A stream as a file: what its kernels are called, read, write and cost; not what runs them.

Gzipped JSON, a row for each kernel. A segment is how many buffers ago its own came (0: now, the first time), its start and
its stop, so that turns of a loop are the same text: thousands of kernels take some tens of kilobytes.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.atomic_files import (
    LONGEST_TEXT,
    parse_json,
    read_regular,
    unpack_gzip,
    user_path,
    write_whole,
)
from timerl_nb.base.errors import CallError, ExecutionError
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.memory_segments import ANY, Segment

FORMAT: Final = 1
_LONGEST: Final = 4 << 30  # bytes of an unpacked stream
_ANY: Final = -1
_COSTS: Final = attrgetter("blocks", "operations", "nbytes", "registers")


def save(stream: Stream, path: str | Path) -> None:
    """Write a stream into a file, `NAME.stream.gz` by custom; the same stream makes the same bytes.

    Raises:
        CallError: it is no stream, or the path is none.
        ExecutionError: it cannot be written.
    """
    expect_type(
        stream, Stream, "a stream", "trl.streams.record(function, …), or trl.streams.load(path)."
    )
    came: dict[int, int] = {}
    names: dict[str, int] = {}

    def flat(segments: Sequence[Segment]) -> list[int]:
        found: list[int] = []
        for s in segments:
            if s.buffer == ANY.buffer:
                found += (_ANY, 0, 0)
                continue
            ago = len(came) - came[s.buffer] if s.buffer in came else 0
            came.setdefault(s.buffer, len(came))
            found += (ago, s.start, s.stop)
        return found

    relative = _relative(stream.kernels)
    rows = [
        [
            names.setdefault(k.name, len(names)),
            flat([relative.get(s, s) for s in k.reads]),
            flat([relative.get(s, s) for s in k.writes]),
            *_COSTS(k),
        ]
        for k in stream.kernels
    ]
    value = {"stream": FORMAT, "name": stream.name, "names": list(names), "kernels": rows}
    text = json.dumps(value, separators=(",", ":"))
    try:
        write_whole(user_path(path), gzip.compress(text.encode(), 9, mtime=0))
    except (OSError, ValueError) as error:  # a zero byte in its name
        raise ExecutionError(
            f"{path} cannot be written: {getattr(error, 'strerror', None) or error}.",
            hint="name a file in a folder that is there and can be written to.",
        ) from None


def _relative(kernels: Sequence[Kernel]) -> dict[Segment, Segment]:
    """Number buffers of addresses: overlapping segments belong to one, and count from its first byte."""
    addresses = {
        s for k in kernels for s in (*k.reads, *k.writes) if s.buffer < 0 and s.buffer != ANY.buffer
    }
    found: dict[Segment, Segment] = {}
    buffer = max((s.buffer for k in kernels for s in (*k.reads, *k.writes)), default=0)
    space, first, end = ANY.buffer, 0, 0
    for s in sorted(addresses):
        if s.buffer != space or s.start >= end:
            buffer, space, first, end = max(buffer, 0) + 1, s.buffer, s.start, s.stop
        end = max(end, s.stop)
        found[s] = Segment(buffer, s.start - first, s.stop - first)
    return found


def load(path: str | Path) -> Stream:
    """A stream out of a file, to be looked at and simulated: `run` has nothing to run.

    Raises:
        ExecutionError: it is no such file, or of a newer format, or cannot be read.
    """
    hint = "name a file that trl.streams.save has written."
    try:
        packed = read_regular(user_path(path), LONGEST_TEXT)
        value = parse_json(unpack_gzip(packed, _LONGEST))
        found = value["stream"]
        if found != FORMAT:
            raise ExecutionError(
                f"{path} is a stream of format {found}; this version reads {FORMAT}.",
                hint="record it again, or read it with the version that wrote it.",
            )
        return _stream(value["name"], value["names"], value["kernels"])
    except (gzip.BadGzipFile, EOFError, ValueError, KeyError, IndexError, zlib.error) as error:
        raise ExecutionError(f"{path} is no stream: {error}.", hint=hint) from error
    except OSError as error:
        said = error.strerror or error
        raise ExecutionError(f"{path} cannot be read: {said}.", hint=hint) from None
    except TypeError as error:
        if isinstance(error, CallError):
            raise
        raise ExecutionError(f"{path} is no stream: {error}.", hint=hint) from error


def _stream(name: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Stream:
    came = 0

    def segments(flat: Sequence[int]) -> tuple[Segment, ...]:
        nonlocal came
        found: list[Segment] = []
        for ago, start, stop in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            if ago == _ANY:
                found.append(ANY)
                continue
            found.append(Segment(came - ago, start, stop))
            came += not ago
        return tuple(found)

    kernels = (
        Kernel(names[int(called)], segments(reads), segments(writes), None, *costs)
        for called, reads, writes, *costs in rows
    )
    return Stream(name, tuple(kernels))
