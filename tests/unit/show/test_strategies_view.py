"""`c.explore()`: the view of all strategies, and the widget that measures others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from timerl_widgets import StrategiesExplorer

import timerl_nb as trl
from timerl_nb.base.errors import CallError, OptionError
from timerl_nb.collecting.strategy_report import Speed, StrategyReport, StrategyRow
from timerl_nb.show.systems.collection_strategies import StrategiesView

MADE_UP = StrategyReport(
    (
        StrategyRow("slow", "ours", Speed(1e3, 900.0, 1200.0), calls=200, launches=2000, copies=0),
        StrategyRow("none", "Gymnasium", why_not="the environment is no Gymnasium's"),
        StrategyRow("fast", "ours", Speed(3e6, 2e6, 4e6), calls=1, launches=2000, copies=1),
        StrategyRow("left", "ours"),
    ),
    "fast",
    "it leads, 3,000.0 times as fast as slow",
)


def test_the_view_has_the_fastest_first_and_says_why() -> None:
    view = StrategiesView.from_strategies(MADE_UP, "CartPole-v1", 256, 64)
    assert [row.name for row in view.rows] == ["fast", "slow", "left", "none"]
    assert [row.name for row in view.rows if row.is_chosen] == ["fast"]
    assert view.summary == "fast: it leads, 3,000.0 times as fast as slow."
    text = str(view)
    assert "CartPole-v1, N = 256, K = 64" in text and view.summary in text
    assert "* fast: 3,000,000 steps/s (2,000,000 to 4,000,000)" in text
    assert "  none: the environment is no Gymnasium's" in text and "left: not measured" in text
    picture = view.to_svg()
    for said in (
        "✓ fast",
        "3 M steps/s (2 M to 4 M)",
        "1 call, 2,000 launches, 1 copy",
        view.summary,
    ):
        assert said in picture, said
    assert view.to_json()["rows"][1]["speed"] == {"median": 1e3, "least": 900.0, "greatest": 1200.0}


@pytest.fixture
def widget(monkeypatch: pytest.MonkeyPatch) -> Iterator[StrategiesExplorer]:
    asked: list[tuple[int, int]] = []

    def strategies_for(self: Any, envs: int, steps: int) -> StrategyReport:
        asked.append((envs, steps))
        if envs == 13:
            raise OptionError("thirteen is refused.")
        return MADE_UP

    monkeypatch.setattr("timerl_nb.collecting.Collector.strategies_for", strategies_for)
    with trl.collect("CartPole-v1", trl.policies.random, envs=2, steps=4) as c:
        made = c.explore()
        made.asked = asked
        yield made


def ask(widget: Any, **message: Any) -> None:
    widget._handle_custom_msg({"kind": "collect", **message}, [])
    assert widget.wait(10)


def test_other_numbers_are_measured_once(widget: Any) -> None:
    assert isinstance(widget, StrategiesExplorer) and widget.asked == [(2, 4)]
    ask(widget, envs=8, steps=16)
    assert (widget.drawn.envs, widget.drawn.steps, widget.problem) == (8, 16, "")
    assert widget.view["json"]["envs"] == 8
    ask(widget, envs=2, steps=4)
    assert widget.asked == [(2, 4), (8, 16)] and widget.drawn.envs == 2


def test_what_cannot_be_measured_is_said_and_what_is_shown_stays(widget: Any) -> None:
    for message in ({"envs": 0, "steps": 4}, {"envs": 1.5, "steps": 4}, {"steps": 4}):
        ask(widget, **message)
        assert "positive integers" in widget.problem
    ask(widget, envs=13, steps=4)
    assert "thirteen is refused" in widget.problem and widget.drawn.envs == 2
    widget._handle_custom_msg({"kind": "compare"}, [])
    assert "not a request to measure strategies" in widget.problem
    ask(widget, envs=3, steps=4)
    assert widget.problem == "" and widget.drawn.envs == 3


def test_a_saved_page_has_the_picture(widget: Any) -> None:
    made, _ = widget._repr_mimebundle_()
    assert "✓ fast" in made["image/svg+xml"] and "it leads" in made["text/plain"]
    with pytest.raises(CallError, match="a collector"):
        StrategiesExplorer(7)


def test_ways_are_measured_for_other_numbers() -> None:
    with trl.collect("CartPole-v1", trl.policies.random, envs=2, steps=3, how="scan") as c:
        before = c.next()
        strategies = c.strategies_for(3, 2)
        one = next(row for row in strategies if row.name == strategies.chosen)
        assert one.speed is not None and one.calls is not None
        after = c.next()
        assert before.obs.shape == after.obs.shape == (3, 2, 4)
        assert (before.last_obs == after.obs[0]).all()  # it has continued
        with pytest.raises(Exception, match="envs"):
            c.strategies_for(0, 3)
