"""Swapping under a device budget: same results, peak as predicted, or an early error."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.pixels import pixels
from tests.unit.checks import assert_memory_is_sound, leaving, with_swaps
from timerl_nb.base.errors import BudgetError, ExecutionError
from timerl_nb.base.runtime_events import Event
from timerl_nb.compiler.loops.loop_nodes import Fetch, Offload
from timerl_nb.compiler.memory.budget.swapping import SLACKS, Slack, Swaps
from timerl_nb.compiler.symbolic.index_expressions import Slice
from timerl_nb.driver.search.budget_suggestions import fit_suggestions
from timerl_nb.runtime.engine import load_engine
from timerl_nb.runtime.interpreter.swap_transfers import THREAD
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend

BOUNDS = {"B": 16, "I": 3, "T": 12}
STEP_BY_STEP = trl.Options(vectorize=("b",))


@pytest.fixture(scope="module")
def monte_carlo() -> tuple[trl.Program, trl.Result]:
    program = pixels().compile(BOUNDS, STEP_BY_STEP)
    return program, program.execute(seed=4)


def threads() -> list[str]:
    gc.collect()
    return [t.name for t in threading.enumerate() if t.name.startswith(THREAD)]


def assert_same_bits(have: trl.Result, want: trl.Result) -> None:
    for name, value in want.items():
        np.testing.assert_array_equal(have[name], value)
    for name, value in want.parameters.items():
        np.testing.assert_array_equal(have.parameters[name], value)


@pytest.mark.parametrize("share", [0.95, 0.8, 0.5, 0.25])
def test_a_run_stays_below_its_budget_and_gives_the_same_bits(
    monte_carlo: tuple[trl.Program, trl.Result], share: float
) -> None:
    program, want = monte_carlo
    budget = leaving(program, share)
    swapped = program.with_options(device_memory=budget)
    assert swapped.memory.needed <= budget < program.memory.needed
    assert swapped.memory.timeline().host_peak > 0
    events: list[Event] = []
    result = swapped.execute(seed=4, on_event=events.append)
    assert_same_bits(result, want)
    assert_memory_is_sound(swapped, result, events)
    assert {"offload", "fetch"} <= {event.kind for event in events}
    assert result.memory.host_peak == swapped.memory.timeline().host_peak
    compiles = swapped.executable.compiles()
    assert all(count == 1 for count in compiles.values()), compiles
    assert not threads()


def test_swaps_show_in_every_stage(monte_carlo: tuple[trl.Program, trl.Result]) -> None:
    program = monte_carlo[0].with_options(device_memory=leaving(monte_carlo[0], 0.5))
    text = str(program.ast)
    assert "offload state' @ (i, t - 1)" in text
    assert "fetch state' @ (i, t)" in text
    assert "state': from acting.h0 until learning, 33 times" in str(program.memory)
    assert "def offload_V2(i, t):" in program.executable.source
    assert "on the host" in program.stages["memory"].summary
    kinds = {node["node"] for node in nodes(program.ast.to_json()["root"])}
    assert {"offload", "fetch"} <= kinds
    assert "offload" in program.ast.to_dot()
    assert "offload state" in program.ast.to_svg()
    line = program.memory.timeline()
    total = sum(line.by_tensor.values()) + line.transient
    np.testing.assert_array_equal(total, line.bytes)
    assert sum(h.nbytes for h in line.holders) == line.peak


def nodes(node: Any) -> list[Any]:
    parts = [*node.get("parts", []), *(node[k] for k in ("body", "then", "else") if k in node)]
    return [node, *(x for part in parts for x in nodes(part))]


def test_nothing_is_swapped_without_need(monte_carlo: tuple[trl.Program, trl.Result]) -> None:
    program = monte_carlo[0].with_options(device_memory=monte_carlo[0].memory.needed)
    assert not program.memory.swaps.all
    assert not any(isinstance(node, Offload | Fetch) for node in program.ast)


def test_n_step_needs_no_swapping_where_monte_carlo_does() -> None:
    budget = {"device_memory": 52_000, "vectorize": ("b",)}
    n_step = pixels(3).compile(BOUNDS, trl.Options(**budget))
    assert not n_step.memory.swaps.all
    assert pixels().compile(BOUNDS, trl.Options(**budget)).memory.swaps.all


def test_blocks_are_fetched_at_once() -> None:
    """Values swapped out one by one return together for a statement that reads several."""
    with trl.Context("k", "t") as ctx:
        (k, K), (t, T) = ctx.dims
        x = trl.tensor((64,), "f32", domain=(t,)).named("x")
        x[0] = trl.random.normal((64,))
        x[t + 1] = (x * 1.5).sin()
        y = trl.tensor((64,), "f32", domain=(k,)).named("y")
        y[0] = x[T - 1]
        y[k + 1] = (y + x[4 * k : 4 * k + 4].sum(axis=0)).cos()
        ctx.output("y", y)
    program = ctx.compile({K: 5, T: 16})
    want = program.execute()
    swapped = program.with_options(device_memory=leaving(program, 0.5))
    events: list[Event] = []
    result = swapped.execute(on_event=events.append)
    assert_same_bits(result, want)
    assert_memory_is_sound(swapped, result, events)
    ranges = [n for n in swapped.ast if isinstance(n, Fetch) and isinstance(n.point[0], Slice)]
    assert ranges, str(swapped.ast)


def test_large_values_leave_while_others_are_computed() -> None:
    """With enough room, they stay on the device until copied."""
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.tensor((1 << 14,), "f32", domain=(t,))
        x[0] = trl.random.normal((1 << 14,))
        x[t + 1] = (x * 1.5).sin()
        ctx.output("x", x)
    program = ctx.compile({"T": 12})
    swapped = program.with_options(device_memory=(8 << 16) + program.memory.overhead_bytes)
    assert swapped.memory.swaps.slack == SLACKS[0]
    events: list[Event] = []
    result = swapped.execute(on_event=events.append)
    assert_memory_is_sound(swapped, result, events)
    assert_same_bits(result, program.execute())


def test_outputs_wait_on_the_host() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((256,), "f32", domain=(t,))
        x[0] = trl.random.normal((256,))
        x[t + 1] = (x * 1.5).sin()
        ctx.output("x", x)
    program = ctx.compile({T: 20})
    swapped = program.with_options(device_memory=5 * 1024 + program.memory.overhead_bytes)
    assert_same_bits(swapped.execute(), program.execute())
    assert swapped.memory.timeline().host[-1] > 10 * 1024


# --- threads ---------------------------------------------------------------------------------------


def test_a_failing_copy_is_an_error_at_its_instruction(
    monte_carlo: tuple[trl.Program, trl.Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = monte_carlo[0].with_options(device_memory=leaving(monte_carlo[0], 0.5))
    count = 0
    original = backend.to_host

    def fail(array: Any) -> Any:
        nonlocal count
        count += 1
        if count == 5:
            raise MemoryError("no page-locked memory left")
        return original(array)

    monkeypatch.setitem(vars(load_engine("jax")), "to_host", fail)
    with pytest.raises(ExecutionError, match="cannot be copied to the host: no page") as caught:
        program.execute()
    assert "pixels.py" in str(caught.value)
    assert not threads()
    monkeypatch.undo()
    assert_same_bits(program.execute(seed=4), monte_carlo[1])


def test_no_thread_outlives_an_interrupted_run(
    monte_carlo: tuple[trl.Program, trl.Result],
) -> None:
    program = monte_carlo[0].with_options(device_memory=leaving(monte_carlo[0], 0.5))
    seen: list[str] = []

    def interrupt(event: Event) -> None:
        if event.kind == "fetch":
            seen.extend(threads())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.execute(on_event=interrupt)
    assert seen, "the thread was there"
    assert not threads()


def test_stepping_swaps_and_ends_its_thread(monte_carlo: tuple[trl.Program, trl.Result]) -> None:
    program = monte_carlo[0].with_options(device_memory=leaving(monte_carlo[0], 0.5))
    kinds: set[str] = set()
    while (instruction := program.step()) is not None:
        kinds.add(instruction.kind)
        assert program.stores is not None
    assert kinds == {"execute", "free", "offload", "fetch"}
    assert not threads()
    program.step()
    del program
    assert not threads()


# --- budgets that cannot be met --------------------------------------------------------------------


def test_a_budget_that_nothing_can_meet_is_an_error_beforehand() -> None:
    options = trl.Options(device_memory="40KiB", swap=False)
    with pytest.raises(BudgetError) as caught:
        pixels().compile({"B": 64, "I": 3, "T": 12}, options)
    error = caught.value
    text = str(error)
    assert error.needed > 40 * 1024
    assert f"needs {error.needed:,} bytes on the device, but the budget is 40,960 bytes" in text
    assert re.search(r"the peak is at step [\d,]+ of [\d,]+", text)
    assert re.search(r"is computed at pixels\.py:\d+: ", text)
    assert "device_memory=" in error.hint
    (bound,) = map(int, re.findall(r"B = (\d+) would do", error.hint))
    pixels().compile({"B": 64, "I": 3, "T": 12}, options.with_(device_memory=error.needed))
    pixels().compile({"B": bound, "I": 3, "T": 12}, options)


def test_the_hint_names_options_that_fit() -> None:
    def need(changes: Mapping[str, Any], bounds: Mapping[str, int]) -> int:
        return 10 if changes.get("vectorize") == ("b", "i") or bounds.get("B", 8) <= 2 else 100

    bounds = {"b": ("B", 8), "i": ("I", 2), "t": ("T", 4)}
    hint = fit_suggestions(["device_memory=100 would do"], {}, 50, trl.Options(), bounds, need)
    assert hint == "device_memory=100 would do; vectorize=('b', 'i') would do; B = 2 would do."
    hint = fit_suggestions(["it"], {}, 50, trl.Options(), bounds, need, ("t",))  # tried before
    assert hint == "it; B = 2 would do."


def test_a_budget_decides_what_is_vectorised() -> None:
    program = pixels().compile({"B": 64, "I": 3, "T": 12}, trl.Options(device_memory=400_000))
    assert all("400,000 bytes" in c.why for c in program.stages["vectorize"].choices)
    assert program.memory.needed <= 400_000


def test_large_observations_are_planned_in_seconds() -> None:
    """256 environments, 3 x 256 x 256 observations, 1,000 steps: planned, not run.

    Observations that fit stay on the device.
    """
    bounds = {"B": 256, "I": 100, "T": 1000}
    options = trl.Options(vectorize=("b",), device_memory="2GiB")
    program = pixels(side=256).compile(bounds, options)
    line = program.memory.timeline()
    observation = 256 * 3 * 256 * 256 * 4
    assert 5 * observation < line.peak < 2 << 30
    assert 990 * observation < line.host_peak < 998 * observation
    assert len(line.time) > 300_000
    assert program.stages["memory"].seconds < 30


def test_what_never_runs_has_nothing_to_swap() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal(domain=(t,))
        ctx.output("x", x)
        with pytest.warns(trl.errors.TimeRLWarning, match="never holds"):
            ctx.output("never", x[(t % 3 == 1) & (t % 3 == 0)].tanh())
    program = ctx.compile({T: 4}, trl.Options(vectorize=False))
    assert program.memory.swap_search.classes(Slack(0, 0))
    assert program.execute()["never"].shape == (0,)


def ending_sums(at_most: int, **options: Any) -> trl.Program:
    """A recurrence two steps back that ends at a condition."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal((2,), domain=(t,))
        y = trl.tensor((2,), "f32", domain=(t,)).named("y")
        y[t < 2] = x
        y[t + 2] = 0.5 * y[t] + x[t + 1]
        ctx.output("y", y)
        done = x.sum() > 0.3
    return ctx.compile({T: trl.until(done, at_most=at_most)}, trl.Options(**options))


