"""Overhead of a device tracer per call of a device's interface, by difference of averages.

The tracer's code runs inside of these calls, and untraced runs do not show them. The unit of
comparison is therefore the outermost wrapped call: traced and untraced runs are compared by its
name. The extra time is modelled by the interface calls inside of it, from a single launch to
hundreds in a `backward`. Source: RL-Scope, appendix C.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.scope.analysis.stack_frames import frames, unobserved_intervals
from timerl_nb.scope.analysis.thread_timelines import Lane, Lanes, Process
from timerl_nb.scope.calibration.alternating_runs import check_alike, in_turns, ran
from timerl_nb.scope.calibration.bootstrapped_delta import (
    bootstrap_fit,
    check_drift,
    fit_deviations,
    robust_least_squares,
)
from timerl_nb.scope.calibration.calibration import API, TRACER, Calibration, Cost, interval
from timerl_nb.scope.device_activity.busy_time import Busy
from timerl_nb.scope.storage.event_format import NAME_BITS, NAME_MASK, Kind, Library
from timerl_nb.scope.storage.recording_reader import read

# Process and thread, numbered in order of start, and name of the call.
_Key = tuple[int, int, str]


@dataclass(frozen=True, eq=False)
class Calls:
    """Outermost calls of a run, in order, by process, thread and name.

    Attributes:
        took: nanoseconds of each call.
        whole: whether each call is fully traced and contains no wait.
        inside: number of interface calls in each call, by name.
        process: the process of the script.
        tracers: names of the tracers.
        absent: reason for a run without tracers.
    """

    took: Mapping[_Key, Array]
    whole: Mapping[_Key, Array]
    inside: Mapping[_Key, Mapping[str, Array]]
    process: Process
    tracers: tuple[str, ...]
    absent: str = ""

    @classmethod
    def from_recording(cls, recording: Lanes) -> Calls:
        """Return the outermost calls of a recording."""
        ranks = {one.number: k for k, one in enumerate(recording.processes)}
        lanes = sorted(recording.lanes, key=lambda lane: int(lane.edges["ts"][0]))
        found, threads = list[tuple[_Key, Array, Array, dict[str, Array]]](), dict[int, int]()
        for lane in lanes:
            thread = threads[lane.process] = threads.get(lane.process, -1) + 1
            rank = ranks.get(lane.process, -1)
            for name, took, whole, inside in _outermost(lane, recording):
                found.append(((rank, thread, name), took, whole, inside))
        seen = recording.devices
        return cls(
            {key: took for key, took, *_ in found},
            {key: whole for key, _, whole, _ in found},
            {key: inside for key, *_, inside in found},
            recording.processes[0],
            tuple(sorted({one.tracer for one in seen.traced_windows})),
            str(seen),
        )

    @property
    def counts(self) -> dict[str, float]:
        """Number of occurrences of each cost in the run."""
        found: dict[str, float] = {}
        for calls in self.inside.values():
            for name, each in calls.items():
                found[f"{API}{name}"] = found.get(f"{API}{name}", 0) + float(each.sum())
        return found


def _outermost(
    lane: Lane, recording: Lanes
) -> Iterator[tuple[str, Array, Array, dict[str, Array]]]:
    """Yield name, duration, `whole` and interface calls of a timeline's outermost calls."""
    calls, hidden, names = frames(lane, "call"), unobserved_intervals(lane), recording.names
    windows = [
        (x.begin, x.end) for x in recording.devices.traced_windows if x.process == lane.process
    ]
    traced = Busy.from_intervals(*np.array(windows, np.int64).reshape(-1, 2).T)
    by_tracer = np.zeros(len(lane.edges), bool)
    by_tracer[lane.traced] = True
    by_tracer = by_tracer[lane.edges["kind"] == Kind.CALL_ENTER]
    outer = np.flatnonzero(calls.depth == 1)
    of = np.cumsum(calls.depth == 1) - 1  # index of the enclosing outermost call
    begin, end, took = calls.begin[outer], calls.end[outer], (calls.end - calls.begin)[outer]
    library, name = calls.top >> NAME_BITS, calls.top & NAME_MASK
    waits = np.bincount(of, library == Library.WAITING, len(outer)) > 0
    # leave out calls of the tracer itself, and calls without a wrapper, because untraced runs lack
    # them
    ours = (hidden.busy_before(begin + 1) == hidden.busy_before(begin)) & ~by_tracer[outer]
    whole = (traced.busy_before(end) - traced.busy_before(begin) == took) & ~waits
    whole &= hidden.busy_before(end) == hidden.busy_before(begin)
    seen = by_tracer & (library == Library.API)
    inside = {
        names[api]: np.bincount(of[seen & (name == api)], minlength=len(outer))
        for api in np.unique(name[seen]).tolist()
    }
    for one in np.unique(name[outer][ours]).tolist():
        mine = np.flatnonzero((name[outer] == one) & ours)
        within = {api: counts[mine] for api, counts in inside.items() if counts[mine].any()}
        yield names[one], took[mine], whole[mine], within


