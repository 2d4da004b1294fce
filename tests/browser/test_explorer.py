"""The explorer in a real JupyterLab.

Linked views, changes, time navigation, runs in a busy kernel, keyboard, themes, and names with
markup.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Lab, Watched
from tests.browser.opened import busy_kernel, change_theme, open_and_run, run_cell, write

pytestmark = pytest.mark.browser

SCREENSHOTS = Path(__file__).parent / "screenshots"
SETUP = """
import time
import ipywidgets
import timerl_nb as trl

if "compiled" not in globals():  # by a test before, in the same kernel
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        with ctx.region("acting"):
            env = trl.env.make("CartPole-v1")
            dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[8]).build()
            o = trl.like(env.obs_space, domain=(b, i, t)).named("<img src=x onerror=window.hacked=1>")
            o[b, i, 0] = env.reset(domain=(b, i))
            a = dnn.sample(o)
            o[b, i, t + 1], r, d = env.step(a)
        with ctx.region("learning"):
            g = r[b, i, t:T].discounted_sum(0.95).named("g")
            loss = -dnn.log_prob(a) * g
            loss.mean(over=(b, t)).backward()
            trl.optim.SGD(dnn.params, lr=1e-2).step()
        ctx.output("return", r.sum(over=t).mean(over=b))
    compiled = ctx.compile({B: 4, I: 200, T: 12})
program = compiled
"""
EXPLORE = """
explorer = program.explore()
seen = ipywidgets.Label("nothing picked")
def say(change):
    seen.value = f"picked {explorer.selected} at {explorer.instant} in {explorer.stage}"
explorer.observe(say, ["selected", "instant", "stage"])
display(seen, explorer)
"""


def explore(watched: Watched, lab: Lab, name: str, *cells: str) -> Page:
    page = watched.page
    write(lab, name, SETUP, *(cells or (EXPLORE,)))
    open_and_run(page, lab, name)
    expect(page.locator(".trl-explorer .trl-graph g.node").first).to_be_visible(timeout=20_000)
    return page


def picture(page: Page, name: str) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    page.locator(".trl-explorer").evaluate("(element) => element.scrollIntoView()")
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def node(page: Page, text: str) -> str:
    """The selector of the graph's node with a label."""
    found = page.locator(".trl-graph g.node", has_text=text).first.get_attribute("id")
    return f".trl-graph g.node[id='{found}']"


def assert_clean(watched: Watched) -> None:
    assert watched.page.evaluate("() => window.hacked") is None
    assert watched.page.locator(".trl-explorer img").count() == 0
    assert watched.outside == []
    assert watched.errors == []


