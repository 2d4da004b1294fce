"""The widget of a recording, without Jupyter."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect
from timerl_widgets import ScopeView

from benchmarks.scope.simulated import Process, recording
from tests.browser.alone import Alone
from tests.reinforce import reinforce
from timerl_nb.scope import Recording

pytestmark = pytest.mark.browser


def test_a_recording_is_looked_into(browser: Browser) -> None:
    program = reinforce(hidden=(4,)).compile({"B": 2, "I": 3, "T": 4})
    widget = ScopeView(program.scope())
    alone = Alone(browser, widget, width=1000)
    page = alone.page
    assert widget.stretch["json"]["end"] == widget.drawn.end  # requested by the page
    rows = page.locator(".trl-rows [role=option]")
    assert rows.count() == len({one.operation for one in widget.drawn.times})
    launch = next(one for one in widget.drawn.operations if one.op_ids)
    page.get_by_role("option", name=launch.name, exact=True).click()
    alone.settle()
    assert widget.operation == launch.name and set(widget.selected) <= set(launch.op_ids)
    assert page.locator(".trl-rows .trl-selected").count() == 1
    canvas = page.locator(".trl-lanes")
    canvas.focus()
    page.keyboard.press("+")
    alone.settle()
    shown = widget.stretch["json"]
    assert round((shown["end"] - shown["begin"]) * 2 / widget.drawn.end, 2) == 1
    page.keyboard.press("0")
    alone.settle()
    assert widget.stretch["json"]["end"] == widget.drawn.end
    page.keyboard.press("Escape")
    alone.settle()
    assert (widget.operation, widget.selected) == ("", [])
    page.locator(".trl-scope [role=listbox]").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".trl-rows .trl-selected")).to_have_count(1)
    page.locator("summary", has_text="Transitions").click()
    expect(page.locator("details[open] tbody tr").first).to_be_visible()
    assert alone.said == []
    page.close()


def test_a_launch_is_its_kernel_in_the_explorer_and_back(browser: Browser) -> None:
    program = reinforce(hidden=(4,)).compile({"B": 2, "I": 3, "T": 4})
    program = program.with_options(executor="interpret")  # a launch is a kernel
    explorer = program.explore(ahead=False)
    widget = program.scope().explore(explorer=explorer)
    kernels = {op.label: op.id for op in program.fused if op.label in ("acting", "learning")}
    alone = Alone(browser, widget, width=1000)
    page = alone.page
    page.get_by_role("option", name="learning", exact=True).click()
    alone.settle()
    # but not operations fused into it, parts of which are in other kernels
    assert explorer.selected == [kernels["learning"]]
    assert widget.operation == "learning"
    explorer.selected = [kernels["acting"]]
    alone.settle()
    marked = page.locator(".trl-rows .trl-selected")
    expect(marked).to_have_count(1)
    expect(marked).to_have_attribute("aria-label", "acting")
    assert (widget.operation, widget.selected) == ("", [kernels["acting"]])
    assert alone.said == []
    page.close()


def test_a_kernel_leads_to_the_operation_that_launched_it(browser: Browser) -> None:
    process = Process()
    for name in ("infer", "learn"):
        with process.within(name):
            process.runs("backend", 30_000, [400_000])
            process.waits()
    widget = ScopeView(recording([process]))
    alone = Alone(browser, widget, width=800)
    page = alone.page
    canvas = page.locator(".trl-lanes")
    expect(canvas).to_have_attribute("aria-label", re.compile("1 thread and 1 device"))
    expect(page.locator(".trl-legend")).to_contain_text("device: kernel")
    area = canvas.bounding_box()
    assert area is not None
    # the last strip above the axis
    canvas.click(position={"x": area["width"] - 60, "y": area["height"] - 33})
    alone.settle()
    assert widget.operation == "learn"
    expect(page.locator(".trl-tip")).to_have_text("kernel\n400 µs")
    page.locator("summary", has_text="Devices").click()
    rows = page.locator("details[open] tbody tr")
    assert rows.all_inner_texts() == [
        "1\t0: simulated GPU\tkernel\tin all\t2\t800 µs\t96 %",
        "1\t0: simulated GPU\tkernel\tkernel\t2\t800 µs\t96 %",
    ]
    assert alone.said == []
    page.close()


def _share(page: Page, operation: int) -> float:
    """Return the drawn share of an operation in the visible part of the operations' track."""
    area = page.evaluate(
        """(of) => {
            const lanes = document.querySelector(".trl-lanes svg");
            const ground = lanes.querySelector(".trl-of-operation > rect").getBBox();
            const d = lanes.querySelector(`[data-operation="${of}"]`).getAttribute("d");
            const boxes = [...d.matchAll(/h([\\d.]+)v([\\d.]+)/g)];
            const filled = boxes.reduce((sum, [, w, h]) => sum + w * h, 0);
            return filled / (ground.width * ground.height);
        }""",
        operation,
    )
    return float(area)


