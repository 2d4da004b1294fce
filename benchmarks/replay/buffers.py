"""Replay buffers: insert eight rows, draw a batch, update its priorities.

Our buffer and its peers alternate in one process. Rows are CartPole's, or frames of 84 × 84 × 4
bytes. The peers are optional, and the table lists missing ones: cpprb, flashbax, and the uniform
buffer of Stable-Baselines3.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from timerl_nb.replay import Proportional, Replay

SMALL = {
    "obs": ((4,), "f32"),
    "action": ((), "i32"),
    "reward": ((), "f32"),
    "next_obs": ((4,), "f32"),
    "terminated": ((), "f32"),
}
FRAMES = {"obs": ((84, 84, 4), "u8"), "action": ((), "i32"), "reward": ((), "f32")}
NEW = 8
WARM = 20
# entries, batch size, and fields of a row
Times = tuple[float, float, float]  # seconds of insertion, sampling and update
SIZES: list[tuple[int, int, Mapping[str, Any]]] = [
    (10_000, 32, SMALL),
    (100_000, 32, SMALL),
    (100_000, 256, SMALL),
    (1_000_000, 256, SMALL),
    (1_000_000, 4096, SMALL),
    (10_000, 32, FRAMES),
]
ROUNDS = 300
TYPES = {"f32": np.float32, "i32": np.int32, "u8": np.uint8}

Rows = Mapping[str, Any]


def rows(fields: Mapping[str, Any], count: int, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        name: (255 * random.random((count, *shape))).astype(TYPES[kind])
        for name, (shape, kind) in fields.items()
    }


class Ours:
    def __init__(self, entries: int, batch: int, fields: Mapping[str, Any], **options: Any) -> None:
        self.buffer = Replay(entries, fields, priority=Proportional(), **options)
        self.batch = batch

    def insert(self, x: Rows) -> None:
        self.buffer.insert(x)

    def sample(self) -> Any:
        return self.buffer.sample(self.batch, 0.4).ticket

    def update(self, drawn: Any, errors: Any) -> None:
        self.buffer.update(drawn, errors)


class Cpprb:
    def __init__(self, entries: int, batch: int, fields: Mapping[str, Any]) -> None:
        env = {
            n: {"shape": shape or 1, "dtype": TYPES[kind]} for n, (shape, kind) in fields.items()
        }
        self.buffer = _module("cpprb").PrioritizedReplayBuffer(entries, env, alpha=0.6)
        self.batch = batch

    def insert(self, x: Rows) -> None:
        self.buffer.add(**x)

    def sample(self) -> Any:
        return self.buffer.sample(self.batch, 0.4)["indexes"]

    def update(self, drawn: Any, errors: Any) -> None:
        self.buffer.update_priorities(drawn, np.abs(errors))


class Flashbax:
    def __init__(self, entries: int, batch: int, fields: Mapping[str, Any]) -> None:
        made = _module("flashbax").make_prioritised_flat_buffer(
            max_length=entries,
            min_length=batch,
            sample_batch_size=batch,
            add_sequences=False,
            add_batch_size=NEW,
            priority_exponent=0.6,
            device="cpu",
        )
        one = {n: jnp.zeros(shape, TYPES[kind]) for n, (shape, kind) in fields.items()}
        self.state, self.key = made.init(one), jax.random.key(0)
        self.add = jax.jit(made.add, donate_argnums=0)
        self.draw = jax.jit(made.sample)
        self.set = jax.jit(made.set_priorities, donate_argnums=0)

    def insert(self, x: Rows) -> None:
        self.state = jax.block_until_ready(self.add(self.state, x))

    def sample(self) -> Any:
        self.key, key = jax.random.split(self.key)
        drawn = self.draw(self.state, key)
        weight = drawn.probabilities**-0.4
        jax.block_until_ready((drawn, weight / weight.max()))
        return drawn.indices

    def update(self, drawn: Any, errors: Any) -> None:
        made = self.set(self.state, drawn, jnp.abs(jnp.asarray(errors)) + 1e-6)
        self.state = jax.block_until_ready(made)


class Sb3:
    """Uniform buffer of Stable-Baselines3: it has no priorities to update."""

    def __init__(self, entries: int, batch: int, fields: Mapping[str, Any]) -> None:
        if fields is not SMALL:
            raise ImportError("it is asked for small rows alone")
        buffers = _module("stable_baselines3.common.buffers")
        box = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.buffer = buffers.ReplayBuffer(entries, box, spaces.Discrete(2), "cpu", n_envs=NEW)
        self.batch = batch

    def insert(self, x: Rows) -> None:
        ends = x["terminated"]
        more = (x["action"][:, None], x["reward"], ends, [{}] * NEW)
        self.buffer.add(x["obs"], x["next_obs"], *more)

    def sample(self) -> Any:
        self.buffer.sample(self.batch)

    def update(self, drawn: Any, errors: Any) -> None:
        pass


SYSTEMS: Mapping[str, Callable[..., Any]] = {
    "ours": Ours,
    "ours, NumPy": lambda *given: Ours(*given, engine="numpy"),
    "cpprb": Cpprb,
    "flashbax": Flashbax,
    "SB3, uniform": Sb3,
}


def _module(name: str) -> Any:
    return importlib.import_module(name)


def main() -> None:
    print(
        "| entries, batch, rows | system | insert, µs | sample, µs | update, µs | ratio to cpprb (quartiles) |"
    )
    print("|---|---|---|---|---|---|")
    lacking: dict[str, str] = {}
    for entries, batch, fields in SIZES:
        systems: dict[str, Any] = {}
        for name, make in SYSTEMS.items():
            try:
                systems[name] = make(entries, batch, fields)
            except ImportError as error:
                lacking.setdefault(name, str(error))
        found = race(systems, entries, batch, fields)
        for name, times in found.items():
            print(_line(entries, batch, fields, name, times, found.get("cpprb")), flush=True)
    for name, why in lacking.items():
        print(f"\n{name} was left out: {why}")


def race(
    systems: Mapping[str, Any], entries: int, batch: int, fields: Mapping[str, Any]
) -> dict[str, list[Times]]:
    """Fill the buffers, and return the seconds of each interleaved round, by system."""
    _fill(systems, entries, fields)
    found: dict[str, list[Times]] = {name: [] for name in systems}
    new, errors = rows(fields, NEW), np.random.default_rng(1).random(batch)
    rounds = ROUNDS if batch < 4096 else ROUNDS // 5
    order = np.random.default_rng(2)
    for k in range(WARM + rounds):
        # A buffer that runs after XLA finds cold caches; the random order spreads this evenly.
        for name in order.permutation(list(systems)):
            took = _round(systems[name], new, errors)
            if k >= WARM:
                found[name].append(took)
    return found


def _fill(systems: Mapping[str, Any], entries: int, fields: Mapping[str, Any]) -> None:
    """Fill the buffers with blocks of more than eight rows."""
    many = rows(fields, 1000)
    for name, system in systems.items():
        if name.startswith(("ours", "cpprb")):
            for _ in range(0, entries, 1000):
                system.insert(many)
        else:
            new = rows(fields, NEW)
            for _ in range(0, min(entries, 20_000), NEW):
                system.insert(new)


def _round(system: Any, new: Rows, errors: Any) -> Times:
    times = [perf_counter()]
    system.insert(new)
    times.append(perf_counter())
    drawn = system.sample()
    times.append(perf_counter())
    system.update(drawn, errors)
    times.append(perf_counter())
    return times[1] - times[0], times[2] - times[1], times[3] - times[2]


def _line(
    entries: int,
    batch: int,
    fields: Mapping[str, Any],
    name: str,
    times: list[Times],
    reference: list[Times] | None,
) -> str:
    each = " | ".join(f"{1e6 * median(x):,.0f}" for x in zip(*times, strict=True))
    ratio = "–"
    if reference is not None:
        ratios = [sum(a) / sum(b) for a, b in zip(times, reference, strict=True)]
        low, middle, high = quantiles(ratios, n=4)
        ratio = f"{middle:.2f} ({low:.2f} to {high:.2f})"
    kind = "small" if fields is SMALL else "frames"
    return f"| {entries:,}, {batch:,}, {kind} | {name} | {each} | {ratio} |"
