"""Recurrences along several dimensions: parameters, episodes; and bounds fixed by the program."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import assert_same
from timerl_nb.compiler.ir.reference.evaluator import Reference


def trained(dims: tuple[str, ...], bounds: dict[str, int], optimiser: Any) -> trl.Program:
    """A weight that moves towards 1 along all dimensions."""
    with trl.Context(*dims) as ctx:
        along = tuple(index for index, _ in ctx.dims)
        w = trl.parameter(np.array([3.0, -2.0]), domain=along, name="w")
        (w - 1.0).square().sum().backward()
        optimiser([w], along).step()
        ctx.output("w", w)
    return ctx.compile(bounds)


OPTIMISERS = {
    "sgd": lambda ps, along: trl.optim.SGD(ps, lr=0.1, along=along),
    "momentum": lambda ps, along: trl.optim.SGD(ps, lr=0.1, momentum=0.9, along=along),
    "adam": lambda ps, along: trl.optim.Adam(ps, lr=0.1, along=along),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_updates_go_on_along_all_dimensions(name: str) -> None:
    flat = trained(("i",), {"I": 24}, OPTIMISERS[name]).execute(progress=False)
    program = trained(("i", "e", "j"), {"I": 3, "E": 2, "J": 4}, OPTIMISERS[name])
    result = program.execute(progress=False)
    np.testing.assert_allclose(result["w"].reshape(24, 2), flat["w"], rtol=1e-5)
    np.testing.assert_allclose(result.parameters["w"], flat.parameters["w"], rtol=1e-5)
    assert_same(Reference(program.pdg, program.bounds).outputs(), result, name)


def test_by_default_parameters_start_anew() -> None:
    program = trained(("i", "e"), {"I": 2, "E": 3}, lambda ps, along: trl.optim.SGD(ps, lr=0.1))
    w = program.execute(progress=False)["w"]
    np.testing.assert_array_equal(w[0], w[1])
    np.testing.assert_array_equal(w[0, 0], [3.0, -2.0])


@pytest.mark.parametrize("most", [0.5, 1e3])
def test_gradients_are_scaled_down_together(most: float) -> None:
    with trl.Context("i") as ctx:
        ((i, _),) = ctx.dims
        ps = [trl.parameter(np.full(n, 2.0), domain=(i,), name=f"p{n}") for n in (2, 3)]
        sum((p.square().sum() for p in ps[1:]), ps[0].square().sum()).backward()
        trl.optim.SGD(ps, lr=1.0, max_norm=most).step()
    after = ctx.compile({"I": 1}).execute(progress=False).parameters
    norm = np.sqrt(5 * 4.0**2)
    np.testing.assert_allclose(after["p3"], 2.0 - 4.0 * min(1.0, most / norm), rtol=1e-6)
    np.testing.assert_allclose(after["p2"], after["p3"][:2])


def test_what_cannot_be_changed_along() -> None:
    with trl.Context("i", "e") as ctx:
        (i, _), (e, _) = ctx.dims
        w = trl.parameter(2, domain=(i,), name="w")
        w.sum().backward()
        with pytest.raises(trl.errors.DomainError, match="w does not vary over e to change along"):
            trl.optim.SGD([w], along=(i, e)).step()
        both = trl.parameter(2, domain=(i, e), name="both")
        with pytest.raises(trl.errors.DomainError, match=r"cannot change along \(i\)"):
            both.update(both * 0.5, along=(i,))
        with pytest.raises(trl.errors.ShapeError, match="max_norm must be a positive number"):
            trl.optim.SGD([both], max_norm=0.0)


def acting(name: str, **options: Any) -> trl.Context:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        env = trl.env.make(name, autoreset="same_step", **options)
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, 0, 0] = env.reset(domain=(b,))
        a = (o.take(2) > 0).cast("i32")
        step = env.step(a)
        o[b, i + 1, 0] = step.obs[b, i, T - 1]
        o[b, i, t + 1] = step.obs
        ctx.output("o", o)
        ctx.output("a", a)
        ctx.output("done", step.done)
        ctx.output("truncated", step.truncated)
        ctx.output("final", step.final_obs)
    return ctx


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_episodes_go_on_from_iteration_to_iteration(executor: Any) -> None:
    program = acting("CartPole-v1", max_steps=25).compile(
        {"B": 2, "I": 6, "T": 10}, trl.Options(executor=executor)
    )
    result = program.execute(progress=False)
    assert_same(Reference(program.pdg, program.bounds).outputs(), result, executor)
    o, done, final = (result[k].reshape(2, 60, -1) for k in ("o", "done", "final"))
    goes_on = ~done[:, :-1, 0]
    np.testing.assert_array_equal(o[:, 1:][goes_on], final[:, :-1][goes_on])
    assert (abs(o[:, 1:][~goes_on]) <= 0.05).all() and goes_on.any()
    for n in range(2):  # the ceiling limits episodes
        ends = np.flatnonzero(done[n])
        lengths = np.diff([-1, *ends])
        assert lengths.max() <= 25
        assert (result["truncated"][n].ravel()[ends] <= (lengths == 25)).all()
    assert result["done"][:, :, -1].sum() < result["done"].shape[1] * 2


def test_gymnasiums_episodes_go_on_too() -> None:
    bounds = {"B": 2, "I": 3, "T": 15}
    result = acting("gym.CartPole-v1").compile(bounds).execute(seed=3, progress=False)
    seeds = np.random.SeedSequence(3).generate_state(2)
    for n in range(2):
        env = gymnasium.make("CartPole-v1")
        obs, _ = env.reset(seed=int(seeds[n]))
        for at in np.ndindex(3, 15):
            np.testing.assert_array_equal(result["o"][n][at], obs)
            obs, _, ended, cut, _ = env.step(int(result["a"][n][at]))
            assert result["done"][n][at] == (ended or cut)
            if ended or cut:
                obs, _ = env.reset()
        env.close()


def test_episodes_that_do_not_restart_cannot_go_on() -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, _) = ctx.dims
        env = trl.env.make("CartPole-v1")
        env.reset(domain=(b,))
        actions = trl.random.bits(domain=(b, i, t)).cast("i32")
        with pytest.raises(trl.errors.EnvError, match="but no new ones begin"):
            env.step(actions)


def test_a_module_at_points() -> None:
    with trl.Context("i", "e") as ctx:
        (i, _), (e, _) = ctx.dims
        env = trl.env.make("CartPole-v1")
        dnn = trl.DNNBuilder(domain=(i, e)).from_env(env, [3], critic="separate").build()
        x = trl.constant([0.1, 0.2, 0.3, 0.4])
        first = dnn[i, 0]
        assert first(x).logits.domain == ("i",) and dnn(x).logits.domain == ("i", "e")
        assert first.params == [] and len(dnn.params) == 8
        (dnn.value(x) + dnn(x).logits.sum()).backward()
        trl.optim.SGD(dnn.params, lr=0.1).step()
        ctx.output("here", dnn.value(x))
        ctx.output("first", first.value(x))
        with pytest.raises(
            trl.errors.IndexExpressionError, match="takes indices or a condition in brackets"
        ):
            dnn[0.5]  # type: ignore[index]
    result = ctx.compile({"I": 2, "E": 3}).execute(progress=False)
    np.testing.assert_array_equal(result["first"], result["here"][:, 0])
    assert (result["here"][:, 1] != result["here"][:, 0]).all()
    with pytest.raises(trl.errors.TimeRLError, match="not a kind of critic"):
        trl.DNNBuilder().from_env(env, critic="alone")  # type: ignore[arg-type]


def test_bounds_that_the_program_says() -> None:
    with trl.Context("i", "k") as ctx:
        (i, I), (k, K) = ctx.dims
        ctx.fix(K, lambda bounds: 2 * bounds["I"])
        ctx.output("x", trl.value(i + k))
        with pytest.raises(trl.errors.DomainError, match="not a bound of this context"):
            ctx.fix(k, 3)
    program = ctx.compile({I: 3})
    assert program.execute(progress=False)["x"].shape == (3, 6)
    assert program.with_bounds({I: 2}).execute(progress=False)["x"].shape == (2, 4)
    for given in (lambda: ctx.compile({I: 3, K: 6}), lambda: program.with_bounds({K: 1})):
        with pytest.raises(trl.errors.BoundsError, match="the bound K is fixed by the program"):
            given()
    with pytest.raises(trl.errors.BoundsError, match=r"(?s)bound I is missing.*\{I: …\}") as error:
        ctx.compile({})
    assert "K: …" not in str(error.value)


def test_bounds_that_cannot_be_said() -> None:
    with trl.Context("i", "k", "t") as ctx:
        (i, I), (k, K), (t, T) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[0] = 0.0
        x[t + 1] = x + 1.0
        done = (x > 2.0).named("done")
        ctx.output("x", x * (i + k))

    def refused(said: Any, given: Any, match: str) -> None:
        ctx.fix(K, said)
        with pytest.raises(trl.errors.BoundsError, match=match):
            ctx.compile(given)

    refused(lambda bounds: bounds["Q"], {I: 3, T: 2}, "(?s)depends on Q.*known bounds: I, T.")
    refused(lambda bounds: bounds["K"], {I: 3, T: 2}, "depends on K, which is not known yet")
    refused(lambda bounds: bounds[T], {I: 3, T: done}, "depends on T, which is a dynamic bound")
    refused(done, {I: 3, T: 2}, r"(?s)to a dynamic bound.*\{K: …\}")
    refused(trl.until(done, at_most=3), {I: 3, T: 2}, "to a dynamic bound")
    ctx.fix(K, lambda bounds: bounds[I] + bounds["T"])
    assert ctx.compile({I: 3, T: 2}).bounds == {"I": 3, "K": 5, "T": 2}
    ctx.fix(K, lambda bounds: bounds[I])
    assert ctx.compile({I: 3, T: done}).bounds["K"] == 3


def test_draws_that_are_read_whole_are_drawn_at_once() -> None:
    with trl.Context("i", "m") as ctx:
        (i, _), (m, M) = ctx.dims
        order = trl.random.bits(domain=(i, m))[i, 0:M].argsort()
        ctx.output("order", order)
    program = ctx.compile({"I": 2, "M": 7})
    (draw,) = (op for op in program.stages["vectorize"].artifact if op.kind == "rng")
    assert "m" not in draw.domain
    order = program.execute(progress=False)["order"]
    np.testing.assert_array_equal(np.sort(order), [range(7)] * 2)
