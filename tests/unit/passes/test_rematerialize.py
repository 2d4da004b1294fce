"""Activations, stored or recomputed: values, product counts, memory, and reasons."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import assert_same
from timerl_nb.base.errors import BudgetError, OptionError
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.driver.search.measured_plan_tuning import tune_plan
from timerl_nb.show import ComparisonView, MemoryView, memory_timeline

BOUNDS = {"B": 16, "I": 4, "T": 20}
LARGE = {"B": 4096, "I": 4, "T": 250}


@cache
def context() -> trl.Context:
    env = trl.env.make("synthetic", obs_shape=(6,))
    return trl.algorithms.reinforce(env, hidden=[8, 8])


COMPILED: dict[str, trl.Program] = {}  # shared by several tests


def compiled(bounds: dict[str, int] = BOUNDS, **options: object) -> trl.Program:
    key = f"{bounds} {options}"
    if "tune" in options:  # each looks up earlier measurements
        COMPILED.pop(key, None)
    if key not in COMPILED:
        how = trl.Options(**{"executor": "xla", **options})
        COMPILED[key] = context().compile(bounds, how)
    return COMPILED[key]


def again(program: trl.Program) -> list[str]:
    """Return the names of recomputed values."""
    stage = program.stages["rematerialize"]
    assert stage.previous is not None
    ops = {k for step in stage.steps if step.rule == "compute again" for k in step.before}
    return [stage.previous[k].label for k in sorted(ops) if stage.previous[k].label]


def products(hlo: str) -> int:
    """Return the number of matrix products of a compiled program, times loop iterations."""
    bodies = dict(re.findall(r"^(?:ENTRY )?%(\S+) \(.*?\{\n(.*?)^\}", hlo, re.M | re.S))
    (entry,) = re.findall(r"^ENTRY %(\S+)", hlo, re.M)

    def count(name: str) -> int:
        total = 0
        for line in bodies[name].splitlines():
            turns = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
            called = re.findall(r"(?:body|calls|to_apply)=%([\w.\-]+)", line)
            total += " dot(" in line
            total += sum(map(count, called)) * (int(turns[1]) if turns else 1)
        return total

    return count(entry)


@pytest.mark.parametrize("fuse", [True, False])
def test_the_graph_means_the_same(fuse: bool) -> None:
    bounds = {"B": 2, "I": 2, "T": 5}
    want = Reference(context().pdg(), bounds, seed=1).outputs()
    for block in (2, 3) if fuse else (2,):
        program = compiled(bounds, rematerialize=True, incrementalize={"t": block}, fuse=fuse)
        assert again(program) == ["h0", "h1"]
        assert_same(want, Reference(program.fused, bounds, seed=1).outputs(), f"blocks of {block}")


def test_the_numbers_are_those_of_what_is_kept() -> None:
    kept = compiled(rematerialize=False).execute(seed=5)
    anew = compiled(rematerialize=True, incrementalize={"t": 5}).execute(seed=5)
    for name, value in [*kept.items(), *kept.parameters.items()]:
        found = anew[name] if name in kept else anew.parameters[name]
        np.testing.assert_allclose(found, value, rtol=2e-4, atol=2e-5, err_msg=name)


def test_a_block_multiplies_again_what_is_not_kept() -> None:
    """Acting has three products per step, learning five, plus the three recomputed ones."""
    counts = {}
    for mode in (False, True):
        program = compiled(rematerialize=mode, incrementalize={"t": 5})
        lowered = program.executable.xla_program
        assert lowered is not None
        counts[mode] = products(lowered.hlo(2))
    steps, blocks = BOUNDS["T"], BOUNDS["T"] // 5
    assert counts[False] == 3 * steps + 4 * blocks
    assert counts[True] == counts[False] + 3 * blocks


def test_large_values_are_computed_again_and_small_ones_kept() -> None:
    large = compiled(LARGE)
    assert again(large) == ["h0", "h1"]
    kept = large.with_options(rematerialize=False)
    assert large.memory.peak < kept.memory.peak
    (choice,) = large.stages["rematerialize"].choices
    assert choice.taken.name == "mixed" and "saves memory" in str(choice)
    small = large.with_bounds(BOUNDS)
    assert again(small) == []
    assert "incrementalize" in str(small.pipeline)
    stage = small.stages["rematerialize"]
    assert stage.previous is not None
    reasons = {stage.previous[op_id].label: stage.why(op_id) for op_id in stage.previous.ops}
    assert "not worth it" in str(reasons["h0"])


def test_what_keeps_a_peak_down_is_said_beside_it() -> None:
    large, whole = compiled(LARGE), compiled(LARGE, rematerialize=False, incrementalize=False)
    (blocks,) = large.stages["incrementalize"].choices
    how = ["recomputed", f"in {blocks.taken.doc}"]
    assert list(large.memory.saved_by) == how and not whole.memory.saved_by
    assert large.memory.saved_by[how[1]] == blocks.why
    said = ", ".join(how)
    view = MemoryView.from_program(large)
    assert f"peak {large.memory.peak:,} bytes, {said}" in repr(large)
    assert f"  {how[0]}: that saves memory" in str(large.memory)
    assert view.to_json()["saved_by"] == large.memory.to_json()["saved_by"]
    assert all(said in text for text in (str(view), view.to_svg(), large.memory.to_svg()))
    assert f"memory saved by: nothing -> {said}" in str(ComparisonView.from_programs(whole, large))
    enough = large.with_options(
        device_memory=large.memory.needed
    ).memory  # the same, and who says so
    assert list(enough.saved_by) == how and "the options require it" not in enough.saved_by.values()
    titles = [a.text for a in memory_timeline({"large": large, "whole": whole}).layout.annotations]
    assert titles[0].endswith(f"<br>{said}") and "<br>" not in titles[1]


def test_what_the_options_say_is_told_as_such() -> None:
    program = compiled(rematerialize=True, incrementalize={"t": 5})
    why = "the options require it"
    assert program.memory.saved_by == {"recomputed": why, "in blocks of 5 along t": why}


def test_what_cannot_be_computed_again_says_why() -> None:
    program = compiled(rematerialize=True, incrementalize={"t": 5})
    stage = program.stages["rematerialize"]
    assert stage.previous is not None
    (reward,) = [op for op in stage.previous if op.label == "r"]
    assert re.search("needs .*state.* neither stored", str(stage.why(reward.id)))


def test_what_ends_by_a_dimension_is_not_computed_again_along_it() -> None:
    """Recomputed for all b, a value of T steps would need one T. Regression: a broken graph."""
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, _), (t, T) = ctx.dims
        count = trl.tensor((), domain=(b,)).named("count")
        count[b == 0] = trl.constant(0.25)
        count[b + 1] = (count * 0.5).tanh()
        x = trl.random.normal((), domain=(b, i, t), stream="x").named("x")
        back = trl.tensor((), domain=(b, i, t)).named("back")
        back[t == T - 1] = x
        back[t < T - 1] = x + 0.5 * back[b, i, trl.min(t + 1, T - 1)]
        ctx.output("sum", back[0:B, 0, 0].sum(axis=0).tanh())
        ctx.output("count", count)
        done = trl.random.uniform((), domain=(b, t), stream="done") < 0.4
    bounds = {"B": 3, "I": 2, "T": trl.until(done, at_most=4)}
    program = ctx.compile(bounds, trl.Options(rematerialize=True))
    want = Reference(program.source_graph, program.bounds, seed=2).outputs()
    assert_same(want, program.execute(seed=2), "computed again")


def test_less_memory_where_there_is_no_more() -> None:
    kept = compiled(rematerialize=False, incrementalize=False, executor="interpret")
    enough = compiled(rematerialize=True, incrementalize={"t": 1}, executor="interpret")
    budget = (kept.memory.needed + 3 * enough.memory.needed) // 4
    program = compiled(device_memory=budget, swap=False, executor="interpret")
    assert program.memory.needed <= budget
    assert again(program)


@pytest.mark.usefixtures("no_cache_yet")
def test_tuning_measures_a_few_ways_and_remembers_the_fastest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMERL_CACHE", str(tmp_path))
    bounds = {"B": 4, "I": 3, "T": 4}
    program = compiled(bounds, tune=True)
    tuning = program.tuning
    assert tuning is not None and not tuning.remembered and "measured" in str(tuning)
    assert tuning.seconds.keys() == {
        "whole",
        *(f"blocks of {n} along t, {how}" for n in (1, 2) for how in ("stored", "recomputed")),
    }
    assert tuning.seconds[tuning.taken] == min(tuning.seconds.values()) > 0
    assert program.options == tuning.options and not program.options.tune
    again = compiled(bounds, tune=True).tuning
    assert again is not None and again.remembered and again.seconds == tuning.seconds
    assert compiled(bounds).tuning is None


def test_tuning_leaves_out_what_does_not_fit() -> None:
    bounds = {"B": 4, "I": 2, "T": 3}
    whole = compiled(bounds, rematerialize=False, incrementalize=False)
    least = compiled(bounds, rematerialize=True, incrementalize={"t": 1})
    budget = (
        least.memory.needed + whole.memory.needed
    ) // 2  # with the extra memory of XLA's buffers
    assert least.memory.needed < budget < whole.memory.needed
    program = compiled(bounds, tune=True, device_memory=budget, swap=False)
    assert program.memory.needed <= budget
    assert program.tuning is not None and "whole" not in program.tuning.seconds
    with pytest.raises(BudgetError, match="needs"):
        compiled({"B": 4, "I": 2, "T": 2}, tune=True, device_memory=100, swap=False)


def test_where_no_way_fits_the_passes_choose() -> None:
    program = compiled({"B": 4, "I": 3, "T": 4})
    last = program.stages["fuse"].previous
    assert last is not None

    def measure(options: trl.Options) -> float:
        if options.incrementalize != "auto":
            raise BudgetError("too much", needed=1)
        return 1.0

    tuning = tune_plan(last, program.bounds, program.options, measure)
    assert tuning.options == program.options and list(tuning.seconds.values()) == [1.0]


def test_tuning_does_nothing_to_the_world() -> None:
    with trl.Context("t") as ctx:
        (t, T) = ctx.dims[0]
        x = trl.random.normal((), domain=(t,))
        ctx.output("x", x)
        trl.parameter((), name="w")
        seen: list[float] = []
        trl.udf(seen.append, x, out=[])
    with pytest.raises(OptionError, match="effects on the host"):
        ctx.compile({T: 3}, trl.Options(tune=True))
    assert not seen


def test_the_option_says_what_is_possible() -> None:
    with pytest.raises(OptionError, match='"auto", True or False'):
        trl.Options(rematerialize="always")
    assert "rematerialize" not in str(compiled(rematerialize=False).pipeline)
