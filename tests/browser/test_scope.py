"""The widget of a recording, without Jupyter."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect
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


def test_an_empty_recording_is_shown_in_the_dark(browser: Browser) -> None:
    alone = Alone(browser, ScopeView(Recording((), ("",))), dark=True)
    expect(alone.page.locator(".trl-note")).to_have_text("nothing was recorded")
    assert alone.said == []
    alone.page.close()
