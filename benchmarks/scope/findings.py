"""RL-Scope's CPU findings, reproduced with current libraries.

Operations are inferred, without annotations. PyTorch and JAX, eager and compiled, replace the
paper's execution modes of TensorFlow. Each function states its criterion.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from time import process_time
from typing import Any, Final

import numpy as np

import timerl_nb as trl
from benchmarks.finding import Finding
from benchmarks.scope.agents import agent
from timerl_nb.scope.analysis.recording_queries import Recording

ON_POLICY: Final = ("A2C", "PPO")
OFF_POLICY: Final = ("DDPG", "TD3", "SAC")
STEPS: Final = {"A2C": 800, "PPO": 1024, "DDPG": 400, "TD3": 400, "SAC": 300}
SIMULATORS: Final = ("CartPole-v1", "Pendulum-v1", "Walker2d-v5", "ALE/Pong-v5")
OBSERVED, ACTIONS, HIDDEN, BATCH = (
    17,
    6,
    64,
    100,
)  # hidden layers for Walker2d, and for its learners


MEASURED: Final = "measured"


def recorded(make: Callable[[], Callable[[], object]], count: int) -> Recording:
    """Record repeated steps without disabled blocks.

    The step is built during recording, so its jitted functions are wrapped.
    """
    with trl.scope.record(exact=True) as rec:
        step = make()
        repeated(step, 3)()
        with trl.scope.operation(MEASURED):
            repeated(step, count)()
    return rec.read()


def share(recording: Recording, operation: str) -> float:
    """Return the share of an inferred operation in the total time."""
    table = recording.table()
    return table.by("operation").get((f"{operation} (guessed)",), 0) / table.total


def crossed(recording: Recording) -> int:
    """Return the number of transitions from Python to a backend."""
    return recording.transitions().get((MEASURED, "python", "backend"), 0)


def spent(recording: Recording, library: str) -> int:
    """Return the nanoseconds of a library."""
    return recording.table().by("operation", "library").get((MEASURED, library), 0)


def repeated(step: Callable[[], object], count: int) -> Callable[[], None]:
    """Return a function that repeats a step."""

    def work() -> None:
        for _ in range(count):
            step()

    return work


# --- one update of a critic, in four execution modes ----------------------------------------------


def torch_update(*, compiled: bool) -> Callable[[], object]:
    """Return a PyTorch update, eager or compiled: forward, backward, Adam."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    nn = torch.nn
    wide = OBSERVED + ACTIONS
    critic = nn.Sequential(
        nn.Linear(wide, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, 1),
    )
    optimizer = torch.optim.Adam(critic.parameters())
    x, y = torch.randn(BATCH, wide), torch.randn(BATCH, 1)

    def loss() -> Any:
        return nn.functional.mse_loss(critic(x), y)

    called, stepped = loss, optimizer.step
    if compiled:
        called, stepped = torch.compile(loss), torch.compile(optimizer.step)

    def update() -> None:
        optimizer.zero_grad()
        called().backward()
        stepped()

    return update


def jax_update(*, jitted: bool) -> Callable[[], object]:
    """Return a JAX update, eager or jitted."""
    jax = importlib.import_module("jax")
    jax.clear_caches()  # cached operations were created without wrappers
    jnp = jax.numpy
    rng = np.random.default_rng(0)
    sizes = (OBSERVED + ACTIONS, HIDDEN, HIDDEN, 1)
    weights = [
        (jnp.asarray(rng.normal(0, 0.1, pair), jnp.float32), jnp.zeros(pair[1]))
        for pair in zip(sizes, sizes[1:], strict=False)
    ]
    moments = jax.tree.map(lambda w: (jnp.zeros_like(w), jnp.zeros_like(w)), weights)
    x = jnp.asarray(rng.normal(size=(BATCH, sizes[0])), jnp.float32)
    y = jnp.asarray(rng.normal(size=(BATCH, 1)), jnp.float32)

    def loss(weights: Any) -> Any:
        z = x
        for w, b in weights[:-1]:
            z = jnp.maximum(z @ w + b, 0)
        return jnp.mean((z @ weights[-1][0] + weights[-1][1] - y) ** 2)

    def adam(weights: Any, moments: Any) -> Any:
        def one(w: Any, g: Any, m: Any) -> Any:
            first, second = 0.9 * m[0] + 0.1 * g, 0.999 * m[1] + 0.001 * g * g
            return w - 1e-3 * first / (jnp.sqrt(second) + 1e-8), (first, second)

        flat, shape = jax.tree.flatten(weights)
        gradients = jax.tree.leaves(jax.grad(loss)(weights))
        pairs = [
            one(*each) for each in zip(flat, gradients, shape.flatten_up_to(moments), strict=True)
        ]
        return tuple(jax.tree.unflatten(shape, column) for column in zip(*pairs, strict=True))

    called = jax.jit(adam) if jitted else adam
    state = [weights, moments]

    def update() -> None:
        state[:] = called(*state)
        jax.block_until_ready(state)

    return update