def test_what_is_selected_in_one_view_is_marked_in_all(watched: Watched, lab: Lab) -> None:
    page = explore(watched, lab, "linked.ipynb")
    # node: its line of the loop nest, its marks, its tensors, its source line
    took = page.evaluate(
        """(selector) => {
            const began = performance.now();
            document.querySelector(selector).dispatchEvent(new MouseEvent("click", {bubbles: true}));
            const lines = document.querySelectorAll(".trl-loops .trl-line.trl-selected").length;
            const rows = document.querySelectorAll(".trl-live tr.trl-selected").length;
            return [performance.now() - began, lines, rows];
        }""",
        node(page, "acting("),
    )
    assert took[1] > 0 and took[2] > 0, "marked in the same task: nobody asked Python"
    print(f"click to linked: {took[0]:.1f} ms")
    line = page.locator(".trl-loops .trl-line.trl-execute.trl-selected")
    expect(line).to_have_count(1)
    expect(line).to_contain_text("acting(")
    expect(page.locator(".trl-chip", has_text="acting")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".trl-chip", has_text="learning")).to_have_attribute(
        "aria-pressed", "false"
    )
    marked = page.locator(".trl-inspector .trl-marked", has_text="env.step(a)")
    expect(marked).to_be_visible(timeout=10_000)
    expect(page.locator("text=/picked \\[\\d+\\] at None in fuse/")).to_be_visible()

    # line: its node; and from Python
    page.locator(".trl-loops .trl-line.trl-execute", has_text="learning(").click()
    expect(page.locator(node(page, "learning("))).to_have_class(re.compile("trl-selected"))
    expect(page.locator(node(page, "acting("))).not_to_have_class(re.compile("trl-selected"))
    run_cell(page, "explorer.selected = []")
    expect(page.locator(".trl-explorer .trl-selected")).to_have_count(0)
    run_cell(page, "explorer.selected = [min(program.pdg.ops)]")
    expect(page.locator(".trl-loops .trl-line.trl-selected").first).to_be_visible()

    # history: a click shows that stage
    drawn = page.locator(".trl-graph svg[aria-label^='dependence graph']")
    before = drawn.get_attribute("aria-label") or ""
    page.locator(".trl-inspector .trl-link", has_text="simplify").click()
    expect(page.locator('[role="tab"][data-stage="simplify"]')).to_have_attribute(
        "aria-selected", "true"
    )
    expect(page.locator("text=/picked .* in simplify/")).to_be_visible()
    expect(drawn).not_to_have_attribute("aria-label", before)  # Python drew it since
    # large graphs are shown at readable size, from the start
    high = (
        "10 * document.querySelector('.trl-graph g.graph').getScreenCTM().a"  # pixels of a letter
    )
    page.wait_for_function(f"() => {high} >= 8.9")
    page.locator('.trl-graph [aria-label^="show everything"]').click()
    page.wait_for_function(f"() => {high} < 8.9")  # all of it is small
    # the steps of the pass, one by one
    expect(page.locator(".trl-step")).to_contain_text("steps:")
    page.locator('[aria-label="next step"]').click()
    expect(page.locator(".trl-step")).to_contain_text("1/")
    expect(page.locator(".trl-diff > .trl-was").first).to_have_text(re.compile(r"^- %\d+ = "))
    expect(page.locator(".trl-explorer")).to_contain_text("<img src=x")  # a name, as text
    picture(page, "explorer_light")
    assert_clean(watched)