def test_gaps_are_those_of_the_ceiling_where_a_dimension_ends_early() -> None:
    """A value that outlives the run has a single last use, for any length."""
    program = ending_sums(3)
    classes = program.memory.swap_search.classes(Slack(0, 0))
    last: dict[str, list[int]] = {}
    for swap in classes:
        if swap.ends.after is None:
            last.setdefault(swap.lifetime, []).extend(swap.away.codes)
    assert last
    assert all(len(set(values)) == len(values) for values in last.values())
    plan = program.memory.with_swaps(Swaps(tuple(classes), Slack(0, 0)))
    assert plan.timeline().bytes.min() >= 0


def test_nothing_is_late_where_a_dimension_ends_early() -> None:
    """Swapped-out values are gone when the next point runs, even if intermediate points never run."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal(domain=())
        done = (trl.random.uniform(domain=(t,)) < 2) & (x < 100)
        ctx.output("last", trl.constant(np.zeros(300, np.float32)))
        ctx.output("x", x)
    program = ctx.compile({T: trl.until(done, at_most=4)}, trl.Options(fuse=False))
    slack = Slack(3, 0)
    swaps = Swaps(tuple(program.memory.swap_search.classes(slack)), slack)
    run = with_swaps(program, swaps)
    run.complete()
    assert run.ledger.peak <= run.executable.plan.peak
    assert run.outputs()["output", "x"] == program.execute(seed=0)["x"]
    run.release()