def cpu(step: Callable[[], object], count: int) -> float:
    """Return the CPU seconds of a step: the minimum of five rounds."""
    repeated(step, 3)()
    found = list[float]()
    for _ in range(5):
        begun = process_time()
        repeated(step, count)()
        found.append((process_time() - begun) / count)
    return min(found)


def f1() -> Finding:
    """Holds if eager code takes at least 1.9 times the CPU time in both libraries."""
    torches = cpu(torch_update(compiled=False), 100) / cpu(torch_update(compiled=True), 100)
    jaxes = cpu(jax_update(jitted=False), 20) / cpu(jax_update(jitted=True), 100)
    what, found = "eager over compiled, an update", f"PyTorch {torches:.2f} x, JAX {jaxes:.1f} x"
    return _of("F.1", what, found, "1.9 to 4.8 x", min(torches, jaxes) >= 1.9)


def f2() -> Finding:
    """Holds if compiled code has fewer transitions and at most 1 / 1.8 of Python's time, in both libraries."""
    makers = {
        "PyTorch": lambda how: torch_update(compiled=how),
        "JAX": lambda how: jax_update(jitted=how),
    }
    rows, holds = list[str](), True
    for name, make in makers.items():
        eager, fast = (recorded(partial(make, how), 50) for how in (False, True))
        us = [spent(one, "python") / 50e3 for one in (eager, fast)]
        counts = [crossed(one) / 50 for one in (eager, fast)]
        holds = holds and us[0] >= 1.8 * us[1] and counts[0] > counts[1]
        rows.append(f"{name} {counts[0]:.0f} to {counts[1]:.0f}, {us[0] / us[1]:.1f} x")
    what = "transitions of an update, eager to compiled, and by how much Python's time falls"
    return _of("F.2", what, "; ".join(rows), "fewer, 1.8 to 13.5 x", holds)


def f3() -> Finding:
    """Holds if one library is at least 2.3 times slower, and has more transitions."""
    makers = partial(torch_update, compiled=False), partial(jax_update, jitted=False)
    counts = [crossed(recorded(make, 30)) / 30 for make in makers]
    times = [cpu(make(), 30) for make in makers]
    slower = times[1] > times[0]
    holds = max(times) >= 2.3 * min(times) and slower == (counts[1] > counts[0])
    found = f"{times[1] / times[0]:.1f} x, {counts[1]:.0f} to {counts[0]:.0f} transitions"
    return _of(
        "F.3", "the same eager update, JAX over PyTorch", found, "2.3 x, with 1.6 to 3.2 x", holds
    )


