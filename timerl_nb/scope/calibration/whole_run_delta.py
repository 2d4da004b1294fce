"""Calibration from whole runs of a script, with and without recording.

Runs alternate, and the CPU time of all processes is compared; the load of the machine has an
influence only through caches. Both runs import the recorder, so its import is not counted as
overhead. Source: RL-Scope, appendix C.1.
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
        cpu: CPU time of its processes in nanoseconds.
        counts: recorded calls and annotations; zero without a recording.
        passed: unrecorded calls and annotations.
        process: the script's process; None without a recording.
    """

    cpu: int
    counts: tuple[int, ...] = (0,) * len(KINDS)
    passed: tuple[int, ...] = (0,) * len(KINDS)
    process: Process | None = None


def whole_delta(
    script: Sequence[str], pairs: int = 5, *, told: Callable[[str], None] = lambda _: None
) -> Calibration:
    """Measure the costs of recording a script with pairs of runs, one of them recorded.

    The number of pairs depends on the accuracy; see `in_turns`. The installation of wrappers at
    imports is included. Runs should take some seconds.

    Args:
        script: a script file, or `-m` and a module, followed by arguments.
        pairs: maximum number of pairs.
        told: called with a progress message after each pair.

    Raises:
        OptionError: `pairs` is too small.
        ExecutionError: the script fails, its runs differ in their calls, there are no recorded
            calls, or the measurements are contradictory.
    """
    loop = tight_loop()

    def report(number: int, pair: tuple[Run, Run]) -> None:
        recorded, bare = (run.cpu / 1e9 for run in pair)
        told(f"pair {number} of {pairs}: {recorded:.3f} s of CPU time, unrecorded {bare:.3f}")

    return in_turns(
        lambda recorded: run_once(script, recorded=recorded),
        pairs,
        lambda both: by_runs(both, loop),
        lambda run: dict(zip(KINDS, run.counts, strict=True)),
        report,
    )


def by_runs(both: Sequence[tuple[Run, Run]], loop: Mapping[str, float]) -> Calibration:
    """Compute the calibration from pairs of runs, the recorded run first.

    Args:
        both: pairs of runs.
        loop: nanoseconds in a tight loop.

    Raises:
        ExecutionError: see `whole_delta`.
    """
    counts = np.array([run.counts for run, _ in both], np.float64)
    total = counts.sum(1)
    process = both[0][0].process
    if process is None or not total.any():
        raise ExecutionError(
            "the recording of the script has no wrapped calls and no operations.",
            hint="add operations to the script, or wrap the libraries listed by `timerl scope check script.py ...`.",
        )
    check_alike(total)
    passed = np.array([run.passed for run, _ in both]) @ [loop[f"silent {kind}"] for kind in KINDS]
    cpu = np.array([run.cpu - bare.cpu for run, bare in both], np.float64) - passed
    alike = np.ones((len(both), 1))
    pairs = Pairs(cpu, counts, alike, alike, np.ones(len(cpu)))
    return by_difference(pairs, loop, process, way="whole-run delta", silent=False)


def run_once(script: Sequence[str], *, recorded: bool) -> Run:
    """Run a script once; the CPU time of block changes is subtracted."""
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
    """Return the costs of recording in a tight loop, in ns; see `measure_call_costs`."""
    with record(taps=False, calibrated=True) as rec, operation("timed"):
        pass
    return rec.read().processes[0].costs
