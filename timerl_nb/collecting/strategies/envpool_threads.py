"""Strategy "threads": EnvPool's environments in C++, on their own threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import EnvError
from timerl_nb.base.machine_model import cores
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.policies.collecting_policy import Shard
from timerl_nb.collecting.strategies.asynchronous_stepping import AsynchronousStepping, Received
from timerl_nb.collecting.strategies.host_stepping import HostStrategy, Stepping
from timerl_nb.env.action_masks import Masks, Rows, reported_rows
from timerl_nb.env.envpool import HINT, PoolEnvironment, library
from timerl_nb.env.gymnasium import distinct_seeds

_WORD = 2**31  # EnvPool's seeds have 31 bits


class Threads(HostStrategy):
    name = "threads"
    provenance = "EnvPool"
    what = "EnvPool's environments, on threads"
    is_asynchronous = True

    def why_not(self, task: Task) -> str | None:
        if library() is None:
            return f"EnvPool is not installed: {HINT.rstrip('.')}"
        try:
            return None if _environment(task) is not None else "EnvPool has no such environment"
        except EnvError as error:
            return f"EnvPool has no such environment: {str(error).splitlines()[0]}"

    def make_stepping(self, task: Task, seed: int) -> Stepping:
        env = _environment(task)
        assert env is not None
        return PoolStepping(env, task.envs, seed, task.position)

    def make_asynchronous(self, task: Task, seed: int) -> AsynchronousStepping:
        env = _environment(task)
        assert env is not None and task.ready is not None
        return AsynchronousPool(env, task.envs, seed, task.position, task.ready)


def _environment(task: Task) -> PoolEnvironment | None:
    """Return EnvPool's environment: the given one, or one of the same name and spaces."""
    if isinstance(task.env, PoolEnvironment):
        return task.env
    if task.gym is None:
        return None
    found = PoolEnvironment(task.gym.spec.id, max_steps=task.gym.max_steps, **task.gym.spec.kwargs)
    same = found.act_space == task.spaces[1] and found.obs_space.shape == task.spaces[0].shape
    return found if same else None


class PoolStepping:
    """Environments of EnvPool; a reset takes a separate step."""

    restarts_at_once = False

    def __init__(
        self,
        env: PoolEnvironment,
        many: int,
        seed: int,
        position: Shard,
        ready: int | None = None,
    ) -> None:
        first = distinct_seeds(seed, 1)[0] % (_WORD - position.total) + position.first
        self.seeds: Sequence[int] = range(first, first + many)
        self.space, self._conversions = env.space, env.conversions
        self._pool: Any = env.pool(many, first, cores(), ready)

    def reset(self) -> tuple[Any, Rows | None]:
        obs, more = self._pool.reset()
        if self._conversions is not None:
            obs = self._conversions[0](obs)
        return obs, reported_rows(more, len(self.seeds))

    def step(self, action: Array) -> tuple[Any, Any, Any, Any, Any, Masks | None]:
        conversions = self._conversions
        if conversions is None:
            obs, reward, terminated, truncated, more = self._pool.step(action)
        else:
            obs, reward, terminated, truncated, more = self._pool.step(conversions[1](action))
            obs = conversions[0](obs)
        masks = Masks(reported_rows(more, len(self.seeds))) if "action_mask" in more else None
        return obs, reward, terminated, truncated, None, masks

    def at_fault(self, error: Exception) -> tuple[Sequence[int], str]:
        return range(len(self.seeds)), f"{type(error).__name__}: {error}"

    def close(self) -> None:
        self._pool.close()


class AsynchronousPool(PoolStepping):
    """EnvPool's asynchronous mode: `send` and `recv` with a batch size below the number of environments."""

    def start(self) -> None:
        self._pool.async_reset()

    def receive(self) -> Received:
        obs, reward, terminated, truncated, more = self._pool.recv()
        if self._conversions is not None:
            obs = self._conversions[0](obs)
        ids = np.array(more["env_id"], np.int64)
        masks = Masks(reported_rows(more, len(ids)))
        return Received(ids, obs, reward, terminated, truncated, None, masks)

    def send(self, ids: Array, action: Array) -> None:
        made = action if self._conversions is None else self._conversions[1](action)
        self._pool.send(made, ids.astype(np.int32))
