"""PPO with epochs of minibatches: JAX's updates, continued episodes, and learning."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from benchmarks.training.peers import stock
from benchmarks.training.peers.parts import adam_state
from benchmarks.works import Stock
from tests.unit.checks import assert_same
from timerl_nb.compiler.ir.dependence_graph import at_own_point
from timerl_nb.compiler.ir.reference.evaluator import Reference

WORK = Stock(envs=3, steps=40, iterations=1, hidden=(8, 8), rate=1e-2, max_norm=0.1)
CUT = 15  # steps, and the longest episode


def of_ours(params: Any) -> dict[str, Any]:
    """Return our parameters under the names of the hand-written program."""
    last = len(WORK.hidden)
    found: dict[str, Any] = {}
    for name, value in params.items():
        net = "critic" if name.startswith("critic") else "actor"
        *layer, kind = name.replace("critic.trunk", "trunk").split(".")
        found[f"{net}.{layer[1] if layer[0] == 'trunk' else last}.{kind}"] = jnp.asarray(value)
    return found


def steps_of(o: Any, a: Any, params: Any) -> stock.Steps:
    """Return the hand-written program's fields [T, N, …] from observations and actions [N, T, …]."""
    o, a = jnp.swapaxes(o, 0, 1), jnp.swapaxes(a, 0, 1)
    after, terminated = jax.vmap(jax.vmap(stock.moved))(o, a)
    done, count = np.zeros(a.shape, bool), np.zeros(a.shape[1], int)
    for t in range(len(a)):
        count = count + 1
        done[t] = np.asarray(terminated[t]) | (count >= CUT)
        count[done[t]] = 0
    assert (done & ~np.asarray(terminated)).any() and terminated.any()
    logs = stock.chosen(stock.log_probs(params, o, WORK), a)
    v, v_after = (stock.value_of(params, x, WORK) for x in (o, after))
    return stock.Steps(o, a, logs, v, jnp.ones(a.shape), terminated, jnp.asarray(done), v_after)


@pytest.mark.some_of("options", 1)
@pytest.mark.parametrize("options", [{}, {"executor": "xla"}, {"vectorize": False}], ids=str)
def test_the_updates_are_those_of_jax(options: dict[str, Any]) -> None:
    """All sixteen, given the same parameters, observations, actions and order."""
    env = trl.env.make("CartPole-v1", autoreset="same_step", max_steps=CUT)
    ctx = WORK.context(env)
    named = {op.label: op for op in ctx.pdg() if op.label in ("o", "a", "index")}
    with ctx:
        for name, op in named.items():
            ctx.output(name, trl.RecurrentTensor(ctx, at_own_point(op.id, op.outputs[0])))
        for p in ctx.parameters.values():
            ctx.output(f"before {p.name}", p)
            ctx.output(f"grad {p.name}", p.grad)
    bounds = {"B": WORK.envs, "I": 1, "T": WORK.steps}
    result = ctx.compile(bounds, trl.Options(**options)).execute(seed=4, progress=False)
    before = of_ours({name: result[f"before {name}"][0, 0, 0] for name in result.parameters})
    made = of_ours({name: result[f"grad {name}"][0, 0, 0] for name in result.parameters})
    steps = steps_of(result["o"][:, 0], result["a"][:, 0], before)
    whose, when = np.divmod(result["index"][0], WORK.steps)
    orders = when * WORK.envs + whose
    for epoch in orders.reshape(WORK.epochs, -1):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(WORK.points))
    assert (orders[0] != orders[1]).any()

    advantage = stock.advantages(WORK, steps)
    first = jax.tree.map(
        lambda x: x.reshape(WORK.points, *x.shape[2:])[orders[0, 0]], (steps, advantage)
    )
    grads = jax.grad(stock.loss_of)(before, *first, WORK)
    assert set(grads) == set(made)
    for k, g in grads.items():
        np.testing.assert_allclose(made[k], g, rtol=1e-3, atol=1e-5, err_msg=k)
    params, _, loss = stock.learn(WORK, before, adam_state(before), steps, jnp.asarray(orders))
    np.testing.assert_allclose(result["loss"][0], loss, rtol=1e-3)
    after = of_ours(result.parameters)
    for k, p in params.items():
        assert np.abs(p - before[k]).max() > 0.02, "sixteen steps of up to 0.01"
        np.testing.assert_allclose(after[k], p, rtol=1e-3, atol=5e-4, err_msg=k)


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_runs_agree_with_the_reference(executor: Any) -> None:
    env = trl.env.make("CartPole-v1", autoreset="same_step", max_steps=5)
    ctx = trl.algorithms.clipped_ppo(env, hidden=[3], epochs=2, minibatches=3)
    program = ctx.compile({"B": 2, "I": 3, "T": 6}, trl.Options(executor=executor))
    assert program.bounds["M"] == 4
    want = Reference(program.pdg, program.bounds).outputs()
    result = program.execute(progress=False)
    assert_same(want, result, executor)
    assert result["episodes"].sum() == 6, "each environment takes 18 steps, 5 per episode"
    np.testing.assert_array_equal(result["return"], 5.0)


def test_it_learns_cartpole() -> None:
    ctx = trl.algorithms.clipped_ppo(hidden=[32], lr=2e-3)
    program = ctx.compile({"B": 4, "I": 60, "T": 128}, trl.Options(executor="xla"))
    result = program.execute(progress=False)
    returns, episodes = result["return"], result["episodes"]
    assert returns[0] < 40
    assert np.average(returns[-15:], weights=episodes[-15:]) > 150, returns


def test_what_it_cannot_be_given() -> None:
    with pytest.raises(trl.errors.EnvError, match="resets itself in the same step"):
        trl.algorithms.clipped_ppo(trl.env.make("CartPole-v1"))
    with pytest.raises(trl.errors.ShapeError, match="must be positive integers"):
        trl.algorithms.clipped_ppo(epochs=0)
    ctx = trl.algorithms.clipped_ppo(minibatches=np.int64(3))  # type: ignore[arg-type]
    with pytest.raises(trl.errors.BoundsError, match="8 steps do not divide into 3"):
        ctx.compile({"B": 2, "I": 1, "T": 4})


def test_the_hand_written_program_learns() -> None:
    work = Stock(iterations=60, hidden=(32,), rate=2e-3)
    run = jax.jit(stock.iteration(work))
    carry, found = stock.start(work), []
    for _ in range(work.iterations):
        carry, (_, returns, episodes) = run(carry)
        found.append((float(returns), int(episodes)))
    assert found[0][0] < 40
    late = np.array(found[-15:])
    assert np.average(late[:, 0], weights=late[:, 1]) > 150, found
