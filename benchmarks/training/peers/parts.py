"""Shared parts of the hand-written programs: environment, network, losses, Adam, in plain JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import e, log, pi
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.works import CRITIC, ENTROPY, GAMMA, LAM, RATE, Work

Array = Any
Params = dict[str, Array]
Carry = tuple[Params, Any, Array]
Iteration = Callable[[Carry], tuple[Carry, tuple[Array, Array]]]


def start(work: Work, seed: int = 0) -> Carry:
    """Return initial parameters like those of `trl.DNNBuilder`: orthogonal, without biases."""
    key = jax.random.PRNGKey(seed)
    sizes = [observation_size(work), *work.hidden]
    shapes = {f"layer.{k}": (a, b, 2**0.5) for k, (a, b) in enumerate(pairwise(sizes))}
    shapes["mean"] = (sizes[-1], 1, 0.01)
    if work.algorithm == "ppo":
        shapes["value"] = (sizes[-1], 1, 1.0)
    params: Params = {"log_std": jnp.zeros((1,))}
    for name, (inputs, outputs, gain) in shapes.items():
        key, own = jax.random.split(key)
        params[f"{name}.weight"] = jax.nn.initializers.orthogonal(gain)(own, (inputs, outputs))
        params[f"{name}.bias"] = jnp.zeros((outputs,))
    return params, adam_state(params), key


def of_ours(params: Mapping[str, Array]) -> Params:
    """Rename our program's parameters (or gradients) to the names used here.

    JAX orders dictionaries by key. With the heads before the layers, XLA plans a fifth more memory
    for S.
    """
    names = {"trunk": "layer", "actor": "mean", "critic": "value"}
    parts = {name: name.split(".", 1) for name in params}
    return {
        ".".join((names.get(first, first), *rest)): jnp.asarray(params[name])
        for name, (first, *rest) in parts.items()
    }


def observation_size(work: Work) -> int:
    size = 1
    for s in work.obs_shape:
        size *= s
    return size


# --- the environment -----------------------------------------------------------------------------


def observe(work: Work, state: Array) -> Array:
    """Repeat the state. A barrier hides the repetition from XLA, like a real environment."""
    shape = (*state.shape, *work.obs_shape)
    whole = jnp.broadcast_to(state.reshape(*state.shape, *(1,) * len(work.obs_shape)), shape)
    return jax.lax.optimization_barrier(whole)


def drawn_keys(work: Work, key: Array) -> tuple[Array, Array]:
    """Return the key of an episode's reset, and those of its steps."""
    keys = jax.random.split(key, 1 + work.steps)
    return keys[0], keys[1:]


def noise(work: Work, key: Array) -> Array:
    return jax.random.normal(key, (work.envs, 1))


def reset(work: Work, key: Array) -> tuple[Array, Array]:
    state = jax.random.uniform(key, (work.envs,), minval=-1.0, maxval=1.0)
    return state, observe(work, state)


def step(work: Work, state: Array, action: Array) -> tuple[Array, Array, Array]:
    """Return the next state, its observation, and the reward."""
    state = jnp.clip(state + 0.05 * jnp.clip(action[:, 0], -1, 1), -1, 1)
    return state, observe(work, state), -jnp.abs(state)


# --- the network ---------------------------------------------------------------------------------


def features(params: Params, o: Array, work: Work) -> Array:
    """Return the last hidden layer for observations with any leading axes."""
    x = o.reshape(*o.shape[: o.ndim - len(work.obs_shape)], -1)
    for k in range(work.layers + 1):
        x = jnp.tanh(x @ params[f"layer.{k}.weight"] + params[f"layer.{k}.bias"])
    return x


def mean_of(params: Params, h: Array) -> Array:
    return h @ params["mean.weight"] + params["mean.bias"]


def value_of(params: Params, h: Array) -> Array:
    return (h @ params["value.weight"] + params["value.bias"])[..., 0]


def log_prob(params: Params, mean: Array, a: Array) -> Array:
    log_std = params["log_std"]
    scaled = (a - mean) / jnp.exp(log_std)
    return (-0.5 * scaled**2 - log_std - 0.5 * log(2 * pi)).sum(-1)


def entropy(params: Params) -> Array:
    return (params["log_std"] + 0.5 * log(2 * pi * e)).sum()


# --- learning ------------------------------------------------------------------------------------


def advantages(r: Array, v: Array) -> Array:
    """Return generalised advantages of rewards and values [T, N]; the value after the end is 0."""

    def back(later: tuple[Array, Array], now: tuple[Array, Array]) -> Any:
        (advantage, value), (reward, own) = later, now
        advantage = reward + GAMMA * value - own + GAMMA * LAM * advantage
        return (advantage, own), advantage

    nothing = jnp.zeros(r.shape[1:])
    return jax.lax.scan(back, (nothing, nothing), (r, v), reverse=True, unroll=16)[1]


def returns(r: Array, window: int | None) -> Array:
    """Return discounted sums of the rewards [T, N] from each time on, over all steps or over `window`."""

    def back(later: Array, reward: Array) -> tuple[Array, Array]:
        total = reward + GAMMA * later
        return total, total

    whole = jax.lax.scan(back, jnp.zeros(r.shape[1:]), r, reverse=True)[1]
    if window is None or window >= len(r):
        return whole
    beyond = jnp.concatenate([whole[window:], jnp.zeros((window, *r.shape[1:]))])
    return whole - GAMMA**window * beyond


def ppo_loss(
    params: Params, o: Array, a: Array, advantage: Array, target: Array, work: Work
) -> Array:
    """Return PPO's loss for operands with any common leading axes."""
    h = features(params, o, work)
    scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    actor = (-log_prob(params, mean_of(params, h), a) * scaled).mean()
    regret = (0.5 * (value_of(params, h) - target) ** 2).mean()
    return actor + CRITIC * regret - ENTROPY * entropy(params)


def reinforce_loss(params: Params, o: Array, a: Array, g: Array, work: Work) -> Array:
    mean = mean_of(params, features(params, o, work))
    return (-log_prob(params, mean, a) * g).mean()


def adam_state(params: Params) -> Any:
    zeros = {name: jnp.zeros_like(p) for name, p in params.items()}
    return zeros, zeros, jnp.zeros((), jnp.int32)


def adam(params: Params, state: Any, grads: Params) -> tuple[Params, Any]:
    """Return one step of Adam (Kingma and Ba 2015)."""
    m, v, count = state
    count = count + 1
    m = {k: 0.9 * m[k] + 0.1 * g for k, g in grads.items()}
    v = {k: 0.999 * v[k] + 0.001 * g * g for k, g in grads.items()}
    first, second = 1 - 0.9**count, 1 - 0.999**count
    params = {
        k: p - RATE * (m[k] / first) / (jnp.sqrt(v[k] / second) + 1e-8) for k, p in params.items()
    }
    return params, (m, v, count)
