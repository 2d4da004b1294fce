"""A recording's times without what recording has added to them.

`corrected[cell] = measured - sum over kinds counts[cell, kind] * cost[kind]` (RL-Scope, paper 002, section 3.4 and
appendix C). What a call costs inside of its edges leaves the callee's cell, what it costs outside the caller's: the
very place where it was added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.columns import aligned
from timerl_nb.scope.blocks import between_blocks
from timerl_nb.scope.calibration import ANNOTATION, API, CALL, Calibration, interval
from timerl_nb.scope.edges import NAME_MASK, Kind, Library
from timerl_nb.scope.lanes import Lane, Lanes
from timerl_nb.scope.overlap import Breakdown, Cell, Column, Used, overlap_of
from timerl_nb.scope.pieces import UNOBSERVED, pieces, without_gaps

Place = tuple[str, str, str]  # phase, operation, library
_OURS: Final = "between blocks"  # CPU time, in nanoseconds, that blocks took to begin and end


@dataclass(frozen=True)
class Figure:
    """Nanoseconds, as they were measured and without what recording has added, and an interval of the latter."""

    measured: int
    corrected: int
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Corrected:
    """Nanoseconds by kind of time without what recording has added.

    Attributes:
        measured: what was recorded.
        breakdown: without what was added; nothing is below 0.
        unplaced: nanoseconds of book-keeping that are more than there was where they were to be taken off.
        calibration: what a call and an annotation cost.
        draws: for each cell of `breakdown`, in its order, what other samples of the same calibration say.
    """

    measured: Breakdown
    breakdown: Breakdown
    unplaced: int
    calibration: Calibration
    draws: Array

    @property
    def total(self) -> Figure:
        """All nanoseconds."""
        return self.by().get((), Figure(0, 0, 0, 0))

    def by(self, *columns: Column) -> dict[tuple[str | Used, ...], Figure]:
        """Figures by some columns, what took most without correction first."""
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
        """What contributes most of what was observed, as measured and as corrected; () where there is nothing.

        Where they differ, recording moved the bottleneck (RL-Scope, paper 002, appendix C.4).
        """
        found: list[tuple[str | Used, ...]] = []
        for one in (self.measured, self.breakdown):
            cells = {c: ns for c, ns in one.cells.items() if c.library != _HIDDEN}
            found.append(next(iter(Breakdown(cells).by(*columns)), ()))
        return found[0], found[1]

    def __str__(self) -> str:
        rows = [("operation", "library", "measured ms", "corrected ms", "95 %")]
        for (operation, library), one in self.by("operation", "library").items():
            shown = f"{one.measured / 1e6:,.3f}", f"{one.corrected / 1e6:,.3f}"
            rows.append((str(operation) or "-", str(library), *shown, _span(one)))
        total, (before, after) = self.total, self.largest("operation", "library")
        lines = [
            f"{total.measured / 1e6:,.3f} ms, corrected {total.corrected / 1e6:,.3f} {_span(total)}",
            *aligned(rows, left=(0, 1)),
            str(self.calibration),
        ]
        if self.unplaced:
            lines.append(f"{self.unplaced / 1e6:,.3f} ms of book-keeping found no place")
        if before != after:
            names = (" / ".join(str(x) or "-" for x in key) for key in (before, after))
            lines.append("without correction most is {}, with it {}".format(*names))
        return "\n".join(lines)

    __repr__ = __str__


_HIDDEN: Final = "unobserved"


def _span(one: Figure) -> str:
    return f"[{one.low / 1e6:,.3f}, {one.high / 1e6:,.3f}]"


def corrected(
    recording: Lanes, calibration: Calibration, measured: Breakdown | None = None
) -> Corrected:
    """Take off what recording has added.

    Args:
        measured: the recording's times; by default `overlap_of` it. Of a place's times with and without devices each
            loses its share: nobody knows which of them was longer.

    Raises:
        ExecutionError: the calibration is of another program, recorder, machine or other versions.
    """
    calibration.check(recording)
    measured = overlap_of(recording) if measured is None else measured
    counts = counted(recording, calibration)
    spent = Counter[Place]()
    for cell, ns in measured.cells.items():
        spent[cell.phase, cell.operation, cell.library] += ns
    costs = calibration.costs
    number = max((len(cost.draws) for cost in costs.values()), default=0)
    left, kept, unplaced = dict[Place, int](), dict[Place, Array](), 0
    for place, ns in spent.items():
        added, drawn = 0.0, np.zeros(number)
        for (kind, part), count in counts.get(place, {}).items():
            if kind == _OURS:
                added, drawn = added + count, drawn + count
                continue
            cost = costs[kind]
            # an edge has half of a part
            each = count * (cost.inside if part else cost.outside) / 2
            added += each
            drawn += each * (np.array(cost.draws) / cost.total if cost.draws and cost.total else 1)
        taken = round(added)
        left[place] = max(0, ns - taken)
        unplaced += max(0, taken - ns)
        kept[place] = np.maximum(0, ns - drawn)
    unplaced += round(sum(_unplaced(counts, spent, calibration)))
    _without_silent_taps(counts, calibration, left, kept)
    cells = dict[Cell, int](_shared(measured, spent, left))
    draws = np.array(
        [
            kept[c.phase, c.operation, c.library]
            * (ns / max(spent[c.phase, c.operation, c.library], 1))
            for c, ns in measured.cells.items()
        ]
    ).reshape(len(measured.cells), number)
    found = Breakdown(cells, measured.unplaced)
    return Corrected(measured, found, unplaced, calibration, draws)


def _unplaced(
    counts: Mapping[Place, Mapping[tuple[str, bool], int]],
    spent: Mapping[Place, int],
    calibration: Calibration,
) -> Iterator[float]:
    """What is to be taken off where no time is at all."""
    for place, kinds in counts.items():
        if place not in spent:
            for (kind, part), count in kinds.items():
                if kind != _OURS:
                    cost = calibration.costs[kind]
                    yield count * (cost.inside if part else cost.outside) / 2


def _without_silent_taps(
    counts: Mapping[Place, Mapping[tuple[str, bool], int]],
    calibration: Calibration,
    left: dict[Place, int],
    kept: dict[Place, Array],
) -> None:
    """Take off what silent taps cost where nobody counted them: as often as in the time that was observed."""
    hidden = ("", "", _HIDDEN)
    observed = sum(ns for place, ns in left.items() if place[2] != _HIDDEN)
    if hidden not in left or not observed:
        return
    silent = 0.0
    for place, kinds in counts.items():
        for (kind, _), count in kinds.items():
            if place[2] != _HIDDEN:
                silent += count / 4 * calibration.silent.get(kind, 0.0)  # four halves are one call
    share = observed / (observed + silent)
    left[hidden] = round(left[hidden] * share)
    kept[hidden] = kept[hidden] * share


def _shared(
    measured: Breakdown, spent: Mapping[Place, int], left: Mapping[Place, int]
) -> Iterator[tuple[Cell, int]]:
    """What is left of each cell, as much of it as of its place, whose sum it keeps."""
    before, given = Counter[Place](), Counter[Place]()
    for cell, ns in measured.cells.items():
        place = cell.phase, cell.operation, cell.library
        before[place] += ns
        until = left[place] * before[place] // max(spent[place], 1)
        yield cell, until - given[place]
        given[place] = until


def counted(recording: Lanes, calibration: Calibration) -> dict[Place, dict[tuple[str, bool], int]]:
    """By place, how many halves of kinds' parts inside (True) and outside (False) lie there.

    An edge that enters has half of its kind's outside ahead of it and half of its inside behind it; one that leaves
    has them the other way round.
    """
    found: dict[Place, dict[tuple[str, bool], int]] = {}
    names = recording.names
    apis = {k: f"{API}{n}" for k, n in enumerate(names) if f"{API}{n}" in calibration.costs}
    for lane in recording.lanes:
        for (phase, operation, on), kind, part, count in _halves(lane, calibration, apis):
            word = _HIDDEN if on == UNOBSERVED else Library(on).name.lower()
            kinds = found.setdefault((names[phase], names[operation], word), {})
            kinds[kind, part] = kinds.get((kind, part), 0) + count
    return found


def _halves(
    lane: Lane, calibration: Calibration, apis: Mapping[int, str]
) -> Iterator[tuple[tuple[int, ...], str, bool, int]]:
    last = (0, 0, 0)
    done, opened = 0, list[int]()
    for piece in pieces(lane):
        edges = lane.edges[done : done + len(piece.ts)]
        behind = piece.phase, piece.operation, piece.on
        ahead = tuple(np.concatenate([[x], y[:-1]]) for x, y in zip(last, behind, strict=True))
        enters, leaves = piece.kind == Kind.CALL_ENTER, piece.kind == Kind.CALL_EXIT
        api = (enters & (piece.on_call == Library.API)) | (
            leaves & (piece.came_from == Library.API)
        )
        ways: list[tuple[str, Array, Array]] = []
        if CALL in calibration.costs:
            ways.append((CALL, enters & ~api, leaves & ~api))
        if ANNOTATION in calibration.costs:
            first = np.isin(piece.kind, (Kind.OPERATION_ENTER, Kind.PHASE_ENTER))
            second = np.isin(piece.kind, (Kind.OPERATION_EXIT, Kind.PHASE_EXIT))
            ways.append((ANNOTATION, first, second))
        if apis:
            called = _called(edges, api, enters, opened)
            for name, kind in apis.items():
                ways.append(
                    (kind, api & enters & (called == name), api & leaves & (called == name))
                )
        for kind, first, second in ways:
            for where, part, which in (
                (ahead, False, first),
                (behind, True, first),
                (ahead, True, second),
                (behind, False, second),
            ):
                if which.any():
                    code, rows = without_gaps(*(column[which] for column in where))
                    for row, count in zip(rows, np.bincount(code).tolist(), strict=True):
                        yield row, kind, part, count
        last = tuple(int(column[-1]) for column in behind)
        done += len(piece.ts)
    yield from _between_blocks(lane)


def _called(edges: Array, api: Array, enters: Array, opened: list[int]) -> Array:
    """The name of the API call that each of its edges enters or leaves; calls that are open go from piece to piece."""
    found = np.full(len(edges), -1)
    for k in np.flatnonzero(api).tolist():
        if enters[k]:
            opened.append(int(edges["top"][k]) & NAME_MASK)
        found[k] = opened[-1] if enters[k] else opened.pop() if opened else -1
    return found


def _between_blocks(lane: Lane) -> Iterator[tuple[tuple[int, ...], str, bool, int]]:
    """CPU time from the end of a block to the begin of the next one, where it was spent."""
    at, cpu = between_blocks(lane.edges)
    for place, ns in zip(_places(lane, at) if len(at) else (), cpu.tolist(), strict=True):
        yield place, _OURS, True, ns


def _places(lane: Lane, at: Array) -> list[tuple[int, ...]]:
    found, done = list[tuple[int, ...]](), 0
    for piece in pieces(lane):
        here = at[(at >= done) & (at < done + len(piece.ts))] - done
        found += zip(
            piece.phase[here].tolist(),
            piece.operation[here].tolist(),
            piece.on[here].tolist(),
            strict=True,
        )
        done += len(piece.ts)
    return found
