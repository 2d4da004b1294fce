"""Worker process that runs implementations on request, one JSON line per request.

Each interpreter has a worker, so that PyTorch, EnvPool and gymnax alternate with the packages of
the lock file.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import timerl_nb as trl
from benchmarks.collecting import equations
from benchmarks.collecting.cell import Cell
from benchmarks.collecting.table import SIMULATIONS, TABLE
from benchmarks.training.race import resident_bytes

SLICE: Final = 0.02  # minimal collecting time of a round, in seconds
MEASURED: Final = "measured"


def serve() -> None:
    """Answer requests until the input ends; only answers are written to the original standard output."""
    os.environ["TIMERL_CACHE"] = "0"
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = _answer(**json.loads(line))
        except Exception as error:  # any library error is part of the answer
            answer = {"error": f"{type(error).__name__}: {error}".partition("\n")[0]}
        print(json.dumps(answer), file=answers, flush=True)


_open: dict[str, Any] = {}


def _answer(do: str, name: str, cell: Mapping[str, int] | None = None) -> Mapping[str, Any]:
    match do:
        case "open":
            assert cell is not None
            return _opened(name, cell)
        case "advance":
            return _advanced(_open[name])
        case "split":
            assert cell is not None
            return _split(name, cell)
        case _:
            one = _open.pop(name)
            counts = one.counts()
            one.close()
            del one
            gc.collect()
            return counts


def _opened(name: str, sizes: Mapping[str, int]) -> Mapping[str, Any]:
    cell = Cell(**sizes)
    row = (SIMULATIONS if cell.is_simulation else TABLE)[name]
    row.imported()  # not part of the first step
    before = resident_bytes("VmRSS")
    began = perf_counter()
    one = row.make(cell)
    try:
        one.advance()
        first = perf_counter() - began
        if not cell.is_simulation:
            if row.is_cartpole:
                equations.check(one.batch(), cell.width if row.own_policy else None)
            else:
                equations.moves(one.batch())
        reset = Path("/proc/self/clear_refs")
        if reset.exists():
            reset.write_text("5")  # reset the peak of resident memory
        one.advance()
    except BaseException:
        one.close()
        raise
    _open[name] = one
    return {"first_s": first, "bytes": max(0, resident_bytes() - before)}


def _advanced(one: Any) -> Mapping[str, Any]:
    steps, began = 0, perf_counter()
    while True:
        steps += one.advance()
        took = perf_counter() - began
        if took > SLICE:
            return {"steps": steps, "seconds": took}


def _split(name: str, sizes: Mapping[str, int]) -> Mapping[str, Any]:
    """Record the time of batches by part.

    The implementation is rebuilt, because wrappers apply to new objects only.
    """
    cell = Cell(**sizes)
    with trl.scope.record(exact=True) as rec:
        one = TABLE[name].make(cell)
        one.advance()
        with trl.scope.operation(MEASURED):
            began, count = perf_counter(), 0
            while perf_counter() - began < 10 * SLICE:
                one.advance()
                count += 1
        one.close()
    recording = rec.read()
    spent = recording.table().by("operation", "library")
    into = recording.transitions().get((MEASURED, "python", "backend"), 0)
    parts = ("python", "simulator", "backend", "waiting")
    return {p: spent.get((MEASURED, p), 0) / count for p in parts} | {"calls": into / count}


class Worker:
    """Client of a worker process.

    Raises:
        RuntimeError: A request failed; the message has the worker's exception.
    """

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [str(python), "-c", "from benchmarks.collecting import worker; worker.serve()"],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, do: str, name: str, **more: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, "name": name, **more}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"it ended with {self._process.wait()}"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
