"""The mapping widget without Jupyter: a click explains an iteration term by term, and the star moves."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.alone import Alone
from tests.unit.show.test_mappings import swept

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "dark"), [(1000, False), (360, True)])
def test_a_click_tells_the_terms_and_a_slider_moves_the_star(
    browser: Browser, width: int, dark: bool
) -> None:
    widget = swept().explore()
    alone = Alone(browser, widget, width=width, dark=dark)
    page = alone.page
    region = page.get_by_role("region", name="Assignment of primitives to devices")
    star = region.locator(".trl-grid button", has_text="★")
    expect(star).to_have_count(1)
    expect(star).to_have_attribute("aria-label", "replay on CPU, learner on GPU1: 2.2 M/s")
    terms = region.locator(".trl-terms tr")
    assert [one.split("\t")[0] for one in terms.all_inner_texts()[:8]] == [
        "sample", "learn", "insert", "update", "comm", "actors", "memory", "T",
    ]  # fmt: skip
    page.get_by_role("button", name="replay on GPU1, learner on CPU").click()
    alone.settle()
    assert widget.selected == ["GPU1", "CPU"]
    expect(region.locator(".trl-terms caption")).to_have_text("replay on GPU1, learner on CPU")
    expect(terms.nth(1)).to_contain_text("0.6 ms")
    expect(terms.nth(2)).to_contain_text("beside")
    slider = page.get_by_label("bandwidth")
    slider.focus()
    page.keyboard.press("ArrowRight")
    alone.settle()
    assert widget.at == [1]
    expect(star).to_have_attribute("aria-label", "replay on CPU, learner on CPU: 568 k/s")
    expect(region.locator(".trl-summary")).to_contain_text("learner on CPU: 0.902 ms")
    # the selection stays until Escape clears it
    expect(region.locator(".trl-terms caption")).to_have_text("replay on GPU1, learner on CPU")
    page.keyboard.press("Escape")
    alone.settle()
    assert widget.selected == []
    assert alone.said == []
    page.close()


def test_an_assignment_is_found_by_its_devices_and_saved(browser: Browser) -> None:
    widget = swept().explore()
    alone = Alone(browser, widget, width=1000)
    page = alone.page
    assert alone.stops() == 1
    page.get_by_label("bandwidth").focus()
    page.keyboard.press("/")
    page.keyboard.type("learner on cpu")
    found = page.locator(".trl-grid .trl-found")
    expect(found).to_have_count(2)
    cells = [one for one in widget.drawn.cells if one.learner == "CPU"]
    for cell in cells:
        page.keyboard.press("Enter")
        alone.settle()
        assert widget.selected == [cell.manager, cell.learner]
        total = page.locator(".trl-terms .trl-total td")
        expect(total).to_contain_text(f"{cell.seconds * 1e3:.4g} ms")
    page.keyboard.press("Escape")
    alone.settle()
    expect(found).to_have_count(0)
    assert widget.selected == [cells[-1].manager, "CPU"]
    page.keyboard.press("Escape")
    alone.settle()
    assert widget.selected == []
    saved = alone.save("save mapping as SVG")
    assert all(line in saved for line in (widget.drawn.formula, widget.drawn.summary))
    assert alone.said == []
    page.close()
