"""Functions of the spawned processes in `test_replay_processes`."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np


def step(number: int) -> dict[str, Any]:
    """Return a step of two environments."""
    x = np.array([2 * number, 2 * number + 1], "i4")
    ends = [number % 4 == 3] * 2
    return {"x": x, "next_obs": x, "reward": x.astype("f4"), "terminated": ends}


def write(put: Any, count: int, begun: Any = None) -> None:
    with put:
        for k in range(count):
            if begun is not None:
                begun.value = k + 1
            put(step(k))


def write_and_die(put: Any) -> None:
    for k in range(5):  # two groups of four rows are inserted, two rows are staged
        put(step(k))
    os.kill(os.getpid(), signal.SIGKILL)


def write_wrong_rows(put: Any, message: Any) -> None:
    try:
        put({"x": [1.5]})
    except Exception as error:
        message.put(f"{type(error).__name__}: {error}")
    try:
        put._insert({"x": np.zeros(3)})
    except Exception as error:
        message.put(f"{type(error).__name__}: {error}")