def f4() -> Finding:
    """Holds if it takes 1.2 times as long. The paper's 3.7 includes copies to and from a GPU."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)

    def network() -> Any:
        return torch.nn.Sequential(
            torch.nn.Linear(OBSERVED, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, ACTIONS)
        )

    x = torch.randn(BATCH, OBSERVED)

    def by_numpy() -> Callable[
        [], None
    ]:  # copies gradients out and weights back, one array at a time
        made, state = network(), dict[int, list[np.ndarray]]()

        def step() -> None:
            made.zero_grad()
            made(x).pow(2).mean().backward()
            for k, weights in enumerate(made.parameters()):
                g = weights.grad.cpu().numpy().copy()
                m = state.setdefault(k, [np.zeros_like(g), np.zeros_like(g)])
                m[0] = 0.9 * m[0] + 0.1 * g
                m[1] = 0.999 * m[1] + 0.001 * g * g
                w = weights.detach().cpu().numpy().copy() - 1e-3 * m[0] / (np.sqrt(m[1]) + 1e-8)
                with torch.no_grad():
                    weights.copy_(torch.from_numpy(w))

        return step

    def fused() -> Callable[[], None]:
        made = network()
        optimizer = torch.optim.Adam(made.parameters(), fused=True)

        def step() -> None:
            optimizer.zero_grad()
            made(x).pow(2).mean().backward()
            optimizer.step()

        return step

    times = [cpu(make(), 200) for make in (by_numpy, fused)]
    python = [spent(recorded(make, 200), "python") for make in (by_numpy, fused)]
    found = f"{times[0] / times[1]:.2f} x, Python's time {python[0] / python[1]:.2f} x"
    what = "an update, Adam by NumPy over PyTorch's fused one"
    return _of("F.4", what, found, "3.7 x, Python's time 13.5 x", times[0] >= 1.2 * times[1])


def f5() -> Finding:
    """Holds if Python's time per step is 2.4 times as long."""
    jax = importlib.import_module("jax")
    jnp, steps = jax.numpy, 20_000

    def collector(length: int) -> Callable[[], None]:
        def step(state: Any, _: Any) -> Any:
            angle, speed = state
            speed = speed + 0.05 * (15 * jnp.sin(angle) + 3 * jnp.tanh(speed))
            return (angle + 0.05 * speed, jnp.clip(speed, -8, 8)), angle

        collect = jax.jit(lambda state: jax.lax.scan(step, state, None, length))

        def work() -> None:
            state = jnp.float32(0.1), jnp.float32(0)
            for _ in range(steps // length):
                state, seen = collect(state)
                np.asarray(seen).sum()

        return work

    python = {k: spent(recorded(partial(collector, k), 1), "python") for k in (100, 1000)}
    ratio = python[100] / python[1000]
    what = "Python's time of a step, 100 over 1,000 steps to a call"
    return _of("F.5", what, f"{ratio:.1f} x", "2.4 x", ratio >= 2.4)


def f6() -> Finding:
    """Holds if a backend takes 1.5 times as long with as many transitions; the cause here is too many threads."""
    torch = importlib.import_module("torch")
    net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
    x, found = torch.randn(256, 256), dict[int, Recording]()
    many = 8 * (os.cpu_count() or 1)

    def infer() -> Callable[[], None]:
        return torch.no_grad()(lambda: net(x))

    for threads in (1, many):
        torch.set_num_threads(threads)
        found[threads] = recorded(infer, 50)
    torch.set_num_threads(1)
    times = [spent(one, "backend") for one in found.values()]
    counts = [crossed(one) for one in found.values()]
    holds = times[1] >= 1.5 * times[0] and counts[0] == counts[1]
    found = f"{times[1] / times[0]:.1f} x, {counts[1]:,} to {counts[0]:,} transitions"
    what = f"the backend's time of inference, {many} threads over one"
    return _of("F.6", what, found, "4.1 x, no more transitions", holds)


def f10() -> Finding:
    """Holds if the smallest on-policy share is 3.5 times the largest off-policy share."""
    shares = dict[str, float]()
    for algorithm in (*ON_POLICY, *OFF_POLICY):
        learner = agent(algorithm, "Walker2d-v5")
        learner.learn(300)
        with trl.scope.record(exact=True) as rec:
            learner.learn(STEPS[algorithm], reset_num_timesteps=False)
        shares[algorithm] = share(rec.read(), "simulation")
    ratio = min(shares[a] for a in ON_POLICY) / max(shares[a] for a in OFF_POLICY)
    return _of(
        "F.10", "simulation on Walker2d", f"{_shares(shares)}: {ratio:.1f} x", "3.5 x", ratio >= 3.5
    )


def f12() -> Finding:
    """Holds if the share is 38.1 % everywhere; the paper trains on a GPU."""
    gym = importlib.import_module("gymnasium")
    gym.register_envs(importlib.import_module("ale_py"))
    shares = dict[str, float]()
    for env in SIMULATORS:
        made = gym.make(env, obs_type="ram") if env.startswith("ALE") else gym.make(env)
        learner = agent("PPO", made)
        learner.learn(256)
        with trl.scope.record(exact=True) as rec:
            learner.learn(1024, reset_num_timesteps=False)
        shares[env] = share(rec.read(), "simulation")
    return _of(
        "F.12",
        "simulation of PPO",
        _shares(shares),
        "at least 38.1 %",
        min(shares.values()) >= 0.381,
    )


def _of(number: str, what: str, found: str, paper: str, holds: bool) -> Finding:
    return Finding.of(number, what, found, "", paper, holds, "CPU")


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {part:.1%}" for name, part in shares.items())


_TORCH: Final = ("torch",)
_TRAINED: Final = ("torch", "stable_baselines3", "mujoco")
FINDINGS: Final[Mapping[str, tuple[Callable[[], Finding], tuple[str, ...]]]] = {
    "F.1": (f1, _TORCH),
    "F.2": (f2, _TORCH),
    "F.3": (f3, _TORCH),
    "F.4": (f4, _TORCH),
    "F.5": (f5, ()),
    "F.6": (f6, _TORCH),
    "F.10": (f10, _TRAINED),
    "F.12": (f12, (*_TRAINED, "ale_py")),
}
