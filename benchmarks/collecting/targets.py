"""Figures of collecting on a CPU that have targets, each from one interleaved run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import gymnasium
import jax
import numpy as np

import timerl_nb as trl
from benchmarks.collecting import fitting, jitted
from benchmarks.collecting.cell import Cell
from benchmarks.collecting.findings import EAGER, LOOPS, OURS, SCAN, Ratio
from benchmarks.collecting.policy import weights
from benchmarks.collecting.sweep import Workers, measured
from benchmarks.finding import Spread
from timerl_nb.collecting.cost_model import Device
from timerl_nb.driver.search.machine_constants import machine_here

STEPS: Final = 64
ROUNDS: Final = 11
ENVS: Final = (16, 256, 1024, 8192)
# Least speeds of ours over peers: for all numbers of environments, and for 256.
PEERS: Final = {SCAN: 1.0, "gymnax, scan": 1.05}
ONCE: Final = {EAGER: 4.5, LOOPS[0]: 120.0}
FIRST_BATCH: Final = {"empty cache": 3.0, "filled cache": 0.5}  # most seconds
SIMULATION: Final = Cell(16_384, 100, 0, state=64)  # 16 MiB of state
FUNCTION: Final = (16, 256, 2048)  # environments of a JAX function and a network as policies
NEXT: Final = "next, N = K = 16"
HOST: Final = (("native", 16), ("native", 256), ("loop", 16), ("processes", 2), ("processes", 16))
START: Final = """
from time import perf_counter
import timerl_nb as trl
policy = trl.DNNBuilder().from_env(trl.env.make("CartPole-v1"), hidden=[64, 64])
import jax; jax.devices()
began = perf_counter()
trl.collect("CartPole-v1", policy, envs=256, steps=64, how="scan").next()
print(perf_counter() - began)
"""


def figures(root: Path) -> Iterator[tuple[str, Spread]]:
    """Yield each figure with a target by name; figures of missing peers are left out."""
    with Workers(root) as workers:
        for envs in ENVS:
            names = (OURS, *PEERS, *(ONCE if envs == 256 else {}))
            found = {m.name: m for m in measured(workers, Cell(envs, STEPS), names, ROUNDS)}
            for name, other in found.items():
                if name != OURS and other.speeds:
                    yield f"over {name}, N = {envs}", Ratio.of(found[OURS], other)
        both = {m.name: m for m in measured(workers, SIMULATION, ("ours", "ours, blocks"), ROUNDS)}
        yield "blocks, 16 MiB of state", Ratio.of(both["ours, blocks"], both["ours"])
    for envs in FUNCTION:
        yield f"JAX function, N = {envs}", _function_over_network(envs)
    yield NEXT, _next_over_program(16)
    for how, envs in HOST:
        yield f"{how}, N = {envs}", overhead(how, envs)
    yield "error of the cost model", Spread.from_values(model_errors())
    with TemporaryDirectory() as folder:
        for what in FIRST_BATCH:
            yield f"first batch, {what}", Spread.from_values([_first(folder)])


def _first(folder: str) -> float:
    """Return the seconds until the first batch."""
    env = os.environ | {"TIMERL_CACHE": folder}
    made = subprocess.run(
        [sys.executable, "-c", START], env=env, check=True, capture_output=True, text=True
    )
    return float(made.stdout.split()[-1])


def overhead(how: str, envs: int, rounds: int = 41) -> Ratio:
    """Return the time of a host strategy relative to a bare loop around the same library."""
    w = np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)

    def act(obs: Any) -> Any:
        return (obs @ w).argmax(-1)

    with ExitStack() as stack:
        c = stack.enter_context(
            closing(trl.collect("gym.CartPole-v1", act, envs=envs, steps=STEPS, how=how))
        )
        bare = stack.enter_context(closing(Bare(how, envs, act)))
        return _interleaved(c.next, bare.next, rounds)


def _interleaved(mine: Callable[[], Any], other: Callable[[], Any], rounds: int) -> Ratio:
    """Return the time of a call relative to another one, from alternating calls."""
    takes: list[tuple[float, float]] = []
    for k in range(2 * rounds + 2):
        first, second = (mine, other) if k % 2 else (other, mine)
        one, two = _seconds(first), _seconds(second)
        takes.append((one, two) if k % 2 else (two, one))
    each = sorted(one / two for one, two in takes[2:])
    low, high = each[len(each) // 4], each[-1 - len(each) // 4]
    return Ratio(median(each), low, high)


def _function_over_network(envs: int) -> Ratio:
    """Return the time of a batch under a JAX function, relative to the same layers as a network."""

    def act(layers: Any, obs: Any, key: Any) -> Any:
        action, log_prob = jitted.act(layers, obs[None], key)
        return action[0], {"log_prob": log_prob[0]}

    network = trl.DNNBuilder().from_env(trl.env.make("CartPole-v1"), hidden=[64, 64])
    layers = [[*layer] for layer in weights(64)]
    sizes: dict[str, Any] = {"envs": envs, "steps": STEPS, "how": "scan"}
    with (
        closing(trl.collect("CartPole-v1", act, params=layers, **sizes)) as mine,
        closing(trl.collect("CartPole-v1", network, **sizes)) as other,
    ):
        return _interleaved(mine.next, other.next, ROUNDS)


def _next_over_program(size: int, rounds: int = 400) -> Ratio:
    """Return the time of `next`, relative to an iteration of the same program."""
    network = trl.DNNBuilder().from_env(trl.env.make("CartPole-v1"), hidden=[64, 64])
    with ExitStack() as stack:
        both = [
            stack.enter_context(
                closing(trl.collect("CartPole-v1", network, envs=size, steps=size, how="scan"))
            )
            for _ in range(2)
        ]
        mine, other = both
        other.next()
        source: Any = other._source
        turns = source._turns
        return _interleaved(mine.next, lambda: jax.block_until_ready(next(turns)), rounds)


def _seconds(call: Callable[[], Any]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began


class Bare:
    """Minimal hand-written loop that stacks its observations."""

    def __init__(self, how: str, envs: int, act: Callable[[Any], Any]) -> None:
        mode = {"native": "vector_entry_point", "loop": "sync", "processes": "async"}[how]
        options: dict[str, Any] = {}
        if how != "native":
            options = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP, "copy": False}
        if how == "processes":
            options["context"] = "spawn"
        more = {"vector_kwargs": options} if options else {}
        self._env: Any = gymnasium.make_vec("CartPole-v1", envs, mode, **more)
        self._act = act
        self._obs: Any = self._env.reset(seed=0)[0]

    def next(self) -> Sequence[np.ndarray]:
        rows: list[tuple[Any, ...]] = []
        obs = self._obs
        for _ in range(STEPS):
            seen = np.array(obs)
            action = self._act(seen)
            obs, reward, ended, cut, _ = self._env.step(action)
            rows.append((seen, action, np.array(reward), np.array(ended), np.array(cut)))
        self._obs = obs
        return [np.stack(x) for x in zip(*rows, strict=True)]

    def close(self) -> None:
        self._env.close()


def model_errors() -> Sequence[float]:
    """Return relative errors of the cost model on held-out runs, after a fit to five small runs."""
    cartpole, pendulum = trl.env.make("CartPole-v1"), trl.env.make("Pendulum-v1")
    few = fitting.small()
    others = [
        fitting.Cell(cartpole, width, *sizes)
        for width in (0, 64)
        for sizes in ((16, 64), (256, 64), (2048, 32), (8192, 32))
    ]
    others += [
        fitting.Cell(cartpole, 256, 256, 32),
        fitting.Cell(pendulum, 0, 1024, 64),
        fitting.Cell(cartpole, 0, 256, 16, by_step=True),
        fitting.Cell(cartpole, 64, 64, 16, by_step=True),
    ]
    runs = fitting.measured([*few, *others])
    here = Device("", fitting.fit(runs[: len(few)], machine_here()))
    return [abs(run.load.seconds(here) / run.seconds - 1) for run in runs[len(few) :]]
