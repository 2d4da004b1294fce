"""Gymnasium's environments, on the host: `make("gym.CartPole-v1")`.

One Gymnasium environment per instance, stepped by host functions in the order that tokens prescribe
(semantics.md §7, §8). With all instances in one axis (the default) one call steps them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.env.core import Autoreset, Simulation, Step, Tensor
from timerl_nb.env.spaces import Box, Discrete, MultiDiscrete
from timerl_nb.errors import EnvError
from timerl_nb.frontend.context import current
from timerl_nb.frontend.indexing import as_dims
from timerl_nb.frontend.udf import Resource, udf
from timerl_nb.ir.shapes import NUMPY, narrow
from timerl_nb.symbolic.domain import Domain

At = tuple[Any, ...]


class GymEnvironment(Simulation):
    """An environment of Gymnasium's, by its name there.

    Args:
        name: as for `gymnasium.make`.
        instances: the dimensions over which there is an environment each; by default all of the
            reset's but the last (the iterations), or its only one.
        options: go to `gymnasium.make`.

    Each environment is seeded once, at its first reset, from the run's seed and its position.
    """

    def __init__(
        self,
        name: str,
        *,
        autoreset: Autoreset | None = None,
        max_steps: int | None = None,
        instances: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(autoreset=autoreset, max_steps=max_steps)
        self._gym = _gymnasium()
        self._name, self._instances = name, instances
        self._options = (
            options if max_steps is None else {**options, "max_episode_steps": max_steps}
        )
        probe = self._make()
        self.obs_space = _space(probe.observation_space, "observations")
        self.act_space = _space(probe.action_space, "actions")
        self.max_steps = probe.spec.max_episode_steps if probe.spec else None
        probe.close()
        self._resource: Resource | None = None

    @property
    def _made_as(self) -> str:
        return f"gym.{self._name}"

    def _make(self) -> Any:
        try:
            return self._gym.make(self._name, **self._options)
        except (self._gym.error.Error, TypeError) as error:
            raise EnvError(f"{self._made_as}: {error}") from None

    def anew(self, *, max_steps: int | None = None) -> Self:
        twin = super().anew(max_steps=max_steps)
        twin._instances = twin._resource = None  # of dimensions of another program
        if max_steps is not None:
            twin._options = {**self._options, "max_episode_steps": max_steps}
        return twin

    def begin(self, domain: Domain) -> Tensor:
        ctx = current()
        given = domain[:-1] or domain if self._instances is None else self._instances
        dims = as_dims(ctx, ctx.space, given)

        def make(sizes: Mapping[str, int], seed: int) -> _Instances:
            return _Instances(self, self._make, tuple(sizes.values()), seed)

        self._resource = Resource(make, instances=dims, name=self._made_as)
        return udf(
            _Instances.reset,
            out=self.obs_space,
            domain=domain,
            resource=self._resource,
            batched=True,
            name="reset",
        )

    def play(self, action: Tensor, time: Domain, first: Tensor) -> Step:
        flag = ((), "bool")
        made = udf(
            _Instances.step,
            action.detach(),
            out=[self.obs_space, ((), "f32"), flag, flag, flag, self.obs_space],
            resource=self._resource,
            batched=True,
            name="step",
        )
        return Step(*made)


def distinct_seeds(seed: int, count: int) -> list[int]:
    """A seed of 32 bits for each of `count` environments, no two the same."""
    words = np.random.SeedSequence(seed % 2**64)
    found: dict[int, None] = {}
    asked = count
    while len(found) < count:
        found = dict.fromkeys(map(int, words.generate_state(asked)))
        asked += count - len(found)
    return list(found)


class _Instances:
    """The environments of one run: the state that the host functions share."""

    def __init__(self, env: GymEnvironment, make: Any, shape: tuple[int, ...], seed: int) -> None:
        self._spaces = env.obs_space, env.act_space
        self._mode = env.autoreset
        self._ids = np.arange(int(np.prod(shape))).reshape(shape)
        self._envs = [make() for _ in range(self._ids.size)]
        self._seeds: list[int | None] = list(distinct_seeds(seed, self._ids.size))
        self._over = np.zeros(self._ids.size, bool)
        self._obs = np.zeros((self._ids.size, *env.obs_space.shape), NUMPY[env.obs_space.dtype])

    def reset(self, at: At) -> Array:
        """Start an episode in the environments at `at`."""
        ids = self._ids[at]
        for k in np.ravel(ids):
            self._restart(int(k))
        return self._obs[ids]

    def _restart(self, k: int) -> None:
        seed, self._seeds[k] = self._seeds[k], None
        self._obs[k] = self._envs[k].reset(seed=seed)[0]
        self._over[k] = False

    def step(self, at: At, action: Array) -> tuple[Array, ...]:
        """Step the environments at `at`: what `env.core.Step` holds, as arrays."""
        ids = self._ids[at]
        flat = np.ravel(ids)
        obs, final = (np.zeros((len(flat), *self._obs.shape[1:]), self._obs.dtype) for _ in "of")
        reward = np.zeros(len(flat), np.float32)
        ended, cut, alive = (np.zeros(len(flat), bool) for _ in "eca")
        actions = np.reshape(action, (len(flat), *self._spaces[1].shape))
        for j, k in enumerate(flat):
            if not self._over[k]:
                reward[j], ended[j], cut[j] = self._one(int(k), actions[j])
                alive[j] = True
            elif self._mode == "next_step":
                self._restart(int(k))
            final[j] = self._obs[k]
            if self._mode == "same_step" and self._over[k]:
                self._restart(int(k))
            obs[j] = self._obs[k]
        made = (obs, reward, ended, cut, alive, final)
        return tuple(x.reshape((*ids.shape, *x.shape[1:])) for x in made)

    def _one(self, k: int, action: Array) -> tuple[float, bool, bool]:
        """Step one environment: reward, terminated, truncated."""
        given = int(action) if isinstance(self._spaces[1], Discrete) else action
        obs, reward, ended, cut, _ = self._envs[k].step(given)
        self._obs[k], self._over[k] = obs, ended or cut
        return float(reward), bool(ended), bool(cut and not ended)

    def close(self) -> None:
        with ExitStack() as closing:  # all, even where one fails
            for env in self._envs:
                closing.callback(env.close)


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError:
        raise EnvError(
            "environments named gym.… need Gymnasium, which is not installed.",
            hint="install the extra: pip install 'timerl-nb[gym]'.",
        ) from None
    return gymnasium


def _space(space: Any, what: str) -> Any:
    """A space of Gymnasium's as one of ours."""
    kind = type(space).__name__
    if kind == "Box":
        low, high = float(np.min(space.low)), float(np.max(space.high))
        return Box(low, high, tuple(space.shape), narrow(np.zeros(0, space.dtype)).dtype)
    if kind == "Discrete" and space.start == 0:
        return Discrete(int(space.n))
    if kind == "MultiDiscrete" and np.ndim(space.nvec) == 1 and not np.any(space.start):
        return MultiDiscrete(tuple(map(int, space.nvec)))
    raise EnvError(
        f"{what} in {space} are not supported.",
        hint="wrap the environment to Box, Discrete or a flat MultiDiscrete.",
    )
