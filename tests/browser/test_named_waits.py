"""Waits in the explorer: their parts are measured, they name their causes, and they can be cancelled."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import astuple
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from benchmarks.compiler.explorer_waits import Opened
from tests.browser.conftest import Lab, Watched
from tests.browser.opened import ask, open_and_run, write

pytestmark = pytest.mark.browser

PROGRAM = """
import json, threading
import timerl_nb as trl
import timerl_widgets.drawing, timerl_widgets.explorer

if "patient" not in globals():  # by a test before, in the same kernel
    whole = trl.Options(executor="xla")
    patient = trl.algorithms.reinforce(hidden=(3,)).compile({"B": 2, "I": 30, "T": 20}, whole)
program, gate, held = patient, threading.Event(), threading.Event()
"""
EXPLORE = """
explorer = program.explore(ahead=False)
explorer
"""


@pytest.fixture
def page(watched: Watched, lab: Lab) -> Iterator[Page]:
    """A notebook with an explorer, in a kernel whose modules may be patched."""
    page = watched.page
    write(lab, "patience.ipynb", PROGRAM, EXPLORE)
    open_and_run(page, lab, "patience.ipynb")
    expect(page.locator(".trl-explorer .trl-graph g.node").first).to_be_visible(timeout=20_000)
    yield page
    ask(page, "gate.set(); undo = globals().pop('undo', None); undo and undo(); explorer.wait(60)")
    assert watched.errors == []


def hold(page: Page, module: str, name: str) -> None:
    """Let a function of a module wait for `gate`, until the end of the test."""
    code = f"""
def hold(module, name):
    plain = getattr(module, name)
    def held_function(*given, **named):
        held.set()
        gate.wait(60)
        return plain(*given, **named)
    setattr(module, name, held_function)
    return lambda: setattr(module, name, plain)
undo = hold({module}, {name!r})
"""
    ask(page, code)


def status(page: Page) -> Locator:
    return page.locator(".trl-settings .trl-status")


def cancel(page: Page) -> None:
    page.locator(".trl-settings .trl-cancel").click()  # waits until it is shown


def value(page: Page, expression: str) -> Any:
    return json.loads(ask(page, f"print(json.dumps({expression}))"))


def assert_drawn(page: Page, stage: str) -> None:
    """The stage is marked, and the graph's nodes are those of its view."""
    tab = page.locator(f'.trl-strip [role="tab"][data-stage="{stage}"]')
    expect(tab).to_have_attribute("aria-selected", "true")
    nodes = value(
        page,
        f"[node.key for node in trl.show.graph_view(explorer.program.stages[{stage!r}].artifact).nodes]",
    )
    drawn = page.locator(".trl-at-graph .trl-graph g.node")
    expect(drawn).to_have_count(len(nodes))
    assert {drawn.nth(k).get_attribute("id") for k in range(len(nodes))} == set(nodes)


def assert_works(page: Page, switch: str) -> None:
    """A switch still changes the program and its graph."""
    page.locator(f'[data-key="switch-{switch}"]').click()
    expect(status(page)).to_contain_text("drawn after", timeout=30_000)
    assert value(page, f"explorer.program.options.{switch}") is False
    assert_drawn(page, "fuse")


def test_the_parts_of_a_wait_are_measured(browser: Browser, lab: Lab) -> None:
    opened = Opened(browser, lab, "parts.ipynb", PROGRAM, ahead=False, own_kernel=False)
    assert {"switch-lift", "switch-fuse"} <= set(opened.switches())
    for wait in (opened.click("switch-lift"), opened.enter("bound-T", 21)):
        parts = astuple(wait)
        assert min(wait.drawn, wait.compiled, wait.packed, wait.browser, wait.kib) > 0, parts
        assert wait.drawn > wait.compiled + wait.browser, parts
    assert opened.run("print(explorer.program.bounds['T'], explorer.program.options.lift)") == (
        "21 False\n"
    )
    opened.page.close()


def test_a_compilation_is_named_and_cancelled(page: Page) -> None:
    hold(page, "type(program)", "again")
    page.locator('[data-key="switch-lift"]').click()
    expect(status(page)).to_have_text("compiling: lift off …")
    cancel(page)
    ask(page, "gate.set(); explorer.wait(60)")
    expect(status(page)).to_contain_text("the change has been cancelled; the program is unchanged.")
    expect(page.locator('[data-key="switch-lift"]')).to_be_checked()
    assert value(page, "explorer.program is program")
    assert_drawn(page, "fuse")
    assert_works(page, "lift")


def test_the_candidates_of_a_running_search_are_shown_until_it_is_cancelled(page: Page) -> None:
    ask(
        page,
        """
from timerl_widgets.explorer import tried_text
def slowly(tried, budget):
    if len(tried) == 3:
        held.set()
        gate.wait(60)
    return tried_text(tried, budget)
timerl_widgets.explorer.tried_text = slowly
def undo():
    timerl_widgets.explorer.tried_text = tried_text
told = []
explorer.observe(lambda change: told.append(change["new"].get("text", "")), "status")
""",
    )
    page.locator(".trl-settings summary", has_text="options").click()
    field = page.locator('[data-key="option-device_memory"]')
    field.fill(str(int(0.6 * value(page, "program.memory.needed"))))
    field.press("Enter")
    expect(status(page)).to_contain_text("2 candidates tried within", timeout=30_000)
    more = page.get_by_role("button", name="more", exact=True)
    more.click()
    shown = page.locator(".trl-settings .trl-more:not(button)")
    expect(shown).to_be_visible()
    latest = value(page, "[text for text in told if ' tried within' in text][-1]")
    assert latest.startswith("2 candidates tried within") and len(latest.split("\n")) == 2
    assert shown.inner_text() == latest and status(page).inner_text() == latest.split("\n")[0]
    cancel(page)
    ask(page, "gate.set(); explorer.wait(60)")
    expect(status(page)).to_contain_text("the change has been cancelled; the program is unchanged.")
    expect(field).to_have_value("")
    assert value(page, "explorer.program is program")
    assert_drawn(page, "fuse")


def test_a_layout_is_named_and_cancelled(page: Page) -> None:
    hold(page, "timerl_widgets.drawing", "drawn")
    page.locator('.trl-strip [role="tab"][data-stage="pdg"]').click()
    count = value(page, "len(program.pdg)")
    expect(status(page)).to_have_text(f"laying out the stage pdg of {count} operations …")
    cancel(page)
    expect(status(page)).to_contain_text("the wait has been cancelled")
    assert_drawn(page, "fuse")
    ask(page, "gate.set(); explorer.wait(60)")
    page.locator('.trl-strip [role="tab"][data-stage="pdg"]').click()
    assert_drawn(page, "pdg")


def test_the_text_of_a_call_is_named_and_cancelled(page: Page) -> None:
    hold(page, "timerl_widgets.explorer", "detail")
    page.locator('.trl-strip [role="tab"][data-stage="executable"]').click()
    outline = page.locator(".trl-at-graph .trl-pane.trl-outline")
    outline.locator(".trl-line", has_text="jaxpr of call 1").first.click()
    expect(status(page)).to_have_text("creating jaxpr 1 of the program …")
    cancel(page)
    expect(outline).to_contain_text("ExecutionError: the wait has been cancelled")
    expect(status(page)).not_to_have_class(re.compile("trl-compiling"))
    ask(page, "gate.set(); explorer.wait(60)")
    page.locator('.trl-strip [role="tab"][data-stage="fuse"]').click()
    assert_drawn(page, "fuse")
    assert_works(page, "lift")
