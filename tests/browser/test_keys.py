"""Keys typed in a widget do not reach the notebook, where shortcuts cut and delete cells."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Lab, Watched
from tests.browser.opened import open_and_run, write

pytestmark = pytest.mark.browser

CELLS = (
    """
import timerl_nb as trl
from timerl_widgets import IterationSpaceView, LoopView, MemoryTimeline, PdgView, RunMonitor

program = trl.algorithms.reinforce(hidden=(3,)).compile({"B": 2, "I": 3, "T": 5})
display(program.explore(program.with_options(lift=False)))
""",
    """
display(PdgView(program), LoopView(program), IterationSpaceView(program), MemoryTimeline(program))
display(RunMonitor(program))
""",
)
# every key with a meaning in the notebook's command mode, from the running JupyterLab
MEANT = """() => {
    const { commands } = window.jupyterapp;
    window.done = [];
    commands.commandExecuted.connect((_, { id }) => window.done.push(id));
    const own = commands.keyBindings.filter(({ selector }) => /jp-Notebook|kernel-user/.test(selector));
    return [...new Set(own.map(({ keys }) => keys.join(" then ")))];
}"""
# types them in the focused element; JupyterLab reads key codes
TYPE = """(element, meant) => {
    const codes = { Enter: 13, Escape: 27, Space: 32, PageUp: 33, PageDown: 34, End: 35, Home: 36,
        ArrowLeft: 37, ArrowUp: 38, ArrowRight: 39, ArrowDown: 40, Delete: 46, Backspace: 8,
        "-": 189, "=": 187, "[": 219, "]": 221, "\\\\": 220, "/": 191, "`": 192, ".": 190, ",": 188 };
    element.focus();
    for (const text of meant) {
        for (const stroke of text.split(" then ")) {
            const parts = stroke.split(" "), key = parts.pop();
            element.dispatchEvent(new KeyboardEvent("keydown", {
                key: key.length === 1 ? key.toLowerCase() : key,
                keyCode: codes[key] ?? key.charCodeAt(0),
                ctrlKey: parts.includes("Ctrl") || parts.includes("Accel"),
                shiftKey: parts.includes("Shift"), altKey: parts.includes("Alt"),
                bubbles: true, cancelable: true, composed: true,
            }));
        }
    }
    return window.done.splice(0);
}"""


def test_no_key_in_a_widget_is_the_notebooks(watched: Watched, lab: Lab) -> None:
    page = watched.page
    write(lab, "keys_kept.ipynb", *CELLS)
    open_and_run(page, lab, "keys_kept.ipynb")
    expect(page.locator(".trl-run")).to_have_count(2, timeout=30_000)
    expect(page.locator(".trl-graph g.node").last).to_be_visible(timeout=20_000)
    meant = page.evaluate(MEANT)
    assert {"X", "D then D", "A", "B", "Shift Enter", "0 then 0"} <= {*meant} and len(meant) > 40
    panes = page.query_selector_all(".trl-pane:visible:not(.trl-pane .trl-pane)")
    assert len(panes) == 12 + 6
    for pane in panes:
        # each control, and the pane, which a click on empty space focuses
        parts = pane.query_selector_all("g.node, button, input, select, summary, [tabindex]")
        for part in [*parts[:: max(1, len(parts) // 4)], pane]:
            assert part.evaluate(TYPE, meant) == [], part.evaluate("(e) => e.outerHTML")
    # after a click on empty space, and by keyboard; application shortcuts still work
    page.locator(".trl-inspector").first.click(position={"x": 60, "y": 60})
    for key in "xdd":
        page.keyboard.press(key)
    page.keyboard.press("Control+s")
    page.wait_for_function("() => window.done.length > 0")
    assert page.evaluate("() => window.done.splice(0)") == ["docmanager:save"]
    assert page.locator(".jp-Notebook .jp-Cell").count() == 2
    # in the notebook itself the keys work
    page.locator(".jp-Cell").last.evaluate(TYPE, ["X", "B"])
    page.wait_for_function("() => window.done.length > 1")
    assert watched.errors == []
