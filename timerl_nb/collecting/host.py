"""Environments that step on the host, all at once: their steps written into a batch's own memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.collecting.acting import check_numbers
from timerl_nb.collecting.batch import Batch, Ended
from timerl_nb.collecting.task import Task
from timerl_nb.collecting.way import Counts, Prepared, Way, Weights
from timerl_nb.errors import EnvError, ExecutionError, ShapeError
from timerl_nb.ir.shapes import NUMPY, dtype_name

_LINE = 64  # bytes: memory that begins so is shared with JAX as it is


class Stepping(Protocol):
    """Environments on the host that take a step together.

    Attributes:
        space: of one's actions, as Gymnasium has it.
        restarts_at_once: whether the observation that a step returns is of the next episode where one
            has ended; else the step after does nothing but begin it.
    """

    space: Any
    restarts_at_once: bool

    def reset(self) -> Any:
        """The first observations, [envs, …]."""
        ...

    def step(self, action: Array) -> tuple[Any, Any, Any, Any, Any]:
        """Observations, rewards, terminated and truncated; and where environments restart at once the
        last observations of the episodes that ended, in the order of environments, None for none."""
        ...

    def at_fault(self, error: Exception) -> tuple[Sequence[int], str]:
        """Which environments may have raised an error, of all if it is not known, and what was said."""
        ...

    def close(self) -> None: ...

    @property
    def seeds(self) -> Sequence[int] | None:
        """What each was seeded with; None where they have one seed together."""
        ...


def memory(shape: Sequence[int], kind: Any) -> Array:
    """An array of one's own, not filled, that JAX takes as it is."""
    size = prod(shape) * np.dtype(kind).itemsize
    whole = np.empty(size + _LINE, np.uint8)
    at = -whole.ctypes.data % _LINE
    return whole[at : at + size].view(kind).reshape(shape)


