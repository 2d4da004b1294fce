"""Comparison of two recordings: times of each operation, transitions and bottlenecks.

RL-Scope compares recordings of the same workload in two implementations: section 4.1
relates time to transitions, and appendix C.4 checks whether the overhead of recording changes the
bottleneck.
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

FEWEST: Final = 8  # minimum number of occurrences for a confidence interval
_DRAWS: Final = 1_000
_RUNS: Final = 1_000  # number of groups of consecutive occurrences for the bootstrap
_LONGER, _SAME = 1.05, 1.01  # thresholds of finding F.6 of RL-Scope


@dataclass(frozen=True)
class Difference:
    """One operation in two recordings.

    Attributes:
        operation: name; "" for time outside of all operations.
        times: number of occurrences in each recording, including disabled blocks.
        ns: exclusive nanoseconds in each recording, without disabled blocks.
        transitions: calls from one library into another in each recording, including disabled
            blocks.
        longer: increase of the mean time of an occurrence in the second recording, in nanoseconds;
            None if one recording lacks the operation.
        low, high: 95 % confidence interval of `longer`; None with fewer than `FEWEST` occurrences
            in a recording.
        each: mean nanoseconds of an occurrence in each recording.
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
        """Whether occurrences take significantly longer without more transitions (finding F.6).

        The thresholds are 5 % for the time and 1 % for the transitions.
        """
        if self.low is None or self.low <= 0 or not self.transitions[0]:
            return False
        first, second = (m / n for m, n in zip(self.transitions, self.times, strict=True))
        longer = self.each[1] / max(self.each[0], 1e-9)
        return longer > _LONGER and second / max(first, 1e-9) <= _SAME


@dataclass(frozen=True)
class Bottleneck:
    """The (operation, library) with the most time in a recording; () for an empty recording.

    Attributes:
        measured: as measured.
        corrected: after correction for the overhead of recording; None if the correction failed.
        unknown: reason of the failure, or "".
    """

    measured: tuple[str, ...]
    corrected: tuple[str, ...] | None
    unknown: str = ""

    @property
    def moves(self) -> bool:
        """Whether the correction changes the bottleneck (RL-Scope, appendix C.4)."""
        return self.corrected is not None and self.corrected != self.measured

    def __str__(self) -> str:
        if self.corrected is None:
            return f"{_format_key(self.measured)} as measured; no correction: {self.unknown}"
        if self.moves:
            return f"{_format_key(self.measured)} as measured, {_format_key(self.corrected)} after correction"
        return f"{_format_key(self.measured)}, as measured and after correction"


@dataclass(frozen=True)
class Compared:
    """Comparison of two recordings; `str` returns a table.

    Attributes:
        programs: commands of both recordings.
        operations: operations of both recordings, by descending difference of total time.
        bottlenecks: bottleneck of each recording.

    Example:
        >>> recordings = []
        >>> for name in ("inference", "simulation"):
        ...     with trl.scope.record() as recording:
        ...         with trl.scope.operation(name):
        ...             total = sum(range(100))
        ...     recordings.append(recording)
        >>> compared = recordings[0].compare(recordings[1])
        >>> compared.only
        (('inference',), ('simulation',))
    """

    programs: tuple[str, str]
    operations: tuple[Difference, ...]
    bottlenecks: tuple[Bottleneck, Bottleneck]

    @property
    def only(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Operations of the first recording only, and of the second recording only."""
        first, second = (
            tuple(x.operation for x in self.operations if x.operation and not x.times[k])
            for k in (1, 0)
        )
        return first, second

    @property
    def grew(self) -> tuple[str, ...]:
        """Operations with `Difference.grew`: slower without more transitions."""
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
            lines.append(f"slower without more transitions: {', '.join(self.grew)}")
        for which, most in zip("ab", self.bottlenecks, strict=True):
            lines.append(f"bottleneck of {which}: {most}")
        return "\n".join(lines)

    __repr__ = __str__


def compare_recordings(first: Lanes, second: Lanes) -> Compared:
    """Compare two recordings operation by operation, as measured, without disabled blocks.

    Confidence intervals are bootstrap intervals over the exclusive times of an operation's
    occurrences: 1,000 resamples with a fixed seed. More than 1,000 occurrences are resampled in
    groups of consecutive ones.
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
    """Count the entries of each operation, including disabled blocks."""
    found = Counter[str]()
    for lane in recording.lanes:
        for name, count in count_entries(lane, "operation").items():
            found[recording.names[name]] += count
    return found


def _own(recording: Lanes) -> dict[str, Array]:
    """Return the exclusive times of all occurrences, by operation."""
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
    """Return the means of bootstrap samples."""
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
