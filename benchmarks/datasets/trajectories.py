"""Trajectories of the built-in environments under a random and a good policy.

Both policies act in one program. Its first environments choose random actions, the others follow a control law.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

import timerl_nb as trl
from timerl_nb.datasets.trajectories import FIELDS, Trajectories, save_trajectories

SEED: Final = 0
RANDOM: Final = "random"


@dataclass(frozen=True)
class Task:
    """An environment with its good policy.

    Attributes:
        env: name of the environment.
        policy: name of the good policy.
        act: the good policy, a function of observations.
        episodes: numbers of episodes of the random and of the good policy.
    """

    env: str
    policy: str
    act: Callable[[trl.RecurrentTensor], trl.RecurrentTensor]
    episodes: tuple[int, int]


def balance(obs: trl.RecurrentTensor) -> trl.RecurrentTensor:
    """Push the cart to the side of a weighted sum of the state."""
    x, velocity, angle, spin = obs.unstack(-1)
    return (0.05 * x + 0.1 * velocity + angle + 0.25 * spin > 0.0).cast("i32")


def follow_velocity(obs: trl.RecurrentTensor) -> trl.RecurrentTensor:
    """Push the car in the direction of its velocity, which adds energy at every step."""
    return trl.where(obs.take(1, -1) < 0.0, 0, 2)


def swing_up(obs: trl.RecurrentTensor) -> trl.RecurrentTensor:
    """Drive the energy of the pendulum to that of the upright position, and hold it there."""
    cos, sin, spin = obs.unstack(-1)
    energy = spin.square() / 6.0 + 5.0 * (cos - 1.0)  # J, 0 upright at rest
    swing = trl.where((energy < 0.0) == (spin < 0.0), -2.0, 2.0)
    torque = trl.where(cos > 0.9, -12.0 * sin - 3.0 * spin, swing)
    return torque.clip(-2.0, 2.0).reshape((1,))


TASKS: Final[Mapping[str, Task]] = {
    "cartpole": Task("CartPole-v1", "linear feedback", balance, (8, 2)),
    "mountain_car": Task("MountainCar-v0", "push along velocity", follow_velocity, (2, 6)),
    "pendulum": Task("Pendulum-v1", "energy swing-up", swing_up, (2, 4)),
}


def record(name: str, seed: int = SEED, options: trl.Options | None = None) -> Trajectories:
    """Run both policies of a task, each environment for one episode."""
    task = TASKS[name]
    env = trl.env.make(task.env)
    by_chance, by_law = task.episodes
    with trl.Context("b", "t") as ctx:
        (b, B), (t, T) = ctx.dims
        obs = trl.like(env.obs_space, domain=(b, t))
        obs[b, 0] = env.reset(domain=(b,))
        drawn = _random_action(env, b, t)
        action = trl.where(trl.value(b) < by_chance, drawn, task.act(obs))
        step = env.step(action)
        obs[b, t + 1] = step.obs
        found = (obs, action, step.reward, step.terminated, step.truncated, step.final_obs)
        for field, value in zip(FIELDS, found, strict=True):
            ctx.output(field, value)
        ctx.output("alive", step.alive)
    bounds = {B: by_chance + by_law, T: env.max_steps}
    result = ctx.compile(bounds, options).execute(seed, progress=False)
    alive = np.asarray(result["alive"])
    arrays = {field: np.asarray(result[field])[alive] for field in FIELDS}  # episode by episode
    return Trajectories(
        env=task.env,
        seed=seed,
        policies=(RANDOM,) * by_chance + (task.policy,) * by_law,
        arrays=arrays,
    )


def _random_action(env: trl.env.Simulation, b: object, t: object) -> trl.RecurrentTensor:
    space = env.act_space
    if isinstance(space, trl.env.Discrete):
        return trl.random.randint(space.n, domain=(b, t))
    return trl.random.uniform(space.shape, space.low, space.high, domain=(b, t))


def write(name: str, path: Path) -> None:
    """Record the trajectories of a task into a file."""
    save_trajectories(record(name), path)
