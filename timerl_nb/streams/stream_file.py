"""File format of kernel streams: names, segments and costs of the kernels, without their code.

A file is gzipped JSON with one row per kernel. A segment is stored as the distance to the first occurrence of
its buffer (0 for a new one), start and stop. Iterations of a loop then have equal text, so thousands of
kernels take tens of kilobytes.
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
from timerl_nb.compiler.language.foreign_names import expect_type, explain_call_errors
from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.memory_segments import ANY, Segment

FORMAT: Final = 1
_LONGEST: Final = 4 << 30  # bytes of an unpacked stream
_ANY: Final = -1
_COSTS: Final = attrgetter("blocks", "operations", "nbytes", "registers")


@explain_call_errors
def save(stream: Stream, path: str | Path) -> None:
    """Write a stream to a file. Equal streams produce equal bytes.

    Args:
        stream: the stream.
        path: the file, by convention `NAME.stream.gz`.

    Raises:
        CallError: `stream` is not a stream, or `path` is not a path.
        ExecutionError: the file cannot be written.

    Example:
        >>> stream = trl.streams.workload("ant")
        >>> trl.streams.save(stream, "ant.stream.gz")
        >>> len(trl.streams.load("ant.stream.gz")) == len(stream)
        True
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
    except (OSError, ValueError) as error:  # a zero byte in the name
        raise ExecutionError(
            f"{path} cannot be written: {getattr(error, 'strerror', None) or error}.",
            hint="choose a file in an existing, writable folder.",
        ) from None


def _relative(kernels: Sequence[Kernel]) -> dict[Segment, Segment]:
    """Map address ranges to numbered buffers. Overlapping segments belong to one buffer, with offsets from its
    first byte.
    """
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


@explain_call_errors
def load(path: str | Path) -> Stream:
    """Read a stream from a file. It can be inspected and simulated, but not run.

    Args:
        path: a file written by `trl.streams.save`.

    Raises:
        ExecutionError: the file is not a stream, has a newer format, or cannot be read.

    Example:
        >>> trl.streams.save(trl.streams.workload("ant"), "ant.stream.gz")
        >>> trl.streams.load("ant.stream.gz").name == trl.streams.workload("ant").name
        True
    """
    hint = "pass a file written by trl.streams.save."
    try:
        packed = read_regular(user_path(path), LONGEST_TEXT)
        value = parse_json(unpack_gzip(packed, _LONGEST))
        found = value["stream"]
        if found != FORMAT:
            raise ExecutionError(
                f"{path} has the stream format {found}, but this version reads format {FORMAT}.",
                hint="record the stream again, or use the version that wrote it.",
            )
        return _stream(value["name"], value["names"], value["kernels"])
    except (gzip.BadGzipFile, EOFError, ValueError, KeyError, IndexError, zlib.error) as error:
        raise ExecutionError(f"{path} is not a stream: {error}.", hint=hint) from error
    except OSError as error:
        said = error.strerror or error
        raise ExecutionError(f"{path} cannot be read: {said}.", hint=hint) from None
    except TypeError as error:
        if isinstance(error, CallError):
            raise
        raise ExecutionError(f"{path} is not a stream: {error}.", hint=hint) from error


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
