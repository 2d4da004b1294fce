"""Random equations with possible cycles: each is evaluated, or refused with the cycle shown.

The reference does not use the graph, so it can judge. A refused program has a value that depends on
itself at the bounds named by the error. A compiled program has the reference's values.
"""

from __future__ import annotations

import os
import re
from random import Random
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.eager import eagerly
from tests.unit.checks import assert_same
from timerl_nb.base.errors import ScheduleError
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.scheduling.cycle_counterexample import suspects

RUNS = int(os.environ.get("TIMERL_FUZZ", "24"))
FIRST = Random().randrange(10**6) if "TIMERL_FUZZ" in os.environ else 0
SIZE = 3


def equations(seed: int) -> tuple[trl.Context, dict[str, int]]:
    """Up to four tensors, defined by each other at near and far points."""
    draw = Random(seed)
    names = draw.choice([("t",), ("i", "t")])
    with trl.Context(*names) as ctx:
        dims = {str(var): (var, bound) for var, bound in ctx.dims}
        t = dims["t"][0]
        made = [
            trl.tensor((), domain=draw.choice([names, names, ("t",)])).named(f"x{k}")
            for k in range(draw.randint(1, 4))
        ]
        host = trl.Resource(lambda sizes, seed: None) if draw.random() < 0.2 else None

        def point(d: str) -> Any:
            at, bound = dims[d]
            near = [at, at, at, trl.max(at - 1, 0), trl.min(at + 1, bound - 1), 0, bound - 1]
            return draw.choice([*near, bound - 1 - at, at // 2, trl.max(at - 4, 0)])

        def some(d: str) -> Any:
            at, bound = dims[d]
            return draw.choice([slice(0, at), slice(0, at + 1), slice(at, bound), slice(0, bound)])

        def read() -> Any:
            x = draw.choice(made)
            along = draw.choice(x.domain) if draw.random() < 0.2 else None
            y = x[tuple(some(d) if d == along else point(d) for d in x.domain)]
            y = y.sum(axis=0) if along else y
            y = draw.choice([lambda: y * 0.5, y.tanh, lambda: (y * 0.3).sin() + y])()
            if "t" in y.domain and draw.random() < 0.1:
                y = y[t >= draw.randint(0, 5)].otherwise(0.0)
            if "t" in y.domain and draw.random() < 0.1:
                y = y.mean(over=t)
            if draw.random() < 0.1:
                y = trl.udf(_half, y, out="f32")
            elif host is not None and y.domain == ("t",) and draw.random() < 0.3:
                y = trl.udf(lambda _, __, z: _half(z), y, out="f32", resource=host)
            return y

        def value(x: Any) -> Any:
            y = sum((read() for _ in range(draw.randint(1, 2))), trl.value(t) * 0.1)
            extra = tuple(dims[d][0] for d in y.domain if d not in x.domain)
            return y.sum(over=extra) if extra else y

        for x in made:
            start = draw.choice([0, 1, 1, 2, 4])
            before = tuple(dims[d][0] for d in x.domain[:-1])
            if draw.random() < 0.3:
                x[(*before, 0)] = trl.constant(1.0)
                x[(*before, t + 1)] = value(x)
                continue
            if start:
                x[t < start] = trl.constant(1.0)
            x[t >= start] = value(x)
        for x in made:
            ctx.output(x.op.label, x)
    return ctx, dict.fromkeys(ctx.space.bounds, SIZE)


def _half(x: Any) -> Any:
    return np.float32(x * 0.5)


@pytest.mark.parametrize("fuse", [True, False])
def test_circles_are_shown_and_all_else_is_compiled(fuse: bool) -> None:
    refused = 0
    for seed in range(FIRST, FIRST + RUNS):
        ctx, bounds = equations(seed)
        options = trl.Options(fuse=fuse, executor="interpret")
        try:
            program = ctx.compile(bounds, options)
        except ScheduleError as error:
            size = re.search(r"each value depends on the next \(for .* = (\d+)\)", str(error))
            assert size is not None and __file__.rsplit("/", 1)[1] in str(error), f"seed {seed}"
            with pytest.raises(ScheduleError, match="depends on itself"):
                Reference(ctx.pdg(), dict.fromkeys(bounds, int(size[1]))).outputs()
            refused += 1
            continue
        want = Reference(ctx.pdg(), bounds).outputs()
        with eagerly():
            assert_same(want, program.execute(), f"seed {seed}")
    assert RUNS < 20 or RUNS // 4 < refused < RUNS


def _message(define: Any, bound: int = 4) -> str:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x, y = (trl.tensor((), domain=(t,)).named(name) for name in "xy")
        define(x, y, t, T)
        ctx.output("x", x)
    with pytest.raises(ScheduleError, match="depend on each other in a cycle") as caught:
        ctx.compile({T: bound})
    return str(caught.value)


def test_a_circle_that_fusion_would_put_into_one_kernel() -> None:
    def define(x: Any, y: Any, t: Any, T: Any) -> None:
        x[t >= 0] = (y[T - 1 - t] * 0.5).named("f")
        y[t >= 0] = (x[trl.max(t - 1, 0)] + 1.0).named("g")

    said = _message(define)
    assert "f." in said and "g." in said and "(for T = 4)" in said and "[t=0]" in said
    assert 'x[t >= 0] = (y[T - 1 - t] * 0.5).named("f")' in said


def test_a_circle_that_small_bounds_do_not_have() -> None:
    def define(x: Any, y: Any, t: Any, T: Any) -> None:
        x[t < 4] = trl.constant(1.0)
        x[t >= 4] = y[trl.max(t - 1, 0)].tanh()
        y[t < 4] = trl.constant(1.0)
        y[t >= 4] = x[trl.min(t + 1, T - 1)] * 0.5

    assert "(for T = 8)" in _message(define, 9)


def test_a_circle_that_only_larger_bounds_have_refuses_no_smaller_ones() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x, y = (trl.tensor((), domain=(t,)) for _ in range(2))
        x[t < 4] = trl.value(t).cast("f32")
        x[t >= 4] = y[trl.max(t - 1, 0)] + 10.0
        y[t < 4] = trl.value(t).cast("f32")
        y[t >= 4] = x[trl.min(t + 1, T - 1)] * 2.0
        ctx.output("x", x)
    for executor in ("xla", "interpret"):
        program = ctx.compile({T: 5}, trl.Options(executor=executor))
        np.testing.assert_array_equal(program.execute()["x"], [0, 1, 2, 3, 13])
        assert "for T = 5 alone" in program.stages["schedule"].summary
        again = program.with_bounds({"T": 3})
        np.testing.assert_array_equal(again.execute()["x"], [0, 1, 2])
        with pytest.raises(ScheduleError, match="depend on each other in a cycle"):
            program.with_bounds({"T": 9})


def test_a_circle_that_nobody_needs_is_no_fault() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x, y = (trl.tensor((), domain=(t,)) for _ in range(2))
        x[t >= 0] = x[trl.max(t - 1, 0)] * 0.5
        y[0] = trl.constant(1.0)
        y[t + 1] = y * 2.0
        ctx.output("y", y)
    np.testing.assert_array_equal(ctx.compile({T: 4}).execute()["y"], [1, 2, 4, 8])


def test_what_goes_one_way_is_not_followed() -> None:
    """Walking points is slow at large bounds; only dependences in both directions are walked."""
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.random.normal((), domain=(i, t))
        ahead, back, both = (
            trl.tensor((), domain=(i, t)).named(n) for n in ("ahead", "back", "both")
        )
        ahead[i, 0], back[i, T - 1], both[i, 0] = x[i, 0], x[i, T - 1], x[i, 0]
        ahead[i, t + 1] = ahead + x
        back[i, t - 1] = back * x
        ctx.output("y", ahead + back)
        assert suspects(ctx.pdg()) == []
        both[i, t + 1] = both[i, 0] + both[i, t + 1 - (t + 1) // 2 - 1]
        ctx.output("both", both)
        (found,) = suspects(ctx.pdg())
        assert {ctx.pdg()[k].kind for k in found} == {"merge", "add"}


def test_a_circle_that_only_large_bounds_have() -> None:
    def define(x: Any, y: Any, t: Any, T: Any) -> None:
        x[t < 8] = trl.constant(1.0)
        x[t >= 8] = y.sum(over=t) * 0.5
        y[t >= 0] = x[t // 2] + 1.0

    assert "(for T = 21)" in _message(define, 21)
