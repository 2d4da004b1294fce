"""Speculative compilation: time, choice of programs, and no delay for the user."""

from __future__ import annotations

import linecache
import math
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from IPython.core.events import EventManager, available_events
from timerl_widgets import Explorer
from timerl_widgets.background_worker import BackgroundWorker
from timerl_widgets.kernel_activity import KernelActivity
from timerl_widgets.speculative_compilation import SpeculativeCompiler, guesses

import timerl_nb as trl
from tests.reinforce import reinforce
from tests.unit.show.test_explorer import arrays, say
from timerl_nb.base.errors import OptionError
from timerl_nb.show import PipelineView

Stages = Callable[[Any], None]


@pytest.fixture(scope="module")
def program() -> trl.Program:
    return reinforce(hidden=(4,)).compile({"B": 3, "I": 4, "T": 6})


def never() -> bool:
    return False


def unheard(_: int) -> None:
    pass


def raised(error: Exception) -> None:
    raise error


def shown(explorer: Explorer) -> int:
    """Return the number of programs compiled by an explorer after a page was open for a while."""
    say(explorer, kind="shown")
    assert explorer._worker.wait(120, spare=True)
    return len(explorer._drawings)


@pytest.fixture(autouse=True)
def patient() -> Iterator[pytest.MonkeyPatch]:
    """Allow speculation on slow machines, too."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("timerl_widgets.speculative_compilation.LIMIT", math.inf)
        patched.setattr("timerl_widgets.speculative_compilation.QUICK", math.inf)
        yield patched


def test_what_a_click_would_change_is_known(program: trl.Program) -> None:
    explorer = program.explore()
    switches = PipelineView.from_program(program).switches
    assert {"lift": False} in switches and {"fuse": False} in switches
    assert not any("tune" in change for change in switches)
    assert switches[0] == {"executor": "xla"} and switches[-1] == {"simplify": False}
    assert shown(explorer) == 1 + len(switches)
    assert explorer.foreseen == {"left": 0, "of": len(switches)}
    explorer.change(lift=False)
    assert explorer.wait(60)
    assert explorer.status["known"] and explorer.status["state"] == "ready"
    fresh = program.with_options(lift=False).explore()
    assert explorer.against == "lift on"
    for name in ("graph", "steps", "loops", "space", "memory", "lineage", "search"):
        assert arrays(getattr(explorer, name)) == arrays(getattr(fresh, name)), name


def test_what_was_not_foreseen_is_compiled(program: trl.Program) -> None:
    explorer = program.explore()
    shown(explorer)
    explorer.change(lift=False, accumulate=False)
    assert explorer.wait(60)
    assert not explorer.status["known"]
    assert explorer.program.options == trl.Options(lift=False, accumulate=False)


def test_nothing_is_compiled_ahead_where_nobody_looks_or_wants_it(program: trl.Program) -> None:
    unseen, unwanted = program.explore(), program.explore(ahead=False)
    assert unseen._worker.wait(60, spare=True) and len(unseen._drawings) == 1
    assert shown(unwanted) == 1 and unwanted.foreseen == {}


def test_a_widget_that_is_closed_compiles_nothing(program: trl.Program) -> None:
    explorer = program.explore()
    say(explorer, kind="shown")
    explorer.close()
    assert explorer._worker.wait(60, spare=True)
    assert explorer.foreseen["left"] == explorer.foreseen["of"]


def test_of_a_program_that_compiles_long_little_is_guessed(
    program: trl.Program, patient: pytest.MonkeyPatch
) -> None:
    patient.undo()
    switches = PipelineView.from_program(program).switches
    assert sorted(map(str, guesses(switches, 1.0))) == sorted(map(str, switches))
    assert guesses(switches, 1.0)[-2:] == ({"fuse": False}, {"vectorize": False})
    assert guesses(switches, 2.0) == guesses(switches, 1.0)[:-2]
    assert guesses(switches, 5.0) == ()
    patient.setattr("timerl_widgets.speculative_compilation.LIMIT", 0.0)
    assert shown(program.explore()) == 1


def test_warnings_are_of_what_is_asked_for() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal((), domain=(t,))
        ctx.output("y", x[t:T].max())
    program = ctx.compile({T: 100})
    explorer = program.explore()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown(explorer)
        explorer.change(lift=False, vectorize=False)
        assert explorer.wait(60)
    (told,) = explorer.status["warnings"]
    assert "is read in slices" in told and told == explorer.program.warnings[0]
    with pytest.warns(UserWarning, match="is read in slices") as heard:
        program.with_options(lift=False, vectorize=False)
    (one,) = heard
    assert told == f"test_speculative_compilation.py:{one.lineno}: {one.message}"
    assert one.filename == __file__ and "x[t:T].max()" in linecache.getline(__file__, one.lineno)


def test_a_guess_is_left_where_somebody_waits_and_taken_up_again() -> None:
    waiting, made, left = [True], list[dict[str, Any]](), list[int]()

    def make(change: dict[str, Any], check: Stages) -> None:
        check(None)
        made.append(change)

    ahead = SpeculativeCompiler(
        make, ({"lift": False}, {"fuse": False}), lambda: waiting[0], never, left.append
    )
    assert ahead() and made == []
    waiting[0] = False
    assert ahead() and made == [{"lift": False}]
    assert not ahead() and made == [{"lift": False}, {"fuse": False}]
    assert left == [1, 0]


def test_what_cannot_be_compiled_ends_with_itself() -> None:
    made = list[dict[str, Any]]()

    def make(change: dict[str, Any], _: Stages) -> None:
        if "lift" in change:
            raise OptionError("no.")
        made.append(change)

    ahead = SpeculativeCompiler(make, ({"lift": False}, {"fuse": False}), never, never, unheard)
    assert ahead() and not ahead() and made == [{"fuse": False}]


def test_guesses_wait_for_runs_and_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, made = [True], list[object]()
    ahead = SpeculativeCompiler(
        lambda change, _: made.append(change), ({"lift": False},), never, lambda: runs[0], unheard
    )
    assert ahead() and not made
    runs[0] = False
    monkeypatch.setattr("timerl_widgets.speculative_compilation.runs_a_cell", lambda: True)
    assert ahead() and not made
    monkeypatch.undo()
    assert not ahead() and made


def test_cells_are_heard_of() -> None:
    class Shell:
        events: EventManager

    shell = Shell()
    shell.events = EventManager(shell, available_events)
    cells = KernelActivity(shell)
    assert not cells.running
    shell.events.trigger("pre_execute")
    assert cells.running
    shell.events.trigger("post_execute")
    assert not cells.running
    assert not KernelActivity(None).running


def test_jobs_go_before_what_nobody_waits_for() -> None:
    worker, begun, go = BackgroundWorker("test", raised), threading.Event(), threading.Event()
    done = list[str]()

    def piece() -> bool:
        begun.set()
        assert go.wait(10)
        done.append("piece")
        return len(done) < 4

    worker.run_in_background(piece, 0.01)
    assert begun.wait(10)
    worker.ask("job", lambda: done.append("job"))
    assert worker.waits and not worker.wait(0.01)
    go.set()
    assert worker.wait(10) and done[:2] == ["piece", "job"]
    assert worker.wait(10, spare=True) and done == ["piece", "job", "piece", "piece"]


def test_an_error_of_what_nobody_waits_for_ends_it() -> None:
    worker, done = BackgroundWorker("test", raised), list[int]()

    def piece() -> bool:
        done.append(1)
        raise KeyError("no such thing")

    worker.run_in_background(piece, 0.01)
    assert worker.wait(10, spare=True) and done == [1]
    worker.ask("job", lambda: done.append(2))
    assert worker.wait(10) and done == [1, 2]
