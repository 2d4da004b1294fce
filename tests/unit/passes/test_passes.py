"""Each pass alone: rules fire, refusals have reasons, results verify and are equivalent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.actor_critic import actor_critic
from tests.unit.checks import assert_same
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Rewritten, chain
from timerl_nb.compiler.ir.graph_verifier import prove_reads, verify
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.passes.fusion.fuse import Fuse
from timerl_nb.compiler.passes.lifting.accumulate_sums import Accumulate
from timerl_nb.compiler.passes.lifting.sliding_windows import Windows
from timerl_nb.compiler.passes.pass_pipeline import Pass
from timerl_nb.compiler.passes.simplification.contraction_recognition import Contract
from timerl_nb.compiler.passes.simplification.simplify import Simplify
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import components, cycles_of
from timerl_nb.compiler.passes.vectorization.vectorize import Vectorize

BOUNDS = {"B": 3, "I": 2, "T": 5}


def graph(write: Callable[..., None]) -> Pdg:
    with trl.Context("b", "i", "t") as ctx:
        write(ctx, *(symbol for pair in ctx.dims for symbol in pair))
    return ctx.pdg()


def apply(one: Pass, pdg: Pdg) -> Rewritten:
    """Run a pass, and check its contract."""
    made = one.run(pdg)
    verify(made.pdg)
    prove_reads(made.pdg, BOUNDS)
    want = Reference(pdg, BOUNDS, seed=1).outputs()
    assert_same(want, Reference(made.pdg, BOUNDS, seed=1).outputs(), one.name)
    assert set(made.ids) == set(pdg.ops)
    assert all(new in made.pdg.ops for news in made.ids.values() for new in news)
    return made


def kinds(pdg: Pdg) -> list[str]:
    return sorted(op.kind for op in pdg if op.kind not in ("output", "data", "const"))


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


# --- simplify ------------------------------------------------------------------------------------

X: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "x * 1 + 0": (lambda x: x * 1.0 + 0.0, []),
    "-x * -1": (lambda x: (-x) * -1.0, []),
    "x - -x": (lambda x: x - -x, ["add"]),
    "-x + x": (lambda x: -x + x, ["sub"]),
    "x ** 1 / 1": (lambda x: x**1.0 / 1.0, []),
    "2 * (3 * x)": (lambda x: 2.0 * (3.0 * x), ["mul"]),
    "constants on the left": (lambda x: trl.constant(np.float32(2)) * (x * 3.0), ["mul"]),
    "constants": (lambda x: x * (trl.ones((2,)) * 3.0 + 1.0).sum(), ["mul"]),
    "twice the same": (lambda x: x.tanh() * x.tanh(), ["mul", "tanh"]),
    "reshaped twice": (lambda x: x.reshape(1, 2).reshape(2), []),
    "transposed twice": (lambda x: x.reshape(1, 2).transpose().transpose().reshape(2), []),
    "broadcast": (lambda x: x.take(0).unsqueeze(0).expand(2) + x, ["add", "reindex"]),
    "where of one value": (lambda x: trl.where(x > 0, x, x), []),
    "detached": (lambda x: x.detach().tanh(), ["tanh"]),
    "cast to itself": (lambda x: x.cast("f32").tanh(), ["tanh"]),
    "not not": (lambda x: ~~(x > 0), ["lt"]),
    "sum of repeated": (lambda x: x.sum().expand(4).sum(), ["mul", "sum"]),
    "dead code": (lambda x: [x.exp(), x.tanh()][1], ["tanh"]),
}


@pytest.mark.parametrize("name", X)
def test_simplify(name: str) -> None:
    write, want = X[name]

    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        ctx.output("y", write(trl.data(data(5, 2), domain=(t,))))

    assert kinds(apply(Simplify(), graph(program)).pdg) == want


def test_merges_of_one_branch_and_equal_merges_go() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(5), domain=(t,))
        y, z, only = trl.like(x), trl.like(x), trl.like(x)
        for s in (y, z):
            s[0] = x[0]
            s[t + 1] = x * 2.0
        only[...] = y + z
        ctx.output("y", only)

    assert kinds(apply(Simplify(), graph(program)).pdg) == ["add", "merge", "mul"]


def test_an_operation_of_constants_is_one_value_wherever_it_is_needed() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        ctx.output("y", trl.constant(np.float32(2))[t % 2 == 0] * 3.0)

    made = apply(Simplify(), graph(program)).pdg
    assert [(op.kind, op.domain) for op in made] == [("const", ()), ("output", ("t",))]


def test_what_cannot_be_put_in_place_of_an_operand_stays() -> None:
    """A branch is one value: it takes no slice, unlike other operands."""

    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        y = trl.tensor((T,), domain=(i,))
        y[0] = trl.data(data(5), domain=(t,))[0:T]
        y[i + 1] = y * 0.5
        ctx.output("y", y)

    assert kinds(apply(Simplify(), graph(program)).pdg) == ["copy", "merge", "mul"]


def test_factors_are_lifted_out_of_sums() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(3, 5, 2), domain=(b, t))
        c = (x * x).sum(over=(b, t)).sum()
        ctx.output("y", ((-x * c).reshape(1, 2) / c).sum(over=(b, t)))

    made = apply(Simplify(), graph(program))
    rules = [step.rule for step in made.steps]
    assert rules.count("factor lifted out of a sum") == 2
    for op in made.pdg:
        if op.kind in ("mul", "div") and op.domain:
            assert op.inputs[0] == op.inputs[1], "only the square is left inside"


# --- cycles --------------------------------------------------------------------------------------


def test_components() -> None:
    edges = {1: [2], 2: [3], 3: [1, 4], 4: [5], 5: [4], 6: [6], 7: []}
    found = sorted(sorted(c) for c in components(edges))
    assert found == [[1, 2, 3], [4, 5], [6], [7]]


def test_what_runs_one_by_one() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(3, 5), domain=(b, t)).named("x")
        s = trl.like(x).named("s")
        s[b, 0] = x[b, 0]
        s[b, t + 1] = (s + x).tanh().named("step")
        after = (s * 2.0).named("after")
        ctx.output("y", after)

    pdg = graph(program)
    names = {op.label: op.id for op in pdg}
    sequential = cycles_of(pdg, "t").sequential
    assert {names["s"], names["step"]} <= sequential
    assert names["after"] not in sequential and names["x"] not in sequential
    assert not cycles_of(pdg, "b").sequential


def test_what_is_vectorised_together() -> None:
    """A cycle that runs backwards in t is trivial on b: all of it is vectorised, or nothing."""

    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(3, 5), domain=(b, t))
        g = trl.like(x).named("g")
        g[b, T - 1] = x[b, T - 1]
        g[t < T - 1] = (x + g[b, trl.min(t + 1, T - 1)]).named("back")
        ctx.output("y", g)

    pdg = graph(program)
    names = {op.label: op.id for op in pdg}
    assert not cycles_of(pdg, "b").sequential
    (together,) = cycles_of(pdg, "b").together
    assert together == {names["g"], names["back"]}
    assert {names["g"], names["back"]} <= cycles_of(pdg, "t").sequential


def test_a_cycle_through_a_sum_over_the_dimension_counts() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        w, s = trl.tensor((), domain=(i,)), trl.tensor((), domain=(i, t))
        w[0] = trl.constant(1.0)
        s[i, 0] = w
        s[i, t + 1] = s * 0.5
        w[i + 1] = s.sum(over=t)
        ctx.output("w", w)

    pdg = graph(program)
    mul = next(op.id for op in pdg if op.kind == "mul")
    assert mul in cycles_of(pdg, "t").sequential
    assert mul in cycles_of(pdg, "i").sequential


# --- vectorize, lift, accumulate, contract ---------------------------------------------------------


def test_windows_become_sliding_sums() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(3, 5), domain=(b, t))
        for k, entry in enumerate(
            (
                slice(t, T),
                slice(t, trl.min(t + 3, T)),
                slice(0, t + 1),
                slice(trl.max(t - 2, 0), t + 1),
            )
        ):
            ctx.output(f"sum {k}", x[b, entry].sum(axis=0))
            ctx.output(f"max {k}", x[b, entry].max(axis=0))
            ctx.output(f"min {k}", (x > 0)[b, entry].all(axis=0))
        ctx.output("discounted", x[b, t:T].discounted_sum(0.5))

    for one in (Vectorize(), Windows()):
        made = apply(one, graph(program)).pdg
        count = [op.kind for op in made].count
        assert [count(f"sliding_{f}") for f in ("sum", "max", "min")] == [5, 4, 4]
        assert not any(op.kind in ("sum", "max", "min", "discounted_sum") for op in made)


def test_what_cannot_be_vectorised_says_why() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(3, 5), domain=(b, t))
        ctx.output("product", x[b, t:T].prod(axis=0).named("product"))
        ctx.output("shift", (x[b, trl.min(t + b, T - 1)] * 2.0).named("shift"))
        ctx.output("both", x[trl.min(t, B - 1), t] * 2.0)
        y = trl.like(x).named("y")
        y[(t + b) % 2 == 0] = x
        y[(t + b) % 2 == 1] = x * 2.0
        ctx.output("y", y)

    made = apply(Vectorize(), graph(program))
    why = {made.pdg[k].label: reason for k, reason in made.refused.items()}
    assert "prod over a window" in why["product"]
    assert "min(b + t, T - 1) moves with t and b" in why["shift"]
    assert any(
        "both its position and its operand vary with t" in reason
        for reason in made.refused.values()
    )
    assert "chosen by t and b" in why["y"]


def test_shifted_reads_and_branches_are_vectorised() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x, w = trl.data(data(3, 5, 2), domain=(b, t)), trl.data(data(3), domain=(b,))
        ahead, back = x[b, trl.min(t + 1, T - 1)], x[b, trl.max(t - 1, 0)]
        ctx.output("stencil", back - x * 2.0 + ahead)
        ctx.output("reversed", x[b, T - 1 - t] * x[b, t // 2])
        ctx.output("other", w[trl.min(t, B - 1)] + x)
        ctx.output("taken", trl.constant(data(3, 2)).take(t % 3))
        y = trl.like(x)
        y[b, 0] = x[b, T - 1]
        y[b, t + 1] = x * w.unsqueeze(0)
        ctx.output("y", y)

    made = apply(Vectorize(), graph(program))
    assert not made.refused
    assert all(not op.domain for op in made.pdg)
    assert [op.kind for op in made.pdg].count("reindex") == 8
    smaller = {"B": 3, "I": 1, "T": 1}
    want = Reference(graph(program), smaller, seed=1).outputs()
    assert_same(want, Reference(made.pdg, smaller, seed=1).outputs(), "one step")


def test_one_branch_is_chosen_without_the_dimension_and_others_by_it() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(3, 5), domain=(b, t))
        y = trl.like(x)
        y[b == 0] = x
        y[(b >= 1) & (t < 2)] = x * 2.0
        y[(b >= 1) & (t >= 2)] = x.tanh()
        ctx.output("y", y + 1.0)

    apply(Vectorize(("t",)), apply(Simplify(), graph(program)).pdg)


def test_a_branch_that_is_nowhere_chosen_is_read_inside_its_source() -> None:
    """Vectorised branches are read at every t: with U = 2 there is no x[3], and none is needed."""
    with trl.Context("t", "u") as ctx:
        (t, _), (u, _) = ctx.dims
        x = trl.tensor((), domain=(u,))
        x[0] = 1.0
        x[u + 1] = (x * 0.5).sin()
        y = trl.tensor((), domain=(t,))
        y[t < 3] = trl.value(t).cast("f32")
        y[t >= 3] = x[3]
        ctx.output("y", y + 1.0)
    made = Vectorize().run(ctx.pdg()).pdg
    assert all("t" not in op.domain for op in made)
    want = Reference(ctx.pdg(), {"T": 2, "U": 2}).outputs()
    assert_same(want, Reference(made, {"T": 2, "U": 2}).outputs(), "vectorised")


def test_branches_alone_may_cut_a_cycle() -> None:
    """Branches resolve, point by point, a dependence that would be a cycle as a whole."""

    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(5), domain=(t,))
        y = trl.like(x).named("y")
        y[0] = x[0]
        y[t >= 1] = y[0] * x
        ctx.output("y", y)

    made = apply(Vectorize(), graph(program))
    (why,) = {why for k, why in made.refused.items() if made.pdg[k].label == "y"}
    assert "its branches alone break a cycle" in why


def test_only_the_named_dimensions_are_vectorised() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(3, 5), domain=(b, t))
        ctx.output("y", x.tanh() + trl.value(b))

    made = apply(Vectorize(("b",)), graph(program)).pdg
    assert {op.domain for op in made if op.kind == "tanh"} == {("t",)}
    assert str(next(op for op in made if op.kind == "tanh").type) == "f32[B]"


def test_sums_are_accumulated_and_windows_are_not() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(3, 5, 2), domain=(b, t))
        ctx.output("sum", x.sum(over=(b, t)))
        ctx.output("part", x[b, 1:4].max(axis=0))
        ctx.output("window", x[b, t:T].sum(axis=0))
        ctx.output("count", (x > 0).sum(over=b))
        ctx.output("even", x[b % 2 == 0].sum(over=t))

    made = apply(Accumulate(), graph(program))
    found = [op for op in made.pdg if op.kind == "accumulate"]
    assert [op.outputs[0].reduce for op in found] == ["sum", "max", "sum", "sum"]
    assert [op.outputs[0].domain for op in found] == [(), ("b",), ("t",), ("b",)]
    assert [str(op.where) for op in found] == ["True", "t >= 1 & t <= 3", "True", "b % 2 == 0"]
    assert any("moves with t" in reason for reason in made.refused.values())


def test_a_weight_gradient_is_one_contraction() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(3, 5, 4), domain=(b, t))
        w = trl.parameter((4, 2), domain=(i,), name="w")
        (x @ w).tanh().sum(over=(b, t)).sum().backward()
        ctx.output("dw", w.grad)

    pdg = graph(program)
    total = apply(Simplify(), pdg)
    for one in (Vectorize(("b", "t")), Accumulate(), Contract()):
        total = chain(total, apply(one, total.pdg))
    grad = next(op for op in total.pdg if op.kind == "dot" and op.shape == (4, 2))
    assert str(grad.attrs).count(",") == 1 and set("tu") <= set(grad.attrs.left) - set(
        grad.attrs.out
    )
    ranks = [len(output.type.shape) for op in total.pdg for output in op.outputs]
    assert max(ranks) <= 3, "no broadcast over b, t, in, out"


def test_an_outer_product_that_is_summed_is_a_contraction() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(3, 5, 4), domain=(b, t))
        outer = x.reshape(4, 1) * x.reshape(1, 4)
        ctx.output("y", outer.sum(over=(b, t)))

    total = Simplify().run(graph(program))
    for one in (Vectorize(), Contract()):
        total = chain(total, apply(one, total.pdg))
    assert "dot" in kinds(total.pdg) and "mul" not in kinds(total.pdg)


def test_a_sum_of_products_of_pairs_is_one_contraction() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(3, 5, 4), domain=(b, t))
        ctx.output("y", (x.reshape(2, 2) @ x.tanh().reshape(2, 2)).sum(over=(b, t)))

    total = Simplify().run(graph(program))
    for one in (Vectorize(), Contract()):
        total = chain(total, apply(one, total.pdg))
    assert kinds(total.pdg).count("dot") == 1 and "sum" not in kinds(total.pdg)


def test_a_sum_stays_outside_of_what_it_is_no_part_of() -> None:
    """Dimensions of one operand are summed first; a kernel's positions are no contraction."""

    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(3, 5, 4), domain=(b, t))
        w = trl.constant(data(4, 2))
        ctx.output("rows", (x.reshape(2, 2) @ w.reshape(2, 4)).sum(axis=0))
        image = trl.data(data(3, 2, 6), domain=(b,))
        ctx.output("conv", trl.conv(image, w.reshape(2, 2, 2)).sum(axis=1))

    made = apply(Contract(), graph(program)).pdg
    assert kinds(made).count("sum") == 2
    assert {"conv", "dot"} <= {*kinds(made)}


