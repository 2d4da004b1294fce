"""Stores of values read in slices: one array, written in place, and sliced inside kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from tests.unit.checks import assert_memory_is_sound, assert_same
from timerl_nb.base.runtime_events import Event
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.runtime.interpreter.interpreter import Run

PLAIN = trl.Options(vectorize=False, lift=False, accumulate=False)


def sequence(ctx: trl.Context, t: Any) -> trl.RecurrentTensor:
    """A step-by-step recurrence."""
    x = trl.tensor((2,), domain=(t,))
    x[0] = trl.ones((2,))
    x[t + 1] = (x * 0.9 + 0.1).sin()
    return x.tanh().named("x")


def written(read: str, bounds: dict[str, int]) -> tuple[trl.Context, trl.Program]:
    """Return a program with the reads of a recurrence written by `read`."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = sequence(ctx, t)
        names = {"x": x, "t": t, "T": T, "trl": trl}
        ctx.output("y", eval(read, names))
    return ctx, ctx.compile(bounds, PLAIN)


def of(program: trl.Program, name: str) -> Any:
    return next(s for s in program.memory.stores.values() if s.name == name)


@pytest.mark.parametrize(
    ("read", "rows"),
    [
        ("x[0:T].sum(axis=0)", 7),
        ("x[0:t + 1].sum(axis=0)", 7),
        ("x[t:T].discounted_sum(0.5)", -1),  # each value is freed while the results accumulate
        ("x[t:T].max(axis=0) + x[0:t + 1].min(axis=0)", 7),
        ("x[1:T - 1].sum(axis=0) + x[2:T].sum(axis=0)", 6),
        ("x[trl.max(t - 3, 0):t + 1].sum(axis=0)", 0),
    ],
)
def test_slices_are_cut_from_blocks(read: str, rows: int) -> None:
    ctx, program = written(read, {"T": 7})
    store = of(program, "x")
    assert store.kind == {0: "ring", -1: "point"}.get(rows, "block"), store
    assert rows <= 0 or store.size == rows
    events: list[Event] = []
    result = program.execute(seed=1, on_event=events.append)
    assert_same(Reference(ctx.pdg(), {"T": 7}, 1).outputs(), result, "run")
    assert_memory_is_sound(program, result, events)
    assert_same(dict(program.with_options(stores="point").execute(seed=1)), result, "point maps")
    assert all(count == 1 for count in program.executable.compiles().values())


@pytest.mark.parametrize(
    ("read", "why"),
    [
        ("x[trl.min(t + 1, T):T].sum(axis=0)", "can be empty"),
        ("trl.udf(lambda s: s.sum(0), x[0:T], out=x)", "in slices on the host"),
        ("x[trl.max(t - 2, 0):t + 1].sum(axis=0)", "more values than are live simultaneously"),
    ],
)
def test_why_something_is_no_block(read: str, why: str) -> None:
    _, program = written(read, {"T": 12})
    assert why in of(program, "x").why


def test_a_merge_is_read_in_runs_of_its_branches() -> None:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        x = trl.tensor((2,), domain=(i, t))
        x[i, 0] = trl.ones((2,)) * (trl.value(i) + 1).cast("f32")
        x[i, t + 1] = (x * 0.9).sin().named("x'")
        ctx.output("y", x[i, 0:T].sum(axis=0))
    bounds = {"I": 2, "T": 5}
    program = ctx.compile(bounds, PLAIN)
    assert of(program, "x'[:]").shape == "block of 4 along t"
    assert of(program, "x'").kind in ("ring", "slot")
    assert_same(Reference(ctx.pdg(), bounds, 0).outputs(), program.execute(), "run")


@pytest.mark.parametrize("executor", ["interpret", "xla"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_run_that_goes_backwards_is_none(count: int, executor: str) -> None:
    """A block has one direction; a reversed loop needs none, except for a single value."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        x, y = (trl.tensor((2,), domain=(i, t)) for _ in range(2))
        x[i, 0] = trl.ones((2,)) * (trl.value(i) + 1).cast("f32")
        x[i, t + 1] = (x * 0.9).sin()
        y[i, count - 1 - t] = x.tanh().named("before")
        y[i, t + count] = x.cos().named("after")
        ctx.output("z", y[i, 0:T].discounted_sum(0.5))
    bounds = {"I": 2, "T": 6}
    program = ctx.compile(bounds, replace(PLAIN, executor=executor))
    assert (of(program, "after").kind == "block") == (count == 1)
    assert ("backwards" in of(program, "before").why) == (count > 1)
    assert_same(Reference(ctx.pdg(), bounds, 1).outputs(), program.execute(seed=1), "run")


def test_slices_of_two_dimensions_are_cut_from_no_block() -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.tensor((), domain=(i, t))
        x[i, 0] = (trl.value(i) + 1).cast("f32")
        x[i, t + 1] = (x * 0.9).sin()
        y = x.tanh().named("y")
        ctx.output("rows", y[i, 0:T].discounted_sum(0.5))
        ctx.output("columns", y[0:I, t].discounted_sum(0.5))
    bounds = {"I": 3, "T": 4}
    program = ctx.compile(bounds, PLAIN)
    assert "in slices of two dimensions" in of(program, "y").why
    assert_same(Reference(ctx.pdg(), bounds, 1).outputs(), program.execute(seed=1), "run")


def test_monte_carlo_gathers_nothing() -> None:
    program = reinforce(hidden=()).compile({"B": 4, "I": 3, "T": 40})
    plain = program.with_options(stores="point")
    assert plain.memory.timeline().transient.any()
    assert not program.memory.timeline().transient.any()
    assert program.memory.peak < 0.8 * plain.memory.peak
    result, same = program.execute(), plain.execute()
    assert_same(dict(same), result, "point maps")
    assert result.instructions < same.instructions
    assert "rt.stack" not in program.executable.source


def test_a_block_is_written_in_place() -> None:
    """The array of a block is donated to the next: no copy, for any T."""
    program = reinforce(hidden=()).compile({"B": 4, "I": 1, "T": 30})
    run = Run(program.executable, 0)
    before: dict[str, jax.Array] = {}
    given_up = 0
    while (done := run.step()) is not None:
        if done.name == "acting":
            now = run.stores["logits"][0]
            given_up += "logits" in before and before["logits"].is_deleted()
            before["logits"] = now
    assert given_up == 29


def test_a_returned_block_holds_all_rows() -> None:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        x = trl.tensor((), domain=(i, t))
        x[i, 0] = trl.value(i).cast("f32")
        x[i, t + 1] = (x * 0.5 + 1).sin()
        y = x.tanh().named("y")
        ctx.output("y", y)
        ctx.output("most", y[i, 0:T].max(axis=0))
    bounds = {"I": 3, "T": 6}
    program = ctx.compile(bounds, PLAIN)
    store = of(program, "y")
    assert (store.shape, store.most) == ("block of 6 along t", 3)
    events: list[Event] = []
    result = program.execute(on_event=events.append)
    assert_same(Reference(ctx.pdg(), bounds, 0).outputs(), result, "run")
    assert_memory_is_sound(program, result, events)
    assert result.memory.retained == 3 * (6 * 4 + 4)
    np.testing.assert_array_equal(result["y"].max(1), result["most"])
