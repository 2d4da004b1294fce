"""Lower bound on time: only the matrix products and tanh of learning, once over the whole batch."""

from __future__ import annotations

import jax.numpy as jnp

from benchmarks.training.peers.parts import Array, Carry, Iteration, observation_size
from benchmarks.works import Work


def iteration(work: Work) -> Iteration:
    """Run the operations; the results have no meaning."""

    def run(carry: Carry) -> tuple[Carry, tuple[Array, Array]]:
        params, state, key = carry
        layers = [params[f"layer.{k}.weight"] for k in range(work.layers + 1)]
        x = jnp.ones((work.points, observation_size(work))) * params["log_std"]
        hidden: list[Array] = []
        for weight in layers:
            hidden.append(jnp.tanh((hidden[-1] if hidden else x) @ weight))
        d, made = hidden[-1], dict(params)
        for k in reversed(range(len(layers))):
            made[f"layer.{k}.weight"] = (hidden[k - 1] if k else x).T @ d
            if k:
                d = d @ layers[k].T
        return (made, state, key), (jnp.zeros(()), jnp.zeros(()))

    return run
