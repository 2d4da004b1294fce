"""Widgets in JupyterLab and Notebook, with a kernel and without, and pictures of them in other pages."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Browser, Page, expect
from sphinx.cmd.build import build_main

import timerl_nb as trl
from tests.browser.conftest import Lab, serving, watching
from tests.browser.opened import open_and_run, open_notebook, save_and_shut_down, write
from tests.reinforce import reinforce
from tests.unit.show.test_mappings import FAST, swept
from tests.unit.show.test_strategies_view import MADE_UP as STRATEGIES
from tests.workers import settings
from timerl_nb.base.text_formatting import format_bytes

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
BOUNDS = {"B": 2, "I": 3, "T": 6}
PROGRAM = f"""
from tests.reinforce import reinforce
program = reinforce(5, hidden=(4,)).compile({BOUNDS})
"""
OTHERS = """
import timerl_nb as trl
from tests.unit.show.test_mappings import swept
from tests.unit.show.test_strategies_view import MADE_UP as STRATEGIES
from tests.unit.streams.test_streams_view import MADE_UP
from timerl_widgets import IterationSpaceView, LoopView, MemoryTimeline, PdgView, RunMonitor

trl.collecting.Collector.strategies_for = lambda self, envs, steps: STRATEGIES
with trl.collect("CartPole-v1", trl.policies.random, envs=2, steps=4) as collector:
    strategies = collector.explore()
monitor = RunMonitor(program)
monitor.start().result()
"""
SHOWN = {
    "explorer": "program.explore(ahead=False)",
    "graph": "PdgView(program)",
    "loops": "LoopView(program)",
    "space": "IterationSpaceView(program)",
    "memory": "MemoryTimeline(program)",
    "run": "monitor",
    "no run": "RunMonitor(program)",
    "recording": "program.scope().explore()",
    "streams": "MADE_UP.explore()",
    "mapping": "swept().explore()",
    "strategies": "strategies",
}


# of ipywidgets for each lost model, before the picture replaces its message; of Notebook, also without widgets
FOREIGN = "widget model not found|Cannot read properties of undefined .reading 'schema'."


@pytest.fixture(scope="module")
def program() -> trl.Program:
    return reinforce(5, hidden=(4,)).compile(BOUNDS)


@pytest.fixture(scope="module", params=["jupyterlab", "notebook"])
def server(
    request: pytest.FixtureRequest, lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    if request.param == "jupyterlab":
        yield lab
        return
    if find_spec("notebook") is None:
        pytest.skip("Notebook is not installed: `pip install notebook` to run this test")
    folders = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("notebooks")
    with serving(*folders, settings(1), "notebook") as served:
        yield served


def expected(program: trl.Program) -> dict[str, set[str]]:
    """Return texts that each widget's picture contains, from the program and the other shown objects."""
    kernels = set(program.schedule.statements)
    peak = format_bytes(program.memory.peak)
    loops = {line.strip() for line in str(program.ast).splitlines() if " in range(" in line}
    lines = {node.label.split("\n")[0] for node in trl.show.graph_view(program.pdg).nodes}
    best = swept().choose(bandwidth=FAST).best
    return {
        "explorer": kernels | loops | {f"planned peak {peak}"},
        "graph": {line[:30] for line in lines if "reinforce(" not in line},  # as in its own file
        "loops": loops,
        "space": {one.name for one in program.schedule.points(i=BOUNDS["I"] - 1)},
        "memory": {f"planned peak {peak}"},
        "run": {"finished after turn 3 of 3", f"return {program.execute()['return'][-1]:.4g}"},
        "no run": {"B = 2, I = 3, T = 6", "the run had not started"},
        "recording": {"recorded time", "transitions", "MainThread"},
        "streams": {"2 add<b>"},
        "mapping": {best.manager, best.learner},
        "strategies": {row.name for row in STRATEGIES} | {STRATEGIES.summary},
    }


def assert_drawn(pictures: list[str], program: trl.Program) -> None:
    """Check the texts of pictures in the order of `SHOWN`, and that they load nothing."""
    wanted = expected(program)
    assert len(pictures) == len(wanted)
    for (name, texts), picture in zip(wanted.items(), pictures, strict=True):
        root = ElementTree.fromstring(picture)
        said = " ".join(root.itertext())
        assert not {text for text in texts if text not in said}, (name, said)
        assert not re.search(r"<script|href|url\(|@import", picture), name


