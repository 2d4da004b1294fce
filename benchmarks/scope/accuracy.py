"""Accuracy of overhead correction:

CPU time predicted by `rec.corrected()` against uninstrumented CPU time.

Processes alternate: two without recording (their difference is the noise of the machine), and one
per recorder. The recorders are in C, in Python, and one as expensive as the paper's, which makes
objects and tuples for every call. Processes alternate `TURNS` times per round with the same steps,
so speed changes of the machine affect all. Each process calibrates itself by disabled blocks.
Rounds continue until the uninstrumented time is known to 3 %, at most 40. A file stores the rounds,
and later runs continue from it. RL-Scope (appendix C.3) is within 16 %.

    python -m benchmarks accuracy [--rounds N] [--works a,b] [--file runs/accuracy.jsonl]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import json
import math
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import numpy as np

import timerl_nb as trl
from benchmarks.scope import fixed_works as works
from timerl_nb.base.errors import ExecutionError
from timerl_nb.scope.recording.recorder import this_lane
from timerl_nb.scope.wrappers import c_or_python_recorder, function_wrappers, python_recorder

BARE: Final = ("bare", "bare again")
ROUNDS: Final = 40
TURNS: Final = 40
FLOOR: Final = 0.03  # required half-width for the uninstrumented time
WORST: Final = 0.05
FAR: Final = 0.08  # the interval's end
_BUILT: Final = c_or_python_recorder.module
_DEAR: Final = ModuleType("dear")


class _Entry:
    """Extra work per call in RL-Scope's style, in addition to ours.

    The number of live objects is constant. A growing number would cause rare, long garbage
    collections, which calibration cannot separate from noise (a fifth of the time of `sums`).
    """

    frames: Final = [("", 0)]
    kept: Final = [("", k, 0) for k in range(1 << 16)]
    last = 0

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> _Entry:
        begun = time.perf_counter_ns()
        name, before = self.frames[-1]
        self._keep(name, before, begun)
        self.frames.append((self.name, begun))
        return self

    def __exit__(self, *_: object) -> None:
        ended = time.perf_counter_ns()
        name, begun = self.frames.pop()
        self._keep(name, begun, ended)

    def _keep(self, *entry: Any) -> None:
        _Entry.last = at = (self.last + 1) % len(self.kept)
        self.kept[at] = entry


def _dear(recorded: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        lane = this_lane()
        if lane is None or lane.silent:
            return recorded(*args, **named)
        with _Entry(name):
            return recorded(*args, **named)

    return call


class _DearTap(python_recorder.Tap):
    """Wrapper of the Python recorder with the cost of RL-Scope's wrapper."""

    __slots__ = ()

    def __init__(
        self,
        of: Any,
        function: Any,
        name: str,
        library: int,
        guess: Any = None,
        instead: Any = None,
    ) -> None:
        super().__init__(of, function, name, library, guess, instead)
        if instead is None:
            self.__call__ = _dear(self.__call__, name)


class _DearMethodTap(_DearTap, python_recorder.MethodTap):
    __slots__ = ()

    def __new__(cls, of: Any, function: Any, name: str, library: int, guess: Any = None) -> Any:
        made = python_recorder.MethodTap.__new__(cls, of, function, name, library, guess)
        if type(made) is FunctionType:
            known, made = vars(made), functools.wraps(function)(_dear(made, name))
            vars(made).update(known)
            python_recorder.FUNCTIONS.add(made.__code__)
        return made


def recorders() -> dict[str, Any]:
    """Return the recorder and wrapper classes by name."""
    function_wrappers._TAPS.update((_DearTap, _DearMethodTap))
    vars(_DEAR).update({**vars(python_recorder), "Tap": _DearTap, "MethodTap": _DearMethodTap})
    found = {"Python": python_recorder, "dear": _DEAR}
    return found if _BUILT is python_recorder else {"C": _BUILT, **found}


def main(*words: str) -> None:
    """Run rounds, and print a table of all rounds in the file."""
    parser = argparse.ArgumentParser("benchmarks accuracy")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--works", default=",".join(works.there()))
    parser.add_argument("--file", type=Path, default=Path("runs/accuracy.jsonl"))
    given = parser.parse_args(words)
    given.file.parent.mkdir(parents=True, exist_ok=True)
    for name in filter(None, given.works.split(",")):
        while not _enough(rows := _rows(given.file, name), given.rounds):
            _round(name, len(rows), given.file)
    print(table(given.file))


def _rows(file: Path, work: str) -> list[dict[str, Any]]:
    """Read the rounds of one program from a file."""
    if not file.exists():
        return []
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [row for row in found if row["work"] == work]


def _enough(rows: Sequence[dict[str, Any]], rounds: int) -> bool:
    return len(rows) >= rounds or (len(rows) >= 5 and floor(rows) <= FLOOR)


