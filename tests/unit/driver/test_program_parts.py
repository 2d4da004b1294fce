"""The parts of a program, tested without the class `Program`: compilation, variation, run preparation."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import BoundsError, BudgetError, OptionError
from timerl_nb.compiler.symbolic.dimensions import Ceiling
from timerl_nb.driver.budget_confirmation import compile_within_budget
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.compile_request import CompileRequest
from timerl_nb.driver.compiling.compiler import Compiler
from timerl_nb.driver.program_compilation import compile_program
from timerl_nb.driver.program_runs.assumed_ceiling import double_ceiling, find_assumed_ceilings
from timerl_nb.driver.program_runs.iteration_timing import measure_iteration
from timerl_nb.driver.program_runs.program_run import make_run, run_to_end, start_run
from timerl_nb.driver.program_runs.run_preparation import (
    RunRequest,
    prepare_watched_run,
    prepare_whole_run,
)
from timerl_nb.driver.program_runs.stepped_run import SteppedRun
from timerl_nb.driver.program_variation import raise_reached_ceiling, vary
from timerl_nb.driver.stages import CompileObserver
from timerl_nb.runtime.xla.lowering.lowered_program import Lowered


def requested(**options: Any) -> CompileRequest:
    """A recurrence that runs iteration by iteration."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[0] = 0.0
        x[t + 1] = (x + 2.0).cos()
        ctx.output("x", x)
    given = trl.Options(**{"executor": "interpret", **options})
    return CompileRequest(Compiler(ctx.pdg()), ctx, {"T": 5}, given)


def compiled(**options: Any) -> Compilation:
    return compile_program(requested(**options))


def test_a_compilation_is_immutable() -> None:
    found = compiled()
    for field in dataclasses.fields(found):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(found, field.name, None)
    assert found.bounds == {"T": 5} and found.source[1].artifact is found.pdg
    assert found.fused is found.memory.pdg and found.ast is found.stages["ast"].artifact
    assert str(found.pipeline) == str(trl.Program(found).pipeline)


def test_a_request_without_effect_is_refused() -> None:
    with pytest.raises(OptionError, match="vectorize contains 'q'"):
        requested(vectorize=("q",))
    with pytest.raises(OptionError, match="tune=True has no effect"):
        requested(tune=True, incrementalize=2, rematerialize=False)


def test_stages_are_shown_as_they_are_made() -> None:
    seen: list[str] = []
    found = compile_within_budget(
        requested(), observer=CompileObserver(lambda stage: seen.append(stage.name))
    )
    assert seen == [name for name in found.stages if name not in ("source", "pdg")]


def test_other_bounds_reuse_the_front_and_other_options_do_not() -> None:
    first = compiled(incrementalize=False, rematerialize=False)
    request, front = vary(first, {"T": 7}, None)
    assert request.bounds == {"T": 7} and front is first.front
    request, front = vary(first, None, {"lift": False})
    assert not request.options.lift and front is None
    assert first.options.lift and first.bounds == {"T": 5}, "the first compilation is unchanged"
    with pytest.raises(BoundsError, match="Q is not a bound of this program"):
        vary(first, {"Q": 7}, None)


def test_a_ceiling_is_doubled_until_it_is_too_large() -> None:
    bounds = {"B": 3, "T": Ceiling(8, "done", raised=True)}
    assert find_assumed_ceilings(bounds) == ["T"]
    doubled = double_ceiling(bounds, "T")
    assert doubled == {"B": 3, "T": 16} and find_assumed_ceilings(doubled) == ["T"]
    assert find_assumed_ceilings({"T": Ceiling(8, "done")}) == []
    bounds["T"] = Ceiling(1 << 17, "done", raised=True)
    with pytest.raises(BoundsError, match="is false at the first 131,072 points"):
        double_ceiling(bounds, "T")


def test_only_a_reached_ceiling_asks_for_another_compilation() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[0] = 0.0
        x[t + 1] = x + 1.0
        ctx.output("x", x)
        program = ctx.compile({T: trl.until(x >= 3.0)})
    found = program._compiled
    assert find_assumed_ceilings(found.bounds) == ["T"]
    assert raise_reached_ceiling(found, {"T": np.array(4)}) is None
    varied = raise_reached_ceiling(found, {"T": np.array(found.bounds["T"])})
    assert varied is not None and varied[0].bounds["T"] == 2 * found.bounds["T"]
    assert raise_reached_ceiling(compiled(), {}) is None


def test_runs_need_no_program() -> None:
    found = compiled()
    want = [0.0]
    for _ in range(4):
        want.append(np.cos(want[-1] + 2.0))
    prepared = prepare_whole_run(found, RunRequest(0, progress=False))
    assert prepared.compiled is found, "nothing exceeds a budget"
    np.testing.assert_allclose(run_to_end(prepared)["x"], want, rtol=1e-5)
    watched = prepare_watched_run(found, RunRequest(0))
    running = start_run(watched, paused=False, speed=None)
    np.testing.assert_allclose(running.result()["x"], want, rtol=1e-5)
    turns: list[int] = []
    run = make_run(found, 0, lambda count=1: turns.append(count))
    run.complete()
    run.release()
    assert sum(turns) == found.executable.progress().turns
    assert measure_iteration(found)[1] > 0


def test_a_prepared_run_holds_checked_arguments(tmp_path: Path) -> None:
    found = compiled()
    events: list[object] = []
    request = RunRequest(3, events.append, ["x"], checkpoint=tmp_path / "run", every=2)
    prepared = prepare_whole_run(found, request)
    assert prepared.seed == 3 and not (tmp_path / "run").exists(), "nothing is opened yet"
    run_to_end(prepared)
    assert events and (tmp_path / "run").is_dir()
    for wrong, text in (
        (RunRequest(0, outputs=["y"]), "there is no output 'y'"),
        (RunRequest(0, every=2), "without a checkpoint"),
        (RunRequest(0, events.append, resume=tmp_path / "run"), "leave out on_event"),
        (RunRequest(2**64), "64 bits"),
    ):
        with pytest.raises(OptionError) as caught:
            run_to_end(prepare_whole_run(found, wrong))
        assert re.search(text, str(caught.value)), caught.value


def test_a_stepped_run_starts_over_at_its_end() -> None:
    found, run = compiled(), SteppedRun()
    counts = []
    for _ in range(2):
        assert not run.has_begun and run.stores == {}
        steps = 0
        while run.step(found, 0) is not None:
            steps += 1
        counts.append(steps)
    assert counts[0] == counts[1] > 0


@pytest.mark.filterwarnings("ignore::timerl_nb.base.errors.TimeRLWarning")
def test_a_program_refused_at_its_run_remains_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA states more bytes than any decision can save."""
    needed = compiled(executor="xla").memory.needed
    found = compiled(executor="xla", device_memory=needed)
    stated = Lowered.temporaries.func  # type: ignore[attr-defined]
    monkeypatch.setattr(Lowered, "temporaries", property(lambda self: stated(self) + (1 << 16)))
    program = trl.Program(found)
    for _ in range(2):
        with pytest.raises(BudgetError, match=rf"needs [\d,]+ bytes .* the budget is {needed:,}"):
            program.execute(progress=False)
        assert program.stages is found.stages and program.options.budget == needed
