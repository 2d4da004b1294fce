"""Gymnasium environments, stepped on the host: `make("gym.CartPole-v1")`.

Each instance has one Gymnasium environment; tokens order its resets and steps. By default one call steps all
instances.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Self

import numpy as np

from timerl_nb.base.array_conversion import Array, convert_array, narrow_array
from timerl_nb.base.errors import EnvError, warn
from timerl_nb.compiler.ir.shapes import NUMPY, narrow
from timerl_nb.compiler.language.indexing.index_parsing import as_dims
from timerl_nb.compiler.language.inputs.user_defined_functions import Resource, udf
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Autoreset, Simulation, Step, Tensor
from timerl_nb.env.indexed_environment import number_of
from timerl_nb.env.spaces import Box, Discrete, MultiDiscrete

At = tuple[Any, ...]

_F32 = np.dtype(np.float32)


class GymEnvironment(Simulation):
    """Environment of Gymnasium, stepped on the host.

    Each instance is seeded once, at its first reset, from the run's seed and its position. Observations and actions of
    structured spaces are converted to single arrays (see the reference of environments).

    Args:
        name: the name, as for `gymnasium.make`.
        autoreset, max_steps: as for `Simulation`.
        instances: the dimensions with one environment per point. By default all dimensions of the reset but the last
            (the iterations); if there is only one, that one.
        options: passed to `gymnasium.make`.

    Attributes:
        spec: Gymnasium's specification, from which more environments can be created.
        spaces: the spaces of observations and actions, as Gymnasium's objects.
        kinds: the classes of the environment, from the outermost wrapper to the innermost environment.

    Raises:
        EnvError: Gymnasium is not installed, has no such environment, or a space is not supported.

    Example:
        >>> trl.env.make("gym.CartPole-v1").act_space
        Discrete(n=2, shape=(), dtype='i32')
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
        self._gym = gymnasium()
        self._name, self._instances = name, instances
        self._options = (
            options if max_steps is None else {**options, "max_episode_steps": max_steps}
        )
        probe = self._make()
        self.spaces = probe.observation_space, probe.action_space
        self.obs_space, self.act_space = ours(*self.spaces)
        self.spec, self.kinds = probe.spec, [*_kinds(probe)]
        self.max_steps = self.spec.max_episode_steps if self.spec else None
        probe.close()
        self._resource: Resource | None = None

    @property
    def made_as(self) -> str:
        return f"gym.{self._name}"

    def _make(self) -> Any:
        try:
            env = self._gym.make(self._name, **self._options)
        except (self._gym.error.Error, TypeError) as error:
            raise EnvError(f"{self.made_as}: {error}") from None
        plain: Any = import_module("timerl_nb.env.plain_spaces")  # imports Gymnasium
        if plain.is_plain(env.observation_space) and plain.is_plain(env.action_space):
            return env
        try:
            return plain.PlainSpaces(env)
        except ValueError as error:
            env.close()
            raise EnvError(
                f"{self.made_as}: the spaces {env.observation_space} and {env.action_space} are not supported: {error}.",
                hint="convert them with a wrapper of Gymnasium, and register the wrapped environment.",
            ) from None

    def unstarted(self, *, max_steps: int | None = None) -> Self:
        twin = super().unstarted(max_steps=max_steps)
        twin._instances = twin._resource = None  # they belong to another program
        if max_steps is not None:
            twin._options = {**self._options, "max_episode_steps": max_steps}
        return twin

    def limited(self, most: int) -> Self:
        twin = super().limited(most)
        twin._instances = self._instances
        return twin

    def begin(self, domain: Domain) -> Tensor:
        ctx = current()
        given = domain[:-1] or domain if self._instances is None else self._instances
        dims = as_dims(ctx, ctx.space, given)

        def make(sizes: Mapping[str, int], seed: int) -> _Instances:
            return _Instances(self, self.made_as, self._make, tuple(sizes.values()), seed)

        self._resource = Resource(make, instances=dims, name=self.made_as)
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


def _kinds(env: Any) -> Iterator[type[Any]]:
    while env is not env.unwrapped:
        yield type(env)
        env = env.env
    yield type(env)


