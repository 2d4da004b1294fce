"""Repeated start and stop of training runs in one process: no thread, process or shared memory leaks."""

from __future__ import annotations

import os
import threading
from typing import Final

import psutil

import timerl_nb as trl
from tests.torture.growth import Growth
from tests.torture.progress import Progress

ABOUT: Final = "training runs begun and stopped in one process"
COUNT: Final = 1000
MINUTES: Final = 30.0
PROCESSES: Final = 100  # one in so many runs steps environments in processes
_TRACKER: Final = "resource_tracker"  # Python's resource tracker, one for all
DQN: Final = trl.replay.Dqn("gym.CartPole-v1", hidden=(8,))


def run(progress: Progress) -> None:
    growth = Growth()
    for k in range(progress.count):
        if not progress.has_time:
            break
        wrong = cycle(k)
        growth.add()
        progress.wrong += [f"run {k} leaves {what}" for what in wrong]
        if k + 1 > progress.done and (k + 1 == progress.count or k % 10 == 9):
            progress.done, progress.figures = k + 1, growth.figures()
            progress.wrong += [x for x in growth.wrong if x not in progress.wrong]
            progress.save()


def cycle(k: int) -> list[str]:
    """Start a run, stop it at some moment, and return leaks."""
    run = trl.replay.train(
        DQN,
        mode=("free", "exact")[k % 2],
        actors=1 + k % 4,
        envs=2,
        steps=4,
        batch=8,
        learning_starts=16,
        how="processes" if k % PROCESSES == PROCESSES - 1 else "loop",
        seed=k,
    )
    while run.turn < k % 7 and run.error is None:
        run.wait(0.001)
    run.stop()
    run.result()
    return left()


def processes() -> list[psutil.Process]:
    """Return the environment processes."""
    alive = [x for x in psutil.Process().children() if x.status() != psutil.STATUS_ZOMBIE]
    return [x for x in alive if _TRACKER not in " ".join(x.cmdline())]


def left() -> list[str]:
    """Return the threads, processes and shared-memory segments of runs."""
    found = [t.name for t in threading.enumerate() if t.name.startswith("timerl")]
    found += [f"process {child.pid}" for child in processes()]
    if os.path.isdir("/dev/shm"):
        found += [x for x in os.listdir("/dev/shm") if x.startswith(("psm_", "timerl"))]
    return found
