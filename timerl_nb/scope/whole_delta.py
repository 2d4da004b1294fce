"""Whole-run delta calibration: what recording costs, from runs of a script with it and without (RL-Scope, paper 002,
appendix C.1).

Runs take turns, and their CPU time is compared, of all processes: no machine's load is in it but by its caches. Both
runs of a pair import the recorder as they start, so that its import is no cost of a call.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from timerl_nb.errors import ExecutionError, OptionError
from timerl_nb.scope.calibration import Calibration, interval
from timerl_nb.scope.delta import KINDS, Pairs, by_difference, counted
from timerl_nb.scope.joining import environment
from timerl_nb.scope.lanes import Process
from timerl_nb.scope.reading import read
from timerl_nb.scope.record import record
from timerl_nb.scope.recorder import make_fresh, operation

FEWEST: Final = 2  # pairs: one has no interval
SURE: Final = 0.2  # of what recording costs: the interval's far end that ends it
_SAME: Final = 0.05  # by how much calls may differ between runs that do the same
_LINES: Final = 10  # the last ones of a script that failed


@dataclass(frozen=True)
class Run:
    """A run of a script.

    Attributes:
        cpu: nanoseconds of CPU time of its processes, as far as they were waited for.
        counts: calls and annotations that were recorded in it; none where nothing was.
        process: the script's own, where it was recorded.
    """

    cpu: int
    counts: tuple[int, ...] = (0,) * len(KINDS)
    process: Process | None = None


def whole_delta(
    script: Sequence[str], pairs: int = 5, *, told: Callable[[str], None] = lambda _: None
) -> Calibration:
    """What recording costs a script: pairs of runs, one recorded, in random order.

    There are at least three of them (or `pairs`), and no more once the interval is within 20 % of the cost. One run ahead
    of them has caches filled, and is not counted. Setting taps, as libraries are imported, is in the cost: runs should
    take some seconds.

    Args:
        script: a script's file, or `-m` and a module, and their arguments.
        pairs: the most of them.
        told: hears of each pair.

    Raises:
        OptionError: there are too few pairs.
        ExecutionError: the script failed, with its last lines; runs of it differ in what they call; nothing
            was recorded; or they contradict each other, and how.
    """
    if pairs < FEWEST:
        raise OptionError(f"{pairs} pairs of runs say nothing.", hint=f"ask for {FEWEST} or more.")
    loop, draw = tight_loop(), Random(0)
    ran(script, recorded=False)
    both: list[tuple[Run, Run]] = []
    while len(both) < pairs:
        first = draw.random() < 0.5
        one, other = (ran(script, recorded=which) for which in (first, not first))
        both.append((one, other) if first else (other, one))
        recorded, bare = (run.cpu / 1e9 for run in both[-1])
        told(f"pair {len(both)} of {pairs}: {recorded:.3f} s of CPU time, unrecorded {bare:.3f}")
        if FEWEST < len(both) < pairs and is_sure(found := by_runs(both, loop), both):
            return found
    return by_runs(both, loop)


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
    if total.max() - total.min() > _SAME * total.max():
        raise ExecutionError(
            f"runs of the script do not do the same: from {total.min():,.0f} to {total.max():,.0f} calls and annotations.",
            hint="give it a seed and a number of steps, and no time to end at.",
        )
    cpu = np.array([run.cpu - bare.cpu for run, bare in both], np.float64)
    alike = np.ones((len(both), 1))
    pairs = Pairs(cpu, counts, alike, alike)
    return by_difference(pairs, loop, process, way="whole-run delta", silent=False)


def is_sure(found: Calibration, both: Sequence[tuple[Run, Run]]) -> bool:
    """Whether what recording costs a run is known to 20 %."""
    counts = np.mean([run.counts for run, _ in both], 0)
    cost = float(counts @ [found.costs[kind].total for kind in KINDS])
    low, high = interval(counts @ np.array([found.costs[kind].draws for kind in KINDS]))
    return bool(max(high - cost, cost - low) <= SURE * cost)


def ran(script: Sequence[str], *, recorded: bool) -> Run:
    """Run a script once, with hashes of strings that are the same each time.

    Raises:
        ExecutionError: it failed, with its last lines.
    """
    with TemporaryDirectory(prefix="timerl-scope-") as made:
        folder, said = Path(made) / "recording", Path(made) / "said"
        make_fresh(folder)
        given = {"PYTHONHASHSEED": "0", **os.environ}
        joined = environment(folder if recorded else None, given, calibrated=False)
        before = _spent()
        with said.open("wb") as out:
            done = subprocess.run(
                [sys.executable, *script],
                env=joined,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            )
        cpu = _spent() - before
        if done.returncode:
            lines = said.read_text(errors="replace").splitlines()[-_LINES:]
            raise ExecutionError(
                "\n    ".join([f"{script[0]} ended with status {done.returncode}:", *lines]),
                hint="calibrate a script that runs to its end.",
            )
        if not recorded:
            return Run(cpu)
        recording = read(folder)
        each = [[int(one.sum()) for one in counted(lane.edges)] for lane in recording.lanes]
        counts = tuple(sum(column) for column in zip(*each, strict=True))
        return Run(cpu, counts, recording.processes[0])


def _spent() -> int:
    """CPU time of children that were waited for, and of theirs, in nanoseconds.

    Raises:
        ExecutionError: this system does not say.
    """
    try:
        resource = importlib.import_module("resource")
    except ImportError:
        raise ExecutionError(
            "this system does not say what CPU time processes took that have ended.",
            hint="correct by blocks that are silent: record with `calibrated=True`.",
        ) from None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((used.ru_utime + used.ru_stime) * 1e9)


def tight_loop() -> Mapping[str, float]:
    """What recording costs in a tight loop here, in nanoseconds: see `tight_loop.timed`."""
    with record(taps=False, calibrated=True) as rec, operation("timed"):
        pass
    return rec.read().processes[0].costs