def test_a_recording_is_searched_zoomed_and_saved(browser: Browser) -> None:
    process = Process()
    for name, us in (("infer", 100), ("learn", 700), ("infer", 200)):
        with process.within(name):
            process.runs("backend", us * 1000)
    widget = ScopeView(recording([process]))
    alone = Alone(browser, widget, width=1000)
    page = alone.page
    assert alone.stops() == 2  # the pane, and its list
    find, count = page.get_by_label("find an operation"), page.locator(".trl-hits")
    page.get_by_role("listbox").focus()
    page.keyboard.press("/")
    expect(find).to_be_focused()
    page.keyboard.type("lea")
    expect(count).to_have_text("1")
    expect(page.locator(".trl-rows .trl-found")).to_have_attribute("aria-label", "learn")
    page.keyboard.press("Enter")
    alone.settle()
    expect(count).to_have_text("1 of 1")
    assert widget.operation == "learn"
    # the middle of the recording, by dragging
    plot = page.locator(".trl-lanes")
    end, area = widget.drawn.end, plot.bounding_box()
    assert area is not None
    left, wide = area["x"] + 122, area["width"] - 122
    middle = area["y"] + 8
    page.mouse.move(left + 0.4 * wide, middle)
    page.mouse.down()
    page.mouse.move(left + 0.9 * wide, middle, steps=4)
    expect(page.locator(".trl-brush")).to_have_count(1)
    page.mouse.up()
    alone.settle()
    shown = widget.stretch["json"]
    assert (shown["begin"] / end, shown["end"] / end) == pytest.approx((0.4, 0.9), abs=0.01)
    at = {one.name: k for k, one in enumerate(widget.drawn.operations)}
    learned = (0.8 - shown["begin"] / end) / (shown["end"] / end - shown["begin"] / end)
    assert _share(page, at["learn"]) == pytest.approx(learned, abs=0.03)
    assert _share(page, at["infer"]) == pytest.approx(1 - learned, abs=0.03)
    ticks = [
        float(text.split()[0])
        for text in page.locator(".trl-lanes .trl-axes text").all_text_contents()
    ]
    assert len(ticks) > 2 and all(shown["begin"] <= us * 1000 <= shown["end"] for us in ticks)
    # Escape ends the search, then the zoom, then the selection
    find.focus()
    for state in (("", False, "learn"), ("", True, "learn"), ("", True, "")):
        page.keyboard.press("Escape")
        alone.settle()
        whole = widget.stretch["json"]["end"] == end
        assert (find.input_value(), whole, widget.operation) == state
    assert _share(page, at["learn"]) == pytest.approx(0.7, abs=0.01)
    saved = alone.save("save scope as SVG")
    assert saved.startswith("<svg") and ">learn<" in saved and "700 µs" in saved
    assert alone.said == []
    page.close()


def test_an_empty_recording_is_shown_in_the_dark(browser: Browser) -> None:
    alone = Alone(browser, ScopeView(Recording((), ("",))), dark=True)
    expect(alone.page.locator(".trl-note")).to_have_text("nothing was recorded")
    assert alone.said == []
    alone.page.close()
