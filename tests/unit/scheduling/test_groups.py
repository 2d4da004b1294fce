"""One kernel per operation: isl schedules fusable operations as one statement."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import timerl_nb as trl
from tests.patterns import PATTERNS
from tests.reinforce import reinforce
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.isl.isl_scheduler import Unschedulable, solve
from timerl_nb.compiler.passes.fusion.fuse import Separate
from timerl_nb.compiler.passes.fusion.fusion_groups import FusionGroups
from timerl_nb.compiler.scheduling import statement_clusters as groups
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.schedule_validation import find_schedule
from timerl_nb.compiler.scheduling.statement_clusters import cluster_statements

CEILING = 10_000_000


def loops_by_operation(program: trl.Program, last: str) -> dict[int, list[tuple[int, str]]]:
    """Return, for each operation before the last pass, the loops around its kernel."""
    loops = program.schedule.tree.loops()
    return {
        op_id: [(loop, str(at)) for loop, at in loops[f"S{kernel}"]]
        for op_id, kernels in program.stages[last].rewritten.ids.items()
        for kernel in kernels
        if f"S{kernel}" in loops
    }


@pytest.mark.parametrize(
    ("context", "bounds"),
    [
        (reinforce, {"B": 8, "I": 3, "T": 40}),
        (lambda: reinforce(5), {"B": 8, "I": 3, "T": 40}),
        (PATTERNS["cartpole"].context, PATTERNS["cartpole"].bounds),
        (PATTERNS["training"].context, PATTERNS["training"].bounds),
    ],
    ids=["Monte Carlo", "5 steps", "cartpole", "training"],
)
def test_loops_are_those_of_the_fused_program(
    context: Callable[[], trl.Context], bounds: dict[str, int]
) -> None:
    fused = context().compile(bounds)
    separate = fused.with_options(fuse=False)
    assert len(separate.schedule.statements) > 2 * len(fused.schedule.statements)
    mine, theirs = (
        loops_by_operation(program, last)
        for program, last in ((separate, "separate"), (fused, "fuse"))
    )
    both = mine.keys() & theirs.keys()
    assert len(both) > len(fused.schedule.statements)
    pairs: set[tuple[int, int]] = set()
    for op_id in both:
        assert [at for _, at in mine[op_id]] == [at for _, at in theirs[op_id]]
        pairs |= {(m, t) for (m, _), (t, _) in zip(mine[op_id], theirs[op_id], strict=True)}
    assert len({m for m, _ in pairs}) == len({t for _, t in pairs}) == len(pairs)


def test_isl_gets_few_statements() -> None:
    program = reinforce().compile({"B": 8, "I": 3, "T": 40}, trl.Options(fuse=False))
    found = cluster_statements(Constraints(program.fused))
    assert found is not None
    assert len(program.schedule.statements) > 200
    assert len(found.statements) < 8


def test_what_is_fused_has_no_groups() -> None:
    for context in (reinforce(5), PATTERNS["cartpole"].context()):
        program = context.compile({"B": 4, "I": 2, "T": 6})
        assert cluster_statements(Constraints(program.fused)) is None


def recurrence() -> trl.Context:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        s = trl.tensor((), domain=(t,))
        s[0] = 0.5
        s[t + 1] = ((s * 0.5).sin() + 1.0).tanh() * (s * s).cos()
        ctx.output("s", s)
    return ctx


def test_the_chain_inside_a_group_runs_in_order_at_each_point() -> None:
    options = trl.Options(fuse=False, vectorize=False, lift=False)
    program = recurrence().compile({"T": 5}, options)
    constraints = Constraints(program.fused)
    found = cluster_statements(constraints)
    assert found is not None
    (chain,) = found.members.values()
    assert len(chain) > 4
    before: set[str] = set()
    direct = 0
    for name in chain:
        for read in constraints.statements.ops[name].inputs:
            if program.fused.is_identity(read) and f"S{read.source}" in chain:
                assert f"S{read.source}" in before
                direct += 1
        before.add(name)
    assert direct > 3
    names = [program.schedule.names[constraints.statements.ops[name].id] for name in chain]
    points = {p.name: p for p in program.schedule.points()}
    turns = np.stack([points[name].time for name in names], axis=1)
    turns = turns[np.argsort(turns[:, 0])]
    assert (np.diff(turns.ravel()) == 1).all(), "each turn runs all of the chain, in its order"
    fused = program.with_options(fuse=True).execute()["s"]
    np.testing.assert_allclose(program.execute()["s"], fused, rtol=1e-6)


def apart(context: trl.Context) -> Pdg:
    return Separate().run(context.pdg()).pdg


def joining(*ids: int) -> Callable[[Pdg], FusionGroups]:
    """A grouping that ignores the rules."""

    def joined(pdg: Pdg) -> FusionGroups:
        grouping = FusionGroups(pdg)
        grouping.join("by force", ids)
        return grouping

    return joined


def test_a_group_that_has_no_schedule_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.random.normal(domain=(t,)).named("x")
        ctx.output("y", (x - x.sum(over=t)).named("y"))
    pdg = apart(ctx)
    x_id, y_id = (next(op.id for op in pdg if pdg.names[op.id] == name) for name in "xy")
    monkeypatch.setattr(groups, "joined", joining(x_id, y_id))
    constraints = Constraints(pdg)
    wrong = cluster_statements(constraints)
    assert wrong is not None and list(wrong.members) == [f"S{x_id}"]
    with pytest.raises(Unschedulable):
        solve(pdg.dims, wrong.statements, wrong.validity, wrong.proximity, CEILING)
    times = find_schedule(constraints, CEILING).times()
    assert set(times) == set(constraints.points)


def test_statements_that_need_each_other_at_one_point_are_no_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        first, second = (trl.tensor((), domain=(t,)) for _ in range(2))
        a, b = (first * 2.0).named("a"), (second * 3.0).named("b")
        first[0] = 1.0
        first[t + 1] = b[t + 1]
        second[0] = a[0]
        second[t + 1] = 1.0
        ctx.output("a", a)
        ctx.output("b", b)
    pdg = apart(ctx)
    ids = [next(op.id for op in pdg if pdg.names[op.id] == name) for name in "ab"]
    monkeypatch.setattr(groups, "joined", joining(*ids))
    assert cluster_statements(Constraints(pdg)) is None


@pytest.mark.parametrize(
    "options", [{}, {"fuse": False}, {"vectorize": False}, {"executor": "interpret"}], ids=str
)
def test_what_reads_another_slice_across_branches_does_not_ride_along(
    options: dict[str, object],
) -> None:
    """The over-approximated reads of both are equal, but one comes before the recurrence, one after it."""
    with trl.Context("u") as ctx:
        ((u, U),) = ctx.dims
        s = trl.tensor((), "f32", domain=(u,))
        s[U - 1] = trl.value(U).cast("f32")
        s[u - 1] = s[u + 1 : U].prod(axis=0) * 0.5
        ctx.output("y", s[trl.max(u - 1, 0) : u + 1].sum(axis=0))
    found = ctx.compile({U: 5}, trl.Options(**options)).execute(progress=False)["y"]
    s = np.ones(5)
    s[4] = 5
    for k in range(3, -1, -1):
        s[k] = s[k + 2 :].prod() * 0.5
    want = [s[max(k - 1, 0) : k + 1].sum() for k in range(5)]
    np.testing.assert_allclose(found, want)
