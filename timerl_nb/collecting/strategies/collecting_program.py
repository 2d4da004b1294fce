"""Compiled program for collection: policy and environments.

The environments continue from iteration to iteration of the outermost loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from timerl_nb.base.options import Options
from timerl_nb.collecting.batch import Batch, Ended
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.strategy import SEED_OFFSET, Counts, Weights
from timerl_nb.compiler.language.inputs.tensor_sources import constant, like, tensor, where
from timerl_nb.compiler.language.policy.policy_in_program import broadcast_over
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.dimensions import ENDLESS
from timerl_nb.driver.compiling_context import Context
from timerl_nb.driver.program import Program
from timerl_nb.env.environment import Simulation
from timerl_nb.execution.control.unbounded_iterations import Turns as DriverTurns
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend import graph_function as graph

_FLAGS = ("terminated", "truncated")
_CARRIED = ("after", "returns", "lengths")
_NAMED = ("obs", "action", "reward", *_FLAGS, "valid", "last_obs")
_STATE = "state_"  # prefix of the policy's states, in their order
_ADDED = "policy_"  # prefix of the policy's outputs, to keep names disjoint
# read after the batch is returned, when the user may have written into it
_PRIVATE = ("reward", *_FLAGS)
_KEPT = "kept_"  # prefix of their private copies


def collecting(task: Task, options: Options) -> Program:
    """Return the program of a task; an iteration of its outermost loop is a batch.

    Environments are the first dimension, so their position enters the random draws, and no constant
    is folded per environment. Outputs have steps as the first dimension, in the order of the loop.
    """
    assert task.env is not None
    sim = _same_step(task.env)
    with Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        o = like(sim.obs_space, domain=(b, i, t)).named("obs")
        written = task.acting.write_into_program(o, i, ("i", "t"))
        acted = dict(written.made)
        action = acted.pop("action").named("action")
        o[b, 0, 0] = sim.reset(domain=(b,))
        step = sim.step(action)
        written.follow(step)
        o[b, i + 1, 0] = step.obs[b, i, T - 1]
        o[b, i, t + 1] = step.obs

        def whole(x: RecurrentTensor, end: Any = T) -> RecurrentTensor:
            y = x[0:B, i, 0:end]
            return y.transpose(1, 0, *range(2, y.rank))

        def goes_on(name: str, by: RecurrentTensor) -> RecurrentTensor:
            """Return the partial sum of an episode before each step."""
            total = tensor((), by.dtype, domain=(b, i, t)).named(name)
            left = total + by if step.endless else where(step.done, 0, total + by)
            total[b, 0, 0] = 0
            total[b, i + 1, 0] = left[b, i, T - 1]
            total[b, i, t + 1] = left
            return total[0:B, i, 0]

        made = {"obs": o, "action": action, "reward": step.reward}
        if not step.endless:
            flags = {"terminated": step.terminated, "truncated": step.truncated}
            made |= flags | {"after": step.final_obs}
        for name, x in made.items():
            ctx.output(name, whole(broadcast_over(x, o.domain)))
        if options.executor == "xla":  # equal outputs of an XLA call share no memory
            for name in (n for n in _PRIVATE if n in made):
                ctx.output(f"{_KEPT}{name}", whole(broadcast_over(made[name], o.domain)))
            ctx.output("valid", whole(broadcast_over(constant(True), o.domain)))
        for name, x in acted.items():
            ctx.output(f"{_ADDED}{name}", whole(broadcast_over(x, o.domain)))
        for k, x in enumerate(written.states.values()):
            ctx.output(f"{_STATE}{k}", whole(x, T if task.stores_states else 1))
        ctx.output("last_obs", step.obs[0:B, i, T - 1])
        if not step.endless:
            one = where(step.alive, 1, 0)
            ctx.output("returns", goes_on("returns", step.reward))
            ctx.output("lengths", goes_on("lengths", one))
    return ctx.compile({B: task.envs, I: ENDLESS, T: task.steps}, options, tell=False)


def _same_step(env: Simulation) -> Simulation:
    """Return a copy of the environment that resets within the last step of an episode."""
    twin = env.unstarted()
    twin.autoreset = "same_step"
    return twin


class _Supply:
    """Iterator over the weights of each iteration: the current ones."""

    def __init__(self) -> None:
        self.weights: Weights = {}

    def __iter__(self) -> _Supply:
        return self

    def __next__(self) -> Weights:
        return self.weights


class Turns:
    """Open environments in a program; an iteration of the outermost loop is a batch.

    Args:
        program: the compiled program.
        task: the task.
        seed: seed of all random numbers.
        counts: returns the counts of a batch.
    """

    speed: float | None = None  # never measured, because the first batch compiles

    def __init__(
        self, program: Program, task: Task, seed: int, counts: Callable[[], Counts]
    ) -> None:
        self.program, self._counts, self._task, self._seed = program, counts, task, seed
        self._supply = _Supply()
        self._copies = 0
        shape = task.steps, task.envs
        self._valid, self._none = (np.broadcast_to(x, shape) for x in (True, False))
        self._nothing = np.zeros(shape, np.float32)
        self._interrupts = 0  # number of restarts after interrupts
        self._is_repeatable = program.why_not_repeatable is None
        self._turns = self._start_turns()
        self._is_begun = False  # whether there is a batch that was not returned

    @cached_property
    def _always(self) -> Any:
        return backend.hand_over(np.array(self._valid))

    @cached_property
    def _never(self) -> Any:
        return backend.hand_over(np.array(self._none))

    def _start_turns(self) -> DriverTurns:
        given = self._supply if self._task.acting.weights else None
        seed = (self._seed + self._interrupts * SEED_OFFSET) % 2**64
        return self.program.turns(
            seed, given=given, taken=graph.itself, repeatable=self._is_repeatable
        )

    @property
    def counts(self) -> Counts:
        return replace(self._counts(), copies=self._copies)

    def next(self, weights: Weights, version: int = 0) -> Batch:
        if self._is_begun and not self._is_repeatable:
            self._begin_again()
        elif self._is_begun:
            self._turns.rewind()
        self._supply.weights = weights
        if self._is_repeatable:
            self._turns.save_operands()
        self._is_begun = True
        made, self._copies = graph.together(next(self._turns))
        batch = self._batch(made, version)  # while XLA still computes
        backend.wait(made)
        return batch

    def confirm_received(self) -> None:
        self._is_begun = False

    @property
    def is_lost(self) -> bool:
        return self._is_begun and not self._is_repeatable

    def _begin_again(self) -> None:
        """Begin new episodes, because the effects of the program cannot be repeated."""
        self._turns.close()
        self._interrupts += 1
        self._turns, self._is_begun = self._start_turns(), False

    def _batch(self, made: dict[str, Any], version: int) -> Batch:
        if "valid" not in made:
            made |= self._copies_of(made)
        extras = {n.removeprefix(_ADDED): x for n, x in made.items() if n.startswith(_ADDED)}
        reward, *ends = (made[f"{_KEPT}{name}"] for name in _PRIVATE if name in made)
        after, returns, lengths = (made.get(name) for name in _CARRIED)
        if after is None:  # the environment has no end of episodes
            after, returns, lengths = self._nothing, self._nothing[0], self._nothing[0]
            made |= {name: backend.copied(self._never) for name in _FLAGS}
        flags = (*ends, self._none)
        ended = Ended(reward, self._valid, flags, returns, lengths, after, is_all=True)
        named = {name: made[name] for name in _NAMED}
        acting = self._task.acting
        states = {name: made[f"{_STATE}{k}"] for k, name in enumerate(acting.state_names)}
        more = {"states": acting.tree_of(states)} if states else {}
        return Batch(**named, extras=extras, _ended=ended, **more, policy_version=version)

    def _copies_of(self, made: dict[str, Any]) -> dict[str, Any]:
        """Return the copies that a program without XLA does not make itself, by a single call."""
        known = {f"{_KEPT}{name}": made[name] for name in _PRIVATE if name in made}
        return backend.all_copied(known | {"valid": self._always})

    def close(self) -> None:
        self._turns.close()
