"""Reader of the segment files of one thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.atomic_files import LONGEST_TEXT
from timerl_nb.base.errors import ExecutionError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.storage.event_format import (
    EDGE,
    MISSED_OPERATION,
    NAME_BITS,
    NAME_MASK,
    Kind,
    Library,
)
from timerl_nb.scope.storage.json_validation import cause, content_of

HOW: Final = "record again, or restore the original folder."
_WITH_IT: Final = 3
_FILE_ALONE: Final = [kind for kind in Kind if kind >= Kind.BLOCKED]


@dataclass(frozen=True)
class Last:
    """Final record of a thread still running at the end of the recording.

    Attributes:
        edges: number of written events.
        blocked: nanoseconds of a wait at the end.
        missed: counts of unwritten calls and operations, as in `Lane.missed`.
    """

    edges: int
    blocked: int
    missed: Mapping[tuple[int, int, int], int]


def read_edges(
    paths: Mapping[int, Traversable], size_of: Callable[[int], int], last: Last | None
) -> Array:
    """Return the events of a thread's segments in order, up to the last complete one.

    Args:
        paths: files by number of the segment.
        size_of: returns the size in bytes of a segment.
        last: final record; None if the thread or process ended earlier.

    Raises:
        ExecutionError: a file is missing, damaged or truncated.
    """
    parts: list[Array] = []
    short = False
    for k, path in sorted(paths.items()):
        try:
            content = np.frombuffer(content_of(path, max(size_of(k), LONGEST_TEXT)), np.uint8)
        except OSError as error:
            raise ExecutionError(f"{path} cannot be read: {cause(error)}.", hint=HOW) from None
        edges = content[: len(content) // EDGE.itemsize * EDGE.itemsize].view(EDGE)
        empty = np.flatnonzero(edges["ts"] == 0)
        whole = edges[: empty[0]] if len(empty) else edges
        is_last = k == max(paths)
        short = len(content) < size_of(k)
        if k != len(parts) or (not is_last and (short or len(whole) < len(edges))):
            missing = "has no previous segment" if k != len(parts) else "is truncated"
            raise ExecutionError(f"{path} {missing}.", hint=HOW)
        if edges["ts"][len(whole) :].any():
            raise ExecutionError(f"{path} has a gap after event {len(whole)}.", hint=HOW)
        parts.append(whole)
    edges = np.concatenate(parts)
    path = paths[max(paths)]
    ended = np.flatnonzero(edges["kind"] == Kind.ENDED)
    written = 0 if last is None else last.edges
    if len(ended):
        at = int(ended[0])
        # up to three events of a wait and of passed calls are written together with ENDED
        is_cut = at + 1 != len(edges) or (at - int(edges["top"][at])) & 0xFFFFFFFF > _WITH_IT
    else:
        # the process may have been killed right after it created the file
        is_cut = len(edges) < written or (short and bool(len(parts[-1])))
    if is_cut:
        of = f" of {written:,}" if written else ""
        raise ExecutionError(
            f"{path} is truncated after {format_count(len(edges), 'event')}{of}.", hint=HOW
        )
    _check(edges, paths[0])
    return edges


def _check(edges: Array, path: Traversable) -> None:
    kind, library = edges["kind"], edges["top"] >> NAME_BITS
    back = np.flatnonzero(edges["ts"][1:] < edges["ts"][:-1]) + 1
    calls = (kind <= Kind.CALL_EXIT) | (kind == Kind.MISSED)
    unknown = np.flatnonzero(calls & (library >= len(Library)))
    wrong = np.concatenate([np.flatnonzero(kind > max(Kind)), back, unknown])
    if len(wrong):
        at = int(wrong.min())
        why = f": unknown library {library[at]}" if at in unknown else ""
        raise ExecutionError(f"{path} is damaged at event {at} of its thread{why}.", hint=HOW)


def lane_of(lane: Lane, last: Last | None) -> Lane:
    """Convert the file-only events of a timeline.

    Args:
        lane: timeline as written, with the calls from device traces.
        last: final record; None if the thread or process ended earlier.

    Returns:
        A timeline with waits in `blocked` and unwritten calls in `missed`.
    """
    edges = lane.edges
    at = np.flatnonzero(edges["kind"] == Kind.BLOCKED)
    until = edges["ts"][at].astype(np.int64)
    since = until - (edges["top"][at].astype(np.int64) | edges["depth"][at].astype(np.int64) << 32)
    if last is not None and last.blocked:
        since, until = np.append(since, lane.end - last.blocked), np.append(until, lane.end)
    missed = Counter[tuple[int, int, int]](last.missed if last is not None else {})
    for k in np.flatnonzero(edges["kind"] == Kind.MISSED).tolist():
        top, left = int(edges["top"][k]), int(edges["depth"][k])
        if k + 1 < len(edges):  # otherwise the process was killed in between
            missed[top & NAME_MASK, left, top >> NAME_BITS] += int(edges["top"][k + 1])
    hidden = np.isin(edges["kind"], _FILE_ALONE)
    if len(edges) and hidden[0]:  # the timeline must not lose its first event
        edges = edges.copy()
        edges[0] = edges["ts"][0], 0, Kind.MARK, 0
        hidden[0] = False
    if hidden.any():
        before = np.cumsum(hidden)
        lane = replace(lane, traced=lane.traced - before[lane.traced])
        edges = edges[~hidden]
    return replace(lane, edges=edges, missed=missed, blocked=np.array([since, until], np.int64))


def missed_of(
    rows: Sequence[Sequence[int | str]], number: Callable[[str], int]
) -> dict[tuple[int, int, int], int]:
    """Convert counts of calls and operations in disabled blocks to the format of `Lane.missed`.

    Args:
        rows: operation, `ENTERED` or `LIBRARIES * left + entered`, and count.
        number: returns the number of a name.
    """
    found: dict[tuple[int, int, int], int] = {}
    for operation, which, count in rows:
        left, entered = divmod(int(which), _LIBRARIES)
        if int(which) == _LIBRARIES * _LIBRARIES - 1:
            left, entered = MISSED_OPERATION, 0
        found[number(str(operation)), left, entered] = int(count)
    return found


_LIBRARIES: Final = 8  # python_recorder.LIBRARIES; files are read without the recorder
