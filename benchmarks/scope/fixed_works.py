"""Deterministic workloads for overhead correction, with annotated operations."""

from __future__ import annotations

import importlib
import importlib.util
import math
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

Annotate = Callable[[str], AbstractContextManager[Any]]
Tick = Callable[[], None]  # called after each step
Run = Callable[[int, Tick], None]


@dataclass(frozen=True)
class Work:
    """One workload.

    Attributes:
        prepare: Returns a function that runs steps in annotated operations.
        steps, warm: Steps of the measured run, and warm-up steps.
        taps: Modules with wrapped native functions, in addition to the default ones.
        needs: Required package.
    """

    prepare: Callable[[Annotate], Run]
    steps: int
    warm: int
    taps: tuple[tuple[str, str], ...] = ()
    needs: str = ""


def there() -> list[str]:
    """Return the names of workloads that can run here."""
    return [
        name for name, one in WORKS.items() if not one.needs or importlib.util.find_spec(one.needs)
    ]


def pendulum(annotate: Annotate) -> Run:
    """Swing up a pendulum by energy control in Python; the physics call `math`."""

    def run(steps: int, tick: Tick) -> None:
        angle, speed, gain = 0.1, 0.0, np.array([1.0, -0.5, 0.2])
        for _ in range(steps):
            with annotate("act"):
                seen = np.array([math.cos(angle), math.sin(angle), speed])
                force = float(np.clip(gain @ seen, -2.0, 2.0))
            with annotate("simulation"):
                for _ in range(20):
                    near = angle - angle**3 / 6 + angle**5 / 120 - angle**7 / 5_040
                    speed += 0.004 * (9.8 * near + force - 0.1 * speed * abs(speed))
                    angle += 0.004 * speed
                angle = math.remainder(angle, 2 * math.pi)
            tick()

    return run


def tiles(annotate: Annotate) -> Run:
    """Sarsa with hashed tiles on the mountain car, in Python; tiles are hashed by a checksum."""

    def run(steps: int, tick: Tick) -> None:
        weights, draw = [0.0] * 4096, np.random.default_rng(0)
        place, speed = -0.5, 0.0

        def seen() -> list[int]:
            first = zlib.crc32(b"%d %d" % (int(place * 64), int(speed * 800)))
            return [(first + k * 977 + int((place + k / 64) * 8)) % 4096 for k in range(24)]

        for _ in range(steps):
            with annotate("act"):
                before = seen()
                values = [sum(weights[k - a] for k in before) for a in range(3)]
                action = int(draw.integers(3)) if draw.random() < 0.1 else values.index(max(values))
            with annotate("simulation"):
                speed += 0.001 * (action - 1) - 0.0025 * math.cos(3 * place)
                place = max(-1.2, min(0.6, place + speed))
            with annotate("learn"):
                target = -1.0 + 0.99 * sum(weights[k - action] for k in seen())
                error = target - values[action]
                for k in before:
                    weights[k - action] += 0.01 * error
            if place >= 0.6:
                place, speed = -0.5, 0.0
            tick()

    return run


def sums(annotate: Annotate) -> Run:
    """Checksums of some kilobytes: few calls of some length, and a little Python."""

    def run(steps: int, tick: Tick) -> None:
        content, total = bytes(range(256)) * 32, 0
        for _ in range(steps):
            with annotate("inner"):
                for k in range(8):
                    total += zlib.crc32(content, k) ^ zlib.adler32(content, k)
                total = sum(int(digit) for digit in str(total)) * 31 % 65_521
            tick()

    return run


def gym(name: str) -> Callable[[Annotate], Run]:
    """Environment steps under a linear policy, not annotated."""

    def prepare(annotate: Annotate) -> Run:
        env = gymnasium.make(name)

        def run(steps: int, tick: Tick) -> None:
            seen, _ = env.reset(seed=0)
            draw = np.random.default_rng(0)
            count = int(env.action_space.n)
            gains = draw.normal(size=(count, len(seen)))
            for _ in range(steps):
                with annotate("act"):
                    action = int(np.argmax(gains @ seen))
                seen, _, ended, cut, _ = env.step(action)
                if ended or cut:
                    seen, _ = env.reset()
                tick()

        return run

    return prepare