def test_the_scrubber_sets_the_instant_everywhere(watched: Watched, lab: Lab) -> None:
    page = explore(watched, lab, "scrub.ipynb")
    slider = page.locator(".trl-scrubber input")
    slider.focus()
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".trl-at")).to_contain_text("4 / ")
    expect(page.locator(".trl-loops .trl-line.trl-running")).to_contain_text("acting(")
    expect(page.locator(node(page, "acting("))).to_have_class(re.compile("trl-running"))
    expect(page.locator(".trl-live caption")).to_contain_text("instant 4")
    expect(page.locator("text=/picked .* at 4 in/")).to_be_visible()
    heads = page.locator(".trl-playhead").evaluate_all("es => es.map((e) => e.getAttribute('x'))")
    assert len(heads) == 2 and heads[0] == heads[1], "columns of both plots line up"
    # a click in the plot, and playing
    plot = page.locator(".trl-memory .trl-plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + 30)
    expect(page.locator(".trl-at")).not_to_contain_text("4 / ")
    page.locator('.trl-scrubber [aria-label="play"]').click()
    expect(page.locator(".trl-at")).to_contain_text(re.compile(r"^(\d+) / \1 "), timeout=10_000)
    assert_clean(watched)


def test_a_change_compiles_and_draws(watched: Watched, lab: Lab) -> None:
    page = explore(watched, lab, "change.ipynb")
    status = page.locator(".trl-settings .trl-status")
    # changes of one click are compiled while the kernel is idle
    expect(status).to_have_attribute("data-left", "0", timeout=60_000)
    switch = page.locator('[data-key="switch-lift"]')
    switch.focus()
    page.keyboard.press("Space")
    expect(status).to_contain_text("compiled before, drawn after", timeout=10_000)
    print(f"toggle to drawn: {status.get_attribute('data-drawn')} ms")
    expect(switch).not_to_be_checked()
    expect(switch).to_be_focused()  # although the strip was redrawn
    expect(page.locator(".trl-tabbed.trl-off")).to_contain_text(["lift", "windows"])
    # another pass takes its place, and the focus stays there
    fuse = page.locator('[data-key="switch-fuse"]')
    fuse.focus()
    for stage in ("separate", "fuse"):
        page.keyboard.press("Space")
        expect(page.locator(f'.trl-strip [data-stage="{stage}"]')).to_be_visible(timeout=20_000)
        expect(fuse).to_be_focused()
    # bounds
    page.locator('[data-key="bound-T"]').fill("9")
    page.keyboard.press("Enter")
    expect(page.locator(".trl-loops .trl-line", has_text="range(0, 9)").first).to_be_visible(
        timeout=10_000
    )
    # impossible changes show a hint, and the program stays
    page.locator(".trl-settings > details > summary").click()
    page.locator('[data-key="option-device_memory"]').fill("64B")
    page.keyboard.press("Enter")
    expect(status).to_have_class(re.compile("trl-failed"), timeout=10_000)
    expect(page.locator(".trl-loops .trl-line", has_text="range(0, 9)").first).to_be_visible()
    picture(page, "explorer_error")
    page.keyboard.press("Escape")
    expect(page.locator(".trl-options")).to_be_hidden()
    # comparison with the changed program
    page.locator(".trl-settings button", has_text="compare").click()
    page.locator('[data-key="switch-lift"]').click()
    expect(page.locator(".trl-compare tr", has_text="lift")).to_contain_text("true", timeout=10_000)
    expect(page.locator(".trl-compare .trl-space")).to_have_count(2)
    # search through all stages, continued in a changed program
    page.locator('.trl-settings [type="search"]').fill("learning")
    expect(page.locator(".trl-hits").first).to_be_visible(timeout=10_000)
    expect(page.locator(".trl-loops .trl-line.trl-selected").first).to_be_visible()
    page.locator(".trl-loops .trl-line.trl-execute", has_text="acting").first.click()
    chosen = page.locator(".trl-loops .trl-line.trl-selected").all_inner_texts()
    switch.click()
    expect(status).to_contain_text("drawn after", timeout=10_000)
    expect(page.locator(".trl-hits").first).to_be_visible(timeout=10_000)
    assert page.locator(".trl-loops .trl-line.trl-selected").all_inner_texts() == chosen
    # the tab list has only tabs, and elements with keys have labels
    said = page.locator(".trl-strip").aria_snapshot().split("- group")[0].splitlines()
    assert said[0] == '- tablist "stages":' and len(said) > 5
    assert all(line.startswith('  - tab "') for line in said[1:]), said
    plot = page.locator(".trl-memory .trl-plot").first
    expect(plot).to_have_attribute("role", "slider")
    plot.focus()
    page.keyboard.press("End")
    last = plot.get_attribute("aria-valuemax")
    expect(plot).to_have_attribute("aria-valuenow", last or "")
    expect(plot).to_have_attribute("aria-valuetext", re.compile(f"instant {last} "))
    assert_clean(watched)


REFUSE = """
again = trl.Program.again
def refuse(self, **changes):
    raise trl.errors.OptionError("not today.")
trl.Program.again = refuse
"""


def test_what_is_typed_and_selected_outlives_a_change(watched: Watched, lab: Lab) -> None:
    page = explore(watched, lab, "outlives.ipynb")
    status = page.locator(".trl-settings .trl-status")
    page.locator(".trl-loops .trl-line.trl-execute", has_text="learning").first.click()
    told = page.locator(".trl-inspector article")
    expect(told).to_contain_text("learning")
    # typing in a field while another field's change is compiled
    page.locator('[data-key="bound-T"]').fill("10")
    page.keyboard.press("Enter")
    field = page.locator('[data-key="bound-B"]')
    field.fill("7")
    expect(page.locator(".trl-loops .trl-line", has_text="range(0, 10)").first).to_be_visible(
        timeout=10_000
    )
    expect(status).to_contain_text("drawn after", timeout=10_000)
    expect(field).to_have_value("7")
    expect(field).to_be_focused()
    # reselecting the same operations, in the other program
    expect(page.locator(".trl-inspector > .trl-bar .trl-note")).to_have_text("")
    expect(told).to_contain_text("learning")
    # the notebook's shortcuts still work
    page.keyboard.press("Control+s")
    dirty = "() => window.jupyterapp.shell.currentWidget.context.model.dirty"
    page.wait_for_function(f"() => !({dirty})()", timeout=10_000)
    # after a failed change a switch and a field return to the displayed value
    run_cell(page, REFUSE)
    switch = page.locator('[data-key="switch-lift"]')
    try:
        switch.click()
        expect(status).to_contain_text("not today", timeout=10_000)
    finally:
        run_cell(page, "trl.Program.again = again")  # for the tests that follow in this kernel
    expect(switch).to_be_checked()
    page.locator(".trl-settings > details > summary").click()
    memory = page.locator('[data-key="option-device_memory"]')
    memory.fill("64 apples")
    page.keyboard.press("Enter")
    expect(memory).to_have_value("", timeout=10_000)
    page.keyboard.press("Escape")
    # a filter works without a text
    page.locator('.trl-settings [aria-label="kind"]').select_option("dataflow")
    expect(page.locator(".trl-hits").first).to_be_visible(timeout=10_000)
    assert_clean(watched)


def test_a_run_obeys_while_the_kernel_is_busy(watched: Watched, lab: Lab) -> None:
    page = explore(watched, lab, "run.ipynb")
    state = page.locator(".trl-state")
    page.locator(".trl-run select").select_option(label="10 turns/s")
    page.locator('[data-command="start"]').click()
    expect(state).to_have_text("running", timeout=20_000)
    page.wait_for_function("() => document.querySelector('.trl-run progress').value >= 2")
    # frames arrive while a cell runs; a command waits for its end, and shows that
    with busy_kernel(page, lab):
        first = page.locator(".trl-run").evaluate("(e) => Number(e.dataset.frames)")
        page.locator('[data-command="pause"]').click()
        expect(state).to_have_text("pending: pause")
        page.wait_for_function(
            "(first) => Number(document.querySelector('.trl-run').dataset.frames) > first + 5",
            arg=first,
        )
        expect(state).to_have_text("pending: pause")
    expect(state).to_have_text("paused", timeout=10_000)
    print(f"a frame costs the page {page.locator('.trl-run').get_attribute('data-cost')} ms")
    turn = page.locator(".trl-run progress").evaluate("(e) => e.value")
    page.locator('[data-command="step"]').click()
    page.wait_for_function(
        "(turn) => document.querySelector('.trl-run progress').value === turn + 1", arg=turn
    )
    page.locator('[data-command="start"]').click()
    expect(state).to_have_text("running")
    picture(page, "explorer_run")
    page.locator('[data-command="stop"]').click()
    expect(state).to_have_text("stopped", timeout=10_000)
    assert_clean(watched)


MOVING = """() => {
    window.moved = new Set();
    const look = () => {
        for (const one of document.getAnimations()) {
            if (one.effect?.target?.closest(".trl-explorer")) {
                window.moved.add(one.effect.target.getAttribute("class") ?? one.effect.target.tagName);
            }
        }
        window.looking = requestAnimationFrame(look);
    };
    look();
}"""


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_nothing_moves_where_less_motion_is_asked_for(
    watched: Watched, lab: Lab, motion: Literal["reduce", "no-preference"]
) -> None:
    watched.page.emulate_media(reduced_motion=motion)
    page = explore(watched, lab, f"motion_{motion}.ipynb")
    page.locator(".trl-explorer").evaluate("(element) => element.scrollIntoView()")
    page.locator('[role="tab"][data-stage="simplify"]').click()
    expect(page.locator("text=/picked .* in simplify/")).to_be_visible()
    page.evaluate(MOVING)
    page.locator('[role="tab"][data-stage="fuse"]').click()
    expect(page.locator(".trl-step")).to_contain_text("steps:")
    page.locator('[data-key="switch-accumulate"]').click()
    status = page.locator(".trl-settings .trl-status")
    expect(status).to_contain_text("drawn after", timeout=10_000)
    page.locator(".trl-loops .trl-line.trl-execute", has_text="learning").first.click()
    if motion == "reduce":
        page.wait_for_timeout(300)
        assert page.evaluate("() => [...window.moved]") == []
    else:
        page.wait_for_function("() => window.moved.size > 0")
    assert_clean(watched)


def test_a_run_is_drawn_over_what_was_predicted(watched: Watched, lab: Lab) -> None:
    small = "program = program.with_options(executor='interpret').with_bounds({I: 4})"
    page = explore(watched, lab, "over.ipynb", small, EXPLORE)
    note = page.locator(".trl-memory .trl-note")
    expect(page.locator(".trl-memory .trl-measured")).to_have_count(0)
    run_cell(page, "explorer.start()")
    expect(page.locator(".trl-run .trl-state")).to_have_text("finished", timeout=30_000)
    expect(note).to_contain_text("measured in turn 3")
    line, area = (
        page.locator(f".trl-memory {path}").first.bounding_box()
        for path in (".trl-measured", ".trl-area")
    )
    assert line and area and line["width"] > 0.95 * area["width"]
    picture(page, "explorer_measured")
    # exported charts and comparison are complete
    for name, part, count in (("run", ".//svg:polyline", 5), ("compare", "svg:svg", 5)):
        if name == "compare":
            page.locator(".trl-settings button", has_text="compare").click()
            page.locator('[data-key="switch-lift"]').click()
            expect(page.locator(".trl-compare .trl-space")).to_have_count(2, timeout=10_000)
        pane = page.locator(f".trl-at-{name} .trl-{name}")
        with page.expect_download() as saved:
            pane.get_by_role("button", name=f"save {name} as SVG").click()
        SCREENSHOTS.mkdir(exist_ok=True)
        saved.value.save_as(SCREENSHOTS / f"{name}.svg")
        whole = ElementTree.parse(SCREENSHOTS / f"{name}.svg").getroot()
        assert len(whole.findall(part, {"svg": "http://www.w3.org/2000/svg"})) == count
    # the same under larger bounds
    run_cell(page, "explorer.change({T: 60}); explorer.wait(); explorer.start()")
    expect(page.locator(".trl-at-time .trl-memory .trl-note")).to_contain_text(
        "line: measured in turn", timeout=30_000
    )
    assert_clean(watched)


def test_the_keyboard_is_enough_in_the_dark(watched: Watched, lab: Lab) -> None:
    page = explore(watched, lab, "keys.ipynb")
    change_theme(page, "JupyterLab Dark")
    page.wait_for_selector('body[data-jp-theme-light="false"]', state="attached")
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.locator('[role="tab"][data-stage="fuse"]').focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("text=/picked .* in contract|picked .* in accumulate/")).to_be_visible()
    page.keyboard.press("End")
    expect(page.locator('[role="tab"][data-stage="executable"]')).to_be_focused()
    page.locator(".trl-loops .trl-line").first.focus()
    page.keyboard.press("ArrowDown")
    count = page.locator(".trl-loops .trl-line:visible").count()
    page.keyboard.press("ArrowLeft")  # fold the loop
    assert page.locator(".trl-loops .trl-line:visible").count() < count
    page.keyboard.press("ArrowRight")
    assert page.locator(".trl-loops .trl-line:visible").count() == count
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.locator(".trl-loops .trl-line").first).to_have_class(re.compile("trl-selected"))
    page.keyboard.press("Escape")
    expect(page.locator(".trl-explorer .trl-selected")).to_have_count(0)
    page.locator(".trl-space .trl-plot").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.locator(".trl-loops .trl-line.trl-running")).to_have_count(1)
    expect(page.locator(".trl-chip[aria-pressed='true']")).to_have_count(1)
    ring = page.locator(".trl-space .trl-body").evaluate("e => getComputedStyle(e).boxShadow")
    assert "inset" in ring, "the focus is seen"
    picture(page, "explorer_dark")
    unnamed = page.locator(".trl-explorer :is(button, input, select)").evaluate_all(
        """(all) => all.filter((e) => !e.hidden && !e.textContent.trim() && !e.getAttribute("aria-label")
            && !e.closest("label") && !e.labels?.length).map((e) => e.outerHTML)"""
    )
    assert unnamed == []
    assert_clean(watched)


