"""Functions that create the environments of an algorithm, and share the code compiled for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any

from timerl_nb.base.lru_cache import Lru
from timerl_nb.collecting.collection_task import Registration, resolve_environment
from timerl_nb.collecting.collector import Collector, collect
from timerl_nb.env.envpool import PoolEnvironment
from timerl_nb.env.gymnasium import GymEnvironment
from timerl_nb.replay.training.algorithm import Algorithm

# environments of recent runs: the next run of the same algorithm needs no compilation
_OPENERS = Lru[Any, Callable[[int], Collector]](4)


def opener(
    algorithm: Algorithm, envs: int, steps: int, how: str | None = None
) -> Callable[[int], Collector]:
    """Return a function that creates environments from a seed. Calls for equal algorithms share compiled code."""
    wanted = (algorithm, envs, steps, how)
    if isinstance(algorithm, Hashable):
        return _OPENERS.get((*wanted, Registration(algorithm.env)), lambda: _opener(*wanted))
    return _opener(*wanted)


def _opener(
    algorithm: Algorithm, envs: int, steps: int, how: str | None
) -> Callable[[int], Collector]:
    """Return a function that creates environments from a seed. They share the code compiled for the first ones."""
    first = collect(
        algorithm.env,
        algorithm.act,
        envs=envs,
        steps=steps,
        how=_way(algorithm.env) if how is None else how,
        params=algorithm.acting(algorithm.begin(0)),
    )
    one_at_a_time = Lock()

    def open_collector(seed: int) -> Collector:
        with one_at_a_time:
            return first.with_seed(seed)

    return open_collector


def _way(env: Any) -> str:
    """Return the default collection strategy of an environment."""
    _, sim, _ = resolve_environment(env)
    if isinstance(sim, PoolEnvironment):
        return "threads"
    return "loop" if isinstance(sim, GymEnvironment) else "scan"
