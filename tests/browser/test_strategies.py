"""The widget of the strategies of collecting, in a page of its own."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, expect

import timerl_nb as trl
from tests.browser.alone import Alone
from tests.unit.show.test_strategies_view import MADE_UP
from timerl_nb.base.errors import OptionError

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "dark"), [(1000, False), (360, True)])
def test_ways_are_measured_by_keyboard(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, width: int, dark: bool
) -> None:
    def strategies_for(self: Any, envs: int, steps: int) -> Any:
        if envs > 1000:
            raise OptionError("that is too many.")
        return MADE_UP

    monkeypatch.setattr("timerl_nb.collecting.Collector.strategies_for", strategies_for)
    with trl.collect("CartPole-v1", trl.policies.random, envs=2, steps=4) as c:
        widget = c.explore()
    alone = Alone(browser, widget, width=width, dark=dark)
    page = alone.page
    region = page.get_by_role("region", name="Strategies")
    expect(region.locator(".trl-summary")).to_have_text(MADE_UP.summary)
    bars = region.locator("svg.trl-bars > g")
    assert bars.count() == len(MADE_UP)
    wide = [bars.nth(k).locator("rect").nth(1).bounding_box() for k in (0, 1)]
    assert wide[0] and wide[1] and wide[0]["width"] > 100 * wide[1]["width"]
    assert region.evaluate("one => one.scrollWidth <= one.clientWidth")
    envs, steps = page.get_by_label("environments, N"), page.get_by_label("steps per batch, K")
    assert (envs.input_value(), steps.input_value()) == ("2", "4")
    page.locator("#before").focus()
    page.keyboard.press("Tab")
    expect(envs).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("64")
    page.keyboard.press("Enter")
    alone.settle()
    assert (widget.drawn.envs, widget.drawn.steps) == (64, 4)
    expect(region.locator(".trl-status")).to_have_text("")
    envs.fill("2000")
    page.keyboard.press("Enter")
    alone.settle()
    expect(region.locator(".trl-status")).to_contain_text("that is too many")
    assert widget.drawn.envs == 64
    envs.fill("64")
    page.keyboard.press("ArrowRight")
    expect(steps).to_be_focused()
    page.locator("summary", has_text="as a table").click()
    expect(region.locator("tr[aria-current] th")).to_have_text("fast")
    assert alone.said == []
    page.close()


def test_a_strategy_is_found_selected_and_saved(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timerl_nb.collecting.Collector.strategies_for", lambda *_: MADE_UP)
    with trl.collect("CartPole-v1", trl.policies.random, envs=2, steps=4) as c:
        widget = c.explore()
    alone = Alone(browser, widget, width=1000)
    page = alone.page
    assert alone.stops() == 2  # the pane, and its list
    bars = page.get_by_role("listbox", name="strategies").get_by_role("option")
    names = [row.name for row in widget.drawn.rows]
    page.locator("summary", has_text="as a table").click()
    page.keyboard.press("/")
    page.keyboard.type("measured")
    expect(page.locator(".trl-hits")).to_have_text("1")
    page.keyboard.press("Enter")
    alone.settle()
    assert [names[k] for k in widget.selected] == ["left"]
    row = page.locator("tr.trl-selected")
    expect(row).to_have_text("leftoursnot measured")
    page.keyboard.press("Escape")
    page.get_by_role("listbox", name="strategies").focus()
    page.keyboard.press("ArrowUp")
    alone.settle()
    assert [names[k] for k in widget.selected] == ["slow"]
    bars.nth(0).click()
    alone.settle()
    assert [names[k] for k in widget.selected] == ["fast"]
    expect(bars.nth(0)).to_have_attribute("aria-selected", "true")
    row = page.locator("tbody tr", has_text="slow")
    row.click(modifiers=["Shift"])
    alone.settle()
    assert [names[k] for k in widget.selected] == ["fast", "slow"]
    page.keyboard.press("Escape")
    alone.settle()
    assert widget.selected == [] and page.locator(".trl-selected").count() == 0
    assert widget.drawn.summary in alone.save("save strategies as SVG")
    assert alone.said == []
    page.close()
