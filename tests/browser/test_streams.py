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
    page.get_by_label("next completion").click()
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


def test_a_stream_is_searched_zoomed_and_saved(browser: Browser) -> None:
    widget = MADE_UP.explore()
    alone = Alone(browser, widget, width=1000)
    page = alone.page
    assert alone.stops() == 1
    find, plot = page.get_by_label("find a kernel"), page.locator(".trl-runs")

    def drawn(kernel: int) -> tuple[float, float]:
        """Return the drawn times of a kernel, from the axis below it."""
        block = plot.locator(f'[data-kernel="{kernel}"]').first
        x, width = (float(block.get_attribute(name) or "") for name in ("x", "width"))
        texts = plot.locator(".trl-axes text").all()
        first, last = texts[0], texts[-2]  # the last label may be moved to the left
        (t0, t1), (x0, x1) = (
            [float((one.text_content() or "").split()[0]) for one in (first, last)],
            [float(one.get_attribute("x") or "") - 78 for one in (first, last)],
        )
        us = (t1 - t0) / (x1 - x0)
        return t0 + us * (x - x0), t0 + us * (x + width - x0)

    assert drawn(2) == pytest.approx((6.0, 9.0), abs=0.05)
    plot.focus()
    page.keyboard.press("+")  # from 2.5 to 7.5 µs
    assert drawn(0) == pytest.approx((1.0, 4.0), abs=0.05)
    expect(page.get_by_role("button", name="2.5 µs – 7.5 µs")).to_be_visible()
    page.keyboard.press("End")
    expect(page.get_by_role("button", name="5 µs – 10 µs")).to_be_visible()
    assert drawn(2) == pytest.approx((6.0, 9.0), abs=0.05)
    page.keyboard.press("/")
    page.keyboard.type("load")
    expect(page.locator(".trl-hits")).to_have_text("2")
    page.keyboard.press("Enter")
    alone.settle()
    assert widget.selected == [0]
    # the window has moved to the end of the found kernel
    expect(page.get_by_role("button", name="1.5 µs – 6.5 µs")).to_be_visible()
    page.keyboard.press("Shift+Enter")
    alone.settle()
    assert widget.selected == [1]
    for selected, zoomed in (([1], True), ([1], False), ([], False)):
        page.keyboard.press("Escape")
        alone.settle()
        assert find.input_value() == "" and widget.selected == selected
        expect(page.get_by_role("button", name=" – ")).to_have_count(int(zoomed))
    plot.locator('[data-kernel="0"]').first.click()
    plot.locator('[data-kernel="2"]').first.click(modifiers=["Shift"])
    alone.settle()
    assert widget.selected == [0, 2]
    assert "2 add&lt;b&gt; at a.py:3: 3 µs" in alone.save("save streams as SVG")
    assert alone.said == []
    page.close()
