"""Launches, arithmetic and bytes from optimised HLO, compared with manual counts."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import timerl_nb as trl
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.policies.ready_policies import Random
from timerl_nb.collecting.strategies.collecting_program import collecting
from timerl_nb.runtime.xla.hlo.calls_per_run import count_calls
from timerl_nb.runtime.xla.hlo.hlo_cost_counts import Work, work

# Ten iterations of a product, an in-place update of a row, and a call that is one kernel;
# optionally a loop of unknown length.
HLO = """HloModule made_up, is_scheduled=true

%fused (p.0: f32[10,4], p.1: f32[4], p.2: s32[]) -> f32[10,4] {
  %p.0 = f32[10,4]{1,0} parameter(0)
  %p.2 = s32[] parameter(2)
  %p.1 = f32[4]{0} parameter(1)
  %tanh.1 = f32[4]{0} tanh(%p.1)
  %bitcast.1 = f32[1,4]{1,0} bitcast(%tanh.1)
  %zero = s32[] constant(0)
  ROOT %update = f32[10,4]{1,0} dynamic-update-slice(%p.0, %bitcast.1, %p.2, %zero)
}

%small (q.0: s32[]) -> s32[] {
  %q.0 = s32[] parameter(0)
  %one = s32[] constant(1)
  ROOT %add.1 = s32[] add(%q.0, %one)
}