def averages(
    script: Sequence[str],
    pairs: int = 5,
    devices: int = 10,
    *,
    told: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Measure the overhead of a device tracer with pairs of recorded runs, one of them traced.

    The number of pairs depends on the accuracy; see `in_turns`.

    Args:
        script: a script file, or `-m` and a module, followed by arguments.
        pairs: maximum number of pairs.
        devices: number of traced steps; see `record`.
        told: called with a progress message after each pair.

    Raises:
        OptionError: `pairs` is too small.
        ExecutionError: the script fails, its runs differ in their calls, no device or no interface
            call is traced, or the measurements are contradictory.
    """

    def run(traced: bool) -> Calls:
        with TemporaryDirectory(prefix="timerl-scope-") as made:
            ran(script, folder := Path(made) / "recording", devices if traced else 0)
            return Calls.from_recording(read(folder))

    def report(number: int, pair: tuple[Calls, Calls]) -> None:
        often = sum(pair[0].counts.values())
        told(f"pair {number} of {pairs}: {often:,.0f} calls of devices' interfaces traced")

    return in_turns(run, pairs, by_averages, lambda one: one.counts, report)


def by_averages(both: Sequence[tuple[Calls, Calls]]) -> Calibration:
    """Compute the calibration from pairs of runs, the traced run first.

    Args:
        both: pairs of runs.

    Raises:
        ExecutionError: see `averages`.
    """
    first = both[0][0]
    if not first.tracers:
        raise ExecutionError(
            f"no device was traced: {first.absent}.",
            hint="calibrate on a machine with a GPU; for the cost of wrappers alone, use --way whole.",
        )
    check_alike(np.array([sum(map(len, one.took.values())) for pair in both for one in pair]))
    kinds = sorted({kind for one, _ in both for kind in one.counts})
    rows = [_rows(*pair, kinds) for pair in both]
    # kinds inside of calls with an untraced counterpart
    known: list[int] = np.flatnonzero(np.vstack([x for x, *_ in rows]).any(axis=0)).tolist()
    if not known:
        raise ExecutionError(
            "no wrapped call without waits contains a traced call of a device's interface.",
            hint="trace more steps (--devices 50), or wrap the calling library (`trl.scope.tap`).",
        )
    kinds = [kinds[k] for k in known]
    rows = [(x[:, known], y, weight) for x, y, weight in rows]
    found, draws, halves = bootstrap_fit(
        len(rows), lambda which: _fit_costs([rows[k] for k in which])
    )
    for kind, column in zip(kinds, draws.T, strict=True):
        low, high = interval(column)
        if high < 0:
            raise ExecutionError(
                f"traced calls take less time than untraced ones: {kind}, {-high:,.0f} to {-low:,.0f} ns each.",
                hint="other load disturbs the measurement; calibrate on an idle machine.",
            )
    often = np.array([np.mean([one.counts.get(kind, 0) for one, _ in both]) for kind in kinds])
    check_drift(halves @ often, float((draws @ often).std()), "the overhead of tracing")
    costs = {
        kind: Cost(max(0.0, float(ns)), 0.0, tuple(np.maximum(column, 0).tolist()))
        for kind, ns, column in zip(kinds, found, draws.T, strict=True)
    }
    made_by = {**first.process.made_by, TRACER: ", ".join(first.tracers)}
    return Calibration(
        "difference of averages",
        costs,
        program=first.process.command,
        made_by=made_by,
        measured=2 * len(both),
    )


_Rows = tuple[Array, Array, Array]


def _rows(traced: Calls, other: Calls, kinds: Sequence[str]) -> _Rows:
    """Return the rows of the regression for a pair of runs.

    Calls of equal name with equal interface calls form a row: counts, extra time, weight. The n-th
    calls of both runs are compared, and the median of the differences counts, because their
    distribution is symmetric with outliers. Noise is assumed to be proportional to the duration of
    a call.
    """
    rows = list[tuple[Array, float, float]]()
    for key in traced.took.keys() & other.took.keys():
        count = min(len(traced.took[key]), len(other.took[key]))
        whole = np.flatnonzero(traced.whole[key][:count])
        longer = (traced.took[key][:count] - other.took[key][:count])[whole]
        none, calls = np.zeros(len(whole)), traced.inside[key]
        inside = np.column_stack(
            [
                calls[kind[len(API) :]][whole] if kind[len(API) :] in calls else none
                for kind in kinds
            ]
        )
        each, of = np.unique(inside, axis=0, return_inverse=True)
        for k, counts in enumerate(each):
            mine = of.reshape(-1) == k
            if counts.any():
                took = max(1.0, float(np.median(other.took[key][:count][whole][mine])))
                rows.append((counts, float(np.median(longer[mine])), mine.sum() ** 0.5 / took))
    if not rows:
        return np.zeros((0, len(kinds))), np.zeros(0), np.zeros(0)
    inside, longer, weight = (np.array(column) for column in zip(*rows, strict=True))
    return inside, longer, weight


def _fit_costs(rows: Sequence[_Rows]) -> Array:
    """Return nanoseconds of each kind of interface call, by weighted least squares.

    Kinds share one cost if the rows cannot separate them: because of noise, or because the calls
    always occur together.
    """
    x, y, weight = (np.concatenate(column) for column in zip(*rows, strict=True))
    x, y = x * weight[:, None], y * weight
    (common,), *_ = robust_least_squares(x.sum(1, keepdims=True), y)
    left = y - x.sum(1) * common
    _, weights, spread = robust_least_squares(x, left)
    return common + fit_deviations(x, left, weights, x.shape[1], spread / max(abs(common), 1.0))
