"""`PdgView` in a real JupyterLab: mouse, keyboard, themes, and names that try to run."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Lab, Watched
from tests.browser.opened import open_and_run, write

pytestmark = pytest.mark.browser

SCREENSHOTS = Path(__file__).parent / "screenshots"
SETUP = """
import numpy as np
import ipywidgets
import timerl_nb as trl
from timerl_widgets import PdgView

with trl.Context("t") as ctx:
    ((t, T),) = ctx.dims
    x = trl.data(np.arange(6.0), domain=(t,)).named("<img src=x onerror=window.hacked=1>")
    s = trl.like(x).named("state")
    s[0] = x[0]
    s[t + 1] = (s * 0.5 + x).tanh()
    ctx.output("s", s)
program = ctx.compile({T: 6})
"""
VIEW = """
view = PdgView(program, height=420)
seen = ipywidgets.Label("nothing picked")
view.observe(lambda change: setattr(seen, "value", f"picked {view.selected}"), "selected")
display(view, seen)
"""


def test_clicking_a_node_sets_a_python_trait(watched: Watched, lab: Lab) -> None:
    page = watched.page
    write(lab, "pdg.ipynb", SETUP, VIEW, "program.ast", "view.selected = [3]")
    open_and_run(page, lab, "pdg.ipynb")
    nodes = page.locator(".trl-graph g.node")
    expect(nodes.first).to_be_visible(timeout=20_000)
    assert nodes.count() == len({n.get_attribute("id") for n in nodes.all()}) > 5

    # what Python selects is shown
    expect(page.locator(".trl-graph g.node.trl-selected")).to_have_attribute("id", "op3")

    # the mouse selects, with shift several, and a second click lets go
    page.locator(".trl-graph g.node#op1").click()
    expect(page.locator("text=picked [1]")).to_be_visible(timeout=10_000)
    page.locator(".trl-graph g.node#op4").click(modifiers=["Shift"])
    expect(page.locator("text=picked [1, 4]")).to_be_visible(timeout=10_000)
    expect(page.locator(".trl-graph .trl-status")).to_contain_text(
        "s[t + 1] = (s * 0.5 + x).tanh()"
    )
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "pdg_light.png")

    # the keyboard does as well
    page.locator(".trl-graph g.node#op0").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("text=picked [1]")).to_be_visible(timeout=10_000)
    box = page.locator(".trl-graph > svg").get_attribute("viewBox")
    page.keyboard.press("+")
    assert page.locator(".trl-graph > svg").get_attribute("viewBox") != box
    page.keyboard.press("0")
    assert page.locator(".trl-graph > svg").get_attribute("viewBox") == box
    page.keyboard.press("Escape")
    expect(page.locator("text=picked []")).to_be_visible(timeout=10_000)

    # hovering lights the neighbourhood
    page.locator(".trl-graph g.node#op0").hover()
    assert page.locator(".trl-graph g.node.trl-dim").count() > 0

    # names stay text
    assert page.evaluate("() => window.hacked") is None
    assert page.locator(".trl-graph img").count() == 0
    expect(page.locator(".trl-graph g.node#op0")).to_contain_text("<img src=x")

    # artifacts beside it show their picture
    expect(page.locator(".jp-OutputArea-output img").first).to_be_visible()
    assert watched.outside == []
    assert watched.errors == []


def test_dark_theme(watched: Watched, lab: Lab) -> None:
    page = watched.page
    write(lab, "dark.ipynb", SETUP, VIEW)
    open_and_run(page, lab, "dark.ipynb")
    expect(page.locator(".trl-graph g.node").first).to_be_visible(timeout=20_000)
    light = page.locator(".trl-graph").evaluate("e => getComputedStyle(e).backgroundColor")
    page.evaluate(
        "() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
    )
    page.wait_for_selector('body[data-jp-theme-light="false"]', state="attached")
    page.wait_for_function(
        "light => getComputedStyle(document.querySelector('.trl-graph')).backgroundColor !== light",
        arg=light,
    )
    SCREENSHOTS.mkdir(exist_ok=True)
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.screenshot(path=SCREENSHOTS / "pdg_dark.png")
    assert watched.errors == []


def test_a_saved_page_keeps_the_picture(watched: Watched, lab: Lab) -> None:
    """What the notebook file holds needs no kernel and no script."""
    page = watched.page
    write(lab, "saved.ipynb", SETUP, "view = PdgView(program)\nview")
    open_and_run(page, lab, "saved.ipynb")
    expect(page.locator(".trl-graph g.node").first).to_be_visible(timeout=20_000)
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    for _ in range(50):
        notebook = nbformat.read(lab.root / "saved.ipynb", as_version=4)
        outputs = notebook.cells[-1].outputs
        if outputs:
            break
        page.wait_for_timeout(100)
    assert outputs[0].data["image/svg+xml"].startswith("<svg")
