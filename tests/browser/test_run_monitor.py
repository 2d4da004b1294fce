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
    area = figure.locator("svg[role=img]").bounding_box()
    assert area is not None
    left, wide = area["x"] + 56, area["width"] - 56 - 14

    def values() -> list[tuple[int, float]]:
        """Return the drawn turns with their outputs, by the ticks of the axes."""
        texts = figure.locator(".trl-axes text").all()
        ends = list[tuple[float, float, float, float]]()
        for anchor, name in (("middle", "x"), ("end", "y")):
            ticks = [one for one in texts if one.get_attribute("text-anchor") == anchor]
            first, last = (
                (float(one.text_content() or ""), float(one.get_attribute(name) or ""))
                for one in (ticks[0], ticks[-1])
            )
            ends.append((*first, *last))
        (x0, p0, x1, p1), (y0, q0, y1, q1) = ends
        points = (figure.locator("polyline").first.get_attribute("points") or "").split()
        found = list[tuple[int, float]]()
        for point in points:
            px, py = (float(text) for text in point.split(","))
            x = x0 + (px + 56 - p0) / (p1 - p0) * (x1 - x0)
            y = y0 + (py + 8 - q0 + 3.5) / (q1 - q0) * (y1 - y0)
            found.append((round(x), y))
        return found

    wanted = [(turn, float(value)) for turn, value in enumerate(returned)]

    def is_drawn() -> bool:
        return [turn for turn, _ in values()] == [turn for turn, _ in wanted] and [
            value for _, value in values()
        ] == pytest.approx([value for _, value in wanted], abs=0.05)

    assert is_drawn()
    page.mouse.move(left + 0.45 * wide, area["y"] + 20)
    page.mouse.down()
    page.mouse.move(left + 0.75 * wide, area["y"] + 20, steps=4)
    page.mouse.up()
    button = figure.get_by_role("button", name=" – ")
    begin, end = (7 * share for share in (0.45, 0.75))
    shown = [float(text) for text in button.inner_text().removesuffix(" ×").split(" – ")]
    assert shown == pytest.approx([begin, end], abs=0.05)
    assert is_drawn()
    # the values at the pointer
    page.mouse.move(left + (5 - begin) / (end - begin) * wide, area["y"] + 20)
    expect(figure.locator(".trl-chart-legend")).to_have_text(
        f"return: {wanted[5][1]:#.3g} at turn 5"
    )
    page.get_by_label("speed").focus()
    page.keyboard.press("Escape")
    expect(button).to_have_count(0)
    assert is_drawn()
    assert ">return<" in alone.save("save run as SVG")
    assert alone.said == []
    page.close()
