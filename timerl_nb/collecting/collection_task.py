"""Collection task: environment, policy and size of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from timerl_nb.base.errors import EnvError, OptionError
from timerl_nb.collecting.policies.collecting_policy import Acting, Shard
from timerl_nb.env.environment import Simulation, make, register, registered, registered_as
from timerl_nb.env.envpool import PoolEnvironment
from timerl_nb.env.gymnasium import GymEnvironment, gymnasium, ours, plain_spaces
from timerl_nb.rl.exported_policy import LearntPolicy


@dataclass(frozen=True, eq=False)
class Task:
    """Collection task, compared by identity.

    Attributes:
        name: name of the environment.
        env: environment of TimeRL or Gymnasium; None for a vector environment.
        vector: Gymnasium vector environment passed by the user, or None.
        acting: policy.
        envs, steps: number of environments, and steps of each per batch.
        seed: seed of all random numbers.
        stores_states: whether a batch has the state of a recurrent policy before every step, instead
            of before the first one.
        ready: number of environments per call of the policy, and of trajectories per batch, if
            environments step asynchronously; None if all step together.
        is_clustered: whether workers of a Ray cluster may collect.
        workers: number of these workers; None for one per CPU of the cluster.
        shard: for a worker's task, the position of its environments among all; else None.
    """

    name: str
    env: Simulation | None
    vector: Any
    acting: Acting
    envs: int
    steps: int
    seed: int
    stores_states: bool = False
    ready: int | None = None
    is_clustered: bool = False
    workers: int | None = None
    shard: Shard | None = None

    @property
    def is_ours(self) -> bool:
        """Whether the environment is written in recurrence equations."""
        others = GymEnvironment | PoolEnvironment
        return self.env is not None and not isinstance(self.env, others)

    @property
    def spaces(self) -> tuple[Any, Any]:
        """Observation and action space."""
        return spaces(self.env, self.vector)

    @property
    def position(self) -> Shard:
        """Position of the environments among all: the shard, or all of them."""
        return Shard(0, self.envs) if self.shard is None else self.shard

    @cached_property
    def gym(self) -> GymEnvironment | None:
        """Gymnasium environment: the given one, or the one of the same name and spaces; else None."""
        env = self.env
        if env is None or isinstance(env, GymEnvironment):
            return env
        if not _is_known(env.made_as):
            return None
        twin = GymEnvironment(env.made_as, max_steps=env.max_steps)
        same = twin.act_space == env.act_space and twin.obs_space.shape == env.obs_space.shape
        return twin if same else None


class Registration:
    """Identity of the environment with a name. A name can be registered again for another environment.

    Args:
        env: the user's argument; see `resolve_environment`.
    """

    def __init__(self, env: Any) -> None:
        made = registered(env) if isinstance(env, str) else env
        rest = str(env).removeprefix("gym.")
        if isinstance(env, str) and (made is None or rest != env):
            made = gymnasium().registry.get(rest, made) if _is_known(rest) else made
        self._factory = made

    @staticmethod
    def to_send(env: Any) -> tuple[str, Any] | None:
        """Return the name and the factory, or specification of Gymnasium, that another process may lack.

        None for environments of this package, and for environments without a name.
        """
        name = env if isinstance(env, str) else getattr(env, "made_as", None)
        if not isinstance(name, str):
            return None
        made = Registration(name)._factory
        own = str(getattr(made, "__module__", "")).partition(".")[0] == "timerl_nb"
        return None if made is None or own else (registered_as(name), made)

    @staticmethod
    def receive(sent: tuple[str, Any] | None) -> None:
        """Register the result of `to_send` in this process, unless the name is known here."""
        if sent is None:
            return
        name, made = sent
        if hasattr(made, "entry_point"):
            gymnasium().registry.setdefault(made.id, made)
        elif registered(name) is None:
            register(name, made)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registration) and self._factory is other._factory

    def __hash__(self) -> int:
        return id(self._factory)


def resolve_environment(env: Any, policy: Any = None) -> tuple[str, Simulation | None, Any]:
    """Return name, environment and vector environment of a user's argument; see `Task`.

    An exported policy contains the wrappers of results that it needs, and collects in the environment inside.

    Raises:
        EnvError: the environment does not exist, the argument is not an environment, or its results are wrapped and the
            policy does not contain the wrappers.
    """
    if isinstance(env, str):
        return env, _make_environment(env), None
    if isinstance(env, Simulation):
        if env.raw is not env and not isinstance(policy, LearntPolicy):
            raise EnvError(
                f"{env.made_as} changes results in programs only, and this policy does not contain it.",
                hint="pass env.raw, the environment inside, or result.policy() of a program.",
            )
        return repr(env.raw), env.raw, None
    if hasattr(env, "single_observation_space") and hasattr(env, "num_envs"):
        return repr(env), None, env
    hint = 'pass a name: "CartPole-v1".'
    if hasattr(env, "observation_space"):
        hint = (
            "pass its name, or a vector environment: gymnasium.vector.SyncVectorEnv([make] * 16)."
        )
    raise EnvError(f"{env!r} is not a supported environment.", hint=hint)


def _make_environment(name: str) -> Simulation:
    """Return TimeRL's environment of that name, else Gymnasium's."""
    try:
        return make(name)
    except EnvError:
        if not _is_known(name):
            raise
    return GymEnvironment(name)


def _is_known(name: str) -> bool:
    """Return whether Gymnasium has an environment of that name, or the name contains a module."""
    try:
        return name in gymnasium().registry or ":" in name
    except EnvError:  # Gymnasium is not installed
        return False


def spaces(env: Simulation | None, vector: Any) -> tuple[Any, Any]:
    """Return observation and action space.

    Raises:
        EnvError: a space is not supported.
    """
    if env is not None:
        return env.obs_space, env.act_space
    own = vector.single_observation_space, vector.single_action_space
    return ours(*plain_spaces(repr(vector), *own))


def check_pace(ready: int, envs: int, episodes: int | None) -> None:
    """Check the number of trajectories per batch.

    Raises:
        OptionError: there are fewer environments, or batches are of episodes.
    """
    if ready > envs:
        raise OptionError(
            f"ready={ready}, but there are {envs} environments.",
            hint=f"pass envs={ready} or more.",
        )
    if episodes is not None:
        raise OptionError(
            f"ready={ready} excludes batches of episodes, for which all environments step together.",
            hint="leave out ready or episodes.",
        )
