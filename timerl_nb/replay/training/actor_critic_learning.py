"""Shared part of off-policy actor-critic algorithms with continuous actions, for `trl.replay.train`.

Networks compute with actions from -1 to 1. The environment and the buffer have actions in the bounds of the box.
"""

from __future__ import annotations

from abc import abstractmethod
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
from timerl_nb.env.spaces import Box, half_and_middle, is_bounded
from timerl_nb.replay.training.algorithm_environment import WithEnvironment
from timerl_nb.replay.training.dense_networks import (
    adam_step,
    apply_network,
    check_activation,
    draw_network,
    select,
    soft_update,
    zeros_of,
)


@dataclass(frozen=True, eq=False)
class ActorCritic(WithEnvironment):
    """Actor, critics and target critics; subclasses define the policy, the target value and the actor's loss."""

    env: Any = "Pendulum-v1"
    hidden: tuple[int, ...] = (64, 64)
    lr: tuple[float, ...] = (1e-3, 1e-3)
    gamma: float = 0.99
    tau: float = 0.005
    activation: Literal["relu", "tanh"] = "relu"

    def __post_init__(self) -> None:
        widths("hidden", self.hidden)
        numbers("lr", self.lr, *[(0, inf)] * len(type(self).lr))
        number("gamma", self.gamma, least=0, most=1)
        number("tau", self.tau, least=0, most=1)
        check_activation(self.activation)
        self._keep_as_tuples("hidden", "lr")
        box = self._spaces[1]
        if not (isinstance(box, Box) and is_bounded(box)):
            raise EnvError(
                f"{type(self).__name__} needs actions between two bounds, but {self.env!r} has the action space {box}.",
                hint="choose an environment with a bounded Box of actions, or trl.replay.Dqn for discrete actions.",
            )

    # --- options of the subclasses ---------------------------------------------------------------

    @property
    def _critics(self) -> int:
        """The number of critics."""
        return 2

    @property
    def _outputs(self) -> int:
        """The number of outputs of the actor per element of an action."""
        return 1

    @property
    def _delay(self) -> int:
        """The number of learning steps per step of the actor and of the targets."""
        return 1

    @property
    def _has_target_actor(self) -> bool:
        return True

    @abstractmethod
    def _explore(self, params: Any, obs: Any, key: Any) -> Any:
        """Return an action from -1 to 1 with exploration, [actions]."""

    @abstractmethod
    def _next_value(self, state: Any, obs: Any, key: Any) -> Any:
        """Return the value of one observation after the step, a scalar."""

    @abstractmethod
    def _actor_loss(self, actor: Any, state: Any, obs: Any, key: Any) -> tuple[Any, Any]:
        """Return the actor's loss for one observation, and the log-density of its action (0 without one)."""

    # --- the interface `Algorithm` ---------------------------------------------------------------

    @property
    def _actions(self) -> int:
        """The number of elements of an action."""
        return prod(self._spaces[1].shape)

    @property
    def fields(self) -> Mapping[str, tuple[tuple[int, ...], Any]]:
        obs = ((*self._spaces[0].shape,), self._spaces[0].dtype)
        return {
            "obs": obs,
            "action": ((*self._spaces[1].shape,), "f32"),
            "reward": ((), "f32"),
            "next_obs": obs,
            "terminated": ((), "bool"),
        }

    def begin(self, seed: int) -> Any:
        """Return initial weights, targets equal to them, zero moments of Adam, and a key for the noise."""
        random = np.random.default_rng(seed % 2**64)
        seen = prod(self._spaces[0].shape)
        actor = draw_network(random, [seen, *self.hidden, self._outputs * self._actions])
        critics = [
            draw_network(random, [seen + self._actions, *self.hidden, 1])
            for _ in range(self._critics)
        ]
        trained = {"actor": actor, "critics": critics, **self._more_trained()}
        targets = {"critics": critics, **({"actor": actor} if self._has_target_actor else {})}
        return {
            **trained,
            "target": targets,
            "mean": zeros_of(trained),
            "square": zeros_of(trained),
            "count": jnp.zeros((), jnp.int32),
            "key": jnp.asarray(random.integers(2**32, size=2, dtype=np.uint32)),
        }

    def _more_trained(self) -> dict[str, Any]:
        """Return trained arrays other than the networks."""
        return {}

    @partial(jax.jit, static_argnums=0)
    def acting(self, state: Any) -> Any:
        """Return the actor, and whether no step has been learnt: actions are uniform until then."""
        return {"actor": state["actor"], "is_uniform": state["count"] == 0}

    def act(self, params: Any, obs: Any, key: Any) -> Any:
        which, drawn = jax.random.split(key)
        uniform = jax.random.uniform(which, (self._actions,), jnp.float32, -1.0, 1.0)
        explored = self._explore(params, obs, drawn)
        return self._in_box(jnp.where(params["is_uniform"], uniform, explored))

    def act_greedily(self, params: Any, obs: Any, key: Any) -> Any:
        """Return the action without exploration, for `trl.collect`."""
        return self._in_box(jnp.tanh(self._actor_outputs(params["actor"], obs)[0]))

    @partial(jax.jit, static_argnums=0)
    def gradient(self, state: Any, rows: Mapping[str, Any], weight: Any) -> tuple[Any, Any, Any]:
        """Return gradient, errors and loss; see `Algorithm`. Noise depends on a row's position in the batch,
        not on the part.
        """
        position = rows.get("batch_position", jnp.arange(len(weight)))
        step_key = jax.random.fold_in(_key(state["key"]), state["count"])
        keys = jax.vmap(lambda k: jax.random.split(jax.random.fold_in(step_key, k)))(position)
        later = jax.vmap(partial(self._next_value, state))(rows["next_obs"], keys[:, 0])
        discount = rows.get("discount", self.gamma)
        aim = rows["reward"] + discount * jnp.where(rows["terminated"], 0.0, later)
        did = jax.vmap(self._from_box)(rows["action"])

        def critics_loss(critics: Any) -> tuple[Any, Any]:
            values = jax.vmap(partial(self._values, critics))(rows["obs"], did)
            error = aim[:, None] - values
            return (weight * jnp.square(error).sum(1)).sum(), jnp.abs(error).mean(1)

        def actor_loss(actor: Any) -> tuple[Any, Any]:
            of_row = partial(self._actor_loss, actor, state)
            losses, density = jax.vmap(of_row)(rows["obs"], keys[:, 1])
            return (weight * losses).sum(), (weight * (density + self._entropy)).sum()

        (total, errors), by_critics = jax.value_and_grad(critics_loss, has_aux=True)(
            state["critics"]
        )
        by_actor, excess = jax.lax.cond(
            self._is_actor_due(state["count"] + 1),
            jax.grad(actor_loss, has_aux=True),
            lambda actor: (zeros_of(actor), jnp.zeros((), jnp.float32)),
            state["actor"],
        )
        made = {"actor": by_actor, "critics": by_critics, **self._more_gradient(excess)}
        return made, errors, total

    def _more_gradient(self, excess: Any) -> dict[str, Any]:
        """Return the gradients of `_more_trained`.

        Args:
            excess: the weighted sum of log-density plus target entropy.
        """
        return {}

    @partial(jax.jit, static_argnums=0)
    def step(self, state: Any, gradient: Any, count: Any) -> Any:
        t = state["count"] + 1
        made: dict[str, Any] = {"count": t, "key": state["key"], "mean": {}, "square": {}}
        rates = dict(zip(("actor", "critics", "log_temperature"), self.lr, strict=False))
        for name, total in gradient.items():
            before = state[name], state["mean"][name], state["square"][name]
            is_due, number = t > 0, t
            if name == "actor":
                is_due, number = self._is_actor_due(t), t // self._delay
            one = jax.tree.map(lambda x: x / count, total)
            after = adam_step(before[0], one, *before[1:], jnp.maximum(number, 1), rates[name])
            weights, made["mean"][name], made["square"][name] = select(is_due, after, before)
            made[name] = weights
        tau = jnp.where(self._is_actor_due(t), self.tau, 0.0)
        made["target"] = soft_update(state["target"], {n: made[n] for n in state["target"]}, tau)
        return made

    # --- networks --------------------------------------------------------------------------------

    @property
    def _entropy(self) -> float:
        """The target entropy of actions from -1 to 1."""
        return 0.0

    def _is_actor_due(self, t: Any) -> Any:
        return t % self._delay == 0

    def _actor_outputs(self, actor: Any, obs: Any) -> Any:
        """Return the actor's outputs, [outputs, actions]."""
        outputs = apply_network(actor, _flat(obs), self.activation)
        return outputs.reshape(self._outputs, self._actions)

    def _values(self, critics: Any, obs: Any, action: Any) -> Any:
        """Return the values of an observation and an action from -1 to 1, [critics]."""
        x = jnp.concatenate([_flat(obs), action])
        return jnp.stack([apply_network(one, x, self.activation)[0] for one in critics])

    def _in_box(self, action: Any) -> Any:
        """Convert an action from -1 to 1 to the bounds of the box."""
        box = self._spaces[1]
        half, middle = map(jnp.ravel, half_and_middle(box))
        return (action * half + middle).reshape(box.shape).astype(jnp.float32)

    def _from_box(self, action: Any) -> Any:
        """Convert an action in the bounds of the box to -1 to 1, [actions]."""
        half, middle = map(jnp.ravel, half_and_middle(self._spaces[1]))
        return (jnp.ravel(action) - middle) / jnp.where(half == 0, 1.0, half)


def _flat(obs: Any) -> Any:
    return jnp.ravel(obs).astype(jnp.float32)


def _key(words: Any) -> Any:
    return jax.random.wrap_key_data(words, impl="threefry2x32")
