"""Swapping under XLA: buffers within the budget, same bits."""

from __future__ import annotations

import gc
import threading
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.pixels import pixels
from tests.reinforce import reinforce
from tests.unit.checks import leaving, lowered_with_swaps
from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.memory.budget.swapping import SLACKS, Slack, Swaps
from timerl_nb.compiler.memory.placement.buffer_layout import Layout
from timerl_nb.compiler.memory.placement.placement_planner import Plans
from timerl_nb.driver.compiling.compile_decision import Decision
from timerl_nb.driver.search.memory_budget_search import Search, SearchResult
from timerl_nb.runtime.engine import load_engine
from timerl_nb.runtime.interpreter.swap_transfers import THREAD
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend

BOUNDS = {"B": 16, "I": 3, "T": 40}
STEP_BY_STEP = trl.Options(vectorize=("b",), executor="xla")


@pytest.fixture(scope="module")
def whole() -> trl.Program:
    return pixels(side=16).compile(BOUNDS, STEP_BY_STEP)


@pytest.fixture(scope="module")
def swapped(whole: trl.Program) -> trl.Program:
    return whole.with_options(device_memory=leaving(whole, 0.25))


def test_layouts_that_differ_in_swaps_share_what_these_do_not_change(whole: trl.Program) -> None:
    plans = Plans(whole._compiled.front.constraints, whole._compiled.front.tree, whole.bounds)
    plan, known = next(iter(plans)).without_extrapolation(), dict[Hashable, Any]()
    moved: set[int] = set()
    for share in (0.8, 0.5, 0.0):
        made = plan.with_swaps_below(int(plan.peak * share))
        moved.add(made.swaps.bytes_moved)
        shared, alone = Layout(made, known), Layout(made)
        assert (shared.homes, shared.merges) == (alone.homes, alone.merges)
        assert shared.latest == alone.latest and shared.nbytes == alone.nbytes
    assert len(moved) > 1 and known


