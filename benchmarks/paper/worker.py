"""A process that runs one system on one work, an iteration per line of its standard input.

`python -m benchmarks.paper.worker SYSTEM WORK MOST` prints a line of JSON for each answer.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shutil import which
from statistics import mean
from subprocess import PIPE, Popen, run
from time import perf_counter, process_time, thread_time
from typing import Any, Final

import jax

from benchmarks.paper.pytorch_ppo import PytorchPpo
from benchmarks.paper.sb3_ppo import StableBaselinesPpo
from benchmarks.training.race import resident_bytes
from benchmarks.training.systems import SYSTEMS as RACED
from benchmarks.training.systems import Runner
from benchmarks.works import Work
from timerl_nb.base.machine_model import cores

ROOT: Final = Path(__file__).parents[2]
TORCH: Final = ROOT / ".venv-torch" / "bin" / "python"

# Systems of PyTorch run in `.venv-torch`, the others in the environment of the caller.
OURS: Final = ("ours", "ours, whole", "ours, interpreted")
JITTED: Final = ("jitted", "jitted, whole")
PYTORCH: Final[Mapping[str, Callable[..., Runner]]] = {
    "PyTorch": partial(PytorchPpo, cached=False),
    "PyTorch, cached": partial(PytorchPpo, cached=True),
    "Stable-Baselines3": StableBaselinesPpo,
}


def missing(system: str) -> str:
    """Return the reason why a system cannot run here; empty if it can."""
    if system in PYTORCH and not TORCH.exists():
        return "PyTorch is not installed: run `make torch-env`"
    return ""


class Process:
    """A running worker.

    Attributes:
        before: Resident bytes before the program exists.
        first: Seconds until the end of the first iteration, imports excluded.

    Raises:
        RuntimeError: The process ended, for example for lack of memory.
    """

    def __init__(self, system: str, work: Work, most: int, device: str) -> None:
        python = str(TORCH) if system in PYTORCH else sys.executable
        words = [system, json.dumps(asdict(work)), str(most), device]
        self._process = Popen(
            [python, "-m", "benchmarks.paper.worker", *words],
            **{"cwd": ROOT, "text": True, "stdin": PIPE, "stdout": PIPE, "stderr": PIPE},
        )
        self.before, self.first = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None and self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            message = self._process.stderr.read().strip().splitlines()[-1:] or ["no message"]
            raise RuntimeError(f"the process ended with {self._process.wait()}: {message[0]}")
        return json.loads(line)

    def advance(self) -> tuple[float, float]:
        """Run one iteration, and return its seconds and the utilisation of the device."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        seconds, busy = self._answer()
        return seconds, busy

    def close(self) -> Mapping[str, int | None]:
        """End the process, and return its figures of memory in bytes."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        found: Mapping[str, int | None] = self._answer()
        self._process.wait()
        return found


def main(system: str, work: str, most: str, device: str) -> None:
    """Serve one system."""
    given = json.loads(work)
    one = Work(**{**given, "obs_shape": tuple(given["obs_shape"])})
    before = resident_bytes()
    began = perf_counter()
    if system in PYTORCH:
        runner = PYTORCH[system](one, device="cuda" if device == "gpu" else "cpu")
    else:
        runner = RACED[system](one, int(most))
    runner.advance()
    _say([before, perf_counter() - began])
    inside = _share_of_operations(runner) if system in PYTORCH and device == "cpu" else 0.0
    for _ in sys.stdin:
        _say(_on_gpu(runner) if device == "gpu" else _on_cpu(runner, inside))
    peak = resident_bytes()  # before releasing, which may start other work
    on_device = _gpu_peak(system) if device == "gpu" else None
    runner.close()
    sizes = {"predicted": runner.predicted, "temp": runner.temp, "arguments": runner.arguments}
    _say({**sizes, "resident": max(peak, before) - before, "device": on_device})


def _say(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def _on_cpu(runner: Runner, inside: float) -> tuple[float, float]:
    """Return the seconds of an iteration, and the fraction of core time inside the library.

    XLA computes on threads other than Python's. PyTorch computes on Python's thread, too; `inside` is the fraction of
    that thread's time in operations.
    """
    began = perf_counter(), process_time(), thread_time()
    runner.advance()
    wall, process, python = (end - start for end, start in zip(_clocks(), began, strict=True))
    busy = (process - python + inside * python) / (wall * cores())
    return wall / runner.iterations, min(busy, 1.0)


def _clocks() -> tuple[float, float, float]:
    return perf_counter(), process_time(), thread_time()


def _share_of_operations(runner: Runner) -> float:
    """Return the fraction of the Python thread's time that an iteration spends in PyTorch's operations."""
    profiling = importlib.import_module("torch.profiler")
    began = perf_counter()
    with profiling.profile(activities=[profiling.ProfilerActivity.CPU]) as profiler:
        runner.advance()
        wall = perf_counter() - began
    inside = sum(event.self_cpu_time_total for event in profiler.key_averages()) / 1e6
    return min(inside / wall, 1.0)


def _on_gpu(runner: Runner) -> tuple[float, float]:
    """Return the seconds of an iteration, and the mean utilisation that the driver reports meanwhile."""
    samples: list[float] = []
    is_over = threading.Event()
    sampler = threading.Thread(target=_sample, args=(samples, is_over))
    sampler.start()
    began = perf_counter()
    runner.advance()
    wall = perf_counter() - began
    is_over.set()
    sampler.join()
    return wall / runner.iterations, mean(samples) if samples else float("nan")


def _sample(samples: list[float], is_over: threading.Event) -> None:
    query = [which("nvidia-smi") or "nvidia-smi", "--query-gpu=utilization.gpu"]
    while not is_over.is_set():
        said = run([*query, "--format=csv,noheader,nounits"], capture_output=True, text=True)
        if said.returncode == 0:
            samples.append(float(said.stdout.split()[0]) / 100)
        is_over.wait(0.02)


def _gpu_peak(system: str) -> int:
    """Return the peak of the device's memory that the process's allocator reports."""
    if system in PYTORCH:
        return int(importlib.import_module("torch").cuda.max_memory_allocated())
    return int(jax.devices()[0].memory_stats()["peak_bytes_in_use"])


if __name__ == "__main__":
    main(*sys.argv[1:])
