"""Wrong calls of programs, stages, views and widgets raise errors that help."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import timerl_widgets
from timerl_widgets.widget import Widget

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.base.errors import TimeRLError
from timerl_nb.show.recording.recording_figures import scope_figure

PROGRAM = "ctx.compile"
WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "explore beside a text": (lambda p: p.explore("x"), PROGRAM),
    "explore with an unknown option": (lambda p: p.explore(nope=1), "the signature is"),
    "explore a stage by number": (lambda p: p.explore(stage=3), "one of 'source'"),
    "explore a context": (lambda p: timerl_widgets.Explorer(p._compiled.owner), PROGRAM),
    "difference from a program": (lambda p: p.stages["fuse"].diff(p), "other.stages"),
    "why with nothing": (lambda p: p.stages["vectorize"].why(), r"why\(\d+\)"),
    "why by name": (lambda p: p.stages["pdg"].why("acting"), "has no recorded reasons"),
    "a stage as an attribute": (lambda p: p.stages.fuse, re.escape("stages['fuse']")),
    "a program that runs": (lambda p: p.run(), "execute"),
    "a program that shows": (lambda p: p.show(), "explore"),
    "a context that explores": (lambda p: p._compiled.owner.explore(), PROGRAM),
    "bounds by keyword": (lambda p: p.with_bounds(T=3), "the signature is"),
    "options in order": (lambda p: p.with_options("vectorize"), "the signature is"),
    "a call that there is not": (
        lambda p: p.executable.xla_program.jaxpr(99),
        "a number from 1 to",
    ),
    "one artifact beside nothing": (lambda p: trl.show.side_by_side(p.ast), "title"),
    "programs beside each other": (lambda p: trl.show.side_by_side({"a": p}), "program.ast"),
    "memory of one program": (lambda p: trl.show.memory_timeline(p), "title"),
    "memory of a plan": (lambda p: trl.show.memory_timeline({"a": p.memory}), PROGRAM),
    "the space of a context": (
        lambda p: trl.show.iteration_space({"a": p._compiled.owner}),
        PROGRAM,
    ),
    "space of no dimension": (lambda p: trl.show.iteration_space({"a": p}, dim="z"), "b, i, t"),
    "curves of a program": (lambda p: trl.show.learning_curves({"a": p}), "lists of results"),
    "the graph of a program": (lambda p: trl.show.graph_view(p), "program.pdg"),
    "a view of a plan": (lambda p: trl.show.MemoryView.from_program(p.memory), PROGRAM),
    "loops of a nest": (lambda p: trl.show.LoopView.from_program(p.ast), PROGRAM),
    "a pipeline of nothing": (lambda p: trl.show.PipelineView.from_program(None), PROGRAM),
    "steps of a program": (lambda p: trl.show.StepsView.from_stage(p), "stages"),
    "a comparison with a text": (lambda p: trl.show.ComparisonView.from_programs(p, "x"), PROGRAM),
    "an operation by name": (lambda p: trl.show.InspectorView.from_program(p, "a"), "find"),
    "a search of a context": (lambda p: trl.show.Index(p._compiled.owner), PROGRAM),
    "a figure that there is not": (lambda p: trl.show.memory_timelines, "memory_timeline"),
    "a page of a context": (lambda p: trl.show.export_html(p._compiled.owner, "x.html"), PROGRAM),
    "a profile of a context": (lambda p: trl.profile(p._compiled.owner), PROGRAM),
    "a widget of a text": (lambda p: timerl_widgets.PdgView("x"), "program.pdg"),
    "a widget of a plan": (lambda p: timerl_widgets.MemoryTimeline(p.memory), PROGRAM),
    "a recording of a program": (lambda p: timerl_widgets.ScopeView(p), "scope.read"),
    "strategies of a program": (lambda p: timerl_widgets.StrategiesExplorer(p), "trl.collect"),
    "a recording beside a program": (lambda p: p.scope(turns=1).explore(explorer=p), "explore"),
    "a figure of a program": (lambda p: scope_figure(p), "scope.read"),
    "a figure of nothing known": (lambda p: p.scope(turns=1).figure("op"), "operations"),
    "a recording beside a folder": (lambda p: p.scope(turns=1).compare("runs/a"), "scope.read"),
    "a trace as a zip": (lambda p: p.scope(turns=1).perfetto("x.zip"), r"x\.json\.gz"),
    "a recording as JSON": (lambda p: p.scope(turns=1).save("x.json"), "x.scope.zip"),
    "a monitor of a context": (lambda p: timerl_widgets.RunMonitor(p._compiled.owner), PROGRAM),
    "a monitor of no run": (lambda p: timerl_widgets.RunMonitor(p, "x"), "start"),
}


@pytest.fixture(scope="module")
def program() -> trl.Program:
    return reinforce(hidden=(4,)).compile({"B": 2, "I": 3, "T": 4}, trl.Options(executor="xla"))


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_wrong_call_is_told_what_to_do(program: trl.Program, name: str) -> None:
    call, hint = WRONG[name]
    with pytest.raises(TimeRLError) as caught:
        call(program)
    assert re.search(hint, caught.value.hint), caught.value
    assert caught.value.origin.file == __file__


def test_an_explorer_refuses_wrong_changes_at_once(program: trl.Program) -> None:
    explorer = program.explore()
    wrong: Any = "T"
    with pytest.raises(TimeRLError, match="not a mapping of bounds"):
        explorer.change(wrong)
    with pytest.raises(TimeRLError, match="not a compiled program"):
        explorer.compare(wrong)
    assert explorer.status == {"state": "ready"}
    assert isinstance(explorer, Widget)


@pytest.mark.parametrize("name", ["CartPole-v1", "synthetic", "gym.CartPole-v1"])
def test_an_environment_says_what_it_is(name: str) -> None:
    env = trl.env.make(name, autoreset="same_step", max_steps=7)
    assert repr(env) == (
        f"Environment({name}: observations {env.obs_space}, actions {env.act_space}, max_steps=7, "
        "autoreset='same_step')"
    )


def test_a_loss_that_varies_says_over_what_it_is_added_up() -> None:
    with trl.Context("i", "t") as ctx:
        (i, _), (t, _) = ctx.dims
        w = trl.parameter((3,), domain=(i,))
        loss = w * trl.value(t).cast("f32")
        assert repr(loss.backward()) == "gradients of 1 parameter, added up over (t)"
        assert repr(loss.sum(over=t).backward()) == "gradients of 1 parameter"
