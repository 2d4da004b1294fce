"""A training run that is killed.

As a script: a sequence of processes, and an uninterrupted reference run.

`python -m tests.torture.trained FOLDER KILLS SEED TURNS` prints JSON: the number of kills during
training and saving, and whether the final bits equal the reference's. Each process is forked from
one that has imported all modules without starting JAX.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from tests.torture.subjects import differs, given_by
from timerl_nb.base.atomic_files import write_whole
from timerl_nb.replay import Proportional, Replay, SumTree, train
from timerl_nb.runtime.state.checkpoint_writer import arrays_of

EVERY = 4
LONGEST = 120.0  # seconds without a save: a hang


@dataclass(frozen=True)
class Linear:
    """Linear Q-learning in NumPy: only acting is compiled."""

    env: str = "gym.CartPole-v1"
    gamma: float = 0.9

    @property
    def fields(self) -> Mapping[str, Any]:
        obs, one = ((4,), "f32"), ((), "f32")
        more = {"action": ((), "i32"), "terminated": ((), "bool")}
        return {"obs": obs, "reward": one, "next_obs": obs, **more}

    def begin(self, seed: int) -> Any:
        return {"w": np.random.default_rng(seed).normal(size=(4, 2)).astype(np.float32)}

    def acting(self, state: Any) -> Any:
        return state

    def act(self, params: Any, obs: Any, key: Any) -> Any:
        noise = jax.random.normal(key, (2,))
        return (obs @ params["w"] + noise).argmax().astype(jnp.int32)

    def gradient(self, state: Any, rows: Mapping[str, Any], weight: Any) -> tuple[Any, Any, Any]:
        w, at = np.asarray(state["w"]), np.arange(len(weight))
        later = rows["discount"] * ~rows["terminated"] * (rows["next_obs"] @ w).max(1)
        error = rows["reward"] + later - (rows["obs"] @ w)[at, rows["action"]]
        made = np.zeros((2, 4), np.float32)
        np.add.at(made, rows["action"], -(weight * error)[:, None] * rows["obs"])
        return {"w": made.T.copy()}, error, float((weight * error**2).sum())

    def step(self, state: Any, gradient: Any, count: int) -> Any:
        return {"w": np.asarray(state["w"]) - np.float32(0.01 / count) * np.asarray(gradient["w"])}


def life(folder: Path, result: Path, turns: int) -> None:
    """Start or resume, and run to the end."""
    algorithm = Linear()
    by = {"n_step": 2, "gamma": algorithm.gamma}
    buffer = Replay(300, algorithm.fields, priority=Proportional(), **by)
    run = train(
        algorithm,
        mode="exact",
        actors=2,
        groups=3,
        blocks=2,
        envs=2,
        steps=3,
        batch=8,
        learning_starts=20,
        turns=turns,
        stage=10,
        buffer=buffer,
        seed=1,
        folder=folder,
        every=EVERY,
    )
    found = given_by(run.result())
    found |= {f"buffer {n}": x for n, x in buffer.state().items() if n != "about"}
    write_whole(result, save(found), synced=False)


def begin(folder: Path, result: Path, turns: int) -> int:
    """Start a process of the run."""
    number = os.fork()
    if number:
        return number
    status = 1
    try:
        life(folder, result, turns)
        status = 0
    finally:
        os._exit(status)


def killed(folder: Path, number: int, random: Random) -> str:
    """Kill a process after a save; return the phase hit, or that it had ended."""
    file, end = folder / "training.safetensors", time.monotonic() + LONGEST
    before, is_saving = _stamp(file), random.random() < 0.5
    while time.monotonic() < end:
        if os.waitpid(number, os.WNOHANG)[0]:
            return "ended"
        drafts = [x for x in _there(folder) if x.startswith(".training")]
        if (drafts if is_saving else _stamp(file) != before) and random.random() < 0.6:
            break
        time.sleep(0.0005)
    time.sleep(random.uniform(0, 0.002 if is_saving else 0.02))
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    return "saving" if any(x.startswith(".training") for x in _there(folder)) else "training"


def _stamp(file: Path) -> int:
    return file.stat().st_mtime_ns if file.exists() else 0


def _there(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.exists() else []


def main(place: str, kills: str, seed: str, turns: str) -> None:
    importlib.import_module("gymnasium.vector")
    SumTree(8)  # Numba compiles its loops
    where, random, fell = Path(place), Random(int(seed)), list[str]()
    folder, ended, whole = where / "killed", where / "ended", where / "whole"
    for _ in range(int(kills)):
        fell.append(killed(folder, begin(folder, ended, int(turns)), random))
        if fell[-1] == "ended":
            break
    statuses = []
    for of, result in ((folder, ended), (where / "alone", whole)):
        statuses.append(os.waitpid(begin(of, result, int(turns)), 0)[1])
    wrong = f"ended with {statuses}" if any(statuses) else ""
    if not wrong:
        wrong = differs(arrays_of(whole.read_bytes()), arrays_of(ended.read_bytes()))
    print(json.dumps({"fell": fell, "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