def test_a_notebook_shows_widgets_with_a_kernel_and_pictures_without(
    browser: Browser, server: Lab, program: trl.Program, tmp_path: Path
) -> None:
    with watching(browser, server) as watched:
        page, name = watched.page, "saved.ipynb"
        # a cell for each: anywidget gives up a widget that the page has not initialised after two seconds
        cells = [f"display({code})" for code in SHOWN.values()]
        write(server, name, PROGRAM, OTHERS, *cells, own_kernel=True)
        open_and_run(page, server, name)
        panes = page.locator(".trl-pane")
        outputs = page.locator(".jp-Cell .jp-OutputArea-output").filter(has=panes)
        expect(outputs).to_have_count(len(SHOWN), timeout=60_000)
        for k in range(len(SHOWN)):
            expect(outputs.nth(k).locator(".trl-pane").first).to_be_visible(timeout=20_000)
        graph = outputs.first.locator(".trl-graph")
        for kernel in program.schedule.statements:
            expect(graph).to_contain_text(kernel)
        expect(page.locator(".timerl-saved")).to_have_count(0)
        save_and_shut_down(page)
        expect(page.locator(".trl-ended")).to_have_count(len(SHOWN), timeout=30_000)

        open_notebook(page, server, name)
        images = page.locator("img.timerl-saved")
        expect(images).to_have_count(len(SHOWN), timeout=60_000)
        expect(page.locator(".jp-Notebook")).not_to_contain_text("model not found")
        sources = images.evaluate_all("(all) => all.map((e) => e.naturalWidth > 20 && e.src)")
        assert_drawn([unquote(one.split(",", 1)[1]) for one in sources], program)
        scheme = "(e) => getComputedStyle(e).colorScheme"
        page.evaluate("document.body.dataset.jpThemeLight = 'true'")  # other tests store a theme
        assert images.first.evaluate(scheme) == "light only"
        page.evaluate("document.body.dataset.jpThemeLight = 'false'")
        assert images.first.evaluate(scheme) == "dark"
        assert watched.outside == []
        assert not [one for one in watched.errors if not re.search(FOREIGN, one)]
    notebook = nbformat.read(server.root / name, as_version=4)
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", ())]
    data = [one.get("data", {}) for one in outputs]  # the environments' cell prints, too
    pictures = [one["image/svg+xml"] for one in data if "image/svg+xml" in one]
    assert_drawn(pictures, program)  # for programs without our code
    html, _ = HTMLExporter().from_notebook_node(notebook)
    page = offline(browser, html, tmp_path / "converted.html", dark=False)
    images = page.locator(".jp-RenderedSVG img")
    expect(images).to_have_count(len(SHOWN))
    sources = images.evaluate_all("(all) => all.map((e) => e.naturalWidth > 20 && e.src)")
    assert_drawn([b64decode(one.split(",", 1)[1]).decode() for one in sources], program)
    page.context.close()
    for theme in ("vscode-light", "vscode-dark", "vscode-high-contrast"):
        html = f'<body class="{theme}">{pictures[0]}'
        page = offline(browser, html, tmp_path / f"{theme}.html", dark=theme == "vscode-light")
        assert_inline(page, is_dark=theme != "vscode-light")


def offline(browser: Browser, html: str, path: Path, *, dark: bool) -> Page:
    """Open a page without a network; `dark` is the theme of the system."""
    path.write_text(html, encoding="utf-8")
    scheme = "dark" if dark else "light"
    view = {"width": 700, "height": 600}
    page = browser.new_context(offline=True, color_scheme=scheme, viewport=view).new_page()
    page.goto(path.as_uri(), wait_until="domcontentloaded")
    return page


def assert_inline(page: Page, *, is_dark: bool) -> None:
    """Check that a page shows a picture in its own theme and within its width."""
    picture = page.locator("svg.trl-static")
    expect(picture).to_be_visible()
    box = picture.bounding_box()
    assert box and box["x"] + box["width"] <= 700
    letters = picture.locator(".graph text").first
    colour = letters.evaluate("(e) => getComputedStyle(e).fill")
    assert colour == ("rgb(230, 230, 230)" if is_dark else "rgb(0, 0, 0)")
    page.context.close()


def test_a_page_of_the_documentation_shows_pictures(
    browser: Browser, program: trl.Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    (source / "docs").mkdir(parents=True)
    (source / "docs/index.md").write_text("# Site\n\n```{toctree}\nlesson\n```\n")
    cells = [nbformat.v4.new_markdown_cell("# Lesson")]
    cells += [nbformat.v4.new_code_cell(one) for one in (PROGRAM, SHOWN["explorer"])]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), source / "docs/lesson.ipynb")
    monkeypatch.setenv("TIMERL_DOCS_OUTPUTS", "1")
    monkeypatch.setenv("XLA_FLAGS", settings(1))
    cache = ["-D", f"nb_execution_cache_path={tmp_path / 'cache'}"]
    assert not build_main(["-qW", "-c", str(ROOT / "docs"), *cache, str(source), str(site)])
    asked: list[str] = []
    page = browser.new_context(offline=True).new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "docs/lesson.html").as_uri())
    image = page.locator(".cell_output img")
    expect(image).to_have_count(1)
    assert image.evaluate("(e) => e.naturalWidth") > 20
    picture = site / "docs" / str(image.get_attribute("src"))
    said = " ".join(ElementTree.fromstring(picture.read_text()).itertext())
    assert all(text in said for text in expected(program)["explorer"])
    for theme in ("dark", "light"):
        page.evaluate("(theme) => { document.body.dataset.theme = theme; }", theme)
        assert theme in image.evaluate("(e) => getComputedStyle(e).colorScheme")
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
    page.context.close()