# pixels of the lines of a chart
INK = """((chart) => {
    const lines = [...chart.querySelectorAll("polyline")];
    return lines.reduce((sum, line) => sum + line.getTotalLength(), 0);
})"""


def test_two_displays_of_one_explorer_show_the_same(watched: Watched, lab: Lab) -> None:
    page = explore(watched, lab, "twice.ipynb", EXPLORE + "display(explorer)")
    both = page.locator(".trl-explorer")
    expect(both).to_have_count(2)
    first, second = both.nth(0), both.nth(1)
    first.locator(".trl-loops .trl-line.trl-execute").nth(1).click()
    expect(second.locator(".trl-loops .trl-line.trl-selected").first).to_be_visible()
    second.locator(".trl-scrubber input").focus()
    page.keyboard.press("End")
    expect(first.locator(".trl-loops .trl-line.trl-running")).to_have_count(1)
    first.locator('[data-key="switch-lift"]').click()
    expect(second.locator('[data-key="switch-lift"]')).not_to_be_checked(timeout=10_000)
    second.locator(".trl-run select").select_option(label="10 turns/s")
    second.locator('[data-command="start"]').click()
    expect(first.locator(".trl-state")).to_have_text("running", timeout=20_000)
    page.wait_for_function(f"() => {INK}(document.querySelectorAll('.trl-chart')[1]) > 200")
    first.locator('[data-command="stop"]').click()
    expect(second.locator(".trl-state")).to_have_text("stopped", timeout=10_000)
    page.wait_for_timeout(300)  # drawn bytes persist
    page.wait_for_function(f"() => {INK}(document.querySelectorAll('.trl-chart')[1]) > 200")
    run_cell(page, "explorer.close()")
    expect(both).to_have_count(0)
    assert_clean(watched)


