"""PPO on CartPole in idiomatic JAX: rollouts, epochs and minibatches as scans inside one jit.

Environments are vectorised and reset themselves; the batch is shuffled once per epoch.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.training.peers.parts import Array, Carry, Iteration, Params, adam_state
from benchmarks.works import CRITIC, ENTROPY, GAMMA, Stock


class Steps(NamedTuple):
    """Recorded steps: [T, N, …] after a rollout, [rows, …] in a minibatch."""

    o: Array
    a: Array
    log_prob: Array
    v: Array
    r: Array
    terminated: Array
    done: Array
    v_after: Array


def start(work: Stock, seed: int = 0) -> Carry:
    """Return initial parameters and environments: separate actor and critic, orthogonal, without biases."""
    key, own = jax.random.split(jax.random.PRNGKey(seed))
    params: Params = {}
    for net, outputs, gain in (("actor", 2, 0.01), ("critic", 1, 1.0)):
        sizes = [4, *work.hidden, outputs]
        for k, (a, b) in enumerate(pairwise(sizes)):
            key, drawn = jax.random.split(key)
            scale = gain if k == len(work.hidden) else 2**0.5
            init = jax.nn.initializers.orthogonal(scale)
            params[f"{net}.{k}.weight"] = init(drawn, (a, b))
            params[f"{net}.{k}.bias"] = jnp.zeros((b,))
    state = first_states(own, work.envs)
    nothing = jnp.zeros((work.envs,))
    world = state, nothing.astype(jnp.int32), nothing
    return (params, world), adam_state(params), key


# --- the environment -----------------------------------------------------------------------------


def first_states(key: Array, count: int) -> Array:
    return jax.random.uniform(key, (count, 4), minval=-0.05, maxval=0.05)


def moved(state: Array, action: Array) -> tuple[Array, Array]:
    """Return the next state of one CartPole, and whether the episode has terminated."""
    x, velocity, angle, spin = state
    force = jnp.where(action == 1, 10.0, -10.0)
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    push = (force + 0.05 * spin**2 * sin) / 1.1
    twist = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    acceleration = push - 0.05 * twist * cos / 1.1
    x, velocity = x + 0.02 * velocity, velocity + 0.02 * acceleration
    angle, spin = angle + 0.02 * spin, spin + 0.02 * twist
    fallen = (jnp.abs(x) > 2.4) | (jnp.abs(angle) > 12 * jnp.pi / 180)
    return jnp.stack([x, velocity, angle, spin]), fallen


# --- the networks --------------------------------------------------------------------------------


def network(params: Params, net: str, o: Array, work: Stock) -> Array:
    for k in range(len(work.hidden)):
        o = jnp.tanh(o @ params[f"{net}.{k}.weight"] + params[f"{net}.{k}.bias"])
    k = len(work.hidden)
    return o @ params[f"{net}.{k}.weight"] + params[f"{net}.{k}.bias"]


def value_of(params: Params, o: Array, work: Stock) -> Array:
    return network(params, "critic", o, work)[..., 0]


def log_probs(params: Params, o: Array, work: Stock) -> Array:
    return jax.nn.log_softmax(network(params, "actor", o, work))


def chosen(logs: Array, a: Array) -> Array:
    return jnp.take_along_axis(logs, a[..., None], -1)[..., 0]


# --- acting --------------------------------------------------------------------------------------


def rollout(work: Stock, params: Params, world: Any, key: Array) -> tuple[Any, Steps, Array]:
    """Return the environments after T steps, the steps, and the returns at the ends of episodes.

    Random numbers are drawn before the scan, and values are computed after it. Both inside the
    scan, as is more common, make an iteration a fifth slower.
    """

    def act(now: Any, drawn: tuple[Array, Array]) -> tuple[Any, Any]:
        (state, count, total), (noise, fresh) = now, drawn
        logs = log_probs(params, state, work)
        a = jnp.argmax(logs + noise, -1)
        after, terminated = jax.vmap(moved)(state, a)
        count, total = count + 1, total + 1.0
        done = terminated | (count >= 500)
        next_state = jnp.where(done[:, None], fresh, after)
        rest = next_state, jnp.where(done, 0, count), jnp.where(done, 0.0, total)
        return rest, (state, a, chosen(logs, a), terminated, done, after, total)

    choose, again = jax.random.split(key)
    noise = jax.random.gumbel(choose, (work.steps, work.envs, 2))
    fresh = first_states(again, work.points).reshape(work.steps, work.envs, 4)
    world, made = jax.lax.scan(act, world, (noise, fresh))
    o, a, log_prob, terminated, done, after, totals = made
    v, v_after = value_of(params, o, work), value_of(params, after, work)
    r = jnp.ones((work.steps, work.envs))
    return world, Steps(o, a, log_prob, v, r, terminated, done, v_after), totals


def advantages(work: Stock, steps: Steps) -> Array:
    """Return generalised advantages [T, N]; truncated episodes bootstrap from the value after their end."""

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        surprise, done = now
        found = surprise + GAMMA * work.lam * jnp.where(done, 0.0, later)
        return found, found

    after = jnp.where(steps.terminated, 0.0, steps.v_after)
    surprises = steps.r + GAMMA * after - steps.v
    first = jnp.zeros(surprises.shape[1:])
    return jax.lax.scan(back, first, (surprises, steps.done), reverse=True)[1]


# --- learning ------------------------------------------------------------------------------------


def loss_of(params: Params, steps: Steps, advantage: Array, work: Stock) -> Array:
    """Return the loss of a minibatch; its fields have one leading axis."""
    logs, v = log_probs(params, steps.o, work), value_of(params, steps.o, work)
    ratio = jnp.exp(chosen(logs, steps.a) - steps.log_prob)
    scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = jnp.clip(ratio, 1 - work.clip, 1 + work.clip)
    actor = -jnp.minimum(ratio * scaled, clipped * scaled).mean()
    target = advantage + steps.v
    near = steps.v + jnp.clip(v - steps.v, -work.clip, work.clip)
    regret = 0.5 * jnp.maximum((v - target) ** 2, (near - target) ** 2).mean()
    entropy = -(jnp.exp(logs) * logs).sum(-1).mean()
    return actor + CRITIC * regret - ENTROPY * entropy


def updated(
    work: Stock, params: Params, state: Any, grads: Params, rate: Array
) -> tuple[Params, Any]:
    """Return one step of Adam, with the gradients' global norm clipped to `work.max_norm`."""
    norm = jnp.sqrt(sum((g * g).sum() for g in grads.values()))
    scale = jnp.where(norm > work.max_norm, work.max_norm / norm, 1.0)
    m, v, count = state
    count = count + 1
    m = {k: 0.9 * m[k] + 0.1 * (g * scale) for k, g in grads.items()}
    v = {k: 0.999 * v[k] + 0.001 * (g * scale) ** 2 for k, g in grads.items()}
    first, second = 1 - 0.9**count, 1 - 0.999**count
    params = {
        k: p - rate * (m[k] / first) / (jnp.sqrt(v[k] / second) + 1e-5) for k, p in params.items()
    }
    return params, (m, v, count)