def distinct_seeds(seed: int, count: int) -> list[int]:
    """Return `count` different 32-bit seeds."""
    words = np.random.SeedSequence(seed % 2**64)
    found: dict[int, None] = {}
    asked = count
    while len(found) < count:
        found = dict.fromkeys(map(int, words.generate_state(asked)))
        asked += count - len(found)
    return list(found)


class _Instances:
    """Environments of one run: the state shared by the host functions."""

    def __init__(
        self, env: GymEnvironment, name: str, make: Any, shape: tuple[int, ...], seed: int
    ) -> None:
        self._name = name
        self._spaces = env.obs_space, env.act_space
        self._mode = env.autoreset
        self._ids = np.arange(int(np.prod(shape))).reshape(shape)
        self._envs = [make() for _ in range(self._ids.size)]
        self._seeds: list[int | None] = list(distinct_seeds(seed, self._ids.size))
        self._saves = False
        self._begun: list[_Begun | None] = [None] * self._ids.size
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
        if self._saves:
            self._begun[k] = _Begun(seed, _generator(self._envs[k]) if seed is None else None)
        self._obs[k] = self._convert_observation(self._envs[k].reset(seed=seed)[0])
        self._over[k] = False

    def step(self, at: At, action: Array) -> tuple[Array, ...]:
        """Step the environments at `at`; return the fields of a `Step` as arrays."""
        ids = self._ids[at]
        flat = np.ravel(ids)
        obs, final = (np.zeros((len(flat), *self._obs.shape[1:]), self._obs.dtype) for _ in "of")
        reward = np.zeros(len(flat), np.float64)
        ended, cut, alive = (np.zeros(len(flat), bool) for _ in "eca")
        actions = np.reshape(action, (len(flat), *self._spaces[1].shape))
        for j, k in enumerate(flat):
            if not self._over[k]:
                reward[j], ended[j], cut[j] = self._step_one(int(k), actions[j])
                alive[j] = True
            elif self._mode == "next_step":
                self._restart(int(k))
            final[j] = self._obs[k]
            if self._mode == "same_step" and self._over[k]:
                self._restart(int(k))
            obs[j] = self._obs[k]
        made = (obs, narrow_array("a reward", reward, _F32), ended, cut, alive, final)
        return tuple(x.reshape((*ids.shape, *x.shape[1:])) for x in made)

    def _step_one(self, k: int, action: Array) -> tuple[float, bool, bool]:
        """Step one environment; return reward, terminated, truncated."""
        begun = self._begun[k]
        if begun is not None:
            begun.actions.append(np.array(action))
        obs, reward, ended, cut, _ = self._envs[k].step(self._convert_action(action))
        self._obs[k], self._over[k] = self._convert_observation(obs), ended or cut
        return number_of(reward), bool(ended), bool(cut and not ended)

    def _convert_observation(self, obs: Any) -> Array:
        """Convert an observation to the element type of the program.

        Raises:
            EnvError: it contains integers out of range.
        """
        return convert_array(
            f"an observation of {self._name}", obs, self._obs.dtype, error=EnvError
        )

    def _convert_action(self, action: Array) -> Any:
        """Convert an action to Gymnasium's form."""
        return int(action) if isinstance(self._spaces[1], Discrete) else action

    def begin_saving(self) -> None:
        """Record episodes from here on, so that `save` can return them; this takes memory for each step."""
        self._saves = True

    def save(self) -> dict[str, Array]:
        """Return the start of each episode and the actions since: Gymnasium exposes no other state."""
        begun = [one and [one.seed, one.generator] for one in self._begun]
        actions = [one.actions if one else [] for one in self._begun]
        kind = self._spaces[1]
        return {
            "over": self._over,
            "observations": self._obs,
            "begun": np.frombuffer(json.dumps([self._seeds, begun]).encode(), np.uint8),
            "counts": np.array([len(some) for some in actions]),
            "actions": np.array(
                [action for some in actions for action in some], NUMPY[kind.dtype]
            ).reshape(-1, *kind.shape),
        }

    def load(self, saved: Mapping[str, Array]) -> None:
        """Restart each episode and repeat its actions.

        An environment without an accessible generator, or with a different final observation, causes a warning: the
        run then continues differently.
        """
        self._seeds, begun = json.loads(saved["begun"].tobytes())
        ends = np.cumsum(saved["counts"])
        other: list[int] = []
        for k, one in enumerate(begun):
            if one is None:
                continue
            seed, generator = one
            self._seeds[k] = seed
            known = seed is not None or _set_generator(self._envs[k], generator)
            self._restart(k)
            if not known:
                other.append(k)
                continue
            for action in saved["actions"][ends[k] - saved["counts"][k] : ends[k]]:
                self._step_one(k, action)
            self._over[k] = saved["over"][k]
            if not np.array_equal(self._obs[k], saved["observations"][k]):
                other.append(k)
        if other:
            warn(
                f"{len(other)} of {len(self._envs)} environments of {self._name} could not be restored: "
                "they are in other states, so the run continues differently.",
                hint="let the simulator draw random numbers from `np_random` only.",
            )

    def close(self) -> None:
        with ExitStack() as closing:  # closes all, even if one fails
            for env in self._envs:
                closing.callback(env.close)