%body (arg: (s32[], f32[10,4], /*index=2*/f32[4,4])) -> (s32[], f32[10,4], f32[4,4]) {
  %arg = (s32[], f32[10,4]{1,0}, /*index=2*/f32[4,4]{1,0}) parameter(0)
  %k = s32[] get-tuple-element(%arg), index=0
  %rows = f32[10,4]{1,0} get-tuple-element(%arg), index=1
  %w = f32[4,4]{1,0} get-tuple-element(%arg), index=2
  %x = f32[4]{0} constant({1, 2, 3, 4})
  %dot.1 = f32[4]{0} dot(%x, %w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %fusion.1 = f32[10,4]{1,0} fusion(%rows, %dot.1, %k), kind=kLoop, calls=%fused
  %call.1 = s32[] call(%k), to_apply=%small, frontend_attributes={xla_cpu_small_call="true"}
  ROOT %tuple.1 = (s32[], f32[10,4]{1,0}, f32[4,4]{1,0}) tuple(%call.1, %fusion.1, %w)
}

%asked (arg.1: (s32[], f32[10,4], f32[4,4])) -> pred[] {
  %arg.1 = (s32[], f32[10,4]{1,0}, f32[4,4]{1,0}) parameter(0)
  %k.1 = s32[] get-tuple-element(%arg.1), index=0
  %ten = s32[] constant(10)
  ROOT %less = pred[] compare(%k.1, %ten), direction=LT
}

ENTRY %main (given: (s32[], f32[10,4], f32[4,4])) -> f32[10,4] {
  %given = (s32[], f32[10,4]{1,0}, f32[4,4]{1,0}) parameter(0)
  %while.1 = (s32[], f32[10,4]{1,0}, f32[4,4]{1,0}) while(%given), condition=%asked, body=%body, backend_config={"known_trip_count":{"n":"10"}}
  ROOT %made = f32[10,4]{1,0} get-tuple-element(%while.1), index=1
}
"""
OPEN = HLO.replace(', backend_config={"known_trip_count":{"n":"10"}}', "")


def test_a_loop_counts_its_turns() -> None:
    # bytes: the product 16 + 64 + 16; the fusion reads 16 + 4 and writes 16; the call 4 + 4
    turn = Work(launches=3, products=2 * 4 * 4, elements=4 + 1, nbytes=96 + 36 + 8)
    assert work(HLO) == turn * 10
    asked = Work(launches=1, elements=1, nbytes=1 + 4 + 4)
    assert work(OPEN) == turn + asked + Work(is_exact=False)
    assert work(OPEN, turns=7) == turn * 7


def test_branches_count_where_they_launch_as_much() -> None:
    def conditional(other: str) -> str:
        call = f"conditional(%p, %x, %x), branch_computations={{%small, %{other}}}"
        head = HLO[: HLO.index("ENTRY")]
        twice = re.sub("ROOT (.*)", r"\1\n  ROOT %more = s32[] add(%add.1, %one)", SMALL)
        return head + twice.replace("%small", "%twice") + ENTRY.replace("CALL", call)

    assert work(conditional("small")) == Work(1, 0, 1, 12)
    assert work(conditional("twice")) == Work(2, 0, 2, 24, is_exact=False)


SMALL = HLO[HLO.index("%small") : HLO.index("%body")]
ENTRY = """ENTRY %main (p: s32[], x: s32[]) -> s32[] {
  %p = s32[] parameter(0)
  %x = s32[] parameter(1)
  ROOT %made = s32[] CALL
}
"""


@pytest.mark.parametrize("turns", [3, 50])
def test_what_xla_makes_of_a_loop(turns: int) -> None:
    """A product, a sine and the counter: three kernels per iteration, and copies before the loop."""

    def function(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, turns, lambda _, x: jnp.sin(x @ x), x)

    text = jax.jit(function).lower(jnp.ones((8, 8))).compile().as_text()
    assert text is not None
    found = work(text)
    entry = text[text.index("\nENTRY") :]
    once = len(re.findall(r" (?:copy|fusion)\(", entry))
    assert found.launches == once + 3 * turns and found.is_exact
    assert found.products == turns * 2 * 8**3 and found.elements == turns * (8 * 8 + 1)


def test_one_kernel_in_one_call() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("y", trl.value(t) * 2)
    assert ctx.compile({T: 3}, trl.Options(executor="xla")).executable.launches == 1
    assert ctx.compile({T: 3}, trl.Options(executor="interpret")).executable.launches is None


def test_a_dynamic_bound_leaves_launches_open() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[0] = 1.0
        x[t + 1] = x * 2
        ctx.output("x", x[T - 1])
    bounds = {T: trl.until(x > 5, at_most=9)}
    executable = ctx.compile(bounds, trl.Options(executor="xla")).executable
    assert executable.xla_program is not None and executable.launches is None


def loop(steps: int, turns: int, options: trl.Options) -> trl.Program:
    """`turns` iterations of a chain of `steps` sines."""
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.tensor((4096,), domain=(i, t))
        x[0, 0] = trl.zeros((4096,))
        x[i + 1, 0] = x[i, T - 1]
        x[i, t + 1] = x.sin()
        ctx.output("last", x[i, T - 1])
    return ctx.compile({I: turns, T: steps}, options)


def test_a_call_a_turn_counts_for_each() -> None:
    options = trl.Options(executor="xla")
    one, two, longer = (loop(*size, options) for size in ((5, 3), (5, 7), (25, 3)))
    lowered = one.executable.xla_program
    assert lowered is not None
    calls = [call for call in lowered.calls if call.loop is not None]
    assert len(calls) == 1
    number = calls[0].number
    assert count_calls(lowered)[number] == 3
    found = [p.executable.launches for p in (one, two, longer)]
    a_turn = work(lowered.hlo(number), turns=1).launches
    assert found[0] is not None and found[1] == found[0] + 4 * a_turn
    a_step = (work(longer.executable.xla_program.hlo(number), turns=1).launches - a_turn) // 20
    assert found[2] == found[0] + 3 * 20 * a_step and a_step > 0
    fused = loop(5, 3, options.with_(fuse_iterations=2)).executable
    assert fused.xla_program is not None and fused.launches is None
    assert count_calls(fused.xla_program)[number] == 2


def test_a_turn_of_collecting_launches_as_many_as_its_steps() -> None:
    """F.3: a fixed number per step, plus a fixed number per batch."""
    env = trl.env.make("CartPole-v1", max_steps=30)
    launches: list[int] = []
    text = ""
    for steps in (8, 24):
        task = Task("", env, None, Random({}, env.act_space), 4, steps, 0)
        executable = collecting(task, trl.Options(executor="xla")).executable
        lowered = executable.xla_program
        assert lowered is not None and executable.launches is not None
        (number,) = [call.number for call in lowered.calls if call.counters]
        assert count_calls(lowered) == {number: 1}
        launches.append(executable.launches)
        text = lowered.hlo(number)
    (body,) = re.findall(r' while\(.*body=%([\w.\-]+),.*"known_trip_count":{"n":"24"}', text)
    step = text[text.index(f"%{body} (") :]
    run = re.findall(
        r"^  .* = (?:\(.*\)|\S+) (?:fusion|copy|add)\(", step[: step.index("\n}")], re.M
    )
    assert launches[1] - launches[0] == 16 * len(run) and launches[0] >= 8 * len(run) > 0