def _round(work: str, number: int, file: Path) -> None:
    """Run every variant once, in separate processes that alternate in random order."""
    ways = [*BARE, *recorders()]
    draw = random.Random(number)
    row: dict[str, Any] = {"work": work, "load": os.getloadavg()[0]}
    context = multiprocessing.get_context("fork")
    pipes = dict[str, Any]()
    draw.shuffle(ways)  # random, because the first forked process finds other memory
    for way in ways:
        pipes[way], theirs = context.Pipe()
        context.Process(target=_measure, args=(work, way, theirs), daemon=True).start()
        theirs.close()
        pipes[way].recv()  # warm-up is complete
    for _ in range(TURNS):
        draw.shuffle(ways)
        for way in ways:
            pipes[way].send(None)
            row[way] = pipes[way].recv()
    with file.open("a") as out:
        out.write(json.dumps(row) + "\n")


class _Turns:
    """Step callback that waits for the turn of its process.

    Args:
        steps: Total number of steps.
    """

    def __init__(self, pipe: Any, steps: int) -> None:
        # bind these before recording wraps them
        self._wait, self._done = pipe.recv, pipe.send
        self._each = self._left = -(-steps // TURNS)
        self._more = TURNS - 1

    def __call__(self) -> None:
        self._left -= 1
        if not self._left and self._more:
            self._left = self._each
            self._more -= 1
            self._done(None)
            self._wait()


def _measure(work: str, way: str, pipe: Any) -> None:
    """Return the CPU seconds of a program, and the corrected figure if it is recorded."""
    given = works.WORKS[work]
    tick = _Turns(pipe, given.steps)
    with contextlib.redirect_stdout(None):
        if way not in BARE:
            c_or_python_recorder.module = recorders()[way]
        run = given.prepare(trl.scope.operation)
        run(given.warm, lambda: None)
        pipe.send(None)
        pipe.recv()
        with contextlib.ExitStack() as stack:
            rec = None
            if way not in BARE:
                for module, category in given.taps:
                    stack.enter_context(trl.scope.tap(module, category))
                rec = stack.enter_context(trl.scope.record())
            # Collect old garbage before measuring: it takes 100 ms in the processes that reach the
            # threshold.
            gc.collect()
            gc.freeze()
            begun = time.process_time()
            run(given.steps, tick)
            cpu = time.process_time() - begun
    pipe.send({"cpu": cpu, **(_corrected(rec, cpu) if rec else {})})


def _corrected(rec: Any, cpu: float) -> dict[str, Any]:
    try:
        found = rec.corrected()
    except ExecutionError as error:
        return {"refused": error.what}
    total = found.total
    taken = [(total.measured - one) / 1e9 for one in (total.corrected, total.low, total.high)]
    costs = {kind: cost.total for kind, cost in found.calibration.costs.items()}
    calls = sum(np.isin(lane.edges["kind"], (0, 2)).sum() for lane in rec.read().lanes)
    words = ("corrected", "low", "high")
    made = dict(zip(words, (cpu - one for one in taken), strict=True))
    return {**made, "costs": costs, "blocks": found.calibration.measured, "calls": int(calls)}


def floor(rows: Sequence[dict[str, Any]]) -> float:
    """Return the noise: the largest deviation from 1 in the interval of two uninstrumented runs' ratio."""
    _, low, high = _median([row[BARE[1]]["cpu"] / row[BARE[0]]["cpu"] for row in rows])
    return max(abs(low - 1), abs(high - 1))


def _median(values: Sequence[float]) -> tuple[float, float, float]:
    """Return a median and its bootstrap interval of 95 %."""
    x = np.array(values)
    drawn = np.median(x[np.random.default_rng(0).integers(len(x), size=(2_000, len(x)))], axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(np.median(x)), float(low), float(high)


def table(file: Path) -> str:
    """Format all programs of a file."""
    lines = [
        "| work | rounds | load | bare again | recorder | raw | corrected [95 %] | |",
        "|---|--:|--:|--:|---|--:|--:|---|",
    ]
    for work in works.WORKS:
        if rows := _rows(file, work):
            again, low, high = _median([r[BARE[1]]["cpu"] / r[BARE[0]]["cpu"] for r in rows])
            load = np.mean([row["load"] for row in rows])
            head = f"| {work} | {len(rows)} | {load:.1f} | {_span(again, low, high)}"
            lines += [f"{head} | {way} | {_told(rows, way)} |" for way in recorders()]
    return "\n".join(lines)


def _told(rows: Sequence[dict[str, Any]], way: str) -> str:
    bare = [math.sqrt(row[BARE[0]]["cpu"] * row[BARE[1]]["cpu"]) for row in rows]
    raw = _median([row[way]["cpu"] / one for row, one in zip(rows, bare, strict=True)])[0]
    known = [
        (r[way]["corrected"], b) for r, b in zip(rows, bare, strict=True) if "corrected" in r[way]
    ]
    refused = len(rows) - len(known)
    if not known:
        return f"{raw - 1:+.1%} | | refused: {rows[0][way]['refused']}"
    found = _median([one / b for one, b in known])
    error, far = abs(found[0] - 1), max(abs(found[1] - 1), abs(found[2] - 1))
    holds = "holds" if error <= WORST and far <= FAR else "does not hold"
    verdict = "undecided" if floor(rows) > FLOOR or len(rows) < 5 else holds
    return (
        f"{raw - 1:+.1%} | {_span(*found)} | {verdict}{f', {refused} refused' if refused else ''}"
    )


def _span(middle: float, low: float, high: float) -> str:
    return f"{middle - 1:+.1%} [{low - 1:+.1%}, {high - 1:+.1%}]"
