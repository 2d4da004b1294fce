"""gymnax's CartPole under the same policy, in a scan."""

from __future__ import annotations

from typing import Any

import gymnax
import jax

from benchmarks.collecting import equations
from benchmarks.collecting.jitted import Jitted, act


class Gymnax(Jitted):
    """gymnax reports only the end of an episode: the reason is derived from the final state."""

    def __init__(self, cell: Any) -> None:
        super().__init__(cell, whole=True)

    def _begun(self) -> tuple[Any, Any]:
        env, params = gymnax.make("CartPole-v1")
        envs = self.cell.envs
        keys = jax.random.split(jax.random.key(0), envs)
        obs, state = jax.vmap(env.reset, (0, None))(keys, params)

        def step(layers: Any, carry: Any) -> Any:
            obs, state, key = carry
            key, chance, begin = jax.random.split(key, 3)
            action, logp = act(layers, obs, chance)
            keys = jax.random.split(begin, envs)
            later, after, reward, done, info = jax.vmap(env.step, (0, 0, 0, None))(
                keys, state, action, params
            )
            made = {"obs": obs, "action": action, "reward": reward, "done": done, "log_prob": logp}
            return (later, after, key), made

        return (obs, state, jax.random.key(1)), step

    def batch(self) -> Any:
        made = dict(super().batch())
        after = equations.after(made["obs"], made["action"])
        made["terminated"] = equations.left(after) > 0
        made["truncated"] = made.pop("done") & ~made["terminated"]
        return made
