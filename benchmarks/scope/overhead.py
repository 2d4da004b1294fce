"""Overhead of recording on the CPU time of whole workloads, without correction.

Several processes per workload alternate. Each runs pairs, recorded and not, in random order. The
interval is a bootstrap of the median over pairs. For comparison: the difference between two
unrecorded runs.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any, Final

import numpy as np

import timerl_nb as trl
from benchmarks.scope.agents import learning
from benchmarks.scope.fixed_works import jax_dqn
from benchmarks.works import WORKS as compiled

PROCESSES: Final = 3
PAIRS: Final = 8  # pairs of each process
_AGENTS: Final = {
    "A2C CartPole-v1": ("A2C", "CartPole-v1", 800),
    "PPO CartPole-v1": ("PPO", "CartPole-v1", 768),
    "DQN CartPole-v1": ("DQN", "CartPole-v1", 1500),
    "TD3 Pendulum-v1": ("TD3", "Pendulum-v1", 300),
    "SAC Pendulum-v1": ("SAC", "Pendulum-v1", 250),
}


def main() -> None:
    """Print a row for each workload."""
    print("| work | recorded, % more CPU [95 %] | neither recorded |\n|---|--:|--:|")
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in WORKS}
    for _ in range(PROCESSES):
        for name in WORKS:
            command = [sys.executable, "-m", "benchmarks", "recorded", name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[name] += json.loads(done.stdout.splitlines()[-1])
    for name, triples in found.items():
        more = [recorded / (0.5 * (a + b)) - 1 for recorded, a, b in triples]
        noise = [a / b - 1 for _, a, b in triples]
        print(f"| {name} | {_text(more)} | {_text(noise)} |", flush=True)


def measure(name: str) -> None:
    """Print the CPU seconds of each pair: once recorded, twice unrecorded."""
    work, taps = WORKS[name]()
    work()
    triples = list[list[float]]()
    for k in range(PAIRS):
        took = {0: 0.0, 1: 0.0, 2: 0.0}
        for which in random.Random(k).sample(sorted(took), 3):
            recording: Any = _recorded(taps) if which == 0 else contextlib.nullcontext()
            with recording:
                begun = process_time()
                work()
                took[which] = process_time() - begun
        triples.append(list(took.values()))
    print(json.dumps(triples))


def _recorded(taps: bool) -> Any:
    return trl.scope.record(taps=taps, calibrated=False)  # whole: no disabled blocks


def _text(ratios: list[float]) -> str:
    """Format the median in % and its interval."""
    rng = np.random.default_rng(0)
    drawn = np.median(rng.choice(ratios, (4000, len(ratios))), axis=1) * 100
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{statistics.median(ratios) * 100:+.1f} [{low:+.1f}, {high:+.1f}]"


def _agent(name: str) -> tuple[Callable[[], None], bool]:
    return learning(*_AGENTS[name]), True


def _jax_loop() -> tuple[Callable[[], None], bool]:
    """Single-file DQN that creates its jitted functions during recording, as scripts do, so that they are wrapped."""
    with trl.scope.record(calibrated=False):
        run = jax_dqn(lambda _: contextlib.nullcontext())
    return partial(run, 2_000, lambda: None), True


def _launches() -> tuple[Callable[[], None], bool]:
    """A TimeRL program with recorded launches."""
    program = compiled["R-8"].compile(2)

    def work() -> None:
        program.execute(seed=0, progress=False)

    return work, False


WORKS: Final[dict[str, Callable[[], tuple[Callable[[], None], bool]]]] = {
    **{name: (lambda name=name: _agent(name)) for name in _AGENTS},
    "DQN in JAX, CartPole-v1": _jax_loop,
    "R-8, launches alone": _launches,
}