def replay(annotate: Annotate) -> Run:
    """DQN of one hidden layer on CartPole, in NumPy."""
    env = gymnasium.make("CartPole-v1")

    def run(steps: int, tick: Tick) -> None:
        draw = np.random.default_rng(0)
        first, second = draw.normal(size=(4, 32)) * 0.3, draw.normal(size=(32, 2)) * 0.3
        kept: list[tuple[Any, int, float, Any, float]] = []
        seen, _ = env.reset(seed=0)
        for t in range(steps):
            with annotate("act"):
                values = np.maximum(seen @ first, 0) @ second
                action = int(draw.integers(2)) if draw.random() < 0.1 else int(np.argmax(values))
            with annotate("simulation"):
                new, reward, ended, cut, _ = env.step(action)
                kept.append((seen, action, float(reward), new, float(ended)))
                seen = env.reset()[0] if ended or cut else new
            if t > 64 and t % 4 == 0:
                with annotate("learn"):
                    rows = [kept[k] for k in draw.integers(len(kept), size=32)]
                    s, a, r, n, d = (np.array(column) for column in zip(*rows, strict=True))
                    hidden = np.maximum(s @ first, 0)
                    best = (np.maximum(n @ first, 0) @ second).max(1)
                    error = (hidden @ second)[np.arange(32), a] - r - 0.99 * (1 - d) * best
                    slope = np.zeros((32, 2))
                    slope[np.arange(32), a] = error / 32
                    second -= 0.01 * hidden.T @ slope
                    first -= 0.01 * s.T @ ((slope @ second.T) * (hidden > 0))
            tick()

    return run


def jax_dqn(annotate: Annotate) -> Run:
    """DQN after CleanRL: an inference per step, an update every fourth step, both jitted."""

    def net(p: Any, x: Any) -> Any:
        return jax.nn.relu(jax.nn.relu(x @ p[0]) @ p[1]) @ p[2]

    @jax.jit
    def act(p: Any, seen: Any) -> Any:
        return jnp.argmax(net(p, seen))

    @jax.jit
    def update(p: Any, s: Any, a: Any, r: Any, n: Any, d: Any) -> Any:
        def loss(p: Any) -> Any:
            target = r + 0.99 * (1 - d) * jax.lax.stop_gradient(net(p, n)).max(1)
            return jnp.mean((net(p, s)[jnp.arange(len(a)), a] - target) ** 2)

        return [x - 1e-3 * y for x, y in zip(p, jax.grad(loss)(p), strict=True)]

    env = gymnasium.make("CartPole-v1")

    def run(steps: int, tick: Tick) -> None:
        draw = np.random.default_rng(0)
        p = [
            jnp.array(draw.normal(size=s) * 0.1, jnp.float32) for s in ((4, 64), (64, 64), (64, 2))
        ]
        kept: list[tuple[Any, int, float, Any, float]] = []
        seen, _ = env.reset(seed=0)
        for t in range(steps):
            with annotate("inference"):
                action = int(act(p, seen)) if draw.random() > 0.1 else int(draw.integers(2))
            with annotate("simulation"):
                new, reward, ended, cut, _ = env.step(action)
            kept.append((seen, action, float(reward), new, float(ended)))
            seen = env.reset()[0] if ended or cut else new
            if t > 64 and t % 4 == 0:
                with annotate("update"):
                    rows = [kept[k] for k in draw.integers(len(kept), size=64)]
                    p = update(
                        p,
                        *(
                            np.array(x, np.float32 if k != 1 else np.int32)
                            for k, x in enumerate(zip(*rows, strict=True))
                        ),
                    )
            tick()
        jax.block_until_ready(p)

    return run


