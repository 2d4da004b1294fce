"""Strategy "threads": EnvPool's environments in C++, on their own threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import EnvError
from timerl_nb.base.machine_model import cores
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.policies.collecting_policy import Shard
from timerl_nb.collecting.strategies.host_stepping import HostWay, Stepping
from timerl_nb.env.envpool import HINT, PoolEnvironment, library
from timerl_nb.env.gymnasium import distinct_seeds

_WORD = 2**31  # EnvPool's seeds have 31 bits


class Threads(HostWay):
    name = "threads"
    provenance = "EnvPool"
    what = "EnvPool's environments, on threads"

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

    def __init__(self, env: PoolEnvironment, many: int, seed: int, position: Shard) -> None:
        first = distinct_seeds(seed, 1)[0] % (_WORD - position.total) + position.first
        self.seeds: Sequence[int] = range(first, first + many)
        self.space = env.space
        self._pool: Any = env.pool(many, first, cores())

    def reset(self) -> Any:
        return self._pool.reset()[0]

    def step(self, action: Array) -> tuple[Any, Any, Any, Any, Any]:
        obs, reward, terminated, truncated, _ = self._pool.step(action)
        return obs, reward, terminated, truncated, None

    def at_fault(self, error: Exception) -> tuple[Sequence[int], str]:
        return range(len(self.seeds)), f"{type(error).__name__}: {error}"

    def close(self) -> None:
        self._pool.close()
