"""Conversion of Gymnasium's structured spaces to a single array.

Observations of a `Dict` or a `Tuple` become one vector, as by `gymnasium.spaces.flatten`. Structured actions become one
`MultiDiscrete` or `Box`. The parts of a `Dict` are in the order of its keys (Gymnasium sorts them), those of a `Tuple` in their
own order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, utils

Array = np.ndarray[Any, Any]


class PlainSpaces(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Wrapper with observations and actions in single arrays, and with integers that start at 0.

    Args:
        env: the environment.

    Raises:
        ValueError: a space is not a combination of `Box`, `Discrete`, `MultiDiscrete`, `MultiBinary`, `Dict` and `Tuple`, or
            actions mix numbers and integers.
    """

    def __init__(self, env: Any) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._inner = env.observation_space, env.action_space
        self.observation_space = plain_observations(env.observation_space)
        self.action_space = plain_actions(env.action_space)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs, more = self.env.reset(seed=seed, options=options)
        return self._plain(obs), more

    def step(self, action: Any) -> Any:
        obs, *others = self.env.step(structured_action(self._inner[1], action))
        return self._plain(obs), *others

    def _plain(self, obs: Any) -> Any:
        space: Any = self._inner[0]
        if isinstance(space, Dict | Tuple):
            return utils.flatten(space, obs)
        if isinstance(space, Discrete):
            return obs - space.start
        if isinstance(space, MultiDiscrete):
            return np.ravel(obs - space.start)
        return obs


def is_plain(space: Any) -> bool:
    """Test whether a space needs no conversion."""
    if isinstance(space, Discrete):
        return space.start == 0
    if isinstance(space, MultiDiscrete):
        return np.ndim(space.nvec) == 1 and not np.any(space.start)
    return isinstance(space, Box)


def _leaves(space: Any) -> Iterator[Any]:
    """Yield the parts of a structured space, in order.

    Raises:
        ValueError: a part is of another class.
    """
    if isinstance(space, Dict | Tuple):
        for part in space.values() if isinstance(space, Dict) else space:
            yield from _leaves(part)
    elif isinstance(space, Box | Discrete | MultiDiscrete | MultiBinary):
        yield space
    else:
        raise ValueError(f"a {type(space).__name__} has no fixed size")


def plain_observations(space: Any) -> Space[Any]:
    """Return the space of converted observations."""
    if is_plain(space):
        return space
    [*_leaves(space)]  # raises if a part has no fixed size
    if isinstance(space, Dict | Tuple):
        return utils.flatten_space(space)
    if isinstance(space, MultiBinary):
        return Box(0, 1, space.shape, space.dtype)  # type: ignore[arg-type]
    return plain_actions(space)


def plain_actions(space: Any) -> Space[Any]:
    """Return the space of actions before their conversion.

    Raises:
        ValueError: the parts mix numbers and integers.
    """
    if is_plain(space):
        return space
    if isinstance(space, Discrete):
        return Discrete(int(space.n))
    parts = [*_leaves(space)]
    if all(isinstance(one, Box) for one in parts):
        low, high = (
            np.concatenate([np.ravel(getattr(b, n)) for b in parts]) for n in ("low", "high")
        )
        return Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
    if any(isinstance(one, Box) for one in parts):
        raise ValueError("actions mix a Box with discrete spaces")
    return MultiDiscrete(np.concatenate([_sizes(one) for one in parts]))


def _sizes(space: Any) -> Array:
    """Return the number of values of each integer of a discrete space."""
    if isinstance(space, MultiBinary):
        return np.full(int(np.prod(space.shape)), 2)
    return np.ravel(space.n if isinstance(space, Discrete) else space.nvec)


def structured_action(space: Any, action: Any) -> Any:
    """Return the action in the environment's space, from one in the plain space."""
    return action if isinstance(space, Box) else _take(space, np.ravel(action), [0])


def row_conversions(
    observations: Any, actions: Any
) -> tuple[Callable[[Any], Any], Callable[[Array], Any]] | None:
    """Return the conversions of observations and actions of all environments; None if none is needed.

    Args:
        observations, actions: the spaces of one environment.
    """
    if is_plain(observations) and is_plain(actions):
        return None
    return (
        (lambda obs: obs) if is_plain(observations) else lambda obs: plain_rows(observations, obs),
        (lambda rows: rows) if is_plain(actions) else lambda rows: structured_rows(actions, rows),
    )


def plain_rows(space: Any, obs: Any) -> Array:
    """Return converted observations of several environments.

    Args:
        space: the space of one environment.
        obs: their observations, arrays with environments as the first axis in the space's structure.
    """
    if isinstance(space, Dict | Tuple):
        return np.concatenate([*_flat_rows(space, obs)], axis=1)
    obs = np.asarray(obs)
    if isinstance(space, Discrete):
        return obs.reshape(len(obs)) - space.start
    if isinstance(space, MultiDiscrete):
        return (obs - space.start).reshape(len(obs), -1)
    return obs


def _flat_rows(space: Any, obs: Any) -> Iterator[Array]:
    """Yield vectors of the parts of a space, [envs, size]; see `gymnasium.spaces.flatten`."""
    if isinstance(space, Dict | Tuple):
        parts = space.items() if isinstance(space, Dict) else enumerate(space)
        for name, part in parts:
            yield from _flat_rows(part, obs[name])
    elif isinstance(space, Discrete | MultiDiscrete):
        rows = plain_rows(space, obs).reshape(len(obs), -1)
        for k, size in enumerate(_sizes(space)):
            yield np.eye(size, dtype=space.dtype)[rows[:, k]]
    else:
        yield np.asarray(obs).reshape(len(obs), -1)


def stacked(space: Any, rows: Any) -> Any:
    """Return observations of several environments in the structure of a space, from a list of them."""
    if isinstance(space, Dict):
        return {name: stacked(part, [row[name] for row in rows]) for name, part in space.items()}
    if isinstance(space, Tuple):
        return tuple(stacked(part, [row[k] for row in rows]) for k, part in enumerate(space))
    return np.stack([np.asarray(row) for row in rows])


def structured_rows(space: Any, actions: Array) -> Any:
    """Return actions of several environments in the structure of a space, from plain ones.

    Args:
        space: the space of one environment.
        actions: actions in the plain space, [envs, …].
    """
    if isinstance(space, Box):
        return actions
    return _take(space, actions.reshape(len(actions), -1), [0])


def _take(space: Any, action: Array, at: list[int]) -> Any:
    """Return the next part of plain actions, [size] or [envs, size]; `at` is its position."""
    if isinstance(space, Dict):
        return {name: _take(part, action, at) for name, part in space.items()}
    if isinstance(space, Tuple):
        return tuple(_take(part, action, at) for part in space)
    count = int(np.prod(space.shape))
    part, at[0] = action[..., at[0] : at[0] + count], at[0] + count
    if isinstance(space, Discrete):
        return space.start + part.astype(space.dtype)[..., 0]
    made = part.reshape((*part.shape[:-1], *space.shape)).astype(space.dtype)
    return made + space.start if isinstance(space, MultiDiscrete) else made
