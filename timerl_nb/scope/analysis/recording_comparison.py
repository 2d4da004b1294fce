"""Two recordings beside each other: the same operations, and by how much each of them takes longer.

Of recordings of the same work in two ways, RL-Scope (paper 002, section 4.1) asks whether time goes with the transitions,
and (appendix C.4) whether recording itself has moved what takes most.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.base.text_formatting import align_columns, format_ns_as_ms
from timerl_nb.scope.analysis.library_transitions import transitions
from timerl_nb.scope.analysis.stack_frames import count_entries, frames
from timerl_nb.scope.analysis.state_intervals import HIDDEN
from timerl_nb.scope.analysis.thread_timelines import Lanes
from timerl_nb.scope.analysis.time_breakdown import Breakdown, overlap_of
from timerl_nb.scope.calibration.calibration import interval
from timerl_nb.scope.calibration.in_run_delta import in_run
from timerl_nb.scope.calibration.overhead_correction import correct_overhead
from timerl_nb.scope.storage.event_format import NAME_MASK

FEWEST: Final = 8  # times that an interval is made of
_DRAWS: Final = 1_000
_RUNS: Final = 1_000  # of neighbouring times, that are drawn as one
_LONGER, _SAME = 1.05, 1.01  # of F.6


@dataclass(frozen=True)
class Difference:
    """An operation in two recordings; "" is what lies outside of all.

    Attributes:
        times: how often it was entered, in each; also in disabled blocks.
        ns: observed nanoseconds in which it was innermost, in each.
        transitions: how often a library was entered from another meanwhile, in each; also in disabled blocks.
        longer: nanoseconds by which it takes longer each time in the second; None where it is missing in one.
        low, high: of that a 95 % interval; None where it was observed fewer than `FEWEST` times in one.
        each: observed nanoseconds each time, in each.
    """

    operation: str
    times: tuple[int, int]
    ns: tuple[int, int]
    transitions: tuple[int, int]
    longer: float | None
    low: float | None
    high: float | None
    each: tuple[float, float] = field(default=(0.0, 0.0), compare=False)

    @property
    def grew(self) -> bool:
        """Each time it takes surely longer, by more than 5 %, though there are at most 1 % more transitions (F.6)."""
        if self.low is None or self.low <= 0 or not self.transitions[0]:
            return False
        first, second = (m / n for m, n in zip(self.transitions, self.times, strict=True))
        longer = self.each[1] / max(self.each[0], 1e-9)
        return longer > _LONGER and second / max(first, 1e-9) <= _SAME


@dataclass(frozen=True)
class Bottleneck:
    """The (operation, library) that takes most of a recording; () where there is none.

    Attributes:
        corrected: the same without what recording has added; None where that is not known.
        unknown: why it is not, or "".
    """

    measured: tuple[str, ...]
    corrected: tuple[str, ...] | None
    unknown: str = ""

    @property
    def moves(self) -> bool:
        """Without correction it is another one (appendix C.4)."""
        return self.corrected is not None and self.corrected != self.measured

    def __str__(self) -> str:
        if self.corrected is None:
            return f"{_format_key(self.measured)} as measured; not corrected: {self.unknown}"
        if self.moves:
            return f"{_format_key(self.measured)} as measured, {_format_key(self.corrected)} corrected: recording moves it"
        return f"{_format_key(self.measured)}, as measured and corrected"


@dataclass(frozen=True)
class Compared:
    """Two recordings beside each other.

    Attributes:
        programs: their commands.
        operations: those of both, by how much their times differ in all, the most first.
        bottlenecks: of each.
    """

    programs: tuple[str, str]
    operations: tuple[Difference, ...]
    bottlenecks: tuple[Bottleneck, Bottleneck]

    @property
    def only(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Operations that only the first has, and only the second."""
        first, second = (
            tuple(x.operation for x in self.operations if x.operation and not x.times[k])
            for k in (1, 0)
        )
        return first, second

    @property
    def grew(self) -> tuple[str, ...]:
        """Operations whose time grew though their transitions did not."""
        return tuple(one.operation for one in self.operations if one.grew)

    def __str__(self) -> str:
        head = "operation", "times a", "times b", "ms a", "ms b", "b longer, us each", "95 %"
        rows: list[tuple[str, ...]] = [(*head, "transitions a", "transitions b")]
        for one in self.operations:
            span = (
                "" if one.low is None else f"[{one.low / 1e3:+,.3f}, {(one.high or 0) / 1e3:+,.3f}]"
            )
            longer = "" if one.longer is None else f"{one.longer / 1e3:+,.3f}"
            counts = (f"{x:,}" if one.operation else "" for x in one.times)
            ns = (format_ns_as_ms(x) for x in one.ns)
            moved = (f"{x:,}" for x in one.transitions)
            rows.append((one.operation or "-", *counts, *ns, longer, span, *moved))
        lines = [f"{which}: {name or '-'}" for which, name in zip("ab", self.programs, strict=True)]
        lines += align_columns(rows, left=(0,))
        for which, names in zip("ab", self.only, strict=True):
            lines += [f"only in {which}: {', '.join(names)}"] if names else []
        if self.grew:
            lines.append(f"time grew though transitions did not: {', '.join(self.grew)}")
        for which, most in zip("ab", self.bottlenecks, strict=True):
            lines.append(f"most of {which}: {most}")
        return "\n".join(lines)

    __repr__ = __str__


