"""Tiled reductions: selection, reasons, values, and memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from tests.unit.checks import assert_memory_is_sound, assert_same
from timerl_nb.base.runtime_events import Event
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Rewritten
from timerl_nb.compiler.ir.graph_verifier import prove_reads, verify
from timerl_nb.compiler.ir.operation_attributes import AccumulateAttrs
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.passes.lifting.accumulate_sums import Accumulate
from timerl_nb.compiler.passes.simplification.contraction_recognition import Contract
from timerl_nb.compiler.passes.simplification.simplify import Simplify
from timerl_nb.compiler.passes.tiling.incrementalize_reductions import Incrementalize
from timerl_nb.compiler.passes.vectorization.vectorize import Vectorize

BOUNDS = {"B": 3, "T": 7}
Write = Callable[..., Any]


def vectorised(write: Write) -> Pdg:
    """Return a program over (b, t) with everything vectorised."""
    with trl.Context("b", "t") as ctx:
        write(ctx, *(symbol for pair in ctx.dims for symbol in pair))
    pdg = ctx.pdg()
    for one in (Simplify(), Vectorize(), Accumulate(), Contract()):
        pdg = one.run(pdg).pdg
    return pdg


def in_blocks(pdg: Pdg, block: int, dim: str = "t") -> Rewritten:
    made = Incrementalize(((dim, block),), BOUNDS).run(pdg)
    verify(made.pdg)
    prove_reads(made.pdg, BOUNDS)
    want = Reference(pdg, BOUNDS, seed=1).outputs()
    assert_same(want, Reference(made.pdg, BOUNDS, seed=1).outputs(), f"blocks of {block}")
    assert set(made.ids) == set(pdg.ops)
    assert all(new in made.pdg.ops for news in made.ids.values() for new in news)
    return made


def blocked(pdg: Pdg) -> list[str]:
    """Return the kinds of tiled operations, without accumulations."""
    over = [op for op in pdg if any(d.endswith("_block") for d in op.domain)]
    return sorted(op.kind for op in over if op.kind not in ("accumulate", "const"))


def given(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def x() -> trl.RecurrentTensor:
    return trl.data(given(3, 7, 2, 4), domain=("b", "t"))


CARRIED: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda b, t: (x() * 2.0).tanh(),
    "broadcast": lambda b, t: (x() - x().max(axis=1).reshape(2, 1)) * 2.0,
    "random": lambda b, t: trl.random.normal((2, 4), domain=(b, t)) * x(),
    "value": lambda b, t: trl.value(t * 2 + b).cast("f32") * x(),
    "condition": lambda b, t: trl.where(trl.value(t % 2 == 0), x(), 0.5),
    "reduction": lambda b, t: x().max(axis=1) * 0.5,
    "argmax": lambda b, t: x().argmax(axis=1).cast("f32"),
    "product": lambda b, t: x() @ trl.data(given(4, 3)),
    "transpose": lambda b, t: x().transpose() @ trl.data(given(2, 3)),
    "position": lambda b, t: x().take(1, axis=0) * 2.0,
    "range": lambda b, t: x().slice(1, 3, axis=1) * 2.0,
    "concat": lambda b, t: trl.concat([x(), x() * 2.0], axis=1) * 0.5,
    "flip": lambda b, t: x().flip(axis=1) * trl.value(t).cast("f32"),
    "turned": lambda b, t: (x()[b, 0:7] * x()[b, 0:7].flip(0)).take(t),
    "discounted": lambda b, t: (x() * 2.0).discounted_sum(0.9, axis=0),
    "shift": lambda b, t: x()[b, trl.min(t + 2, 6)] * 2.0,
    "shift and cut": lambda b, t: (x() * 2.0).sin()[b, trl.max(t - 1, 0)] * trl.value(b),
    "expand": lambda b, t: x() * trl.value(b).cast("f32"),
}


@pytest.mark.parametrize("name", CARRIED)
def test_what_carries_the_axis_is_cut(name: str) -> None:
    def write(ctx: Any, b: Any, B: Any, t: Any, T: Any) -> None:
        y = CARRIED[name](b, t)
        ctx.output("sum", (y * y).sum(over=t))

    pdg = vectorised(write)
    for block in (1, 3, 7, 20):
        made = in_blocks(pdg, block)
        assert "mul" in blocked(made.pdg) or "dot" in blocked(made.pdg)
        assert any("cut" in step.rule for step in made.steps)
        in_blocks(made.pdg, 2, "b")  # the other dimension as well


def test_every_reduction_is_put_together_again() -> None:
    def write(ctx: Any, b: Any, B: Any, t: Any, T: Any) -> None:
        for f in ("sum", "mean", "max", "min"):
            ctx.output(f, getattr((x() * 2.0).sin(), f)(over=(b, t)))
        ctx.output("count", (x() * 3.0 > 0.1).sum(over=t))

    pdg = vectorised(write)
    made = in_blocks(pdg, 3)
    attrs = [op.attrs for op in made.pdg if isinstance(op.attrs, AccumulateAttrs)]
    assert sorted(a.reduce for a in attrs) == ["max", "min", "sum", "sum"]  # mean contains the sum
    assert {a.dims for a in attrs} == {("t_block",)}


def test_a_weight_gradient_is_accumulated_over_blocks() -> None:
    def write(ctx: Any, b: Any, B: Any, t: Any, T: Any) -> None:
        w = trl.data(given(4, 3))
        loss = ((x() @ w).tanh() ** 2.0).sum(axis=(0, 1))
        ctx.output("dw", trl.grad(loss, w))

    made = in_blocks(vectorised(write), 2)
    assert blocked(made.pdg).count("dot") == 2  # forward and backward
    assert not made.refused


def test_what_is_needed_whole_is_read_in_ranges() -> None:
    def write(ctx: Any, b: Any, B: Any, t: Any, T: Any) -> None:
        y = (x() * 2.0).tanh().named("y")
        ctx.output("y", y)
        ctx.output("sum", (y * y).sum(over=t))

    made = in_blocks(vectorised(write), 3)
    assert blocked(made.pdg) == ["mul", "reindex", "reindex", "sum"]
    y = next(op for op in made.pdg if op.label == "y")
    assert "t_block" not in y.domain


def test_what_is_not_cut_says_why() -> None:
    def write(ctx: Any, b: Any, B: Any, t: Any, T: Any) -> None:
        y = x().sum(axis=(0, 1))
        g = y[b, t:T].discounted_sum(0.9)
        ctx.output("both", (g * y).sum(over=t))
        ctx.output("y", y)
        ctx.output("sum", y.sum(over=t))

    pdg = vectorised(write)
    made = in_blocks(pdg, 3)
    why = {pdg[k].kind: reason for k, reason in made.refused.items()}
    assert why["sliding_sum"] == "sliding_sum needs the whole axis"
    assert why["sum"] == "its operands are needed whole, or read at points"


@pytest.mark.parametrize(
    ("block", "read", "reason"),
    [
        (
            {"t": 2},
            lambda y, t, T: y[0 : t + 1].sum(axis=0),
            r"reduces t \+ 1 positions, not all",
        ),
        (2, lambda y, t, T: y[t:T].sum(axis=0), "reduces T - t positions, not all T"),
        ({"t": 2}, lambda y, t, T: y * 2.0, "No reduction has an axis of the length of its bound"),
    ],
    ids=["past", "future", "no sum"],
)
def test_block_sizes_without_effect_say_why(block: Any, read: Any, reason: str) -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("y", read(trl.data(given(7), domain=("t",)).tanh(), t, T))
    options = trl.Options(incrementalize=block, lift=False, vectorize=False)
    with pytest.warns(trl.errors.TimeRLWarning, match=reason) as told:
        program = ctx.compile({"T": 7}, options)
    assert told[0].filename == __file__
    assert "has no effect" in program.warnings[0]
    if "positions" in reason:
        assert "test_incrementalize.py:" in program.warnings[0]


def test_of_several_block_sizes_only_those_without_effect_are_told_of() -> None:
    with trl.Context("b", "t") as ctx:
        (_, _), (t, T) = ctx.dims
        y = x().tanh()
        ctx.output("sum", y.sum(axis=(0, 1)).sum(over=t))
    with pytest.warns(trl.errors.TimeRLWarning, match="'b': 2") as told:
        ctx.compile(BOUNDS, trl.Options(incrementalize={"b": 2, "t": 3}))
    assert len([w for w in told if "has no effect" in str(w.message)]) == 1


def test_the_sum_over_all_pairs_is_cut_along_one_axis() -> None:
    def write(ctx: Any, b: Any, B: Any, t: Any, T: Any) -> None:
        y = trl.data(given(7), domain=("t",))
        ctx.output("pairs", (y - y[0:T]).tanh().sum(axis=0).sum(over=t))

    pdg = vectorised(write)
    made = in_blocks(pdg, 3)
    assert in_blocks(made.pdg, 2).pdg.dims.names in (
        ("b", "t", "t_block"),
        ("b", "t", "t_block_", "t_block"),
    )


def test_where_most_is_freed() -> None:
    def write(ctx: Any, b: Any, B: Any, t: Any, T: Any) -> None:
        y = trl.random.normal((64,), domain=(t,))
        ctx.output("t", (y * 2.0).tanh().sum(over=t))
        z = trl.random.normal((2,), domain=(b,))
        ctx.output("b", (z * 2.0).tanh().sum(over=b))

    made = Incrementalize(2, BOUNDS).run(vectorised(write))
    assert made.pdg.dims.names == ("b", "t", "t_block")


def test_a_name_that_is_taken() -> None:
    with trl.Context("t", "t_block") as ctx:
        (t, _), _ = ctx.dims
        ctx.output("y", (trl.random.normal((), domain=(t,)) * 2.0).tanh().sum(over=t))
    options = trl.Options(trial=False, incrementalize={"t": 2})
    program = ctx.compile({"T": 5, "T_BLOCK": 2}, options)
    assert program.fused.dims.names == ("t", "t_block_", "t_block")


# --- whole programs ------------------------------------------------------------------------------

SMALL = {"B": 2, "I": 2, "T": 24}


def test_reinforce_learns_in_blocks_with_less_memory() -> None:
    ctx = reinforce(hidden=())
    whole = ctx.compile(SMALL, trl.Options(incrementalize=False, stores="point"))
    plain = whole.execute(seed=2)
    want = {**plain, **plain.parameters}
    gathered: list[int] = []
    peaks: list[int] = []
    for block in (1, 3, 18, 32):
        program = whole.with_options(incrementalize=block)
        events: list[Event] = []
        result = program.execute(seed=2, on_event=events.append)
        assert_same(want, {**result, **result.parameters}, f"blocks of {block}")
        assert_memory_is_sound(program, result, events)
        line = program.memory.timeline()
        gathered.append(int(line.transient.max()))
        peaks.append(result.memory.peak)
    # returns to go need all rewards, which are gathered anyway
    assert gathered[0] == gathered[1] < gathered[2] < gathered[3]
    assert peaks[0] <= peaks[1] < peaks[2] < peaks[3] <= plain.memory.peak


def test_other_bounds_keep_the_blocks() -> None:
    ctx = reinforce(hidden=())
    whole = ctx.compile(SMALL, trl.Options(incrementalize=False))
    program = whole.with_options(incrementalize={"t": 8})
    for length in (1, 9):
        want = whole.with_bounds({"T": length}).execute()
        assert_same(want, program.with_bounds({"T": length}).execute(), f"T = {length}")


def test_the_loop_over_blocks() -> None:
    options = trl.Options(incrementalize={"t": 16}, stores="point")
    program = reinforce(hidden=()).compile(SMALL, options)
    text = str(program.ast)
    assert "for t_block in range(0, 2):\n    learning(i, t_block)" in text
    assert "16*t_block:" in text  # frees go block by block
    assert "16*t_block < T" in str(program.stages["incrementalize"].artifact)
    assert "incrementalize" in str(program.pipeline)


@pytest.mark.parametrize(("block", "masks"), [(4, False), (5, True), (8, False), (7, True)])
def test_blocks_without_a_rest_are_not_masked(block: int, masks: bool) -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal((3,), domain=(t,), stream="x")
        y = trl.tensor((3,), domain=(t,))
        y[0] = x[0]
        y[t + 1] = (y * 0.5 + x.sin()).tanh()  # stored step by step
        ctx.output("z", (y[0:T] * x[0:T]).tanh().sum(axis=0))
    options = trl.Options(incrementalize={"t": block}, executor="xla")
    program = ctx.compile({T: 16}, options)
    assert f"blocks of {block}" in str(program.stages["incrementalize"].rewritten)
    lowered = program.executable.xla_program
    assert lowered is not None
    jaxprs = [lowered.jaxpr(call.number) for call in lowered.calls]
    assert masks == any(
        "select_n" in line and f"[{block},3]" in line for j in jaxprs for line in j.splitlines()
    )
    want = ctx.compile({T: 16}, trl.Options(incrementalize=False, executor="interpret"))
    assert_same(want.execute(seed=1), program.execute(seed=1), f"blocks of {block}")
