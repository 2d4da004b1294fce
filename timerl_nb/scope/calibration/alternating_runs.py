"""Runs of a script in two ways that take turns, of which a calibration is made (RL-Scope, paper 002, appendix C)."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from typing import Final, TypeVar

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.scope.calibration.calibration import Calibration, interval
from timerl_nb.scope.recording.process_joining import environment
from timerl_nb.scope.recording.recorder import make_fresh

Run = TypeVar("Run")

FEWEST: Final = 2  # pairs: one has no interval
SURE: Final = 0.2  # of what is calibrated: the interval's far end that ends it
_SAME: Final = 0.05  # by how much calls may differ between runs that do the same
_LINES: Final = 10  # the last ones of a script that failed


def in_turns(
    run: Callable[[bool], Run],
    pairs: int,
    found: Callable[[Sequence[tuple[Run, Run]]], Calibration],
    counts: Callable[[Run], Mapping[str, float]],
    told: Callable[[int, tuple[Run, Run]], None],
) -> Calibration:
    """A calibration by pairs of runs in random order: as many as it takes to know all costs to 20 %, three at least.

    One run ahead of them has caches filled, and is not counted.

    Args:
        run: runs the script, with (True) what is calibrated, or without.
        pairs: the most of them.
        found: makes the calibration, of pairs of which the first is with it.
        counts: how often each kind of cost is in a run.
        told: hears of each pair, by its number.

    Raises:
        OptionError: there are too few pairs.
        ExecutionError: the script failed; or its runs contradict each other.
    """
    if pairs < FEWEST:
        raise OptionError(f"{pairs} pairs of runs say nothing.", hint=f"ask for {FEWEST} or more.")
    run(False)
    draw, both = Random(0), list[tuple[Run, Run]]()
    while len(both) < pairs:
        first = draw.random() < 0.5
        one, other = (run(which) for which in (first, not first))
        both.append((one, other) if first else (other, one))
        told(len(both), both[-1])
        if FEWEST < len(both) < pairs:
            calibration = found(both)
            if is_sure(calibration, [counts(one) for one, _ in both]):
                return calibration
    return found(both)


def is_sure(found: Calibration, counts: Sequence[Mapping[str, float]]) -> bool:
    """Whether what so many of each kind cost a run is known to 20 %."""
    often = np.array([np.mean([one.get(kind, 0) for one in counts]) for kind in found.costs])
    cost = float(often @ [one.total for one in found.costs.values()])
    low, high = interval(often @ np.array([one.draws for one in found.costs.values()]))
    return bool(max(high - cost, cost - low) <= SURE * cost)


def check_alike(counts: Array) -> None:
    """Say that runs do the same, by how many calls and annotations are in them.

    Raises:
        ExecutionError: they do not.
    """
    if counts.max() - counts.min() > _SAME * counts.max():
        raise ExecutionError(
            f"runs of the script do not do the same: from {counts.min():,.0f} to {counts.max():,.0f} calls and annotations.",
            hint="give it a seed and a number of steps, and no time to end at.",
        )


def ran(script: Sequence[str], folder: Path | None, devices: int = 0) -> int:
    """Run a script once, with hashes of strings that are the same each time; nanoseconds of CPU time of its processes.

    Args:
        script: a script's file, or `-m` and a module, and their arguments.
        folder: that it is recorded into, with blocks that are counted, and none of them silent; None for no recording.
        devices: see `record`.

    Raises:
        ExecutionError: it failed, with its last lines.
    """
    if folder is not None:
        make_fresh(folder)
    given = {"PYTHONHASHSEED": "0", **os.environ}
    joined = environment(folder, given, devices=devices, drawn=False)
    before = _spent()
    with TemporaryFile() as said:
        done = subprocess.run(
            [sys.executable, *script],
            env=joined,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines()[-_LINES:]
            raise ExecutionError(
                "\n    ".join([f"{script[0]} ended with status {done.returncode}:", *lines]),
                hint="calibrate a script that runs to its end.",
            )
    return _spent() - before


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