# --- fuse ------------------------------------------------------------------------------------------


def fused(write: Callable[..., None]) -> dict[str, list[str]]:
    made = apply(Fuse(), graph(write)).pdg
    return {
        "+".join(sorted(inner.label for inner in op.attrs.body if inner.label)): [
            inner.kind for inner in op.attrs.body
        ]
        for op in made
        if op.kind == "dataflow"
    }


def test_a_chain_is_one_kernel() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(5), domain=(t,)).named("x")
        y = (x.tanh() * 2.0).named("y")
        ctx.output("z", y + x)

    assert list(fused(program)) == ["x+y+z"]


def test_acting_and_learning_are_not_one_kernel() -> None:
    """A reader of later points of a recurrence cannot run inside it."""

    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(5), domain=(t,))
        s = trl.like(x)
        s[0] = x[0]
        s[t + 1] = (s + x).tanh().named("act")
        h = (s * 3.0).named("h")
        g = h[t : trl.min(t + 2, T)].sum(axis=0).named("g")
        ctx.output("learn", (g * h).named("learn"))

    groups = fused(program)
    assert not any("act" in name and "learn" in name for name in groups)
    assert any("g" in name.split("+") and "learn" in name for name in groups)


def test_back_propagation_is_not_fused_with_what_it_undoes() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(5), domain=(t,))
        s = trl.like(x)
        s[0] = x[0]
        s[t + 1] = (s * 0.5 + x).tanh().named("forward")
        ctx.output("dx", trl.grad(s * s, x).named("backward"))

    assert not any("forward" in n and "backward" in n for n in fused(program))