PANES = """
from timerl_widgets import IterationSpaceView, LoopView, MemoryTimeline, RunMonitor
explorer = program.explore()
display(explorer, LoopView(program), IterationSpaceView(program), MemoryTimeline(program))
monitor = RunMonitor(program)
running = monitor.start()
display(monitor)
running.result(60)
"""


def test_panes_stand_alone_and_are_saved_as_pictures(watched: Watched, lab: Lab) -> None:
    page = explore(watched, lab, "panes.ipynb", PANES)
    alone = ".jp-OutputArea-output :is(.trl-loops, .trl-space, .trl-memory):not(.trl-explorer *)"
    expect(page.locator(alone)).to_have_count(3)
    expect(page.locator(".trl-state").last).to_have_text("finished", timeout=10_000)
    line = page.locator(".trl-loops:not(.trl-explorer *) .trl-execute").first
    line.click()
    expect(line).to_have_class(re.compile("trl-selected"))
    run_cell(page, "monitor._handle_custom_msg({'kind': 'run', 'command': 'launch'}, [])")
    expect(page.locator(".trl-run .trl-note").last).to_contain_text(
        "the command 'launch' is unknown"
    )
    # pictures to take away
    for format_, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        for pane in ("loops", "space", "memory"):
            button = page.locator(f'.trl-explorer [aria-label="save {pane} as {format_}"]')
            with page.expect_download() as download:
                button.click()
            assert Path(os.fspath(download.value.path())).read_bytes().startswith(start)
    assert_clean(watched)


