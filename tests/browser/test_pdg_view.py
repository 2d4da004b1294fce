"""`PdgView` in a real JupyterLab: mouse, keyboard, themes, and names with markup."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Lab, Watched
from tests.browser.opened import change_theme, open_and_run, run_cell, write

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

    # a selection from Python is shown
    expect(page.locator(".trl-graph g.node.trl-selected")).to_have_attribute("id", "op3")

    # the view starts at the selection, at the largest readable scale
    picture = page.locator(".trl-graph .trl-stage > svg:first-child")
    letters = page.locator(".trl-graph g.node text").first
    size = letters.evaluate("text => 10 * text.getScreenCTM().a")
    assert size >= 10.9
    begin = picture.get_attribute("viewBox")
    page.locator(".trl-graph").get_by_role("button", name="show everything (0)").click()
    assert picture.get_attribute("viewBox") != begin

    # mouse: select, extend with shift, deselect by a second click
    page.locator(".trl-graph g.node#op1").click()
    expect(page.locator("text=picked [1]")).to_be_visible(timeout=10_000)
    page.locator(".trl-graph g.node#op4").click(modifiers=["Shift"])
    expect(page.locator("text=picked [1, 4]")).to_be_visible(timeout=10_000)
    expect(page.locator(".trl-graph .trl-status")).to_contain_text(
        "s[t + 1] = (s * 0.5 + x).tanh()"
    )
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "pdg_light.png")

    # the same by keyboard
    page.locator(".trl-graph g.node#op0").focus()
    page.keyboard.press("ArrowDown")  # along an edge, to the nearest reader
    page.keyboard.press("Enter")
    expect(page.locator("text=picked [1]")).to_be_visible(timeout=10_000)
    box = page.locator(".trl-graph .trl-stage > svg:first-child").get_attribute("viewBox")
    page.keyboard.press("+")
    assert page.locator(".trl-graph .trl-stage > svg:first-child").get_attribute("viewBox") != box
    page.keyboard.press("0")
    assert page.locator(".trl-graph .trl-stage > svg:first-child").get_attribute("viewBox") == box
    page.keyboard.press("Escape")
    expect(page.locator("text=picked []")).to_be_visible(timeout=10_000)

    # hovering highlights the neighbourhood
    page.locator(".trl-graph g.node#op0").hover()
    assert page.locator(".trl-graph g.node.trl-dim").count() > 0

    # names stay text
    assert page.evaluate("() => window.hacked") is None
    assert page.locator(".trl-graph img").count() == 0
    expect(page.locator(".trl-graph g.node#op0")).to_contain_text("<img src=x")

    # linked artifacts show their picture
    expect(page.locator(".jp-OutputArea-output img").first).to_be_visible()
    assert watched.outside == []
    assert watched.errors == []


LARGE = """
import timerl_nb as trl
from timerl_widgets import PdgView

with trl.Context("t") as ctx:
    ((t, T),) = ctx.dims
    x = trl.value(t).cast("f32")
    with ctx.region("first"):
        for k in range(20):
            x = (x * 0.5 + k).tanh()
        y = x.named("halfway") * 2.0
    with ctx.region("second"):
        z = (y - 1.0).exp()
        z = z + y.sum(axis=()) * 0.0
    ctx.output("z", z)
