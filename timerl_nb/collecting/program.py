"""The program that acts and collects, and nothing else: environments that go on from turn to turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.collecting.batch import Batch, Ended
from timerl_nb.collecting.network import over
from timerl_nb.collecting.task import Task
from timerl_nb.collecting.way import Counts, Weights
from timerl_nb.config import Options
from timerl_nb.driver.context import Context
from timerl_nb.driver.program import Program
from timerl_nb.env.core import Simulation, Step
from timerl_nb.frontend.sources import like, tensor, where
from timerl_nb.frontend.tensor import RecurrentTensor
from timerl_nb.runtime.backends import jax as backend
from timerl_nb.runtime.backends import jax_graph as graph
from timerl_nb.symbolic.domain import ENDLESS

_FLAGS = ("terminated", "truncated")
_CARRIED = ("after", "returns", "lengths")
_PLAIN = ("obs", "action", "reward", "last_obs")


def collecting(task: Task, options: Options) -> Program:
    """The program of a task: a turn is a batch.

    The environments are the first dimension, so that they count within draws, and nothing is folded
    for each of them; what is handed out has steps first, as the loop over them writes it.
    """
    assert task.env is not None
    sim = _same_step(task.env)
    with Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        o = like(sim.obs_space, domain=(b, i, t)).named("obs")
        acted = task.acting.written(o, i)
        action = acted.pop("action").named("action")
        o[b, 0, 0] = sim.reset(domain=(b,))
        step = sim.step(action)
        o[b, i + 1, 0] = step.obs[b, i, T - 1]
        o[b, i, t + 1] = step.obs

        def whole(x: RecurrentTensor) -> RecurrentTensor:
            y = x[0:B, i, 0:T]
            return y.transpose(1, 0, *range(2, y.rank))

        def goes_on(name: str, by: RecurrentTensor) -> RecurrentTensor:
            """What an episode has added up ahead of a step."""
            total = tensor((), by.dtype, domain=(b, i, t)).named(name)
            left = total + by if step.endless else where(step.done, 0, total + by)
            total[b, 0, 0] = 0
            total[b, i + 1, 0] = left[b, i, T - 1]
            total[b, i, t + 1] = left
            return total[0:B, i, 0]

        made = {"obs": o, "action": action, "reward": step.reward, **acted}
        made |= {} if step.endless else _ends(step)
        for name, x in made.items():
            ctx.output(name, whole(over(x, o)))
        ctx.output("last_obs", step.obs[0:B, i, T - 1])
        if not step.endless:
            one = where(step.alive, 1, 0)
            ctx.output("returns", goes_on("returns", step.reward))
            ctx.output("lengths", goes_on("lengths", one))
    return ctx.compile({B: task.envs, I: ENDLESS, T: task.steps}, options, tell=False)


def _ends(step: Step) -> dict[str, RecurrentTensor]:
    return {"terminated": step.terminated, "truncated": step.truncated, "after": step.final_obs}


def _same_step(env: Simulation) -> Simulation:
    """The environment as another one, in which episodes follow each other without a step between."""
    twin = env.anew()
    twin.autoreset = "same_step"
    return twin


class Turns:
    """Environments in the turns of a program, which runs them.

    Args:
        counts: of a batch, where they are asked for.
    """

    def __init__(
        self, program: Program, task: Task, seed: int, counts: Callable[[], Counts]
    ) -> None:
        self.program, self._counts = program, counts
        self._weights: Weights = {}
        self._copies = 0
        given = self._given() if task.acting.weights else None
        self._turns = program.turns(seed, given=given, taken=graph.itself)
        shape = task.steps, task.envs
        self._always = backend.to_device(np.ones(shape, bool))
        self._never = backend.to_device(np.zeros(shape, bool))

    def _given(self) -> Iterator[Weights]:
        while True:
            yield self._weights

    @property
    def counts(self) -> Counts:
        return replace(self._counts(), copies=self._copies)

    def next(self, weights: Weights) -> Batch:
        self._weights = weights
        made, self._copies = graph.together(next(self._turns))
        return self._batch(backend.wait(made))

    def _batch(self, made: dict[str, Any]) -> Batch:
        terminated, truncated = (made.pop(name, self._never) for name in _FLAGS)
        after, returns, lengths = (made.pop(name, None) for name in _CARRIED)
        plain: dict[str, Any] = {name: made.pop(name) for name in _PLAIN}

        def done() -> Array:
            return np.asarray(terminated) | np.asarray(truncated)

        reward = plain["reward"]
        if after is None:  # episodes have no end
            after, returns, lengths = plain["obs"], reward[0], reward[0]
        ended = Ended(reward, self._always, done, returns, lengths, after, is_all=True)
        flags = {"terminated": terminated, "truncated": truncated, "valid": self._always}
        return Batch(**plain, **flags, extras=made, _ended=ended)

    def close(self) -> None:
        self._turns.close()
