"""State of a timeline after each event: phase, operation and library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.storage.event_format import NAME_BITS, NAME_MASK, Kind, Library

# number of events per chunk; intermediate arrays of this size fit into the cache
PIECE: Final = 1 << 20
UNOBSERVED: Final = len(Library)  # code after the libraries: disabled block
HIDDEN: Final = "unobserved"
# labels of the running library, in tables
WORDS: Final = (*(one.name.lower() for one in Library), HIDDEN)


@dataclass(frozen=True, eq=False)
class Piece:
    """Chunk of events with the state after each event.

    Attributes:
        ts, kind: time and kind of the events.
        phase, operation: numbers of names; 0 for none, or in disabled blocks.
        on_call: library of the innermost call.
        came_from: library of the innermost call before the event.
        on: library of the innermost call, or `UNOBSERVED`.
    """

    ts: Array
    kind: Array
    phase: Array
    operation: Array
    on_call: Array
    came_from: Array
    on: Array


def pieces(lane: Lane) -> Iterator[Piece]:
    """Yield the events of a timeline in chunks of at most `PIECE`."""
    phase = operation = call = off = 0
    for first in range(0, len(lane.edges), PIECE):
        edges = lane.edges[first : first + PIECE]
        kind, top = edges["kind"], edges["top"]
        phases = _forward_fill(top & NAME_MASK, kind, (Kind.PHASE_ENTER, Kind.PHASE_EXIT), phase)
        operations = _forward_fill(
            top & NAME_MASK, kind, (Kind.OPERATION_ENTER, Kind.OPERATION_EXIT), operation
        )
        calls = _forward_fill(top >> NAME_BITS, kind, (Kind.CALL_ENTER, Kind.CALL_EXIT), call)
        offs = _forward_fill(kind == Kind.OFF, kind, (Kind.OFF, Kind.ON), off)
        hidden = offs == 1  # the phase and operation of disabled time are unknown
        yield Piece(
            edges["ts"].astype(np.int64),
            kind,
            np.where(hidden, 0, phases),
            np.where(hidden, 0, operations),
            calls,
            np.concatenate([[call], calls[:-1]]),
            np.where(hidden, UNOBSERVED, calls),
        )
        phase, operation, call, off = (int(x[-1]) for x in (phases, operations, calls, offs))


def _forward_fill(values: Array, kind: Array, kinds: tuple[Kind, Kind], before: int) -> Array:
    """Return for each event the value at the last event of two kinds, or `before`."""
    said = (kind == kinds[0]) | (kind == kinds[1])
    at = np.maximum.accumulate(np.where(said, np.arange(1, len(kind) + 1), 0))
    return np.concatenate([[before], values.astype(np.int64)])[at]


def without_gaps(*columns: Array) -> tuple[Array, list[tuple[int, ...]]]:
    """Encode the distinct rows of integer columns as consecutive numbers.

    Returns:
        The code of each row, and the row of each code.
    """
    code, rows = np.zeros(len(columns[0]), np.int64), list[tuple[int, ...]]([()])
    for column in columns:
        value, values = _factorize(column)
        code, pairs = _factorize(code * len(values) + value)
        rows = [(*rows[p // len(values)], int(values[p % len(values)])) for p in pairs.tolist()]
    return code, rows  # pyrefly: ignore[bad-return]


def _factorize(column: Array) -> tuple[Array, Array]:
    """Return the index of each value in the sorted distinct values, and these values."""
    most = int(column.max())
    if most > 8 * len(column):
        values, code = np.unique(column, return_inverse=True)
        return code, values
    present = np.zeros(most + 1, bool)
    present[column] = True
    return (np.cumsum(present) - 1)[column], np.flatnonzero(present)