class HostTurns:
    """Environments in progress on the host."""

    def __init__(self, stepping: Stepping, task: Task, seed: int) -> None:
        seen, acts = task.spaces
        self._stepping, self._steps, self._envs = stepping, task.steps, task.envs
        self._seen = (*seen.shape,), NUMPY[seen.dtype]
        self._acts = (task.envs, *acts.shape), NUMPY[acts.dtype]
        self._known: Any = None  # the last kind of actions that was looked at
        self._act = task.acting.on_host(seed, stepping.space)
        self._done = 0  # steps, of each environment
        self._obs: Any = None
        self._over = np.zeros(task.envs, bool)
        self._returns, self._lengths = np.zeros(task.envs), np.zeros(task.envs, np.int64)
        self.counts = Counts(0, None, 0)

    def next(self, weights: Weights) -> Batch:
        steps, envs = self._steps, self._envs
        shape, kind = self._seen
        obs = memory((steps + 1, envs, *shape), kind)
        action = memory((steps, *self._acts[0]), self._acts[1])
        reward = memory((steps, envs), np.float32)
        terminated, truncated = (memory((steps, envs), np.bool_) for _ in "tt")
        extras: dict[str, Array] = {}
        last: list[Array] = []
        obs[0] = self._first() if self._obs is None else self._obs
        act, step, fits = self._act, self._stepping.step, self._known
        for t, row in enumerate(action):
            acted = act(weights, obs[t])
            made = acted.pop("action")
            if made.__class__ is not np.ndarray or (made.shape, made.dtype) != fits:
                made = self._fitting(made)
                fits = made.shape, made.dtype
            row[...] = made
            if acted or extras:
                self._keep(extras, acted, t)
            try:
                obs[t + 1], reward[t], terminated[t], truncated[t], final = step(row)
            except Exception as error:
                raise self._failed(error, t, row) from error
            if final is not None:
                last.append(np.asarray(final, kind))
        self._done, self._known = self._done + steps, fits
        self._obs = obs[steps]
        self.counts = Counts(2 * steps, None, steps * (5 + len(extras)))
        made = {
            "action": action,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
        }
        return self._batch(obs, made, extras, last)

    def _first(self) -> Any:
        try:
            return self._stepping.reset()
        except Exception as error:
            raise self._failed(error, 0, None) from error

    def _fitting(self, made: Any) -> Array:
        """Actions, if they are what the environments take."""
        made = np.asarray(made)
        shape, kind = self._acts
        if made.shape != shape or not np.can_cast(made.dtype, kind, "same_kind"):
            raise ShapeError(
                f"the policy's action is {_kind(made)}, and the environments take "
                f"{_kind(np.empty((0, *shape), kind)[:0], shape)}.",
                hint="a policy is given the observations of all environments, and returns an "
                "action for each.",
            )
        return made

    def _keep(self, extras: dict[str, Array], acted: dict[str, Any], t: int) -> None:
        """Write what a policy adds at a step."""
        if t == 0:
            for name, x in acted.items():
                one = np.asarray(x)
                kind = np.float32 if one.dtype == np.float64 else one.dtype
                extras[name] = memory((self._steps, *one.shape), kind)
        for name in {**extras, **acted}:
            one = np.asarray(acted.get(name))
            wanted = extras[name].shape[1:] if name in extras else ()
            if one.shape != wanted or one.shape[:1] != (self._envs,):
                raise ShapeError(
                    f"the policy's {name} is {_kind(one)} at step {t}, where it is that of "
                    f"{self._envs} environments, and of one shape at every step.",
                    hint="what a policy adds has the environments first.",
                )
            extras[name][t] = one

    def _failed(self, error: Exception, t: int, action: Any) -> Exception:
        """What to say of an environment that raised, and when."""
        if action is not None:
            try:
                check_numbers({"action": action[None]}, t)
            except ExecutionError as nan:
                return nan
        which, said = self._stepping.at_fault(error)
        seeds = self._stepping.seeds
        name = f"environment {which[0]}" if len(which) == 1 else f"one of {len(which)} environments"
        if len(which) > 1 and which[0] != 0:
            name += f", {which[0]} to {which[-1]},"
        if seeds is not None:
            known = ", ".join(str(seeds[k]) for k in which[:8])
            name += f" (seed {known}{', …' if len(which) > 8 else ''})"
        when = "as it was reset" if action is None else f"at step {t} of the batch"
        return EnvError(
            f"{name} failed {when}, after {self._done + t} steps of each: {said}.",
            hint="the environments are closed; batches stay.",
        )

    def _batch(
        self, obs: Array, made: dict[str, Any], extras: dict[str, Array], last: list[Array]
    ) -> Batch:
        steps, at_once = self._steps, self._stepping.restarts_at_once
        reward, terminated, truncated = (made[n] for n in ("reward", "terminated", "truncated"))
        valid = memory(reward.shape, np.bool_)
        valid[:] = True
        if not at_once:  # the step behind an end begins the next episode, and does nothing else
            over = terminated | truncated
            valid[0] = ~self._over
            valid[1:] = ~over[:-1]
            self._over = over[-1].copy()
            terminated &= valid
        truncated &= valid & ~terminated
        done = terminated | truncated
        seen: Array = obs[1:]
        if at_once:
            seen = np.concatenate(last) if last else obs[:0, 0]
            if len(seen) != done.sum():
                raise EnvError(
                    "environments that restart at once did not bring the last observations of all "
                    "episodes that ended.",
                    hint='their infos have "final_obs" in this mode, as those of Gymnasium.',
                )
        ended = Ended(
            reward, valid, lambda: done, self._returns, self._lengths, seen, is_all=not at_once
        )
        counted = reward * valid
        since = np.arange(steps)[:, None] > np.where(
            done.any(0), steps - 1 - done[::-1].argmax(0), -1
        )
        goes_on = ~done.any(0)
        self._returns = self._returns * goes_on + (counted * since).sum(0, dtype=np.float64)
        self._lengths = self._lengths * goes_on + (valid & since).sum(0)
        own = {"obs": obs[:steps], "last_obs": obs[steps], "valid": valid}
        return Batch(**own, **made, extras=extras, _ended=ended)

    def close(self) -> None:
        self._stepping.close()


def _kind(x: Array, shape: Sequence[int] | None = None) -> str:
    try:
        name = dtype_name(x.dtype)
    except (KeyError, TypeError):
        name = str(x.dtype)
    return f"{name}{list(x.shape if shape is None else shape)}"


class HostWay(Way):
    """A way whose environments step on the host."""

    @abstractmethod
    def stepping(self, task: Task, seed: int) -> Stepping:
        """Its environments, of which a task says how many."""

    def prepared(self, task: Task) -> Prepared:
        return lambda seed: HostTurns(self.stepping(task, seed), task, seed)
