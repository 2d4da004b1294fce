"""A lane in pieces: what holds from each of its edges on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.scope.analysis.thread_timelines import Lane
from timerl_nb.scope.storage.event_format import NAME_BITS, NAME_MASK, Kind, Library

PIECE: Final = 1 << 20  # edges that are looked at together: what is made of them stays in the cache
UNOBSERVED: Final = len(Library)  # behind the libraries: nobody looked
HIDDEN: Final = "unobserved"
WORDS: Final = (*(one.name.lower() for one in Library), HIDDEN)  # what is on top, in tables


@dataclass(frozen=True, eq=False)
class Piece:
    """Some edges; all but `came_from` say what holds from the edge on.

    Attributes:
        phase, operation: names; 0 where there is none, or nobody looked.
        on_call: the library on top.
        came_from: the library that was on top before.
        on: the library on top, or `UNOBSERVED`.
    """

    ts: Array
    kind: Array
    phase: Array
    operation: Array
    on_call: Array
    came_from: Array
    on: Array


def pieces(lane: Lane) -> Iterator[Piece]:
    """The edges of a lane, in order, in pieces of at most `PIECE`."""
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
        hidden = offs == 1  # nobody knows where what was not observed belongs
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
    """What was said last, at edges of some kinds, or before any of them."""
    said = (kind == kinds[0]) | (kind == kinds[1])
    at = np.maximum.accumulate(np.where(said, np.arange(1, len(kind) + 1), 0))
    return np.concatenate([[before], values.astype(np.int64)])[at]


def without_gaps(*columns: Array) -> tuple[Array, list[tuple[int, ...]]]:
    """Rows of numbers as numbers without gaps, and what each of these means."""
    code, rows = np.zeros(len(columns[0]), np.int64), list[tuple[int, ...]]([()])
    for column in columns:
        value, values = _factorize(column)
        code, pairs = _factorize(code * len(values) + value)
        rows = [(*rows[p // len(values)], int(values[p % len(values)])) for p in pairs.tolist()]
    return code, rows  # pyrefly: ignore[bad-return]


def _factorize(column: Array) -> tuple[Array, Array]:
    """By row which of the numbers that there are it is, and these, in order."""
    most = int(column.max())
    if most > 8 * len(column):
        values, code = np.unique(column, return_inverse=True)
        return code, values
    present = np.zeros(most + 1, bool)
    present[column] = True
    return (np.cumsum(present) - 1)[column], np.flatnonzero(present)