AREAS = """() => Object.fromEntries(
    ["source", "graph", "loops", "time", "inspector"].map((name) => {
        const cell = document.querySelector(`.trl-explorer .trl-at-${name}`);
        const { x, y, right, bottom } = cell?.getBoundingClientRect() ?? new DOMRect();
        return [name, [x, y, right, bottom].map(Math.round)];
    }),
)"""


def areas(page: Page) -> dict[str, list[int]]:
    """The rectangles of the panes: left, top, right, bottom."""
    return page.evaluate(AREAS)


def settled_areas(page: Page) -> dict[str, list[int]]:
    """The rectangles of the panes, once two readings agree."""
    before, found = {}, areas(page)
    for _ in range(100):
        if found == before:
            break
        page.wait_for_timeout(100)
        before, found = found, areas(page)
    return found


def test_all_panes_are_seen_at_once_and_can_be_arranged(watched: Watched, lab: Lab) -> None:
    page = watched.page
    page.set_viewport_size({"width": 1440, "height": 900})
    explore(watched, lab, "layout.ipynb", "display(program.explore())")
    page.locator(".trl-explorer").evaluate("(element) => element.scrollIntoView()")
    found = settled_areas(page)
    bottom = page.locator("#jp-main-statusbar, .jp-StatusBar-Widget").first.bounding_box()
    assert bottom is not None
    assert all(area[3] <= bottom["y"] + 1 for area in found.values()), (found, bottom)
    assert found["source"][2] <= found["graph"][0] < found["graph"][2] <= found["loops"][0]
    assert found["graph"][3] <= found["time"][1] and found["time"][2] <= found["inspector"][0]
    for name in ("space", "memory"):
        plot = page.locator(f".trl-{name} .trl-plot").bounding_box()
        assert plot is not None and plot["y"] + 60 < found["time"][3], name
    # borders move, and the browser remembers them
    border = page.locator(".trl-border.trl-vertical").first.bounding_box()
    assert border is not None
    x, y = border["x"] + 4, border["y"] + 80
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 70, y, steps=4)
    page.mouse.up()
    moved = areas(page)
    assert abs(moved["source"][2] - found["source"][2] - 70) <= 2
    assert moved["loops"] == found["loops"]
    # the stored arrangement may be invalid
    page.evaluate(
        """(text) => localStorage.setItem("timerl-explorer-layout", text)""",
        '{"hidden": ["toString", 3], "shares": {"graph": "x", "loops": 1e308}}',
    )
    open_and_run(page, lab, "layout.ipynb")
    expect(page.locator(".trl-explorer .trl-graph g.node").first).to_be_visible(timeout=20_000)
    page.locator(".trl-explorer").evaluate("(element) => element.scrollIntoView()")
    assert areas(page)["loops"][2] - areas(page)["loops"][0] > 200
    # a hidden pane gives its place to the others
    page.locator(".trl-layout > details > summary").click()
    page.locator('[data-key="pane-loops"]').click()
    hidden = areas(page)
    assert hidden["loops"] == [0, 0, 0, 0] and abs(hidden["graph"][2] - found["loops"][2]) <= 1
    page.keyboard.press("Escape")
    expect(page.locator(".trl-layout-menu").first).to_be_hidden()
    open_and_run(page, lab, "layout.ipynb")
    expect(page.locator(".trl-explorer .trl-graph g.node").first).to_be_visible(timeout=20_000)
    assert areas(page)["loops"] == [0, 0, 0, 0]
    page.locator(".trl-layout > details > summary").click()
    page.locator(".trl-layout-menu button", has_text="reset").click()
    assert areas(page)["loops"][2] > 0
    page.keyboard.press("Escape")
    # full screen, and other widths
    page.get_by_role("button", name="full screen").click()
    page.wait_for_function("() => document.querySelector('.trl-explorer.trl-full')")
    whole = page.locator(".trl-explorer").bounding_box()
    assert whole is not None and (whole["width"], whole["height"]) == (1440, 900)
    run = page.locator(".trl-at-run").bounding_box()
    assert run is not None and run["y"] + run["height"] <= 900
    page.get_by_role("button", name="full screen").click()
    page.wait_for_function("() => !document.querySelector('.trl-explorer.trl-full')")
    # without full screen, the explorer fills the window, and Escape returns
    page.evaluate(
        "() => { Element.prototype.requestFullscreen = () => Promise.reject(new Error()); }"
    )
    page.get_by_role("button", name="full screen").click()
    page.wait_for_function("() => document.querySelector('.trl-explorer.trl-full')")
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.querySelector('.trl-explorer.trl-full')")
    for width, shown in ((1100, "narrow"), (1300, "medium"), (1440, "wide")):
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator(f".trl-explorer[data-width='{shown}']")).to_be_visible()
    # a second view of the same explorer, beside the notebook
    page.get_by_role("button", name="new view").click()
    expect(page.locator(".trl-explorer")).to_have_count(2)
    expect(page.locator(".trl-layout .trl-beside:visible")).to_have_count(1)
    page.locator(".trl-loops .trl-line.trl-execute").first.click()
    expect(page.locator(".trl-loops .trl-line.trl-execute.trl-selected")).to_have_count(2)
    assert_clean(watched)