def learn(work: Stock, params: Params, state: Any, steps: Steps, orders: Array) -> Any:
    """Run the epochs, given the rows [epochs, minibatches, rows] of the batch [T * N] in time-major order.

    Returns:
        Parameters and Adam's state afterwards, and the mean loss.
    """
    advantage = advantages(work, steps)
    batch = jax.tree.map(lambda x: x.reshape(work.points, *x.shape[2:]), (steps, advantage))

    def update(now: Any, part: Any) -> Any:
        params, state = now
        rate = work.rate * (1 - state[2] // work.updates / work.iterations)
        loss, grads = jax.value_and_grad(loss_of)(params, *part, work)
        return updated(work, params, state, grads, rate), loss

    def epoch(now: Any, order: Array) -> Any:
        return jax.lax.scan(update, now, jax.tree.map(lambda x: x[order], batch))

    (params, state), losses = jax.lax.scan(epoch, (params, state), orders)
    return params, state, losses.mean()


def iteration(work: Stock) -> Iteration:
    def run(carry: Carry) -> tuple[Carry, Any]:
        (params, world), state, key = carry
        key, acting, shuffling = jax.random.split(key, 3)
        world, steps, totals = rollout(work, params, world, acting)
        keys = jax.random.split(shuffling, work.epochs)
        orders = jax.vmap(lambda key: jax.random.permutation(key, work.points))(keys)
        orders = orders.reshape(work.epochs, work.minibatches, -1)
        params, state, loss = learn(work, params, state, steps, orders)
        count = steps.done.sum()
        returns = jnp.where(steps.done, totals, 0.0).sum() / jnp.maximum(count, 1)
        return ((params, world), state, key), (loss, returns, count)

    return run
