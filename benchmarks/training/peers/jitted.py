"""Fully jitted style: act in a scan, then repeat the forward pass and differentiate."""

from __future__ import annotations

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
    features,
    mean_of,
    noise,
    ppo_loss,
    reinforce_loss,
    reset,
    returns,
    step,
    value_of,
)
from benchmarks.works import Work

Episode = tuple[Array, Array, Array, Array]  # observations, actions, rewards, values: [T, N, …]


def rollout(work: Work, params: Params, key: Array) -> Episode:
    own, keys = drawn_keys(work, key)

    def act(now: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Episode]:
        state, o = now
        h = features(params, o, work)
        a = mean_of(params, h) + jnp.exp(params["log_std"]) * noise(work, key)
        v = value_of(params, h) if work.algorithm == "ppo" else jnp.zeros(())
        state, seen, r = step(work, state, a)
        return (state, seen), (o, a, r, v)

    return jax.lax.scan(act, reset(work, own), keys)[1]


def learn(work: Work, params: Params, episode: Episode) -> tuple[Array, Params]:
    """Return the loss and its gradients."""

    def flat(x: Array) -> Array:
        return x.reshape(work.points, *x.shape[2:])

    o, a, r, v = episode
    if work.algorithm == "reinforce":
        given = flat(o), flat(a), flat(returns(r, work.window))
        return jax.value_and_grad(reinforce_loss)(params, *given, work)
    advantage = advantages(r, v)
    given = flat(o), flat(a), flat(advantage), flat(advantage + v)
    return jax.value_and_grad(ppo_loss)(params, *given, work)


def iteration(work: Work) -> Iteration:
    def run(carry: Carry) -> tuple[Carry, tuple[Array, Array]]:
        params, state, key = carry
        key, own = jax.random.split(key)
        episode = rollout(work, params, own)
        loss, grads = learn(work, params, episode)
        params, state = adam(params, state, grads)
        return (params, state, key), (loss, episode[2].sum(0).mean())

    return run
