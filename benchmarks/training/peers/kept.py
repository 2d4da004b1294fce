"""Hand-optimised limit: acting stores the activations for learning, and gradients are explicit.

Learning runs over the whole batch or in tiles of steps. With `recompute`, only observations are
stored, and each tile's activations are recomputed.
"""

from __future__ import annotations

from math import log, pi
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.training.peers.parts import (
    Array,
    Carry,
    Iteration,
    Params,
    adam,
    advantages,
    drawn_keys,
    entropy,
    noise,
    reset,
    returns,
    step,
)
from benchmarks.works import CRITIC, ENTROPY, Work


def forward(params: Params, x: Array, work: Work) -> tuple[list[Array], Array]:
    """Return all hidden layers, and the concatenated results of the heads."""
    hidden: list[Array] = []
    for k in range(work.layers + 1):
        x = jnp.tanh(x @ params[f"layer.{k}.weight"] + params[f"layer.{k}.bias"])
        hidden.append(x)
    weight, bias = heads(params)
    return hidden, x @ weight + bias


def heads(params: Params) -> tuple[Array, Array]:
    names = [name for name in ("mean", "value") if f"{name}.bias" in params]
    weight = jnp.concatenate([params[f"{name}.weight"] for name in names], 1)
    return weight, jnp.concatenate([params[f"{name}.bias"] for name in names])


def head_gradients(
    work: Work, params: Params, noise: Array, r: Array, made: Array
) -> tuple[Array, Array, Array]:
    """Return the loss, and its gradients by the heads' results [T, N, heads] and by log_std."""
    log_std, z = params["log_std"][0], noise[..., 0]
    log_probs = -0.5 * z * z - log_std - 0.5 * log(2 * pi)
    if work.algorithm == "ppo":
        v = made[..., 1]
        advantage = advantages(r, v)
        weight = (advantage - advantage.mean()) / (advantage.std() + 1e-8) / work.points
        loss = CRITIC * (0.5 * advantage**2).mean() - ENTROPY * entropy(params)
        others = [-CRITIC * advantage / work.points]  # v - (advantage + v)
        by_entropy = ENTROPY
    else:
        weight = returns(r, work.window) / work.points
        loss, others, by_entropy = jnp.zeros(()), [], 0.0
    by_mean = -weight * z / jnp.exp(log_std)
    by_log_std = (-weight * (z * z - 1)).sum() - by_entropy
    loss = loss - (log_probs * weight).sum()
    return loss, jnp.stack([by_mean, *others], -1), by_log_std[None]


def backward(
    params: Params, x: Array, hidden: list[Array], d: Array, work: Work, before: Params
) -> Params:
    """Accumulate the gradients of trunk and heads; `d` is the gradient of the heads' results."""
    grads = dict(before)

    def add(name: str, weight: Array, bias: Array) -> None:
        grads[f"{name}.weight"] = grads[f"{name}.weight"] + weight
        grads[f"{name}.bias"] = grads[f"{name}.bias"] + bias

    weight = hidden[-1].T @ d
    for k, name in enumerate(("mean", "value")[: d.shape[1]]):
        add(name, weight[:, k : k + 1], d[:, k : k + 1].sum(0))
    d = d @ heads(params)[0].T
    for k in reversed(range(work.layers + 1)):
        d = d * (1 - hidden[k] ** 2)
        add(f"layer.{k}", (hidden[k - 1] if k else x).T @ d, d.sum(0))
        if k:
            d = d @ params[f"layer.{k}.weight"].T
    return grads


def iteration(work: Work, block: int | None = None, *, recompute: bool = False) -> Iteration:
    """Return the iteration with learning tiles of `block` steps, a divisor of T; None for one tile."""

    def run(carry: Carry) -> tuple[Carry, tuple[Array, Array]]:
        params, state, key = carry
        key, own = jax.random.split(key)
        own, keys = drawn_keys(work, own)
        drawn = jax.vmap(lambda key: noise(work, key))(keys)

        def act(now: tuple[Array, Array], noise: Array) -> tuple[Any, Any]:
            state, o = now
            x = o.reshape(work.envs, -1)
            hidden, made = forward(params, x, work)
            a = made[:, :1] + jnp.exp(params["log_std"]) * noise
            state, seen, r = step(work, state, a)
            return (state, seen), (x, [] if recompute else hidden, r, made)

        x, hidden, r, made = jax.lax.scan(act, reset(work, own), drawn)[1]
        loss, d, by_log_std = head_gradients(work, params, drawn, r, made)
        size = block or work.steps

        def blocks(y: Array) -> Array:
            return y.reshape(work.steps // size, size * work.envs, *y.shape[2:])

        def learn(grads: Params, part: Any) -> tuple[Params, None]:
            x, hidden, d = part
            hidden = forward(params, x, work)[0] if recompute else hidden
            return backward(params, x, hidden, d, work, grads), None

        zeros = {name: jnp.zeros_like(p) for name, p in params.items()}
        parts = (blocks(x), [blocks(h) for h in hidden], blocks(d))
        if block is None:
            grads, _ = learn(zeros, jax.tree.map(lambda y: y[0], parts))
        else:
            grads, _ = jax.lax.scan(learn, zeros, parts)
        params, state = adam(params, state, {**grads, "log_std": by_log_std})
        return (params, state, key), (loss, r.sum(0).mean())

    return run
