"""Reading the files of one thread: its edges as they were written, and its lane."""

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

HOW: Final = "record anew, or read the folder as it was recorded."
_WITH_IT: Final = 3
_FILE_ALONE: Final = [kind for kind in Kind if kind >= Kind.BLOCKED]


@dataclass(frozen=True)
class Last:
    """The end of a lane, if its thread went on as the recording ended.

    Attributes:
        edges: how many were written.
        blocked: nanoseconds for which the thread was blocked at the end.
        missed: counts of unwritten calls and operations, as in `Lane.missed`.
    """

    edges: int
    blocked: int
    missed: Mapping[tuple[int, int, int], int]


def read_edges(
    paths: Mapping[int, Traversable], size_of: Callable[[int], int], last: Last | None
) -> Array:
    """The edges of a thread's segments in order, up to the last whole one.

    Args:
        paths: by the number of the segment.
        size_of: bytes of a segment, by its number.

    Raises:
        ExecutionError: a file is missing, damaged or cut short.
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
            missing = "lacks one before it" if k != len(parts) else "is not the last, and not whole"
            raise ExecutionError(f"{path} {missing}.", hint=HOW)
        if edges["ts"][len(whole) :].any():
            raise ExecutionError(f"{path} has a gap behind edge {len(whole)}.", hint=HOW)
        parts.append(whole)
    edges = np.concatenate(parts)
    path = paths[max(paths)]
    ended = np.flatnonzero(edges["kind"] == Kind.ENDED)
    written = 0 if last is None else last.edges
    if len(ended):
        at = int(ended[0])
        # edges of a wait and of passed calls are written with it
        is_cut = at + 1 != len(edges) or (at - int(edges["top"][at])) & 0xFFFFFFFF > _WITH_IT
    else:
        # a file is empty if its process was killed as it was made
        is_cut = len(edges) < written or (short and bool(len(parts[-1])))
    if is_cut:
        of = f" of {written:,}" if written else ""
        raise ExecutionError(
            f"{path} is cut short behind {format_count(len(edges), 'edge')}{of}.", hint=HOW
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
        why = f": there is no library {library[at]}" if at in unknown else ""
        raise ExecutionError(f"{path} is damaged at edge {at} of its thread{why}.", hint=HOW)


def lane_of(lane: Lane, last: Last | None) -> Lane:
    """A lane without the edges that only files have.

    Args:
        lane: as written, and with the calls that a tracer saw; up to its known end.
        last: of a thread that went on as the recording ended.
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
        if k + 1 < len(edges):  # else the process was killed in between
            missed[top & NAME_MASK, left, top >> NAME_BITS] += int(edges["top"][k + 1])
    hidden = np.isin(edges["kind"], _FILE_ALONE)
    if len(edges) and hidden[0]:  # the lane begins there
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
    """Counts of calls and operations in disabled blocks at the end of a recording, as in `Lane.missed`.

    Args:
        rows: the operation, `ENTERED` or `LIBRARIES * left + entered`, and how often.
    """
    found: dict[tuple[int, int, int], int] = {}
    for operation, which, count in rows:
        left, entered = divmod(int(which), _LIBRARIES)
        if int(which) == _LIBRARIES * _LIBRARIES - 1:
            left, entered = MISSED_OPERATION, 0
        found[number(str(operation)), left, entered] = int(count)
    return found


_LIBRARIES: Final = 8  # pure.LIBRARIES, without which files are read