program = ctx.compile({T: 6})
view = PdgView(program, height=560)
view
"""


def test_folding_searching_and_differences(watched: Watched, lab: Lab) -> None:
    page = watched.page
    page.emulate_media(reduced_motion="reduce")
    write(lab, "large.ipynb", LARGE)
    open_and_run(page, lab, "large.ipynb")
    nodes, graph = page.locator(".trl-graph g.node"), page.locator(".trl-graph")
    line = nodes.filter(has_text="x = (x * 0.5 + k).tanh()")
    expect(line).to_be_visible(timeout=20_000)
    few, picture = nodes.count(), graph.locator(".trl-stage > svg:first-child")

    # a double click opens a line onto its operations; Python lays out
    line.dblclick()
    expect(graph.locator("g.node").nth(80)).to_be_attached(timeout=20_000)
    expect(graph.locator("g.cluster", has_text="x = (x * 0.5 + k).tanh()")).to_be_attached()
    expect(graph).not_to_have_attribute("aria-busy", "true")

    # the map shows the visible part
    for _ in range(4):
        page.get_by_label("zoom in (+)").click()
    expect(graph.locator(".trl-minimap")).to_be_visible()
    box = picture.get_attribute("viewBox")
    graph.locator(".trl-minimap").click(position={"x": 75, "y": 30})
    assert picture.get_attribute("viewBox") != box
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "pdg_open.png")
    page.get_by_label("show everything (0)").click()
    expect(graph.locator(".trl-minimap")).not_to_be_visible()

    # search finds by text, and Enter goes from hit to hit
    search = page.get_by_label("search the graph's nodes")
    search.fill("tanh f32")  # the operations, not the whole line
    search.press("Enter")
    assert graph.locator("g.node.trl-found").count() == 20
    expect(graph.locator("g.node[tabindex='0']")).to_contain_text("tanh")
    search.press("Escape")
    assert graph.locator("g.node.trl-found").count() == 0

    # the keyboard isolates, and folds again
    page.keyboard.press("i")
    away = graph.locator("g.node.trl-away").count()
    assert 70 < away < nodes.count()
    page.keyboard.press("Escape")
    assert graph.locator("g.node.trl-away").count() == 0
    page.keyboard.press("f")
    expect(nodes).to_have_count(few, timeout=20_000)
    expect(line).to_be_focused()

    # the same as a table
    page.get_by_label("show the graph as a table").click()
    assert graph.locator(".trl-table tbody tr").count() == few
    graph.get_by_role("button", name="halfway").click()
    expect(graph.locator(".trl-table tr.trl-selected")).to_have_count(1)  # and no longer the line
    page.get_by_label("show the graph as a table").click()

    # another graph: removals and changes are marked by sign as well as by colour
    run_cell(page, "view.show(program.stages['simplify'].artifact)")
    changed = graph.locator("g.node.trl-changed")
    expect(changed.first).to_be_visible(timeout=30_000)
    expect(changed.first).to_contain_text("~ ")
    expect(graph.locator(".trl-status")).to_contain_text("changed")
    page.screenshot(path=SCREENSHOTS / "pdg_changed.png")
    assert watched.outside == []
    assert watched.errors == []


def test_dark_theme(watched: Watched, lab: Lab) -> None:
    page = watched.page
    write(lab, "dark.ipynb", SETUP, VIEW)
    open_and_run(page, lab, "dark.ipynb")
    expect(page.locator(".trl-graph g.node").first).to_be_visible(timeout=20_000)
    change_theme(page, "JupyterLab Light")
    light = page.locator(".trl-graph").evaluate("e => getComputedStyle(e).backgroundColor")
    change_theme(page, "JupyterLab Dark")
    page.wait_for_function(
        "light => getComputedStyle(document.querySelector('.trl-graph')).backgroundColor !== light",
        arg=light,
    )
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "pdg_dark.png")
    assert watched.errors == []


def test_a_saved_page_keeps_the_picture(watched: Watched, lab: Lab) -> None:
    """The output in the notebook file needs no kernel and no script."""
    page = watched.page
    write(lab, "saved.ipynb", SETUP, "view = PdgView(program)\nview")
    open_and_run(page, lab, "saved.ipynb")
    expect(page.locator(".trl-graph g.node").first).to_be_visible(timeout=20_000)
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    for _ in range(300):
        notebook = nbformat.read(lab.root / "saved.ipynb", as_version=4)
        outputs = notebook.cells[-1].outputs
        if outputs:
            break
        page.wait_for_timeout(100)
    assert outputs[0].data["image/svg+xml"].startswith("<svg")
