"""The widget of a run, without Jupyter."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect
from timerl_widgets import RunMonitor

from tests.browser.alone import Alone
from tests.reinforce import reinforce

pytestmark = pytest.mark.browser


def test_a_run_is_searched_zoomed_and_saved(browser: Browser) -> None:
    program = reinforce(hidden=(4,)).compile({"B": 2, "I": 8, "T": 4})
    running = program.start()
    widget = RunMonitor(program, running)
    returned = running.result()["return"]
    alone = Alone(browser, widget, width=1000)
    page = alone.page
    expect(page.locator(".trl-state")).to_have_text("finished")
    assert alone.stops() == 1
    page.get_by_label("speed").focus()
    page.keyboard.press("/")
    page.keyboard.type("return")
    found = page.locator(".trl-figures-of-run .trl-found")
    expect(found.locator("dd")).to_have_text(f"{float(returned[-1].mean()):#.4g}")
    page.keyboard.press("Escape")
    expect(found).to_have_count(0)
    # dragging zooms the curve, and Escape shows all of it
    figure = page.get_by_role("figure", name="outputs by turn")
    area = figure.locator(".u-over").bounding_box()
    assert area is not None
    legend = figure.locator(".u-legend .u-value").first

    def turn_at(share: float) -> int:
        """Return the turn at a horizontal position of the plot."""
        page.mouse.move(area["x"] + share * area["width"], area["y"] + 20)
        return int(legend.inner_text())

    whole = [turn_at(0.02), turn_at(0.98)]
    page.mouse.move(area["x"] + 0.45 * area["width"], area["y"] + 20)
    page.mouse.down()
    page.mouse.move(area["x"] + 0.75 * area["width"], area["y"] + 20, steps=4)
    page.mouse.up()
    zoomed = [turn_at(0.02), turn_at(0.98)]
    assert whole == [0, 7] and 0 < zoomed[0] < zoomed[1] < 7
    page.get_by_label("speed").focus()
    page.keyboard.press("Escape")
    assert [turn_at(0.02), turn_at(0.98)] == whole
    assert ">return<" in alone.save("save run as SVG")
    assert alone.said == []
    page.close()
