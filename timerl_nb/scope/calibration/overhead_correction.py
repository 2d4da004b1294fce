"""Subtraction of the overhead of recording from a time breakdown.

`corrected[cell] = measured - sum over kinds counts[cell, kind] * cost[kind]` (RL-Scope,
section 3.4 and appendix C). The cost between begin and end event is subtracted from the cell of the
callee, the rest from the cell of the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.text_formatting import align_columns, format_ns_as_ms
from timerl_nb.scope.analysis.blocked_time import with_waits
from timerl_nb.scope.analysis.state_intervals import HIDDEN, WORDS, pieces, without_gaps
from timerl_nb.scope.analysis.thread_timelines import Lane, Lanes
from timerl_nb.scope.analysis.time_breakdown import (
    Breakdown,
    Cell,
    Column,
    Used,
    check_columns,
    overlap_of,
)
from timerl_nb.scope.calibration.bootstrapped_delta import KINDS, unrecorded_counts
from timerl_nb.scope.calibration.calibration import ANNOTATION, API, CALL, Calibration, interval
from timerl_nb.scope.calibration.enabled_disabled_blocks import between_blocks
from timerl_nb.scope.storage.event_format import NAME_MASK, Kind

Place = tuple[str, str, str]  # phase, operation, library


@dataclass(frozen=True)
class Figure:
    """Measured and corrected nanoseconds, with a 95 % confidence interval of the corrected value."""

    measured: int
    corrected: int
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Corrected:
    """Time breakdown without the overhead of recording; `str` returns a table.

    Attributes:
        measured: breakdown as measured.
        breakdown: breakdown after correction, not below 0.
        unplaced: nanoseconds of overhead in excess of the measured time of their cells.
        calibration: costs of recording.
        draws: corrected nanoseconds for each cell of `breakdown` and each bootstrap sample of the
            calibration.

    Example:
        >>> with trl.scope.record() as recording:
        ...     with trl.scope.operation("inference"):
        ...         total = sum(range(100))
        >>> cost = trl.scope.Cost(inside=300.0, outside=200.0)
        >>> calibration = trl.scope.Calibration("by hand", {"call": cost, "annotation": cost})
        >>> corrected = recording.corrected(calibration)
        >>> corrected.total.corrected < corrected.total.measured
        True
    """

    measured: Breakdown
    breakdown: Breakdown
    unplaced: int
    calibration: Calibration
    draws: Array

    @property
    def total(self) -> Figure:
        """Sum of all cells."""
        return self.by().get((), Figure(0, 0, 0, 0))

    def by(self, *columns: Column) -> dict[tuple[str | Used, ...], Figure]:
        """Return measured and corrected time by the values of some columns.

        The order is descending in measured time.

        Args:
            columns: "phase", "operation", "library" or "used".

        Raises:
            OptionError: a column does not exist.
        """
        check_columns(columns, threads=False)
        keys = [tuple(getattr(cell, column) for column in columns) for cell in self.breakdown.cells]
        left, draws = self.breakdown.by(*columns), dict[tuple[str | Used, ...], Array]()
        for key, row in zip(keys, self.draws, strict=True):
            draws[key] = draws.get(key, 0) + row
        found: dict[tuple[str | Used, ...], Figure] = {}
        for key, ns in self.measured.by(*columns).items():
            low, high = interval(draws[key].tolist()) if draws[key].size else (left[key],) * 2
            found[key] = Figure(ns, left[key], round(low), round(high))
        return found

    def largest(self, *columns: Column) -> tuple[tuple[str | Used, ...], tuple[str | Used, ...]]:
        """Return the entries with the most observed time, as measured and after correction.

        If they differ, the overhead of recording changes the bottleneck (RL-Scope,
        appendix C.4). An empty breakdown returns ().

        Args:
            columns: "phase", "operation", "library" or "used".

        Raises:
            OptionError: a column does not exist.
        """
        check_columns(columns, threads=False)
        found: list[tuple[str | Used, ...]] = []
        for one in (self.measured, self.breakdown):
            cells = {c: ns for c, ns in one.cells.items() if c.library != HIDDEN}
            found.append(next(iter(Breakdown(cells).by(*columns)), ()))
        return found[0], found[1]

    def __str__(self) -> str:
        rows = [("operation", "library", "measured ms", "corrected ms", "95 %")]
        for (operation, library), one in self.by("operation", "library").items():
            shown = format_ns_as_ms(one.measured), format_ns_as_ms(one.corrected)
            rows.append((str(operation) or "-", str(library), *shown, _span(one)))
        total, (before, after) = self.total, self.largest("operation", "library")
        lines = [
            f"{format_ns_as_ms(total.measured)} ms, corrected {format_ns_as_ms(total.corrected)} {_span(total)}",
            *align_columns(rows, left=(0, 1)),
            str(self.calibration),
        ]
        if self.unplaced:
            lines.append(f"{format_ns_as_ms(self.unplaced)} ms of overhead could not be subtracted")
        if before != after:
            names = (" / ".join(str(x) or "-" for x in key) for key in (before, after))
            lines.append("bottleneck: {} as measured, {} after correction".format(*names))
        return "\n".join(lines)

    __repr__ = __str__


def _span(one: Figure) -> str:
    return f"[{format_ns_as_ms(one.low)}, {format_ns_as_ms(one.high)}]"


def correct_overhead(
    recording: Lanes, calibration: Calibration, measured: Breakdown | None = None
) -> Corrected:
    """Subtract the overhead of recording from a time breakdown.

    Args:
        recording: the recording.
        calibration: costs of recording.
        measured: time breakdown; default: `overlap_of(recording)`. Overhead is distributed over the
            device states of a cell in proportion to their time.

    Raises:
        ExecutionError: the calibration belongs to another program, recorder, machine or library
            version.
    """
    calibration.check(recording)
    measured = overlap_of(recording) if measured is None else measured
    spent = Counter[Place]()
    for cell, ns in measured.cells.items():
        spent[cell.phase, cell.operation, cell.library] += ns
    costs = [calibration.costs[kind] for kind in calibration.costs]
    number = max((len(cost.draws) for cost in costs), default=0)
    # nanoseconds per count: an event has half of a part; block changes are counted in nanoseconds
    halves = [x / 2 for one in costs for x in (one.inside, one.outside)]
    each = np.array([*halves, *(calibration.silent.get(kind, 0.0) for kind in KINDS), 1.0])
    drawn = each[:, None] * np.ones(number)
    for k, one in enumerate(costs):
        if one.draws and one.total:
            drawn[2 * k : 2 * k + 2] *= np.array(one.draws) / one.total
    counts = count_overhead(recording, calibration)
    none = np.zeros(len(each))
    taken = {place: round(float(counts.get(place, none) @ each)) for place in (*spent, *counts)}
    left = {place: max(0, ns - taken[place]) for place, ns in spent.items()}
    kept = {
        place: np.maximum(0, ns - counts.get(place, none) @ drawn) for place, ns in spent.items()
    }
    unplaced = sum(max(0, ns - spent[place]) for place, ns in taken.items())
    cells = dict[Cell, int](_distribute_to_cells(measured, spent, left))
    draws = [
        kept[place] * (ns / max(spent[place], 1))
        for c, ns in measured.cells.items()
        for place in [(c.phase, c.operation, c.library)]
    ]
    found = Breakdown(cells, measured.unplaced)
    table = np.array(draws).reshape(len(draws), number)
    return Corrected(measured, found, unplaced, calibration, table)


def _distribute_to_cells(
    measured: Breakdown, spent: Mapping[Place, int], left: Mapping[Place, int]
) -> Iterator[tuple[Cell, int]]:
    """Yield the cells with the corrected time of their place, in proportion; sums are exact."""
    before, given = Counter[Place](), Counter[Place]()
    for cell, ns in measured.cells.items():
        place = cell.phase, cell.operation, cell.library
        before[place] += ns
        until = left[place] * before[place] // max(spent[place], 1)
        yield cell, until - given[place]
        given[place] = until


def count_overhead(recording: Lanes, calibration: Calibration) -> dict[Place, Array]:
    """Count the events of overhead by place (phase, operation, library).

    An entry event has half of its `outside` cost before it and half of its `inside` cost after it;
    an exit event the other way round.

    Returns:
        By place, for each kind, halves of the inside and outside part; then unwritten calls and
        operations (`KINDS`); then the CPU time of block changes in nanoseconds.
    """
    found, names = dict[Place, Array](), recording.names
    for recorded in recording.lanes:
        lane = with_waits(recorded, names)
        columns = zip(*((one.phase, one.operation, one.on) for one in pieces(lane)), strict=True)
        # before each event, and after the last one
        code, rows = without_gaps(*(np.concatenate([[0], *parts]) for parts in columns))
        columns = list[Array]()
        for enters, leaves in _edges(lane, calibration, names):
            for edges in (enters + 1, leaves), (enters, leaves + 1):
                columns.append(np.bincount(code[np.concatenate(edges)], minlength=len(rows)))
        columns += (
            np.bincount(code[at], count, len(rows)) for at, count in unrecorded_counts(lane)
        )
        at, cpu = between_blocks(lane.edges)
        columns.append(np.bincount(code[at + 1], cpu, len(rows)))
        for (phase, operation, on), row in zip(rows, np.column_stack(columns), strict=True):
            place = names[phase], names[operation], WORDS[on]
            found[place] = found.get(place, 0) + row
    return found


def _edges(
    lane: Lane, calibration: Calibration, names: Sequence[str]
) -> Iterator[tuple[Array, Array]]:
    """Yield the indices of entry and exit events for each kind of cost."""
    kind, traced = lane.edges["kind"].copy(), lane.traced
    # traced calls: entry and exit are neighbours at their depth
    depth = lane.edges["depth"][traced].astype(np.int64) + (kind[traced] == Kind.CALL_EXIT)
    enters, leaves = traced[np.argsort(depth, kind="stable")].reshape(-1, 2).T
    called = lane.edges["top"][enters] & NAME_MASK
    kind[traced] = Kind.MARK  # not recorded by a wrapper
    numbers = {name: k for k, name in enumerate(names)}
    for cost in calibration.costs:
        if cost in _ENTERS:
            here = np.isin(kind, _ENTERS[cost]), np.isin(kind - 1, _ENTERS[cost])
            yield np.flatnonzero(here[0]), np.flatnonzero(here[1])
        else:
            here = called == numbers.get(cost.removeprefix(API), -1)
            yield enters[here], leaves[here]


# By entry kind; the exit kind is the next number.
_ENTERS: Final = {
    CALL: (Kind.CALL_ENTER,),
    ANNOTATION: (Kind.OPERATION_ENTER, Kind.PHASE_ENTER),
}
