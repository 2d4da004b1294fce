"""CartPole in idiomatic JAX: one call per step, or a scan over all steps in one call."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.collecting.cell import ANGLE_LIMIT, MOST_STEPS, TICK, X_LIMIT, Cell
from benchmarks.collecting.implementation import Batch, Implementation
from benchmarks.collecting.policy import weights
from timerl_nb.runtime.xla.hlo.hlo_cost_counts import work


def act(layers: Any, obs: Any, key: Any) -> tuple[Any, Any]:
    """Return actions and their log-probabilities; 0 without a policy."""
    if not layers:
        return jax.random.randint(key, obs.shape[:1], 0, 2), jnp.zeros(len(obs))
    x = obs
    for w, b in layers[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = layers[-1]
    logp = jax.nn.log_softmax(x @ w + b)
    action = jax.random.categorical(key, logp)
    return action, jnp.take_along_axis(logp, action[:, None], 1)[:, 0]


def first(key: Any, envs: int) -> Any:
    return jax.random.uniform(key, (envs, 4), minval=-0.05, maxval=0.05)


def step(layers: Any, carry: Any) -> Any:
    """Step all environments: state, episode length and key, plus the learner's inputs."""
    state, length, key = carry
    key, chance, begin = jax.random.split(key, 3)
    action, logp = act(layers, state, chance)
    x, v, angle, spin = state.T
    force = jnp.where(action == 1, 10.0, -10.0)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    push = (force + 0.05 * spin * spin * sin) / 1.1
    twist = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
    pull = push - 0.05 * twist * cos / 1.1
    moved = [x + TICK * v, v + TICK * pull, angle + TICK * spin, spin + TICK * twist]
    after = jnp.stack(moved, 1)
    length = length + 1
    ended = (abs(after[:, 0]) > X_LIMIT) | (abs(after[:, 2]) > ANGLE_LIMIT)
    cut = length >= MOST_STEPS
    over = ended | cut
    later = jnp.where(over[:, None], first(begin, len(state)), after)
    made = {
        "obs": state,
        "action": action,
        "reward": jnp.ones(len(state)),
        "terminated": ended,
        "truncated": cut,
        "final": after,
        "log_prob": logp,
    }
    return (later, jnp.where(over, 0, length), key), made


def launches(compiled: Any) -> int:
    """Count the kernel launches of a call in XLA's optimised HLO, as for our programs."""
    return work(compiled.as_text()).launches


class Jitted(Implementation):
    """JAX function called once per batch or once per step."""

    def __init__(self, cell: Cell, *, whole: bool) -> None:
        super().__init__(cell)
        self._layers = [(jnp.asarray(w), jnp.asarray(b)) for w, b in weights(cell.width)]
        self._carry, step = self._begun()
        self._whole = whole

        def several(layers: Any, carry: Any) -> Any:
            return jax.lax.scan(lambda c, _: step(layers, c), carry, None, cell.steps)

        function = jax.jit(several if whole else step, donate_argnums=1)
        self._call = function.lower(self._layers, self._carry).compile()
        self._made: Any = None

    def _begun(self) -> tuple[Any, Any]:
        """Return the initial carry, and the step function on it."""
        envs = self.cell.envs
        carry = first(jax.random.key(0), envs), jnp.zeros(envs, jnp.int32), jax.random.key(1)
        return carry, step

    def advance(self) -> int:
        self.calls = 1 if self._whole else self.cell.steps
        if self._whole:
            self._carry, self._made = self._call(self._layers, self._carry)
        else:
            self._made = []
            for _ in range(self.cell.steps):
                self._carry, made = self._call(self._layers, self._carry)
                self._made.append(made)
        jax.block_until_ready((self._carry, self._made))
        return self.cell.points

    def counts(self) -> dict[str, int | None]:
        self.launches = launches(self._call) * self.calls
        return super().counts()

    def batch(self) -> Batch:
        made = self._made
        if not self._whole:
            made = jax.tree.map(lambda *xs: np.stack(xs), *made)
        valid = np.ones((self.cell.steps, self.cell.envs), bool)
        arrays = {name: np.asarray(x) for name, x in made.items()}
        return {**arrays, "valid": valid, "last_obs": np.array(self._carry[0])}


def scan(cell: Cell) -> Jitted:
    return Jitted(cell, whole=True)


def a_call_a_step(cell: Cell) -> Jitted:
    return Jitted(cell, whole=False)