def test_kernels_of_one_region_are_told_apart_by_where_their_results_come_from() -> None:
    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(5), domain=(t,))
        with ctx.region("learning"):
            y = trl.udf(np.sin, (x * 2.0).tanh(), out=x)
            z = (y * 3.0).tanh()
            with ctx.region("critic"):
                z = (z + 1.0).exp()
        ctx.output("z", z)

    made = apply(Fuse(), graph(program)).pdg
    assert [op.label for op in made if op.kind == "dataflow"] == ["learning", "critic"]


def test_recurrences_that_read_the_same_are_a_bundle() -> None:
    """For example both moments of Adam: neither reads the other's past."""

    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(5), domain=(t,))
        x = trl.udf(np.tanh, x, out=x)
        for name, keep in (("first", 0.9), ("second", 0.99)):
            s = trl.like(x)
            s[0] = x[0]
            s[t + 1] = (s * keep + x).named(name)
            ctx.output(name, s)

    assert "first+second" in fused(program)


def test_what_reads_no_more_than_another_rides_along() -> None:
    """Independent statements without waits: one launch per point."""

    def program(ctx: Any, b: Any, B: Any, i: Any, I: Any, t: Any, T: Any) -> None:
        x = trl.data(data(5), domain=(t,))
        first, second = (trl.udf(f, x, out=x) for f in (np.tanh, np.sin))
        ctx.output("one", first.exp().named("one"))
        ctx.output("both", (first + second).cos().named("both"))

    assert "both+one" in fused(program)


def test_a_value_that_one_region_names_and_others_copy() -> None:
    """`v` is a reshape, read at t + 1, and at its own point by other regions, which copy it."""
    bounds = {"B": 2, "I": 2, "T": 3}
    program = actor_critic((4,)).compile(bounds)
    want = Reference(program.pdg, bounds, 1).outputs()
    assert_same(want, Reference(program.fused, bounds, 1).outputs(), "fused graph")
