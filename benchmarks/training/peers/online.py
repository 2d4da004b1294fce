"""n-step REINFORCE during acting, by hand: learns from steps n iterations old, then discards them.

`iteration` is the usual code: a scan that stores n steps, differentiates the oldest and masks the
ends. `rings` follows our schedule, the hand-optimised limit: ring buffers of activations, peeled
loops, explicit gradients.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.training.peers.kept import backward, forward
from benchmarks.training.peers.parts import (
    Array,
    Carry,
    Iteration,
    Params,
    adam,
    drawn_keys,
    features,
    log_prob,
    mean_of,
    noise,
    observation_size,
    reset,
    step,
)
from benchmarks.works import GAMMA, Work


def put(ring: Array, value: Array, at: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(ring, value, at, 0)


def iteration(work: Work) -> Iteration:
    n = work.window or work.steps
    weights = GAMMA ** jnp.arange(n)

    def lost(params: Params, o: Array, a: Array, g: Array, valid: Array) -> Array:
        logs = log_prob(params, mean_of(params, features(params, o, work)), a)
        return valid * (-logs * g).sum() / work.points

    def run(carry: Carry) -> tuple[Carry, tuple[Array, Array]]:
        params, state, key = carry
        key, own = jax.random.split(key)
        own, keys = drawn_keys(work, own)
        kept = (
            jnp.zeros((n, work.envs, *work.obs_shape)),
            jnp.zeros((n, work.envs, 1)),
            jnp.zeros((n, work.envs)),
        )
        grads = {name: jnp.zeros_like(p) for name, p in params.items()}

        def body(now: Any, t: Array) -> tuple[Any, None]:
            s, o, (os, as_, rs), grads, loss, total = now
            drawn = noise(work, keys[jnp.minimum(t, work.steps - 1)])
            a = mean_of(params, features(params, o, work)) + jnp.exp(params["log_std"]) * drawn
            s, seen, r = step(work, s, a)
            r = r * (t < work.steps)
            kept = put(os, o, t % n), put(as_, a, t % n), put(rs, r, t % n)
            oldest = (t + 1) % n
            g = (weights[:, None] * jnp.roll(kept[2], -oldest, axis=0)).sum(0)
            valid = (t >= n - 1).astype(jnp.float32)
            of = jax.value_and_grad(lost)(params, kept[0][oldest], kept[1][oldest], g, valid)
            grads = jax.tree.map(jnp.add, grads, of[1])
            return (s, seen, kept, grads, loss + of[0], total + r.mean()), None

        first = (*reset(work, own), kept, grads, jnp.zeros(()), jnp.zeros(()))
        last, _ = jax.lax.scan(body, first, jnp.arange(work.steps + n - 1))
        grads, loss, total = last[3:]
        params, state = adam(params, state, grads)
        return (params, state, key), (loss, total)

    return run


def rings(work: Work) -> Iteration:
    n = work.window or work.steps
    weights = GAMMA ** jnp.arange(n)

    def run(carry: Carry) -> tuple[Carry, tuple[Array, Array]]:
        params, state, key = carry
        key, own = jax.random.split(key)
        own, keys = drawn_keys(work, own)
        std = jnp.exp(params["log_std"])

        def act(t: Array, now: Any) -> Any:
            s, o, (xs, hs, zs, rs), grads, loss, total = now
            x, z = o.reshape(work.envs, -1), noise(work, keys[t])
            hidden, mean = forward(params, x, work)
            s, seen, r = step(work, s, mean + std * z)
            hs = [put(ring, h, t % n) for ring, h in zip(hs, hidden, strict=True)]
            kept = put(xs, x, t % n), hs, put(zs, z, t % n), put(rs, r, t % n)
            return s, seen, kept, grads, loss, total + r.mean()

        def over(t: Array, now: Any) -> Any:
            s, o, (xs, hs, zs, rs), grads, loss, total = now
            kept = xs, hs, zs, put(rs, jnp.zeros(work.envs), t % n)
            return s, o, kept, grads, loss, total

        def learn(t: Array, now: Any) -> Any:
            s, o, (xs, hs, zs, rs), grads, loss, total = now
            oldest = (t + 1) % n
            z = zs[oldest]
            weight = (jnp.roll(weights, oldest)[:, None] * rs).sum(0)[:, None] / work.points
            logs = -0.5 * z * z - params["log_std"] - 0.5 * jnp.log(2 * jnp.pi)
            by_log_std = (-weight * (z * z - 1)).sum(0)
            hidden = [h[oldest] for h in hs]
            more = backward(params, xs[oldest], hidden, -weight * z / std, work, grads)
            more["log_std"] = grads["log_std"] + by_log_std
            return s, o, (xs, hs, zs, rs), more, loss - (weight * logs).sum(), total

        kept = (
            jnp.zeros((n, work.envs, observation_size(work))),
            [jnp.zeros((n, work.envs, work.width)) for _ in work.hidden],
            jnp.zeros((n, work.envs, 1)),
            jnp.zeros((n, work.envs)),
        )
        grads = {name: jnp.zeros_like(p) for name, p in params.items()}
        now = (*reset(work, own), kept, grads, jnp.zeros(()), jnp.zeros(()))
        now = jax.lax.fori_loop(0, n - 1, act, now)
        now = jax.lax.fori_loop(n - 1, work.steps, lambda t, x: learn(t, act(t, x)), now)
        now = jax.lax.fori_loop(
            work.steps, work.steps + n - 1, lambda t, x: learn(t, over(t, x)), now
        )
        grads, loss, total = now[3:]
        params, state = adam(params, state, grads)
        return (params, state, key), (loss, total)

    return run
