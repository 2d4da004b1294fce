"""SAC in JAX for `trl.replay.train`, with an automatic temperature."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.replay.training.actor_critic_learning import ActorCritic


@explain_constructor
@dataclass(frozen=True, eq=False)
class Sac(ActorCritic):
    """Soft actor-critic: two critics, a normal distribution mapped by tanh, and a learnt temperature.

    Actions are uniform until the first learning step. All parts change in the same step.

    Source: Haarnoja et al. 2018.

    Attributes:
        env: an environment with actions in a bounded box, as in `trl.collect`.
        hidden: the widths of the hidden layers of actor and critics.
        lr: Adam's learning rates of actor, critics and temperature.
        gamma: the discount factor per step.
        tau: the fraction by which the target critics approach the critics per learning step.
        activation: the activation function of the hidden layers, "relu" or "tanh".
        target_entropy: the entropy to which the temperature adapts, for actions scaled to [-1, 1]; None
            for minus the number of their elements.

    Raises:
        EnvError: the environment is unknown, or its actions are not in a bounded box.
        OptionError, ShapeError: the activation is unknown, or a number is out of range.

    Example:
        >>> algorithm = trl.replay.Sac("Pendulum-v1", hidden=(32,))
        >>> float(algorithm.begin(seed=0)["log_temperature"])
        0.0
    """

    lr: tuple[float, ...] = (1e-3, 1e-3, 1e-3)
    target_entropy: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_entropy is not None:
            number("target_entropy", self.target_entropy)

    @property
    def _outputs(self) -> int:
        return 2

    @property
    def _has_target_actor(self) -> bool:
        return False

    @property
    def _entropy(self) -> float:
        return -float(self._actions) if self.target_entropy is None else self.target_entropy

    def _more_trained(self) -> dict[str, Any]:
        return {"log_temperature": jnp.asarray(np.zeros((), "f4"))}

    def _more_gradient(self, excess: Any) -> dict[str, Any]:
        return {"log_temperature": -excess}

    def _explore(self, params: Any, obs: Any, key: Any) -> Any:
        return self._draw(params["actor"], obs, key)[0]

    def _next_value(self, state: Any, obs: Any, key: Any) -> Any:
        action, density = self._draw(state["actor"], obs, key)
        worth = self._values(state["target"]["critics"], obs, action).min()
        return worth - jnp.exp(state["log_temperature"]) * density

    def _actor_loss(self, actor: Any, state: Any, obs: Any, key: Any) -> tuple[Any, Any]:
        action, density = self._draw(actor, obs, key)
        worth = self._values(state["critics"], obs, action).min()
        return jnp.exp(state["log_temperature"]) * density - worth, density

    def _draw(self, actor: Any, obs: Any, key: Any) -> tuple[Any, Any]:
        """Draw an action from -1 to 1, and return it with its log-density."""
        mean, log_std = self._actor_outputs(actor, obs)
        log_std = jnp.clip(log_std, -20.0, 2.0)
        noise = jax.random.normal(key, mean.shape, jnp.float32)
        x = mean + jnp.exp(log_std) * noise
        normal = -0.5 * (jnp.square(noise) + log(2 * pi)) - log_std
        # log(1 - tanh(x)²), without cancellation for large x
        slope = 2.0 * (log(2.0) - x - jax.nn.softplus(-2.0 * x))
        return jnp.tanh(x), (normal - slope).sum()