COSTS = """
import json
from timerl_nb.show import CostView
print("COSTS", json.dumps(CostView.from_program(program).to_json()))
"""


def test_colours_show_the_costs_of_the_program(watched: Watched, lab: Lab) -> None:
    page = explore(watched, lab, "costs.ipynb", COSTS, "explorer = program.explore()\nexplorer")
    printed = page.locator(".jp-OutputArea-output pre", has_text="COSTS").inner_text()
    costs = json.loads(printed.partition("COSTS")[2])["measures"]
    choice = page.get_by_label("colour by")
    offered = [
        "no colours",
        "colour by source line",
        *(f"colour by {one['name']}" for one in costs),
    ]
    assert choice.locator("option").all_inner_texts() == offered
    choice.select_option("launches")
    line = page.locator(".trl-loops .trl-line.trl-execute", has_text="acting(")
    (most,) = {
        max(row["value"] for row in one["rows"]) for one in costs if one["name"] == "launches"
    }
    expect(line).to_have_attribute("data-cost", f"{most:,.0f} launches")
    acting, learning = (
        float(page.locator(node(page, name)).evaluate("(e) => e.style.getPropertyValue('--cost')"))
        for name in ("acting(", "learning(")
    )
    assert (acting, learning) == (1, 200 / most)
    fill = "(e) => getComputedStyle(e.querySelector('path, polygon')).fill"
    assert (
        len({page.locator(node(page, name)).evaluate(fill) for name in ("acting(", "learning(")})
        == 2
    )
    expect(page.locator(".trl-graph .trl-status")).to_contain_text(f"{most:,.0f} launches")
    # a measurement adds a measure
    run_cell(page, "explorer.measured(trl.profile(program.with_bounds({I: 2})).by_op)")
    expect(choice.locator("option").last).to_have_text("colour by measured time", timeout=60_000)
    choice.select_option("measured time")
    expect(line).to_have_attribute("data-cost", re.compile(r"\d (µ|m)?s$"))
    choice.select_option("")
    expect(page.locator(".trl-explorer .trl-costly")).to_have_count(0)
    assert_clean(watched)


