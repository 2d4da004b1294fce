"""DQN in JAX for `trl.replay.train`: double Q-learning, n-step returns, target network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import inf, prod
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from timerl_nb.base.errors import EnvError
from timerl_nb.compiler.language.argument_checks import number, numbers, widths
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.env.spaces import Discrete
from timerl_nb.replay.training.algorithm_environment import WithEnvironment
from timerl_nb.replay.training.dense_networks import (
    adam_step,
    apply_network,
    check_activation,
    draw_network,
    select,
    zeros_of,
)


@explain_constructor
@dataclass(frozen=True, eq=False)
class Dqn(WithEnvironment):
    """DQN with a fully connected network, the Huber loss and Adam.

    Source: Mnih et al. 2015.

    Attributes:
        env: an environment with a finite number of actions, as in `trl.collect`.
        hidden: the widths of the hidden layers.
        lr: the learning rate of Adam.
        gamma: the discount factor per step.
        double: use double Q-learning: the online network chooses the next action, the target network
            evaluates it.
        target_every: the number of learning steps between copies of the weights to the target network.
        epsilon: linear schedule of the exploration rate: initial value, final value, number of learning
            steps.
        activation: the activation function of the hidden layers, "relu" or "tanh".

    Raises:
        EnvError: the environment is unknown, or its actions are not discrete.
        OptionError: the activation is unknown, or a number is out of range.

    Example:
        >>> algorithm = trl.replay.Dqn("CartPole-v1", hidden=(32,))
        >>> list(algorithm.fields)
        ['obs', 'action', 'reward', 'next_obs', 'terminated']
    """

    env: Any = "CartPole-v1"
    hidden: tuple[int, ...] = (64, 64)
    lr: float = 1e-3
    gamma: float = 0.99
    double: bool = True
    target_every: int = 200
    epsilon: tuple[float, float, int] = (1.0, 0.05, 2000)
    activation: Literal["relu", "tanh"] = "relu"

    def __post_init__(self) -> None:
        widths("hidden", self.hidden)
        number("gamma", self.gamma, least=0, most=1)
        numbers("epsilon", self.epsilon, (0, 1), (0, 1), (1, inf))
        check_activation(self.activation)
        self._keep_as_tuples("hidden", "epsilon")
        if not isinstance(self._spaces[1], Discrete):
            raise EnvError(
                f"DQN needs discrete actions, but {self.env!r} has the action space {self._spaces[1]}.",
                hint="choose an environment with a Discrete action space, or another algorithm.",
            )

    @property
    def fields(self) -> Mapping[str, tuple[tuple[int, ...], Any]]:
        obs = ((*self._spaces[0].shape,), self._spaces[0].dtype)
        return {
            "obs": obs,
            "action": ((), "i32"),
            "reward": ((), "f32"),
            "next_obs": obs,
            "terminated": ((), "bool"),
        }

    def begin(self, seed: int) -> Any:
        """Return He-initialised weights, with the last layer scaled by 0.01, and zero Adam moments."""
        seen, acts = self._spaces
        random = np.random.default_rng(seed % 2**64)
        weights = draw_network(random, [prod(seen.shape), *self.hidden, acts.n])
        nothing = zeros_of(weights)
        return {
            "weights": weights,
            "target": weights,
            "mean": nothing,
            "square": nothing,
            "count": jnp.zeros((), jnp.int32),
        }

    @partial(jax.jit, static_argnums=0)
    def acting(self, state: Any) -> Any:
        first, last, over = self.epsilon
        share = jnp.minimum(state["count"] / over, 1.0)
        return {"weights": state["weights"], "epsilon": first + (last - first) * share}

    def act(self, params: Any, obs: Any, key: Any) -> Any:
        drawn, which = jax.random.split(key)
        any_action = jax.random.randint(which, (), 0, self._spaces[1].n, jnp.int32)
        best = self.act_greedily(params, obs, key)
        return jnp.where(jax.random.uniform(drawn) < params["epsilon"], any_action, best)

    def act_greedily(self, params: Any, obs: Any, key: Any) -> Any:
        """Return the action of the greatest value, without exploration, for `trl.collect`."""
        return self._values(params["weights"], obs).argmax().astype(jnp.int32)

    @partial(jax.jit, static_argnums=0)
    def gradient(self, state: Any, rows: Mapping[str, Any], weight: Any) -> tuple[Any, Any, Any]:
        later = jax.vmap(partial(self._values, state["target"]))(rows["next_obs"])
        chooses = jax.vmap(partial(self._values, state["weights"]))(rows["next_obs"])
        best = (chooses if self.double else later).argmax(1)
        worth = jnp.take_along_axis(later, best[:, None], 1)[:, 0]
        discount = rows.get("discount", self.gamma)
        aim = rows["reward"] + discount * jnp.where(rows["terminated"], 0.0, worth)

        def loss(weights: Any) -> tuple[Any, Any]:
            q = jax.vmap(partial(self._values, weights))(rows["obs"])
            error = aim - jnp.take_along_axis(q, rows["action"][:, None], 1)[:, 0]
            size = jnp.abs(error)
            huber = jnp.where(size < 1, 0.5 * size**2, size - 0.5)
            return (weight * huber).sum(), error

        (total, error), made = jax.value_and_grad(loss, has_aux=True)(state["weights"])
        return made, error, total

    @partial(jax.jit, static_argnums=0)
    def step(self, state: Any, gradient: Any, count: Any) -> Any:
        t = state["count"] + 1
        mean_gradient = jax.tree.map(lambda x: x / count, gradient)
        moments = state["mean"], state["square"]
        weights, mean, square = adam_step(state["weights"], mean_gradient, *moments, t, self.lr)
        target = select(t % self.target_every == 0, weights, state["target"])
        return {"weights": weights, "target": target, "mean": mean, "square": square, "count": t}

    def _values(self, weights: Any, obs: Any) -> Any:
        """Return the value of each action, [actions]."""
        return apply_network(weights, jnp.ravel(obs).astype(jnp.float32), self.activation)