@dataclass
class _Begun:
    """Start of an episode: a seed, or the state of a generator if there is one; and the actions since."""

    seed: int | None
    generator: Any
    actions: list[Array] = field(default_factory=list[Array])


def _generator(env: Any) -> Any:
    """Return the state of an environment's generator; None if it is not accessible."""
    with suppress(Exception):  # environments may raise anything
        state = env.unwrapped.np_random.bit_generator.state
        json.dumps(state)
        return state
    return None


def _set_generator(env: Any, state: Any) -> bool:
    """Set the state of an environment's generator; return whether this succeeded."""
    with suppress(Exception):
        made = getattr(np.random, state["bit_generator"])()
        made.state = state
        env.unwrapped.np_random = np.random.Generator(made)
        return True
    return False


def gymnasium() -> Any:
    """Return the module Gymnasium.

    Raises:
        EnvError: it is not installed.
    """
    try:
        import gymnasium
    except ImportError:
        raise EnvError(
            "Gymnasium's environments need Gymnasium, which is not installed.",
            hint="install the extra: pip install 'timerl-nb[gym]'.",
        ) from None
    return gymnasium


def plain_spaces(name: str, observations: Any, actions: Any) -> tuple[Any, Any]:
    """Return Gymnasium's spaces of observations and actions after their conversion to single arrays.

    Raises:
        EnvError: a space is not supported.
    """
    plain: Any = import_module("timerl_nb.env.plain_spaces")  # imports Gymnasium
    try:
        return plain.plain_observations(observations), plain.plain_actions(actions)
    except ValueError as error:
        raise EnvError(
            f"{name}: the spaces {observations} and {actions} are not supported: {error}.",
            hint="convert them with a wrapper of Gymnasium, and register the wrapped environment.",
        ) from None


def row_conversions(observations: Any, actions: Any) -> tuple[Any, Any] | None:
    """Return the conversions of rows; see `timerl_nb.env.plain_spaces.row_conversions`."""
    plain: Any = import_module("timerl_nb.env.plain_spaces")
    return plain.row_conversions(observations, actions)


def ours(observations: Any, actions: Any) -> tuple[Any, Any]:
    """Convert Gymnasium's spaces to those of this package.

    Raises:
        EnvError: a space has several arrays, or integers that do not start at 0.
    """
    return _space(observations, "observations", _FLAT), _space(actions, "actions", _ONE)


_FLAT = (
    "convert them to one Box with gymnasium.wrappers.FlattenObservation; trl.collect accepts "
    "gymnasium.make_vec(name, n, wrappers=[FlattenObservation])."
)
_ONE = "convert them to a Box, a Discrete or a flat MultiDiscrete with gymnasium.wrappers.TransformAction."


def _space(space: Any, what: str, hint: str) -> Any:
    kind = type(space).__name__
    if kind == "Box":
        low, high = space.low, space.high
        if what == "observations":  # nothing depends on the bounds of single elements
            low, high = np.min(low), np.max(high)
        return Box(low, high, tuple(space.shape), narrow(np.zeros(0, space.dtype)).dtype)
    if kind == "Discrete" and space.start == 0:
        return Discrete(int(space.n))
    if kind == "MultiDiscrete" and np.ndim(space.nvec) == 1 and not np.any(space.start):
        return MultiDiscrete(tuple(map(int, space.nvec)))
    raise EnvError(f"{what} in {space} are not supported.", hint=hint)
