"""Analysis of acting loops: computed once per compilation, passed to passes as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from tests.unit.checks import tried_schedules
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Rewritten, identity_rewrite
from timerl_nb.compiler.passes.lifting.lift_recurrences import Lift
from timerl_nb.compiler.passes.lifting.sliding_windows import Windows
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import cycles_of
from timerl_nb.compiler.passes.vectorization.operations_kept_in_loops import Acting
from timerl_nb.compiler.passes.vectorization.vectorize import Vectorize
from timerl_nb.driver.compiling.pass_selection import pipeline

BOUNDS = {"B": 4, "I": 2, "T": 12}


def ppo() -> trl.Context:
    return trl.algorithms.ppo(trl.env.make("synthetic", obs_shape=(3,)), hidden=(4,))


def clipped() -> trl.Context:
    return trl.algorithms.clipped_ppo(epochs=2, minibatches=2, hidden=(4,))


def running() -> trl.Context:
    """Sums of acting values that could be lifted: one needed at the end, one at every step."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        s = trl.tensor((), domain=(t,)).named("s")
        s[0] = trl.ones(())
        s[t + 1] = (s * 0.9).tanh()
        end, all_ = (trl.tensor((), domain=(t,)).named(name) for name in ("end", "all"))
        for total in (end, all_):
            total[0] = s[0]
            total[t + 1] = total + s[trl.min(t + 1, T - 1)]
        ctx.output("end", end[T - 1])
        ctx.output("all", all_)
    return ctx


@pytest.mark.parametrize(
    ("write", "options", "trials"),
    [
        (reinforce, {}, 1),
        (lambda: reinforce(5), {}, 1),
        (ppo, {}, 1),
        (clipped, {}, 1),
        (running, {}, 1),
        (ppo, {"trial": False}, 0),
        (clipped, {"trial": False}, 0),
        (ppo, {"vectorize": False}, 0),
    ],
)
def test_a_compilation_schedules_so_many_graphs_on_trial(
    write: Callable[[], trl.Context],
    options: dict[str, Any],
    trials: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = tried_schedules(monkeypatch)
    ctx = write()
    bounds = {d.bound: BOUNDS[d.bound] for d in ctx.pdg().dims if d.bound in BOUNDS}
    ctx.compile(bounds, trl.Options(**options))
    assert len(seen) == trials


def told(ctx: trl.Context, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Pdg, Rewritten]]:
    """Return the passes of a compilation, with their graphs and results."""
    seen: list[tuple[Any, Pdg, Rewritten]] = []
    for kind in (Lift, Vectorize, Windows):

        def run(self: Any, pdg: Pdg, once: Callable[[Any, Pdg], Rewritten] = kind.run) -> Rewritten:
            seen.append((self, pdg, once(self, pdg)))
            return seen[-1][-1]

        monkeypatch.setattr(kind, "run", run)
    ctx.compile(BOUNDS)
    return seen


def test_passes_are_plain_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal by fields, reconstructible from their text, with the same behaviour."""
    assert pipeline(trl.Options(), {}) == pipeline(trl.Options(), {})
    assert pipeline(trl.Options(), {}) != pipeline(trl.Options(trial=False), {})
    names = {one.__name__: one for one in (Acting, Lift, Vectorize, Windows)}
    seen = told(reinforce(5), monkeypatch)
    assert {type(one) for one, _, _ in seen} == {Lift, Vectorize, Windows}
    for one, pdg, made in tuple(seen):  # reruns are visible, too
        again = eval(repr(one), names)
        assert again == one and hash(again) == hash(one)
        same = str(again.run(pdg).pdg) == str(made.pdg)
        assert same, one.name
    (acting,) = {one.acting for one, _, _ in seen if isinstance(one, Vectorize) and one.acting}
    assert [name for name, _ in acting.loops] == ["i", "t"]
    assert Vectorize(None, acting) == Vectorize(None, replace(acting))
    assert Vectorize(None, acting) != Vectorize(None, Acting())


def test_each_pass_is_told_of_its_own_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    for one, pdg, _ in told(reinforce(5), monkeypatch):
        for name, ids in one.acting.loops if one.acting else ():
            assert ids <= set(pdg.ops)
            assert ids >= cycles_of(pdg, name).sequential
            asked += 1
    assert asked == 4  # over i and t, for vectorize and windows


def test_what_is_carried_to_another_graph() -> None:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, _) = ctx.dims
        w = trl.tensor((), domain=(i,)).named("w")
        x = trl.random.normal(domain=(i, t)).named("x")
        s = trl.tensor((), domain=(i, t)).named("s")
        s[i, 0] = w
        s[i, t + 1] = (s * w).tanh() + x
        w[0] = trl.ones(())
        w[i + 1] = s.sum(over=t)
        ctx.output("w", w)
    pdg = ctx.pdg()
    acting = Acting.from_loops({"t": (op.id for op in pdg if "t" in op.domain), "i": ()})
    assert [name for name, _ in acting.loops] == ["t"] and not acting.operations_over("i")
    assert acting.map_to_rewritten(pdg, identity_rewrite(pdg)) is acting
    made = Vectorize(("i",)).run(pdg)
    carried = acting.map_to_rewritten(pdg, made).operations_over("t")
    # x is drawn for all i together, so it is outside the loop over t inside that over i
    taken = {k for k in acting.operations_over("t") if "i" not in made.pdg[k].domain}
    assert {pdg[k].label for k in taken} >= {"x"}
    assert carried.isdisjoint(taken)
    assert carried >= acting.operations_over("t") - taken >= cycles_of(pdg, "t").sequential
