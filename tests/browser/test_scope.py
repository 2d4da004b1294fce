"""The widget of a recording, in a page of its own."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect
from timerl_widgets import ScopeView

from tests.browser.alone import Alone
from tests.reinforce import reinforce
from timerl_nb.scope import Recording

pytestmark = pytest.mark.browser


def test_a_recording_is_looked_into(browser: Browser) -> None:
    program = reinforce(hidden=(4,)).compile({"B": 2, "I": 3, "T": 4})
    widget = ScopeView(program.scope())
    alone = Alone(browser, widget, width=1000)
    page = alone.page
    assert widget.stretch["json"]["end"] == widget.drawn.end  # which the page has asked for
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


def test_an_empty_recording_is_shown_in_the_dark(browser: Browser) -> None:
    alone = Alone(browser, ScopeView(Recording((), ("",))), dark=True)
    expect(alone.page.locator(".trl-note")).to_have_text("nothing was recorded")
    assert alone.said == []
    alone.page.close()
