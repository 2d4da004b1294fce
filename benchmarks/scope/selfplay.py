"""Self-play by several processes: the paper's study of scaling up (002, appendix B.2), small.

Workers play Connect Four against themselves; what they have played updates the network, and the new one plays the old
one. No GPU is asked for: a *simulated* one runs a kernel of known length within each inference, so that its time is
known: what `nvidia-smi` would say of it is beside its truth.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

import timerl_nb as trl
from benchmarks.scope.connect_four import (
    Floats,
    Judge,
    Position,
    Weights,
    first_weights,
    judged,
    learnt,
    searched,
)
from timerl_nb.scope.device_activity.device_operations import Sort
from timerl_nb.scope.device_activity.trace_data import Rows, write_trace

KERNEL: Final = (
    4_000  # nanoseconds of the simulated device that an inference takes: the paper's share
)
SIMULATIONS: Final = 24
HIDDEN: Final = 64
Game = tuple[Floats, Floats, Floats]  # what was seen, what was tried, and who won


class SimulatedGpu:
    """A device of which the time is known: each inference runs one kernel on it, a stream a process."""

    def __init__(self, weights: Weights) -> None:
        self._weights, self._rows, self._begun = weights, Rows(), time.monotonic_ns()
        self.kernels = 0

    def __call__(self, seen: Floats) -> tuple[Floats, Floats]:
        with trl.scope.operation("inference"):
            begun = time.monotonic_ns()
            found = judged(self._weights, seen)
            self.kernels += 1
            done = time.monotonic_ns()
            thread = threading.get_native_id()
            self._rows.call("launch", begun, done, thread, self.kernels)
            stop = begun + KERNEL
            self._rows.run(Sort.KERNEL, "network", begun, stop, 0, os.getpid(), self.kernels)
            return found

    def written(self, folder: Path) -> None:
        """Leave what ran on it in a recording."""
        window = os.getpid(), "simulated", self._begun, time.monotonic_ns()
        write_trace(folder, self._rows.trace(*window, {0: "simulated GPU"}))


def played(
    judges: tuple[Judge, Judge], random: np.random.Generator, *, greedy: bool
) -> tuple[Game, int]:
    """A game between two judges, and who has won it: 0, 1, or -1."""
    position, seen, tried, won, player = Position(), [], [], -1, 0
    while won < 0 and position.moves():
        with trl.scope.operation("tree search"):
            counts = searched(position, judges[player], SIMULATIONS)
        share = counts / counts.sum()
        seen.append(position.seen())
        tried.append(share)
        column = int(np.argmax(counts)) if greedy else int(random.choice(len(share), p=share))
        position, has_won = position.after(column)
        won, player = (player if has_won else won), 1 - player
    results = [0.0 if won < 0 else 1.0 if k % 2 == won else -1.0 for k in range(len(seen))]
    return (np.array(seen), np.array(tried), np.array(results, np.float32)), won


def work(
    folder: str, weights: Weights, games: int, seed: int, results: multiprocessing.Queue[list[Game]]
) -> None:
    """What a worker does: play against itself."""
    random, gpu = np.random.default_rng(seed), SimulatedGpu(weights)
    with trl.scope.phase("self-play"):
        found = [played((gpu, gpu), random, greedy=False)[0] for _ in range(games)]
    gpu.written(Path(folder))
    results.put(found)


def generation(
    folder: Path, workers: int, games: int, weights: Weights, seed: int
) -> tuple[Weights, int]:
    """One round of training, recorded: self-play, update, evaluation; the weights that won, and the positions seen."""
    spawning = multiprocessing.get_context("spawn")
    random = np.random.default_rng(seed)
    with trl.scope.record(folder):
        with trl.scope.phase("self-play"):
            results = spawning.Queue()
            made = [
                spawning.Process(
                    target=work,
                    args=(str(folder), weights, games, seed + k, results),
                    name=f"selfplay_worker_{k}",
                )
                for k in range(workers)
            ]
            for one in made:
                one.start()
            found = [game for _ in made for game in results.get()]
            for one in made:
                one.join()
        seen, tried, won = (np.concatenate(parts) for parts in zip(*found, strict=True))
        with trl.scope.phase("update"):
            new = weights
            for _ in range(200):
                rows = random.integers(len(seen), size=64)
                with trl.scope.operation("step of descent"):
                    new = learnt(new, seen[rows], tried[rows], won[rows], 0.1)
        with trl.scope.phase("evaluate"):
            old_gpu, new_gpu = SimulatedGpu(weights), SimulatedGpu(new)
            ahead = 0
            for k in range(4):
                judges = (new_gpu, old_gpu) if k % 2 == 0 else (old_gpu, new_gpu)
                _, winner = played(judges, random, greedy=False)
                ahead += 0 if winner < 0 else 1 if winner == k % 2 else -1
            for gpu in (old_gpu, new_gpu):
                gpu.written(folder)
    return (new if ahead >= 0 else weights), len(seen)


@dataclass(frozen=True)
class Study:
    """What a round of self-play took.

    Attributes:
        tree: processes with their times.
        chain: what the end of self-play has waited for.
        busy: the share of the time in which anything plays in which the simulated device ran a kernel.
        sampled: the share that `nvidia-smi` would say.
    """

    tree: str
    chain: str
    busy: float
    sampled: float


def study(workers: int, games: int) -> Study:
    """One round, recorded and looked at."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "recording"
        weights = first_weights(HIDDEN, np.random.default_rng(0))
        generation(folder, workers, games, weights, 0)
        recording = trl.scope.read(folder)
        chain = trl.scope.critical_chain(recording, "self-play")
        said = recording.utilization()[0]
        tree = str(trl.scope.processes(recording))
        return Study(tree, str(chain), said.busy, said.reported)


def main(workers: int = 2, games: int = 40) -> None:
    """Print the study."""
    found = study(workers, games)
    print(f"{workers} workers of {games} games each\n\n{found.tree}\n")
    print(f"self-play, its critical chain:\n{found.chain}\n")
    print(f"a simulated GPU is busy for {found.busy:.2%}; nvidia-smi would say {found.sampled:.0%}")
    print("the paper (F.11): 0.4 % of a worker's time (20 of 5,080 s), and 100 %")
