"""What is to be collected: of which environment, by which policy, how much."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from timerl_nb.base.errors import EnvError
from timerl_nb.collecting.policies.collecting_policy import Acting
from timerl_nb.env.environment import Simulation, make
from timerl_nb.env.envpool import PoolEnvironment
from timerl_nb.env.gymnasium import GymEnvironment, gymnasium, ours


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be collected; each is one of its own.

    Attributes:
        name: of the environment, where it has one.
        env: ours or Gymnasium's; None where it is neither.
        vector: a vector environment of Gymnasium's that was given.
        acting: the policy.
        envs, steps: how many environments, and steps of each in a batch.
        seed: of all chance.
    """

    name: str
    env: Simulation | None
    vector: Any
    acting: Acting
    envs: int
    steps: int
    seed: int

    @property
    def is_ours(self) -> bool:
        """Whether the environment is one of recurrence equations."""
        others = GymEnvironment | PoolEnvironment
        return self.env is not None and not isinstance(self.env, others)

    @property
    def spaces(self) -> tuple[Any, Any]:
        """Of observations and actions."""
        return spaces(self.env, self.vector)

    @cached_property
    def gym(self) -> GymEnvironment | None:
        """Gymnasium's environment: that which is asked for, or that of its name; None where there is none."""
        env = self.env
        if env is None or isinstance(env, GymEnvironment):
            return env
        if not _is_known(env.made_as):
            return None
        twin = GymEnvironment(env.made_as, max_steps=env.max_steps)
        same = twin.act_space == env.act_space and twin.obs_space.shape == env.obs_space.shape
        return twin if same else None


def resolve_environment(env: Any) -> tuple[str, Simulation | None, Any]:
    """An environment that somebody names or gives: its name, and what `Task` has of it.

    Raises:
        EnvError: there is none of that name, or it is no environment.
    """
    if isinstance(env, str):
        return env, _make_environment(env), None
    if isinstance(env, Simulation):
        return repr(env), env, None
    if hasattr(env, "single_observation_space") and hasattr(env, "num_envs"):
        return repr(env), None, env
    hint = 'give a name: "CartPole-v1".'
    if hasattr(env, "observation_space"):
        hint = "give its name, or several as one: gymnasium.vector.SyncVectorEnv([make] * 16)."
    raise EnvError(f"{env!r} is no environment.", hint=hint)


def _make_environment(name: str) -> Simulation:
    """Ours of that name, else Gymnasium's."""
    try:
        return make(name)
    except EnvError:
        if not _is_known(name):
            raise
    return GymEnvironment(name)


def _is_known(name: str) -> bool:
    """Whether Gymnasium has an environment of that name, or is told the module that has."""
    try:
        return name in gymnasium().registry or ":" in name
    except EnvError:  # it is not installed
        return False


def spaces(env: Simulation | None, vector: Any) -> tuple[Any, Any]:
    """Of observations and actions.

    Raises:
        EnvError: they are of several arrays.
    """
    if env is not None:
        return env.obs_space, env.act_space
    return ours(vector.single_observation_space, vector.single_action_space)