def compare_recordings(first: Lanes, second: Lanes) -> Compared:
    """Two recordings, operation by operation, as measured; what was unobserved is in neither.

    Intervals are a bootstrap's over the exclusive times of an operation's occurrences, as each recording has them: 1,000
    draws of as many, by a generator of a fixed seed. Of more than 1,000 occurrences, neighbours are drawn together.
    """
    own = [_own(one) for one in (first, second)]
    spent, moved = [Counter[str](), Counter[str]()], [Counter[str](), Counter[str]()]
    tables = overlap_of(first), overlap_of(second)
    for k, one in enumerate((first, second)):
        for (operation, library), ns in tables[k].by("operation", "library").items():
            if library != HIDDEN:
                spent[k][str(operation)] += ns
        for (operation, _, _), count in transitions(one).items():
            moved[k][operation] += count
    times = [operations(one) for one in (first, second)]
    none, found = np.zeros(0, np.int64), list[Difference]()
    for name in sorted({*spent[0], *spent[1], *own[0], *own[1]}):
        pair = own[0].get(name, none), own[1].get(name, none)
        longer = float(pair[1].mean() - pair[0].mean()) if min(map(len, pair)) else None
        span: tuple[float, float] | tuple[None, None] = None, None
        if min(map(len, pair)) >= FEWEST:
            draws = np.random.default_rng(0)
            span = interval(-_means(pair[0], draws) + _means(pair[1], draws))
        found.append(
            Difference(
                name,
                (times[0][name], times[1][name]),
                (spent[0][name], spent[1][name]),
                (moved[0][name], moved[1][name]),
                longer,
                *span,
                (_each(spent[0][name], pair[0]), _each(spent[1][name], pair[1])),
            )
        )
    found.sort(key=lambda one: -abs(one.ns[1] - one.ns[0]))
    commands = [one.processes[0].command if one.processes else "" for one in (first, second)]
    most = _bottleneck(first, tables[0]), _bottleneck(second, tables[1])
    return Compared((commands[0], commands[1]), tuple(found), most)


def _each(ns: int, observed: Array) -> float:
    return ns / max(len(observed), 1)


def operations(recording: Lanes) -> Counter[str]:
    """How often each operation was entered, also in disabled blocks."""
    found = Counter[str]()
    for lane in recording.lanes:
        for name, count in count_entries(lane, "operation").items():
            found[recording.names[name]] += count
    return found


def _own(recording: Lanes) -> dict[str, Array]:
    """By operation, the exclusive time of each of its occurrences."""
    found: dict[str, list[Array]] = {}
    for lane in recording.lanes:
        made = frames(lane, "operation")
        name = made.top & NAME_MASK
        order = np.argsort(name, kind="stable")
        names, first = np.unique(name[order], return_index=True)
        for k, part in zip(names.tolist(), np.split(made.own[order], first[1:]), strict=False):
            found.setdefault(recording.names[k], []).append(part)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _means(ns: Array, draws: np.random.Generator) -> Array:
    """What the mean might have been."""
    starts = np.unique(
        np.linspace(0, len(ns), min(len(ns), _RUNS), endpoint=False).astype(np.int64)
    )
    sums, sizes = np.add.reduceat(ns, starts), np.diff(starts, append=len(ns))
    chosen = draws.integers(len(starts), size=(_DRAWS, len(starts)))
    return sums[chosen].sum(1) / sizes[chosen].sum(1)


def _bottleneck(recording: Lanes, measured: Breakdown) -> Bottleneck:
    keys = measured.by("operation", "library")
    most = next((tuple(map(str, key)) for key in keys if key[1] != HIDDEN), ())
    try:
        one = correct_overhead(recording, in_run(recording), measured)
    except ExecutionError as error:
        return Bottleneck(most, None, error.what)
    before, after = one.largest("operation", "library")
    return Bottleneck(tuple(map(str, before)), tuple(map(str, after)))


def _format_key(key: tuple[str, ...]) -> str:
    return " / ".join(one or "-" for one in key) or "nothing"
