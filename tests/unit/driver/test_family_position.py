"""The explorer of a function's programs, without a browser: sliders, precompilation, sweeps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from timerl_widgets import Explorer
from timerl_widgets.family_position import FamilyPosition

import timerl_nb as trl
from tests.unit.driver.test_sweeping import BOUNDS, compiled, returns
from tests.unit.show.test_explorer import arrays, say
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.driver.program_family import Family
from timerl_nb.driver.stages import Stages


@pytest.fixture
def explorer() -> Iterator[Explorer]:
    made = trl.explore(returns, BOUNDS, steps=[1, 2, 3, 8, None])
    yield made
    made.close()


def slider(explorer: Explorer) -> dict[str, Any]:
    (one,) = explorer.arguments["arguments"]
    return one


def test_a_list_has_a_slider(explorer: Explorer) -> None:
    labels = ["1", "2", "3", "8", "Monte Carlo"]
    known = {"name": "steps", "at": 0, "labels": labels, "known": [0], "failed": {}}
    assert slider(explorer) == known
    assert compiled().explore().arguments == {}


def test_a_slider_shows_the_program_of_its_value(explorer: Explorer) -> None:
    say(explorer, kind="argument", name="steps", at=4)
    program = compiled()
    assert explorer.program.memory.peak == program.memory.peak
    pinned = program.with_options(incrementalize=False, rematerialize=False)
    for name in ("loops", "space", "memory"):
        fresh = arrays(getattr(pinned.explore(), name))
        assert arrays(getattr(explorer, name)) == fresh, name
    assert slider(explorer)["at"] == 4 and slider(explorer)["known"] == [0, 4]
    explorer.vary(steps=1)
    assert explorer.wait(60) and explorer.status["known"]
    assert slider(explorer)["at"] == 0


def test_changes_go_along_with_the_slider(explorer: Explorer) -> None:
    explorer.change({"T": 6}, lift=False)
    explorer.vary(steps=2)
    assert explorer.wait(60)
    assert explorer.program.bounds == {"I": 5, "T": 6} and not explorer.program.options.lift
    explorer.vary(steps=8)
    assert explorer.wait(60)
    assert explorer.program.bounds == {"I": 5, "T": 6} and not explorer.program.options.lift
    assert slider(explorer)["known"] == [1, 3]
    explorer.change(lift=True)
    assert explorer.wait(60) and slider(explorer)["at"] == 3


def test_a_value_without_a_program_is_marked(explorer: Explorer) -> None:
    explorer.vary(steps=3)
    assert explorer.wait(60)
    assert explorer.status["state"] == "failed" and "three is not tried" in explorer.status["text"]
    assert slider(explorer)["at"] == 0
    assert slider(explorer)["failed"] == {2: "ValueError: three is not tried"}
    explorer.vary(steps=2)
    assert explorer.wait(60) and explorer.status["state"] == "ready"


def test_the_hand_goes_on(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An obsolete compilation is abandoned between two stages."""
    begun, gone, tried = threading.Event(), threading.Event(), list[int]()
    program = Family.program

    def slow(self: Family, at: Any, *rest: Any) -> trl.Program:
        tried.append(at["steps"])
        if at["steps"] == 1:
            begun.set()
            assert gone.wait(60)
        return program(self, at, *rest)

    monkeypatch.setattr(Family, "program", slow)
    made: list[Stages] = []
    monkeypatch.setattr(
        "timerl_nb.driver.compilation.Stages", lambda s: made.append(Stages(s)) or made[-1]
    )
    explorer.vary(steps=2)
    assert begun.wait(60)
    explorer.vary(steps=8)
    gone.set()
    assert explorer.wait(60)
    assert tried == [1, 3] and len(made) == 1
    assert slider(explorer)["at"] == 3 and explorer.status["state"] == "ready"


def test_what_the_hand_comes_to_is_compiled_ahead(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer.vary(steps=8)
    assert explorer.wait(60)
    monkeypatch.setattr("timerl_widgets.explorer.guesses", lambda *_: ({"lift": False},))
    say(explorer, kind="shown")
    assert explorer._worker.wait(120, spare=True)
    assert slider(explorer)["known"] == [0, 1, 3, 4] and list(slider(explorer)["failed"]) == [2]
    assert explorer.foreseen == {"left": 0, "of": 5}
    explorer.vary(steps=None)
    assert explorer.wait(60) and explorer.status["known"]


def test_the_nearest_come_first() -> None:
    place = FamilyPosition(
        Family(returns, {"steps": [*range(5, 45)], "gamma": [0.5, 0.25]}, BOUNDS)
    )
    place.at["steps"] = 10
    near = place.nearest_positions()
    assert len(near) == 16 and near[0] == {"steps": 10, "gamma": 1}
    assert [at["steps"] for at in near[1:5]] == [9, 11, 8, 12]


def test_a_sweep_predicts_all_and_measures_some(explorer: Explorer) -> None:
    explorer.sweep(measure=2)
    assert explorer.wait(120)
    view = explorer.swept
    assert view is not None and view.measured == ("1", "Monte Carlo")
    assert [point.peak is None for point in view.points] == [False, False, True, False, False]
    sent = arrays(explorer.sweeping)
    assert sent["left"] == 0 and sent["summary"] == view.summary
    assert explorer.program.memory.peak == view[1].peak


def test_a_sweep_is_stopped_and_what_is_known_stays(explorer: Explorer) -> None:
    explorer.observe(lambda _: explorer.stop_sweep(), "sweeping")
    say(explorer, kind="sweep", argument="steps")
    assert explorer.swept is not None and len(explorer.swept) == 1
    assert arrays(explorer.sweeping)["left"] == 0


def test_a_sweep_lets_others_pass(explorer: Explorer) -> None:
    asked: list[int] = []

    def ask(_: object) -> None:
        if not asked:
            asked.append(len(arrays(explorer.sweeping)["points"]))
            explorer.vary(steps=8)

    explorer.observe(ask, "sweeping")
    explorer.observe(lambda _: asked.append(len(explorer.swept or ())), "arguments")
    explorer.sweep(measure=0)
    assert explorer.wait(120)
    assert asked == [1, 1] and explorer.swept is not None and len(explorer.swept) == 5


def test_what_cannot_be_asked_for_is_said(explorer: Explorer) -> None:
    with pytest.raises(OptionError, match="no program with steps=7"):
        explorer.vary(steps=7)
    with pytest.raises(OptionError, match="'gamma' is not a list"):
        explorer.sweep("gamma")
    with pytest.raises(OptionError, match="single program without arguments"):
        compiled().explore().sweep()
    for message in (
        {"kind": "argument", "name": "steps", "at": 9},
        {"kind": "argument", "name": "gamma", "at": 0},
        {"kind": "argument", "name": "steps", "at": "1"},
        {"kind": "sweep", "argument": "gamma"},
    ):
        say(explorer, **message)
        assert explorer.status["state"] == "failed", message
        assert slider(explorer)["at"] == 0
    explorer.start(paused=False, speed=5.0)
    with pytest.raises(ExecutionError, match="an active run"):
        explorer.sweep()
