"""Whole-run delta calibration: what recording costs, from runs of a script with it and without (RL-Scope, paper 002,
appendix C.1).

Runs take turns, and their CPU time is compared, of all processes: no machine's load is in it but by its caches. Both
runs of a pair import the recorder as they start, so that its import is no cost of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from timerl_nb.base.errors import ExecutionError
from timerl_nb.scope.analysis.thread_timelines import Process
from timerl_nb.scope.calibration.alternating_runs import check_alike, in_turns, ran
from timerl_nb.scope.calibration.bootstrapped_delta import (
    KINDS,
    Pairs,
    by_difference,
    entry_edge_masks,
    unrecorded_counts,
)
from timerl_nb.scope.calibration.calibration import Calibration
from timerl_nb.scope.calibration.enabled_disabled_blocks import between_blocks
from timerl_nb.scope.recording.annotations import operation
from timerl_nb.scope.recording.recording_session import record
from timerl_nb.scope.storage.recording_reader import read


@dataclass(frozen=True)
class Run:
    """A run of a script.

    Attributes:
        cpu: nanoseconds of CPU time of its processes, as far as they were waited for.
        counts: calls and annotations that were recorded in it; none where nothing was.
        passed: those that were not.
        process: the script's own, where it was recorded.
    """

    cpu: int
    counts: tuple[int, ...] = (0,) * len(KINDS)
    passed: tuple[int, ...] = (0,) * len(KINDS)
    process: Process | None = None


def whole_delta(
    script: Sequence[str], pairs: int = 5, *, told: Callable[[str], None] = lambda _: None
) -> Calibration:
    """What recording costs a script: pairs of runs, one recorded: see `in_turns`.

    Setting taps, as libraries are imported, is in the cost: runs should take some seconds.

    Args:
        script: a script's file, or `-m` and a module, and their arguments.
        pairs: the most of them.
        told: hears of each pair.

    Raises:
        OptionError: there are too few pairs.
        ExecutionError: the script failed, with its last lines; runs of it differ in what they call; nothing
            was recorded; or they contradict each other, and how.
    """
    loop = tight_loop()

    def report(number: int, pair: tuple[Run, Run]) -> None:
        recorded, bare = (run.cpu / 1e9 for run in pair)
        told(f"pair {number} of {pairs}: {recorded:.3f} s of CPU time, unrecorded {bare:.3f}")

    return in_turns(
        lambda recorded: one_run(script, recorded=recorded),
        pairs,
        lambda both: by_runs(both, loop),
        lambda run: dict(zip(KINDS, run.counts, strict=True)),
        report,
    )


def by_runs(both: Sequence[tuple[Run, Run]], loop: Mapping[str, float]) -> Calibration:
    """What recording costs by pairs of runs, the recorded one first.

    Args:
        loop: nanoseconds in a tight loop.

    Raises:
        ExecutionError: see `whole_delta`.
    """
    counts = np.array([run.counts for run, _ in both], np.float64)
    total = counts.sum(1)
    process = both[0][0].process
    if process is None or not total.any():
        raise ExecutionError(
            "the script's runs called nothing that is tapped, and were in no operation.",
            hint="there is nothing to correct; annotate it, or tap what it calls: `timerl scope check script.py ...`.",
        )
    check_alike(total)
    passed = np.array([run.passed for run, _ in both]) @ [loop[f"silent {kind}"] for kind in KINDS]
    cpu = np.array([run.cpu - bare.cpu for run, bare in both], np.float64) - passed
    alike = np.ones((len(both), 1))
    pairs = Pairs(cpu, counts, alike, alike, np.ones(len(cpu)))
    return by_difference(pairs, loop, process, way="whole-run delta", silent=False)


def one_run(script: Sequence[str], *, recorded: bool) -> Run:
    """Run a script once; what blocks take to begin and end is known, and no part of its CPU time."""
    if not recorded:
        return Run(ran(script, None))
    with TemporaryDirectory(prefix="timerl-scope-") as made:
        cpu = ran(script, folder := Path(made) / "recording")
        recording = read(folder)
    each = [[int(one.sum()) for one in entry_edge_masks(lane)] for lane in recording.lanes]
    left = [[int(count.sum()) for _, count in unrecorded_counts(lane)] for lane in recording.lanes]
    counts, silent = (tuple(sum(column) for column in zip(*x, strict=True)) for x in (each, left))
    between = sum(int(between_blocks(lane.edges)[1].sum()) for lane in recording.lanes)
    return Run(cpu - between, counts, silent, recording.processes[0])


def tight_loop() -> Mapping[str, float]:
    """What recording costs in a tight loop here, in nanoseconds: see `tight_loop.timed`."""
    with record(taps=False, calibrated=True) as rec, operation("timed"):
        pass
    return rec.read().processes[0].costs
