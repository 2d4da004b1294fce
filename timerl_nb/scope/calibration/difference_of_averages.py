"""Difference of averages: by how much a tracer makes each call of a device's interface longer (RL-Scope, paper 002,
appendix C.2).

It does so by its own code, by amounts that differ from call to call and cannot be had apart. Nobody sees these calls
untraced. So what is compared, with a tracer and without, is how long the tapped calls take that they are inside of, by
name; and what such a call takes longer is modelled by what runs inside of it, be that one launch or, in a `backward`, hundreds.
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

# Of calls: the process and its thread, by when they began, and the name.
_Key = tuple[int, int, str]


@dataclass(frozen=True, eq=False)
class Calls:
    """Outermost calls of a run, in order, by who made them.

    Attributes:
        took: nanoseconds of each.
        whole: of each whether a tracer saw all of it, and it waited for nothing.
        inside: of each, how many calls of a device's interface are inside of it, by name.
        process: what was run.
        tracers: what looked at devices; or why there are none, where nothing did.
    """

    took: Mapping[_Key, Array]
    whole: Mapping[_Key, Array]
    inside: Mapping[_Key, Mapping[str, Array]]
    process: Process
    tracers: tuple[str, ...]
    absent: str = ""

    @classmethod
    def from_recording(cls, recording: Lanes) -> Calls:
        """Those of a recording."""
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
        """How often each cost is in the run."""
        found: dict[str, float] = {}
        for calls in self.inside.values():
            for name, each in calls.items():
                found[f"{API}{name}"] = found.get(f"{API}{name}", 0) + float(each.sum())
        return found


def _outermost(
    lane: Lane, recording: Lanes
) -> Iterator[tuple[str, Array, Array, dict[str, Array]]]:
    """By name, what `Calls` holds of a lane."""
    calls, hidden, names = frames(lane, "call"), unobserved_intervals(lane), recording.names
    windows = [
        (x.begin, x.end) for x in recording.devices.traced_windows if x.process == lane.process
    ]
    traced = Busy.from_intervals(*np.array(windows, np.int64).reshape(-1, 2).T)
    by_tracer = np.zeros(len(lane.edges), bool)
    by_tracer[lane.traced] = True
    by_tracer = by_tracer[lane.edges["kind"] == Kind.CALL_ENTER]
    outer = np.flatnonzero(calls.depth == 1)
    of = np.cumsum(calls.depth == 1) - 1  # the outermost one that each is inside of
    begin, end, took = calls.begin[outer], calls.end[outer], (calls.end - calls.begin)[outer]
    library, name = calls.top >> NAME_BITS, calls.top & NAME_MASK
    waits = np.bincount(of, library == Library.WAITING, len(outer)) > 0
    # what a tracer's own beginning and end call is none of the program's, and what it alone saw is in no other run
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
    """What a tracer costs calls of a device's interface: pairs of recorded runs, one traced: see `in_turns`.

    Args:
        script: a script's file, or `-m` and a module, and their arguments.
        pairs: the most of them.
        devices: the number of steps that are traced: see `record`.
        told: hears of each pair.

    Raises:
        OptionError: there are too few pairs.
        ExecutionError: the script failed; runs of it differ in what they call; there was no device, or nothing
            called it; or runs contradict each other, and how.
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
    """The same by runs, the traced one of a pair first.

    Raises:
        ExecutionError: see `averages`.
    """
    first = both[0][0]
    if not first.tracers:
        raise ExecutionError(
            f"no device was traced, so that nothing was made longer: {first.absent}.",
            hint="calibrate where the program uses a GPU; what taps cost is found without: --way whole.",
        )
    check_alike(np.array([sum(map(len, one.took.values())) for pair in both for one in pair]))
    kinds = sorted({kind for one, _ in both for kind in one.counts})
    rows = [_rows(*pair, kinds) for pair in both]
    # those inside of something that is also there untraced
    known: list[int] = np.flatnonzero(np.vstack([x for x, *_ in rows]).any(axis=0)).tolist()
    if not known:
        raise ExecutionError(
            "nothing that is tapped called a device's interface while it was traced, without waiting.",
            hint="trace more steps: --devices 50; or tap what calls it: `trl.scope.tap`.",
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
                f"calls took less time traced than untraced, {kind} {-high:,.0f} to {-low:,.0f} ns each.",
                hint="something else differs between the runs; calibrate on a machine that does less meanwhile.",
            )
    often = np.array([np.mean([one.counts.get(kind, 0) for one, _ in both]) for kind in kinds])
    check_drift(halves @ often, float((draws @ often).std()), "what tracing costs runs")
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
    """Calls of one name and with the same inside: what that is, by how much they took longer, and what it weighs.

    The same calls of both runs are compared, by their number, and the median of that is what counts: a difference of two
    of the same has a symmetric distribution, with far outliers. Noise is taken to be in proportion to how long a call takes.
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
    """Nanoseconds of each kind of call, by weighed least squares.

    As far as rows do not tell kinds apart, what they say is noise, or calls come together all the time, all cost the same.
    """
    x, y, weight = (np.concatenate(column) for column in zip(*rows, strict=True))
    x, y = x * weight[:, None], y * weight
    (common,), *_ = robust_least_squares(x.sum(1, keepdims=True), y)
    left = y - x.sum(1) * common
    _, weights, spread = robust_least_squares(x, left)
    return common + fit_deviations(x, left, weights, x.shape[1], spread / max(abs(common), 1.0))
