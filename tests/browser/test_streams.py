"""The widget of kernel streams, without Jupyter."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.alone import Alone
from tests.unit.streams.test_streams_view import MADE_UP

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "dark"), [(1000, False), (360, True)])
def test_a_run_is_stepped_by_completion(browser: Browser, width: int, dark: bool) -> None:
    widget = MADE_UP.explore()
    alone = Alone(browser, widget, width=width, dark=dark)
    page = alone.page
    region = page.get_by_role("region", name="Streams")
    status, rows = region.locator(".trl-status"), region.locator("tbody tr")
    expect(status).to_have_text("0 of 3 completed, 2 in the window")
    page.get_by_label("one completion on").click()
    expect(status).to_have_text("1 of 3 completed, 2 in the window")
    expect(rows.nth(1)).to_have_text("22 add<b>pending1")
    page.get_by_label("kernels completed").focus()
    page.keyboard.press("ArrowRight")
    expect(rows).to_have_count(1)
    expect(rows.first).to_have_text("22 add<b>executing")
    alone.settle()
    assert widget.step == 2
    region.locator('[data-kernel="2"]').first.click()
    alone.settle()
    assert widget.selected == [2]
    expect(region.locator("tr.trl-selected th")).to_have_text("2")
    # with both upstream kernels: on the track, and in the slot before and during its execution
    assert region.locator(".trl-kernel[stroke-dasharray]").count() == 2 * 3
    assert alone.said == []
    page.close()
