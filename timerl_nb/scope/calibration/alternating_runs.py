"""Alternating runs of a script with and without a source of overhead, for calibrations.

Source: RL-Scope, appendix C.
"""

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
from timerl_nb.scope.recording.recorder import prepare_recording_folder

Run = TypeVar("Run")

FEWEST: Final = 2  # minimum number of pairs for a confidence interval
SURE: Final = 0.2  # stop if the confidence interval of the total cost is within 20 %
_SAME: Final = 0.05  # maximum relative difference of call counts between equal runs
_LINES: Final = 10  # number of output lines in the message about a failed script


def in_turns(
    run: Callable[[bool], Run],
    pairs: int,
    found: Callable[[Sequence[tuple[Run, Run]]], Calibration],
    counts: Callable[[Run], Mapping[str, float]],
    told: Callable[[int, tuple[Run, Run]], None],
) -> Calibration:
    """Calibrate from pairs of runs in random order, until the cost of a run is known to 20 %.

    There are at least three pairs if `pairs` allows. One run before the pairs fills caches and is
    discarded.

    Args:
        run: runs the script once, with (True) or without the overhead.
        pairs: maximum number of pairs.
        found: computes the calibration from the pairs; the first run of a pair has the overhead.
        counts: returns how often each kind of cost occurs in a run.
        told: called after each pair, with its number.

    Raises:
        OptionError: `pairs` is too small.
        ExecutionError: the script fails, or its runs are inconsistent.
    """
    if pairs < FEWEST:
        raise OptionError(
            f"{pairs} pairs of runs are too few for a calibration.", hint=f"use {FEWEST} or more."
        )
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
    """Return whether the cost of a run is known to 20 %.

    Args:
        found: the calibration.
        counts: for each run, how often each kind of cost occurs.
    """
    often = np.array([np.mean([one.get(kind, 0) for one in counts]) for kind in found.costs])
    cost = float(often @ [one.total for one in found.costs.values()])
    low, high = interval(often @ np.array([one.draws for one in found.costs.values()]))
    return bool(max(high - cost, cost - low) <= SURE * cost)


def check_alike(counts: Array) -> None:
    """Check that all runs have about the same number of calls and annotations.

    Args:
        counts: calls and annotations of each run.

    Raises:
        ExecutionError: they differ by more than 5 %.
    """
    if counts.max() - counts.min() > _SAME * counts.max():
        raise ExecutionError(
            f"runs of the script differ: from {counts.min():,.0f} to {counts.max():,.0f} calls and annotations.",
            hint="run it with a fixed seed and a fixed number of steps, without a time limit.",
        )


def ran(script: Sequence[str], folder: Path | None, devices: int = 0) -> int:
    """Run a script once and return the CPU time of its processes in nanoseconds.

    Hashes of strings are the same in each run.

    Args:
        script: a script file, or `-m` and a module, followed by arguments.
        folder: folder of the recording, with counted blocks, none of them disabled; None for no
            recording.
        devices: see `record`.

    Raises:
        ExecutionError: the script fails; the message has the last lines of its output.
    """
    if folder is not None:
        prepare_recording_folder(folder)
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
                hint="fix the error, then calibrate again.",
            )
    return _spent() - before


def _spent() -> int:
    """Return the CPU time of finished child processes and their descendants, in nanoseconds.

    Raises:
        ExecutionError: the system does not report it.
    """
    try:
        resource = importlib.import_module("resource")
    except ImportError:
        raise ExecutionError(
            "this system does not report the CPU time of finished processes.",
            hint="use disabled blocks instead: record with `calibrated=True`.",
        ) from None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((used.ru_utime + used.ru_stime) * 1e9)