def test_what_swaps_do_not_reach_changes_nothing(whole: trl.Program) -> None:
    """Their kernels are not compiled again."""
    plan = next(
        iter(Plans(whole._compiled.front.constraints, whole._compiled.front.tree, whole.bounds))
    )
    least = plan.with_swaps_below(1)
    for target in (least.peak - 1, least.peak // 2):
        assert [(s.lifetime, s.bytes_moved) for s in plan.with_swaps_below(target).swaps.all] == [
            (s.lifetime, s.bytes_moved) for s in least.swaps.all
        ]


def threads() -> list[str]:
    gc.collect()
    return [t.name for t in threading.enumerate() if t.name.startswith(THREAD)]


def budget(program: trl.Program) -> int:
    assert program.options.budget is not None
    return program.options.budget


def test_buffers_keep_to_the_budget_and_give_the_same_bits(
    whole: trl.Program, swapped: trl.Program
) -> None:
    lowered = swapped.executable.xla_program
    assert lowered is not None, swapped.executable.how
    assert lowered.nbytes + swapped.memory.overhead_bytes <= budget(swapped) < whole.memory.needed
    assert lowered.total_bytes <= budget(swapped)
    want, have = whole.execute(seed=4), swapped.execute(seed=4)
    np.testing.assert_array_equal(have["return"], want["return"])
    for name, value in want.parameters.items():
        np.testing.assert_array_equal(have.parameters[name], value)
    assert 0 < have.memory.host_peak <= swapped.memory.timeline().host_peak
    assert have.memory.peak == lowered.nbytes
    assert not threads()


@pytest.mark.parametrize("share", [0.9, 0.6])
def test_only_what_is_too_much_leaves(whole: trl.Program, share: float) -> None:
    """Only observations beyond some step are swapped: the others have a slot each, these a ring."""
    program = whole.with_options(device_memory=leaving(whole, share))
    plan, lowered = program.memory, program.executable.xla_program
    assert lowered is not None, program.executable.how
    assert lowered.nbytes + plan.overhead_bytes <= budget(program)
    (swap,) = (swap for swap in plan.swaps.all if swap.since is not None)
    assert swap.since is not None
    dim, first = swap.since
    assert dim == "t" and 0 < first < BOUNDS["T"]
    assert f"for t >= {first}" in str(plan)
    excess = whole.memory.needed - budget(program)
    assert excess <= swap.bytes_moved // BOUNDS["I"] <= excess + 4 * swap.away.nbytes
    (axis,) = {one for b in lowered.layout.buffers.values() for one in b.axes if one.prologue}
    assert axis.prologue == first and axis.turns <= 2
    for executor in ("xla", "interpret"):
        want, have = (
            one.with_options(executor=executor).execute(seed=4) for one in (whole, program)
        )
        np.testing.assert_array_equal(have["return"], want["return"])
        for name, value in want.parameters.items():
            np.testing.assert_array_equal(have.parameters[name], value)


def test_long_rings_are_found_where_values_come_back_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Learning's layers return 16 at a time: rings of 32, because all 250 would not fit."""
    kept = (("i", "keep"), ("t", "keep"))
    decided = SearchResult(Decision(kept, blocks=(("t", 16),), swap=True), {})
    monkeypatch.setattr(Search, "find_decision", lambda _, least: decided)
    bounds, options = {"B": 64, "I": 2, "T": 250}, trl.Options(executor="xla", device_memory="3MiB")
    program = reinforce(None, hidden=(64, 64)).compile(bounds, options)
    lowered = program.executable.xla_program
    assert lowered is not None, program.executable.how
    assert program.memory.peak <= lowered.nbytes <= budget(program) - program.memory.overhead_bytes
    assert any(
        axis.ring and axis.size == 32 for b in lowered.layout.buffers.values() for axis in b.axes
    )


def test_what_does_not_touch_a_buffer_does_not_wait_for_its_moves(swapped: trl.Program) -> None:
    """Acting's two kernels are one call, although a value is swapped out between them."""
    lines = str(swapped.executable).splitlines()
    acting = [k for k, line in enumerate(lines) if line.strip().startswith("acting")]
    assert len(acting) == 2 and acting[1] == acting[0] + 1, str(swapped.executable)
    offload = next(k for k, line in enumerate(lines) if "offload state'" in line)
    assert offload > acting[1]
    ast = str(swapped.ast).splitlines()
    order = [line.split("(")[0].split(" @")[0].strip() for line in ast]
    assert order.index("offload state'") < max(
        k for k, name in enumerate(order) if name.startswith("acting")
    )


def test_an_algorithm_within_a_budget_runs_as_xla_programs() -> None:
    env = trl.env.make("synthetic", obs_shape=(3, 16, 16))
    options = STEP_BY_STEP.with_(incrementalize=False, rematerialize=False)
    program = trl.algorithms.reinforce(env).compile({"B": 32, "I": 3, "T": 30}, options)
    tight = program.with_options(device_memory=leaving(program, 0.6))
    assert tight.memory.swaps.all and tight.executable.xla_program is not None, tight.executable.how
    assert tight.memory.swaps.slack == SLACKS[0]  # swap-out has time
    np.testing.assert_array_equal(
        tight.execute(seed=1)["return"], program.execute(seed=1)["return"]
    )


def test_outputs_are_found_in_blocks_that_wait_on_the_host() -> None:
    """Their first row is not the dimension's first."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        x = trl.tensor((256,), domain=(i, t))
        x[i, 0] = trl.ones((256,)) * (trl.value(i) + 1).cast("f32")
        x[i, t + 1] = (x * 0.5 + 1).sin()
        y = x[t >= 2].tanh().named("y")
        ctx.output("y", y)
        ctx.output("most", y[i, 2:T].max(axis=0))
    options = trl.Options(vectorize=False, lift=False, accumulate=False, executor="xla")
    program = ctx.compile({"I": 6, "T": 8}, replace(options, device_memory=32_000))
    assert program.executable.xla_program is not None, program.executable.how
    store = next(s for s in program.memory.stores.values() if s.name == "y")
    assert (store.kind, store.first_row, store.size) == ("block", 2, 6)
    result = program.execute()
    assert result.memory.host_peak == 5 * 6 * 256 * 4
    want = np.repeat(np.arange(1, 7, dtype=np.float32)[:, None], 8, axis=1)
    for k in range(1, 8):
        want[:, k] = np.sin(want[:, k - 1] * 0.5 + 1)
    have = result["y"].reshape(6, 6, 256)
    np.testing.assert_allclose(have, np.tanh(want[:, 2:, None]) + 0 * have, rtol=1e-5)
    np.testing.assert_array_equal(have.max(1), result["most"])


def test_two_blocks_that_are_needed_at_once_have_places_of_their_own() -> None:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, T) = ctx.dims
        x = trl.tensor((8,), domain=(i, t))
        x[i, 0] = trl.random.normal((8,), domain=(i,))
        x[i, t + 1] = (x * 0.5 + 1).sin()
        y = x.tanh().named("y")
        least = y[trl.max(i - 1, 0), 0:T].min(axis=0)
        ctx.output("y", y)
        ctx.output("range", y[i, 0:T].max(axis=0) - least)
    options = trl.Options(vectorize=False, lift=False, accumulate=False, executor="xla")
    program = ctx.compile({"I": 6, "T": 8}, options)
    slack = Slack(0, 0)
    swaps = Swaps(tuple(program.memory.swap_search.classes(slack)), slack)
    run = lowered_with_swaps(program, swaps, seed=1)
    (buffer,) = (b for b in run.lowered.layout.buffers.values() if b.tensors == ("y",))
    assert buffer.slot_counts == (2, 8)
    run.complete()
    have = run.outputs()
    run.release()
    for name, value in program.execute(seed=1).items():
        np.testing.assert_array_equal(have["output", name], value, err_msg=name)


def test_moves_show_in_the_stage_and_in_profiles(swapped: trl.Program) -> None:
    assert "around copies to the host and back" in swapped.stages["executable"].summary
    assert "offload" in str(swapped.executable)
    found = swapped.executable.to_json()["regions"]
    moves = [line for line in _lines(found) if line.startswith(("offload", "fetch"))]
    assert moves
    profile = trl.profile(swapped, turns=2)
    assert profile.executor == "xla"
    assert {copy.verb for copy in profile.copies} == {"offload", "fetch"}


def _lines(parts: list[dict[str, Any]]) -> list[str]:
    inner = [line for part in parts for k in ("parts", "else") for line in _lines(part.get(k, []))]
    return [part["line"] for part in parts if "line" in part] + inner


def test_a_failing_copy_is_an_error(swapped: trl.Program, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def fail(array: Any) -> Any:
        nonlocal count
        count += 1
        if count == 5:
            raise MemoryError("no page-locked memory left")
        return original(array)

    original = backend.to_host
    monkeypatch.setitem(vars(load_engine("jax")), "to_host", fail)
    with pytest.raises(ExecutionError, match="cannot be copied to the host: no page"):
        swapped.execute()
    assert not threads()


def zigzag() -> trl.Context:
    """Values read in another order than made, several times."""
    with trl.Context("k", "t") as ctx:
        (k, K), (t, T) = ctx.dims
        x = trl.tensor((8,), "f32", domain=(t,)).named("x")
        x[0] = trl.random.normal((8,))
        x[t + 1] = (x * 1.5).sin()
        y = trl.tensor((8,), "f32", domain=(k,)).named("y")
        y[0] = x[T - 1]
        y[k + 1] = (y + x[K - 2 - k] * x[k + 3]).cos()
        ctx.output("y", y)
        ctx.output("x", x)
    return ctx


@pytest.mark.parametrize("slack", [Slack(0, 0), Slack(2, 1), Slack(0, 2)])
def test_places_are_taken_again_while_values_are_away(slack: Slack) -> None:
    program = zigzag().compile({"K": 20, "T": 24}, trl.Options(vectorize=False))
    want = program.execute(seed=1)
    swaps = Swaps(tuple(program.memory.swap_search.classes(slack)), slack)
    run = lowered_with_swaps(program, swaps, seed=1)
    run.complete()
    most = max(sum(buffer.slot_counts) for buffer in run.lowered.layout.buffers.values())
    assert most == 6 or slack.ahead  # an earlier return occupies a slot for longer
    have = run.outputs()
    run.release()
    for name, value in want.items():
        np.testing.assert_array_equal(have["output", name], value, err_msg=name)
