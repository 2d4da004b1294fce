"""DDPG and TD3 in JAX for `trl.replay.train`."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import jax
import jax.numpy as jnp

from timerl_nb.compiler.language.argument_checks import integer, number, numbers
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.replay.training.actor_critic_learning import ActorCritic


@dataclass(frozen=True, eq=False)
class _Deterministic(ActorCritic):
    """Deterministic actor with Gaussian exploration noise."""

    noise: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        number("noise", self.noise, least=0)

    @property
    def _smoothing(self) -> tuple[float, float]:
        """The standard deviation of the noise of the target's actions, and its greatest size."""
        return 0.0, 0.0

    def _explore(self, params: Any, obs: Any, key: Any) -> Any:
        action = jnp.tanh(self._actor_outputs(params["actor"], obs)[0])
        noise = self.noise * jax.random.normal(key, action.shape, jnp.float32)
        return jnp.clip(action + noise, -1.0, 1.0)

    def _next_value(self, state: Any, obs: Any, key: Any) -> Any:
        targets, (spread, most) = state["target"], self._smoothing
        action = jnp.tanh(self._actor_outputs(targets["actor"], obs)[0])
        if spread > 0:
            noise = spread * jax.random.normal(key, action.shape, jnp.float32)
            action = jnp.clip(action + jnp.clip(noise, -most, most), -1.0, 1.0)
        return self._values(targets["critics"], obs, action).min()

    def _actor_loss(self, actor: Any, state: Any, obs: Any, key: Any) -> tuple[Any, Any]:
        action = jnp.tanh(self._actor_outputs(actor, obs)[0])
        return -self._values(state["critics"], obs, action)[0], jnp.zeros((), jnp.float32)


@explain_constructor
@dataclass(frozen=True, eq=False)
class Ddpg(_Deterministic):
    """Deep deterministic policy gradients with fully connected networks and Adam.

    Actions are uniform until the first learning step. Actor and critic change in the same step.

    Source: Lillicrap et al. 2016, with Gaussian exploration noise.

    Attributes:
        env: an environment with actions in a bounded box, as in `trl.collect`.
        hidden: the widths of the hidden layers of actor and critic.
        lr: Adam's learning rates of actor and critic.
        gamma: the discount factor per step.
        tau: the fraction by which the target networks approach the networks per learning step.
        activation: the activation function of the hidden layers, "relu" or "tanh".
        noise: the standard deviation of the exploration noise, for actions scaled to [-1, 1].

    Raises:
        EnvError: the environment is unknown, or its actions are not in a bounded box.
        OptionError, ShapeError: the activation is unknown, or a number is out of range.

    Example:
        >>> trl.replay.Ddpg("Pendulum-v1", hidden=(32,)).fields["action"]
        ((1,), 'f32')
    """

    @property
    def _critics(self) -> int:
        return 1


@explain_constructor
@dataclass(frozen=True, eq=False)
class Td3(_Deterministic):
    """Twin delayed DDPG: the smaller value of two critics, noise in the target, a delayed actor.

    Actions are uniform until the first learning step.

    Source: Fujimoto et al. 2018.

    Attributes:
        env: an environment with actions in a bounded box, as in `trl.collect`.
        hidden: the widths of the hidden layers of actor and critics.
        lr: Adam's learning rates of actor and critics.
        gamma: the discount factor per step.
        tau: the fraction by which the target networks approach the networks, at each step of the actor.
        activation: the activation function of the hidden layers, "relu" or "tanh".
        noise: the standard deviation of the exploration noise, for actions scaled to [-1, 1].
        target_noise: the standard deviation of the noise of the target's actions, and its greatest size.
        delay: the number of learning steps per step of the actor and of the target networks.

    Raises:
        EnvError: the environment is unknown, or its actions are not in a bounded box.
        OptionError, ShapeError: the activation is unknown, or a number is out of range.

    Example:
        >>> algorithm = trl.replay.Td3("Pendulum-v1", hidden=(32,))
        >>> len(algorithm.begin(seed=0)["critics"])
        2
    """

    target_noise: tuple[float, float] = (0.2, 0.5)
    delay: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers("target_noise", self.target_noise, (0, inf), (0, inf))
        integer("delay", self.delay, least=1)
        self._keep_as_tuples("target_noise")

    @property
    def _smoothing(self) -> tuple[float, float]:
        return self.target_noise

    @property
    def _delay(self) -> int:
        return self.delay
