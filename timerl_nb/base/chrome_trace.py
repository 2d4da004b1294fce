"""Files in Chrome's trace format: JSON for chrome://tracing and Perfetto, with times in microseconds."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.atomic_files import user_path, write_whole
from timerl_nb.base.errors import explain_os_errors

_GZIP: Final = 31  # window size argument of zlib for the gzip format


def event(
    phase: str,
    name: str,
    place: tuple[int, int],
    ts: float = 0.0,
    duration: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return one event of a trace.

    Args:
        phase: "X" for a slice, "C" for a counter, "M" for metadata, "s" and "f" for the ends of a flow.
        name: the label.
        place: process and track numbers.
        ts: start in microseconds.
        duration: in microseconds; None for phases without one.
        more: further fields of the format.
    """
    found = {"ph": phase, "name": name, "pid": place[0], "tid": place[1], "ts": ts}
    return {**found, **({} if duration is None else {"dur": duration}), **more}


def lanes(process: int, name: str, tracks: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the events with the names of a process and its tracks; tracks count from 1."""
    yield event("M", "process_name", (process, 0), args={"name": name})
    for track, said in enumerate(tracks, 1):
        yield event("M", "thread_name", (process, track), args={"name": said})


def write_events(
    path: str | os.PathLike[str],
    events: Iterable[Mapping[str, Any]],
    about: Mapping[str, str] | None = None,
) -> Path:
    """Write a trace file atomically, compressed if its name ends in `.gz`.

    Args:
        path: the file.
        events: events as dictionaries.
        about: metadata of the file.

    Raises:
        ExecutionError: the file cannot be written.
    """
    path, parts = user_path(path), _parts(events, about)
    with explain_os_errors(
        f"the trace {path} cannot be written", hint="choose a folder that exists, with space left."
    ):
        write_whole(path, _compress(parts) if path.suffix.lower() == ".gz" else parts)
    return path


def _parts(events: Iterable[Mapping[str, Any]], about: Mapping[str, str] | None) -> Iterator[bytes]:
    said = f'"otherData": {json.dumps(about)}, ' if about else ""
    yield f'{{"displayTimeUnit": "ms", {said}"traceEvents": ['.encode()
    for k, one in enumerate(events):
        yield f"{',' if k else ''}\n{json.dumps(one)}".encode()
    yield b"\n]}\n"


def _compress(parts: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(wbits=_GZIP)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()
