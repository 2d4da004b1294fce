"""Group of environments in an actor of Ray."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.collecting.batch import Batch
from timerl_nb.collecting.policies.collecting_policy import (
    Acted,
    Acting,
    OnHost,
    Shard,
    StepFeedback,
)
from timerl_nb.collecting.policies.function_policy import HostFunction
from timerl_nb.collecting.policies.ready_policies import Random
from timerl_nb.collecting.ray_actors.random_generators import load_in_worker, seed_global_generators
from timerl_nb.collecting.strategies.host_stepping import HostTurns
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend import graph_function as graph

_WINDOW: Final = 64  # rows from which on compiled policies rounded equally in all measurements


def open_group(
    settings: Mapping[str, Any], payload: Mapping[str, bytes], shard: Shard, envs: int, seed: int
) -> Group:
    """Open the environments of a worker.

    Args:
        settings: settings of JAX.
        payload: pickled policy and task.
        shard: position of the environments among all.
        envs: their number.
        seed: seed of all random numbers.
    """
    backend.set_jax_settings(settings)
    strategy, task = pickle.loads(payload["environment"])
    position = Shard(*shard)
    stream = position.first, seed
    # one worker has the random numbers of how="loop"
    is_first = stream == (0, task.seed)
    acting = load_in_worker(payload["policy"], None if is_first else stream)
    seed_global_generators(stream)  # the imports above may include PyTorch
    act: Any = WindowPolicy(acting, position, envs)
    task = replace(task, acting=act, envs=envs, shard=position)
    return Group(
        HostTurns(partial(strategy.make_stepping, task), task, seed), convert_weights(acting)
    )


class WindowPolicy:
    """Policy of a group, evaluated for a window of rows among all environments.

    A compiled function may round differently for another number of rows. The window therefore has at
    least 64 rows, or all of them. A NumPy function or PyTorch module gets the rows of the group.

    Args:
        acting: policy for all environments.
        position: position of the group.
        envs: number of its environments.
    """

    def __init__(self, acting: Acting, position: Shard, envs: int) -> None:
        first, total = position
        self._count = envs
        if isinstance(acting, Random):  # it draws from a sequence for all environments
            self._count = total
        elif not isinstance(acting, HostFunction):
            self._count = max(envs, min(total, _WINDOW))
        begin = min(first, total - self._count)
        self._acting: Any = replace(acting, shard=Shard(begin, total))
        self._rows = slice(first - begin, first - begin + envs)

    def on_host(self, seed: int, space: Any) -> OnHost:
        act = self._acting.on_host(seed, space)

        def act_in_window(
            weights: Mapping[str, Any], obs: Array, number: int = 0, *more: Any
        ) -> Acted:
            if len(obs) == self._count:
                return act(weights, obs, number, *more)
            made = act(weights, self._padded(obs), number, *map(self._padded, more))
            return {name: x[self._rows] for name, x in made.items()}

        return act_in_window

    def _padded(self, x: Any) -> Any:
        """Return rows of the group in a window with ones elsewhere; None is unchanged."""
        if isinstance(x, StepFeedback):
            return StepFeedback(**{name: self._padded(one) for name, one in vars(x).items()})
        if x is None:
            return None
        whole = np.ones((self._count, *x.shape[1:]), x.dtype)
        whole[self._rows] = x
        return whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._acting, name)


def convert_weights(acting: Any) -> Any:
    """Return a function that copies weights out of Ray's object store, in the policy's array library."""
    if isinstance(acting, HostFunction):
        return dict
    return lambda weights: {n: backend.hand_over(np.array(x)) for n, x in weights.items()}


class Group:
    """Environments of a worker, with the weights of their policy.

    Args:
        turns: the open environments.
        convert: copies weights out of the object store.
    """

    def __init__(self, turns: HostTurns, convert: Any) -> None:
        self._turns, self._convert = turns, convert
        self._number = -1  # of the last batch
        self._weights: tuple[Any, Mapping[str, Any]] = None, {}  # reference and value

    def collect(
        self, number: int, weights: Any, version: int, fetch: Callable[[Any], Any]
    ) -> dict[str, Any]:
        """Return the steps of a batch; see `EnvironmentActor.collect`.

        Args:
            number: number of the batch.
            weights: reference of the weights.
            version: their version.
            fetch: returns the value of a reference.
        """
        if weights != self._weights[0]:
            self._weights = weights, self._convert(fetch(weights))
        if number != self._number:
            self._turns.confirm_received()  # the driver has received the last batch
            self._number = number
        batch = self._turns.next(self._weights[1], version)
        return fields_of(batch) | {"speed": self._turns.speed}

    def close(self) -> None:
        self._turns.close()


def fields_of(batch: Batch) -> dict[str, Any]:
    """Return the content of a batch as arrays, without classes of this package."""
    final, episodes = batch.final, batch.episodes
    arrays = {n: x for n, x in vars(batch).items() if isinstance(x, np.ndarray)}
    arrays.pop("states", None)  # a state of a single array
    return {
        "arrays": arrays,
        "extras": dict(batch.extras),
        "states": dict[str, Array](graph.leaves(batch.states)),
        "final": {n: x for n, x in vars(final).items() if isinstance(x, np.ndarray)},
        "episodes": (episodes.returns, episodes.lengths),
        "count": batch.count,
    }