def jax_policy(annotate: Annotate) -> Run:
    """REINFORCE on Acrobot, not annotated: operations are inferred from jitted functions and steps."""

    @jax.jit
    def act(p: Any, seen: Any, key: Any) -> Any:
        return jax.random.categorical(key, jnp.tanh(seen @ p[0]) @ p[1])

    @jax.jit
    def learn(p: Any, s: Any, a: Any, r: Any) -> Any:
        def loss(p: Any) -> Any:
            chosen = jax.nn.log_softmax(jnp.tanh(s @ p[0]) @ p[1])[jnp.arange(len(a)), a]
            return -jnp.mean(chosen * r)

        return [x - 1e-2 * y for x, y in zip(p, jax.grad(loss)(p), strict=True)]

    env = gymnasium.make("Acrobot-v1")
    del annotate

    def run(steps: int, tick: Tick) -> None:
        draw = np.random.default_rng(0)
        p = [jnp.array(draw.normal(size=s) * 0.1, jnp.float32) for s in ((6, 32), (32, 3))]
        keys = draw.integers(2**31, size=(steps, 2)).astype(np.uint32)
        seen, _ = env.reset(seed=0)
        kept: list[tuple[Any, int, float]] = []
        for t in range(steps):
            action = int(act(p, seen, keys[t]))
            new, reward, ended, cut, _ = env.step(action)
            kept.append((seen, action, float(reward)))
            seen = env.reset()[0] if ended or cut else new
            if len(kept) == 64:
                s, a, r = (np.array(column) for column in zip(*kept, strict=True))
                p = learn(p, s, a, np.cumsum(r[::-1])[::-1].astype(np.float32))
                kept.clear()
            tick()

    return run


def sb3(algorithm: str, env: str, **given: Any) -> Callable[[Annotate], Run]:
    """Stable-Baselines3, not annotated."""

    def prepare(annotate: Annotate) -> Run:
        del annotate
        stable_baselines3 = importlib.import_module("stable_baselines3")
        importlib.import_module("torch").set_num_threads(1)

        def run(steps: int, tick: Tick) -> None:
            model = getattr(stable_baselines3, algorithm)(
                "MlpPolicy", env, seed=0, device="cpu", **given
            )
            model.learn(steps, callback=lambda *_: tick() is None)

        return run

    return prepare


_NUMPY: Final = ("numpy._core._multiarray_umath", "backend")
_MATH: Final = ("math", "simulation")
_SUMS: Final = ("zlib", "backend")
WORKS: Final = {
    "pendulum": Work(pendulum, 80_000, 2_000, (_NUMPY, _MATH)),
    "tiles": Work(tiles, 40_000, 2_000, (_MATH, _SUMS)),
    "sums": Work(sums, 24_000, 1_000, (_SUMS,)),
    "gym MountainCar": Work(gym("MountainCar-v0"), 120_000, 2_000, (_NUMPY,)),
    "gym Acrobot": Work(gym("Acrobot-v1"), 25_000, 500, (_NUMPY, _MATH)),
    "NumPy DQN": Work(replay, 25_000, 1_000, (_NUMPY, _MATH)),
    "JAX DQN": Work(jax_dqn, 12_000, 500),
    "JAX REINFORCE": Work(jax_policy, 12_000, 300),
    "SB3 PPO": Work(
        sb3("PPO", "CartPole-v1", n_steps=256, batch_size=64, n_epochs=4),
        2_048,
        256,
        needs="stable_baselines3",
    ),
    "SB3 A2C": Work(sb3("A2C", "CartPole-v1"), 2_000, 200, needs="stable_baselines3"),
    "SB3 DQN": Work(
        sb3("DQN", "CartPole-v1", learning_starts=100), 4_000, 300, needs="stable_baselines3"
    ),
}
