"""The browser's console stays empty while an explorer is opened, used, and its kernel restarted."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Lab, Watched
from tests.browser.opened import open_and_run, run_cell, write

pytestmark = pytest.mark.browser

# JupyterLab's: its scrolling and connections, below the console's usual level, and the restart
FOREIGN = "debug: |warning: Connection lost, reconnecting"
PROGRAM = """
import timerl_nb as trl
program = trl.algorithms.reinforce(hidden=(3,)).compile({"B": 2, "I": 3, "T": 5})
"""


def test_an_explorer_writes_nothing_to_the_console(watched: Watched, lab: Lab) -> None:
    page = watched.page
    write(lab, "console.ipynb", "1 + 1", own_kernel=True)
    open_and_run(page, lab, "console.ipynb")
    page.wait_for_timeout(1000)  # JupyterLab's own messages come while it opens a notebook
    before = len(watched.said)
    page.evaluate(
        """async (source) => {
            const app = window.jupyterapp, notebook = app.shell.currentWidget.content;
            await app.commands.execute("notebook:insert-cell-below");
            notebook.activeCell.model.sharedModel.setSource(source);
            await app.commands.execute("notebook:run-cell");
        }""",
        PROGRAM + "explorer = program.explore()\nexplorer",
    )
    nodes = page.locator(".trl-graph g.node")
    expect(nodes.first).to_be_visible(timeout=30_000)
    # used: stages, operations, a switch, panes, a run, both themes, another width
    for stage in ("pdg", "simplify", "executable", "fuse"):
        page.locator(f'[role="tab"][data-stage="{stage}"]').click()
    expect(nodes.filter(has_text="acting(")).to_be_visible()
    nodes.filter(has_text="acting(").click()
    expect(page.locator(".trl-inspector h4").first).to_be_visible(timeout=10_000)
    page.locator('[data-key="switch-lift"]').click()
    run_cell(page, "explorer.wait(); print(explorer.status)")
    expect(page.locator(".trl-settings")).not_to_contain_text("compiling", timeout=20_000)
    page.locator('.trl-run [data-command="start"]').first.click()
    expect(page.locator(".trl-run .trl-state").first).to_have_text("finished", timeout=30_000)
    page.set_viewport_size({"width": 900, "height": 700})
    page.keyboard.press("Escape")
    page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
    )
    expect(page.locator(".trl-ended")).to_have_count(1, timeout=30_000)
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.wait_for_timeout(500)
    said = [one for one in watched.said[before:] if not re.match(FOREIGN, one)]
    assert (said, watched.errors, watched.outside) == ([], [], [])