def test_a_run_pauses_on_a_condition_of_the_page(watched: Watched, lab: Lab) -> None:
    page = explore(watched, lab, "breakpoints.ipynb")
    state, condition = page.locator(".trl-state"), page.get_by_label("pause when")
    condition.fill("i = 3")
    page.keyboard.press("Enter")
    page.locator('[data-command="start"]').click()
    expect(state).to_have_text("paused: i = 3", timeout=20_000)
    assert page.locator(".trl-run progress").evaluate("(e) => e.value") == 3
    condition.fill("return > 0")  # holds after each iteration
    page.keyboard.press("Enter")
    page.locator('[data-command="start"]').click()
    expect(state).to_have_text(re.compile(r"^paused: return = [\d.]+ at i = 3$"), timeout=10_000)
    picture(page, "explorer_breakpoint")
    condition.fill("")
    page.keyboard.press("Enter")
    page.locator('[data-command="stop"]').click()
    expect(state).to_have_text("stopped", timeout=10_000)
    # a wrong condition is an error when the run starts
    condition.fill("reward > 1")
    page.keyboard.press("Enter")
    page.locator('[data-command="start"]').click()
    status = page.locator(".trl-settings .trl-status")
    expect(status).to_contain_text("'reward' has no value after each iteration", timeout=10_000)
    expect(state).to_have_text("stopped")
    assert_clean(watched)
