"""Restriction of domains to needed points: selection and reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.patterns import values
from tests.unit.checks import assert_same
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.passes.simplification import simplify

BOUNDS = {"B": 2, "I": 6, "T": 4, "U": 5}


def now_and_then(along: str) -> trl.Context:
    """Training along t; a test of every third iteration's parameter along t or u."""
    with trl.Context("b", "i", "t", "u") as ctx:
        (b, B), (i, I), (t, T), (u, U) = ctx.dims
        x = trl.data(values(2), domain=(b,))
        w = trl.parameter((), domain=(i,), init=lambda s: trl.full(s, 0.5), name="w")
        s = trl.tensor((), domain=(b, i, t))
        s[b, i, 0] = x
        s[b, i, t + 1] = (s * w + x).tanh()
        s.square().mean(over=(b, t)).backward()
        trl.optim.SGD([w], lr=0.1).step()
        v = t if along == "t" else u
        q = trl.tensor((), domain=(b, i, v)).named("q")
        q[b, i, 0] = x * 2.0
        q[b, i, v + 1] = (q * w).tanh()
        ctx.output("test", q.sum(over=v).mean(over=b)[(i + 1) % 3 == 0])
        ctx.output("w", w)
        table = trl.data(values(6), domain=(i,))
        ctx.output("table", table.exp().named("table")[i % 2 == 0] * 1.0)
    return ctx


def compiled(ctx: trl.Context, **options: Any) -> trl.Program:
    return ctx.compile(BOUNDS, trl.Options(**options))


@pytest.mark.parametrize("options", [{}, {"vectorize": False}, {"trial": False}])
def test_a_rollout_of_its_own_runs_where_it_is_needed(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = now_and_then("u")
    program = compiled(ctx, **options)
    steps = [s for s in program.stages["simplify"].steps if s.rule == "unused points"]
    assert steps
    assert all("(i + 1) % 3 == 0" in s.note for s in steps)
    result = program.execute()
    assert_same(Reference(ctx.pdg(), BOUNDS).outputs(), result, "run")
    monkeypatch.setattr(simplify, "restrict_domains", lambda edit: None)
    everywhere = compiled(ctx, **options).execute()
    assert_same(dict(everywhere), result, "everywhere")
    if options != {"trial": False}:  # there the rollout is a batch over i
        assert result.instructions < 0.85 * everywhere.instructions
    assert result.memory.peak <= everywhere.memory.peak


def test_what_runs_beside_the_rest_stays() -> None:
    """Inside the training loop, testing costs no launch; a separate loop would."""
    stage = compiled(now_and_then("t")).stages["simplify"]
    assert not [s for s in stage.steps if s.rule == "unused points"]
    reasons = set(stage.rewritten.refused.values())
    assert any("but runs together with unconditional operations" in why for why in reasons), reasons


def test_what_can_be_a_batch_stays() -> None:
    stage = compiled(now_and_then("u")).stages["simplify"]
    why = {stage.artifact[k].label: reason for k, reason in stage.rewritten.refused.items()}
    assert "i % 2 == 0, but can be vectorised along i" in why["table"]


def test_draws_of_a_restricted_loop_are_restricted() -> None:
    """A draw could be a batch over all iterations, but its only readers run in every third one."""
    with trl.Context("i", "u") as ctx:
        (i, _), (u, _) = ctx.dims
        w = trl.tensor((), domain=(i,))
        w[0] = 0.5
        w[i + 1] = (w * 1.5).sin()
        q = trl.tensor((), domain=(i, u))
        q[i, 0] = w
        q[i, u + 1] = (q * w + trl.random.uniform(domain=(i, u)).named("noise")).tanh()
        ctx.output("test", q.sum(over=u)[(i + 1) % 3 == 0])
        ctx.output("w", w)
    bounds = {"I": 6, "U": 4}
    program = ctx.compile(bounds, trl.Options(lift=False))
    draws = [op for op in program.stages["simplify"].artifact if op.kind == "rng"]
    assert [str(op.where) for op in draws] == ["(i + 1) % 3 == 0"]
    assert_same(Reference(ctx.pdg(), bounds, seed=2).outputs(), program.execute(seed=2), "run")


def test_what_only_a_reader_under_a_condition_needs_runs_with_it() -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        s = trl.tensor((), domain=(t,))
        s[0] = 0.5
        s[t + 1] = (s * 1.5).sin()
        ctx.output("y", s.exp().named("e")[t % 3 == 0] * 2.0)
        ctx.output("s", s)
    program = ctx.compile({"T": 7}, trl.Options(lift=False))
    (e,) = (op for op in program.stages["simplify"].artifact if op.label == "e")
    assert str(e.where) == "t % 3 == 0"
    assert_same(Reference(ctx.pdg(), {"T": 7}).outputs(), program.execute(), "run")


def test_programs_without_conditions_are_left_alone() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        s = trl.tensor((), domain=(t,))
        s[0] = 1.0
        s[t + 1] = s * 0.5
        ctx.output("last", s[T - 1])
    stage = ctx.compile({T: 5}).stages["simplify"]
    assert not stage.rewritten.refused
    assert not [s for s in stage.steps if s.rule == "unused points"]
    np.testing.assert_allclose(ctx.compile({T: 5}).execute()["last"], 0.5**4)


def learning(every: int) -> trl.Context:
    """Acting along t; learning at every n-th iteration."""
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        x = trl.data(values(2), domain=(b,))
        w = trl.parameter((), domain=(i,), init=lambda s: trl.full(s, 0.5), name="w")
        s = trl.tensor((), domain=(b, i, t))
        s[b, i, 0] = x
        s[b, i, t + 1] = (s.detach() * w + x).tanh()
        loss = s.square() if every == 1 else s.square()[i % every == 0]
        loss.mean(over=(b, t)).backward()
        trl.optim.SGD([w], lr=0.1).step()
        ctx.output("w", w)
    return ctx


@pytest.mark.parametrize("options", [{}, {"vectorize": False}])
def test_learning_under_a_condition_runs_under_it(options: dict[str, Any]) -> None:
    bounds = {"B": 2, "I": 6, "T": 4}
    ctx = learning(3)
    program = ctx.compile(bounds, trl.Options(**options))
    result = program.execute()
    assert_same(Reference(ctx.pdg(), bounds).outputs(), result, "run")
    always = learning(1).compile(bounds, trl.Options(**options)).execute()
    assert result.instructions < always.instructions
    changes = np.abs(np.diff(result["w"])) > 0
    np.testing.assert_array_equal(changes, [True, False, False, True, False])


@pytest.mark.filterwarnings("ignore")
def test_a_branch_that_no_point_takes_leaves_the_others() -> None:
    """Its value, which would read outside, is removed; tensor, readers and gradient stay."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(values(5), domain=(t,))
        m = trl.tensor((), domain=(t,))
        m[t < 0] = x[t + 1] * 2.0
        m[t >= 0] = x * 3.0
        ctx.output("m", m)
        ctx.output("dx", trl.grad(m.square(), x))
    for executor in ("interpret", "xla"):
        result = ctx.compile({T: 5}, trl.Options(executor=executor)).execute()
        np.testing.assert_allclose(result["m"], 3 * values(5), rtol=1e-6)
        np.testing.assert_allclose(result["dx"], 18 * values(5), rtol=1e-6)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(values(5), domain=(t,))
        m = trl.tensor((), domain=(t,)).named("m")
        m[t < 0] = x[t + 1] * 2.0
        ctx.output("m", m)
    with pytest.raises(trl.errors.BranchError, match="m has no value"):
        ctx.compile({T: 5})
