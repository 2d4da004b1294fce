"""A function's argument as a slider in a real JupyterLab: views follow, and it can be swept."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Lab, Watched
from tests.browser.opened import open_and_run, write

pytestmark = pytest.mark.browser

FUNCTION = """
import timerl_nb as trl

def reinforce(steps):
    if steps == 7:
        raise ValueError("seven is not tried")
    return trl.algorithms.reinforce(steps=steps, hidden=(4,))
"""
EXPLORE = """
bounds = {"B": 3, "I": 30, "T": 12}
explorer = trl.explore(reinforce, bounds, steps=[1, 5, 7, 12, None])
explorer
"""


def test_a_slider_is_followed_and_swept(watched: Watched, lab: Lab) -> None:
    page = watched.page
    write(lab, "sweep.ipynb", FUNCTION, EXPLORE)
    open_and_run(page, lab, "sweep.ipynb")
    slider = page.get_by_role("slider", name="steps")
    value = page.locator(".trl-sliders output")
    expect(slider).to_be_visible(timeout=30_000)
    expect(value).to_have_text("1")
    loops = page.locator(".trl-loops")
    expect(loops).not_to_contain_text("c1 - 4")

    def shows(text: str) -> None:
        expect(value).to_have_text(text)
        expect(page.locator(".trl-settings .trl-status")).to_contain_text("drawn after")

    # five steps: learning is four steps behind acting, and stores five steps
    marks = page.locator(".trl-space svg.trl-plot")
    before, peak = marks.inner_html(), page.locator(".trl-memory .trl-note").inner_text()
    slider.press("ArrowRight")
    expect(loops).to_contain_text("t - 4", timeout=20_000)
    shows("5")
    assert marks.inner_html() != before
    assert page.locator(".trl-memory .trl-note").inner_text() != peak

    # a value without a program is marked at its place, with the reason; the view stays
    slider.press("ArrowRight")
    expect(page.locator(".trl-marks .trl-fails")).to_have_attribute(
        "title", "7: ValueError: seven is not tried", timeout=20_000
    )
    shows_why = page.locator(".trl-settings .trl-status.trl-failed")
    expect(shows_why).to_contain_text("seven is not tried")
    expect(value).to_have_text("5")

    # whole returns, at the right end: learning has no loop
    slider.press("End")
    expect(loops).not_to_contain_text("t - 4", timeout=20_000)
    shows("Monte Carlo")

    # the sweep: all points, those that were measured named; the row of what is shown is marked
    page.get_by_role("button", name="sweep steps").click()
    expect(page.locator(".trl-summary")).to_contain_text("5 predicted", timeout=60_000)
    told = re.compile(r"measured: 1, 5, 12, Monte Carlo$")
    expect(page.locator(".trl-summary")).to_have_text(told, timeout=90_000)
    expect(page.locator(".trl-sweep tbody tr")).to_have_count(5)
    expect(page.locator(".trl-sweep tr[aria-current]")).to_contain_text("Monte Carlo")
    expect(page.locator(".trl-sweep tr.trl-fails")).to_contain_text("seven is not tried")
    expect(page.locator(".trl-sweep-chart polyline")).to_have_count(4)
    page.locator(".trl-sweep tbody button", has_text="12").click()
    expect(value).to_have_text("12")

    # and once more, stopped
    page.get_by_role("button", name="sweep steps").click()
    button = page.locator(".trl-sliders button")
    expect(button).to_have_text("■ stop")
    button.click()
    expect(button).to_have_text("▶ sweep", timeout=30_000)
    expect(page.locator(".trl-summary")).not_to_have_text(told)
    assert watched.errors == [] and watched.outside == []
