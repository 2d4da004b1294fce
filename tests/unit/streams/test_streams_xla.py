"""Jitted functions as streams: XLA's launches, dependences, and unrolled loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import CallError, ExecutionError
from timerl_nb.runtime.xla.hlo.hlo_cost_counts import work
from timerl_nb.streams.kernel_declaration import Kernel
from timerl_nb.streams.recorders.jax_function import record_xla, stream_of

# A loop of three iterations with two kernels, one kernel after it, and a loop of unknown length.
TEXT = """HloModule m, is_scheduled=true

%body (p: (s32[], f32[512])) -> (s32[], f32[512]) {
  %p = (s32[], f32[512]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[512]{0} get-tuple-element(%p), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %y = f32[512]{0} multiply(%x, %x)
  ROOT %out = (s32[], f32[512]{0}) tuple(%next, %y)
}

%condition (q: (s32[], f32[512])) -> pred[] {
  %q = (s32[], f32[512]{0}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %end = s32[] constant(3)
  ROOT %less = pred[] compare(%j, %end), direction=LT
}

ENTRY %main (a: f32[512]) -> (f32[512], f32[1]) {
  %a = f32[512]{0} parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[512]{0}) tuple(%zero, %a)
  %loop = (s32[], f32[512]{0}) while(%start), condition=%condition, body=%body, backend_config={TRIPS}
  %last = f32[512]{0} get-tuple-element(%loop), index=1
  %sum = f32[512]{0} add(%last, %a)
  %part = f32[1]{0} slice(%sum), slice={[0:1]}
  ROOT %all = (f32[512]{0}, f32[1]{0}) tuple(%sum, %part)
}
"""
KNOWN = TEXT.replace("TRIPS", '"known_trip_count":{"n":"3"}')


def test_a_loop_of_known_length_is_unrolled() -> None:
    stream = stream_of(KNOWN, "m")
    names = [k.name for k in stream.kernels]
    assert names == ["next", "y"] * 3 + ["sum", "part"]
    assert len(names) == work(KNOWN).launches
    # counters wait for counters, the array for the array; the sum for the last iteration's
    assert stream.edges == ((), (), (0,), (1,), (2,), (3,), (5,), (6,))
    y = stream.kernels[1]
    assert (y.blocks, y.operations, y.nbytes) == (2, 512.0, 3 * 4 * 512)
    assert sum(k.operations for k in stream.kernels) == work(KNOWN).elements
    assert sum(k.nbytes for k in stream.kernels) == work(KNOWN).nbytes


def test_no_buffer_is_written_twice() -> None:
    written = [s.buffer for k in stream_of(KNOWN, "m").kernels for s in k.writes]
    assert len(written) == len(set(written))


def test_a_loop_of_unknown_length_turns_as_often_as_is_said() -> None:
    with pytest.raises(ExecutionError, match="at_most"):
        stream_of(TEXT, "m")
    stream = stream_of(TEXT, "m", at_most=2)
    assert [k.name for k in stream.kernels] == ["less", "next", "y"] * 2 + ["sum", "part"]
    # an iteration waits for its condition, because the condition's value decides whether it runs
    assert [stream.edges[k] for k in range(6)] == [(), (0,), (0,), (0, 1), (1, 3), (2, 3)]
    assert len(stream_of(TEXT, "m", at_most=0)) == 2


def test_a_loop_of_which_a_cpu_makes_one_kernel_is_a_loop() -> None:
    """XLA calls short loops as a separate computation."""

    @jax.jit
    def f(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda v: v.sum() < 100, lambda v: v * 2, x)

    x = jax.ShapeDtypeStruct((4,), jnp.float32)
    with pytest.raises(ExecutionError, match="is unknown to XLA"):
        trl.streams.record(f, x)
    some, more = (len(trl.streams.record(f, x, at_most=k)) for k in (2, 5))
    assert more - some == 6  # a condition and a body for each


def test_a_jitted_function_has_as_many_kernels_as_launches() -> None:
    def f(x: jax.Array) -> jax.Array:
        def turn(carry: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jnp.tanh(carry @ carry) + k, carry.sum()

        last, sums = jax.lax.scan(turn, x, jnp.arange(5.0))
        return jnp.sort(last.ravel()) + sums.sum()

    jitted = jax.jit(f)
    x = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    text = jitted.lower(x).compile().as_text() or ""
    stream = record_xla(jitted, x)
    assert stream.name == "f"
    assert len(stream) == work(text).launches > 5
    assert work(text).is_exact
    assert sum(k.operations for k in stream.kernels) == work(text).products + work(text).elements
    # iterations are sequential, and all kernels except the last have dependents
    assert max(stream.depths) >= 5
    waited = {u for upstream in stream.edges for u in upstream}
    assert len(stream) - 1 not in waited


def test_branches_wait_for_what_decides() -> None:
    def f(x: jax.Array) -> jax.Array:
        return jax.lax.cond(x.sum() > 0, lambda y: jnp.sort(y @ y), lambda y: y, x)

    stream = record_xla(jax.jit(f), jnp.ones((8, 8)))
    assert len(stream) >= 3
    assert max(stream.depths) >= 3


def test_it_is_one_of_the_recorders_and_runs_nowhere_else() -> None:
    jitted = jax.jit(lambda x: jnp.sort(x @ x))
    x = jnp.ones((8, 8))
    stream = trl.streams.record(jitted, x)
    assert stream.edges == record_xla(jitted, x).edges and len(stream) >= 2
    assert stream.simulate("acs-hw").count == len(stream)
    with pytest.raises(ExecutionError, match="simulate"):
        stream.run("window")


def test_what_is_not_jitted_is_refused() -> None:
    with pytest.raises(CallError, match=r"jax.jit"):
        record_xla(lambda x: x, 1.0)


def kernels_of(function: Callable[..., Any], *args: Any) -> list[Kernel]:
    return list(trl.streams.record(jax.jit(function), *args).kernels)


def test_a_kernel_that_updates_a_row_has_the_blocks_of_a_row() -> None:
    """The length of the stacked array does not matter."""

    def stacked(rows: jax.Array) -> Any:
        return jax.lax.scan(lambda c, row: (c * 0.9 + row, jnp.tanh(c)), jnp.zeros((8, 64)), rows)

    for length in (10, 40):
        found = kernels_of(stacked, jnp.ones((length, 8, 64)))
        updates = [k for k in found if "dynamic-update" in k.name or "dynamic_update" in k.name]
        assert len(updates) == length
        assert {k.blocks for k in updates} == {2}  # 512 elements
        assert all(k.operations <= 3 * 512 and k.nbytes <= 4 * 4 * 512 for k in updates)


SLICES = """HloModule m

%fused (p: f32[4096], i: s32[]) -> f32[256] {
  %p = f32[4096]{0} parameter(0)
  %i = s32[] parameter(1)
  %squares = f32[4096]{0} multiply(%p, %p)
  ROOT %part = f32[256]{0} dynamic-slice(%squares, %i), dynamic_slice_sizes={256}
}

%updated (q: f32[4096], u: f32[512], j: s32[]) -> f32[4096] {
  %q = f32[4096]{0} parameter(0)
  %u = f32[512]{0} parameter(1)
  %j = s32[] parameter(2)
  %new = f32[512]{0} add(%u, %u)
  ROOT %all = f32[4096]{0} dynamic-update-slice(%q, %new, %j)
}

%computed (r: f32[4096], v: f32[512], k: s32[]) -> f32[4096] {
  %r = f32[4096]{0} parameter(0)
  %v = f32[512]{0} parameter(1)
  %k = s32[] parameter(2)
  %other = f32[4096]{0} negate(%r)
  ROOT %both = f32[4096]{0} dynamic-update-slice(%other, %v, %k)
}

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %main (x: f32[4096], y: f32[512], n: s32[], at: s32[512,1]) -> (f32[256], f32[4096], f32[4096], f32[4096], f32[512], f32[4096]) {
  %x = f32[4096]{0} parameter(0)
  %y = f32[512]{0} parameter(1)
  %n = s32[] parameter(2)
  %at = s32[512,1]{1,0} parameter(3)
  %one = f32[256]{0} fusion(%x, %n), kind=kLoop, calls=%fused
  %two = f32[4096]{0} fusion(%x, %y, %n), kind=kLoop, calls=%updated
  %three = f32[4096]{0} fusion(%x, %y, %n), kind=kLoop, calls=%computed
  %four = f32[4096]{0} scatter(%x, %at, %y), update_window_dims={}, to_apply=%sum
  %five = f32[512]{0} gather(%x, %at), slice_sizes={1}
  %six = f32[4096]{0} dynamic-update-slice(%x, %y, %n)
  ROOT %all = (f32[256]{0}, f32[4096]{0}, f32[4096]{0}, f32[4096]{0}, f32[512]{0}, f32[4096]{0}) tuple(%one, %two, %three, %four, %five, %six)
}
"""


def test_costs_are_of_the_elements_that_are_touched() -> None:
    found = {k.name: (k.blocks, k.operations, k.nbytes) for k in stream_of(SLICES, "m").kernels}
    f, i = 4, 4  # bytes
    assert found["one"] == (1, 256.0, 256 * f + i + 256 * f)
    assert found["two"] == (2, 512.0, 512 * f + i + 512 * f)
    assert found["three"] == (16, 4096.0, 4096 * f + 512 * f + i + 4096 * f)  # not in place
    assert found["four"] == (2, 512.0, 2 * 512 * f + 512 * i)
    assert found["five"] == (2, 0.0, 2 * 512 * f + 512 * i)
    assert found["six"] == (2, 0.0, 2 * 512 * f)
