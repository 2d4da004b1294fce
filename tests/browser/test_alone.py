"""Widgets in pages without Jupyter: keyboard, messages and selection."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from timerl_widgets import IterationSpaceView, LoopView, MemoryTimeline, PdgView, RunMonitor
from timerl_widgets.explorer import Explorer

import timerl_nb as trl
from tests.browser.alone import Alone
from tests.reinforce import reinforce
from timerl_nb.runtime.xla.lowering.lowered_program import Lowered

pytestmark = pytest.mark.browser

FOCUSED = (
    "() => document.activeElement.closest('.trl-pane')?.className ?? document.activeElement.id"
)


@pytest.fixture(scope="module")
def program() -> trl.Program:
    return reinforce(5, hidden=(4,)).compile({"B": 3, "I": 4, "T": 12})


def test_tab_goes_from_pane_to_pane_and_escape_lets_go(
    browser: Browser, program: trl.Program
) -> None:
    other = program.with_options(lift=False)
    explorer = Explorer(program, other, ahead=False)
    alone = Alone(browser, explorer)
    page = alone.page
    page.focus("#before")
    stops = list[str]()
    while True:
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUSED)
        if at == "behind":
            break
        stops.append(at.split("trl-")[-1])
        explorer.selected = [min(program.pdg.ops)]
        alone.settle()
        assert page.locator(".trl-selected").count() > 0
        page.keyboard.press("Escape")
        alone.settle()
        assert (explorer.selected, page.locator(".trl-selected").count()) == ([], 0), at
    panes = {
        *[
            "settings",
            "strip",
            "steps",
            "graph",
            "loops",
            "scrubber",
            "space",
            "memory",
            "inspector",
            "run",
        ]
    }
    assert panes <= {*stops} and len(stops) <= 15, stops
    # arrow keys move within a pane, to all clickable elements
    tab, switch = page.locator('[data-stage="lift"]'), page.locator('[data-key="switch-lift"]')
    tab.click()
    tab.press("ArrowUp")
    expect(switch).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(tab).to_be_focused()
    page.locator(".trl-at-time .trl-memory .trl-plot").focus()
    page.keyboard.press("ArrowDown")
    first = page.locator(".trl-at-time .trl-live button").first
    expect(first).to_be_focused()
    page.keyboard.press("Enter")
    assert explorer.selected
    page.locator('[aria-label="kind"]').focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".trl-search [type=search]")).to_be_focused()
    # a redrawn control keeps the focus
    link = page.locator(".trl-inspector .trl-link").first
    link.focus()
    page.keyboard.press("Enter")
    alone.settle()
    assert "trl-inspector" in page.evaluate(FOCUSED)
    assert alone.said == []


LETTER = "() => 10 * document.querySelector('.trl-graph g.graph').getScreenCTM().a"  # pixels
# ids of the nodes that are wholly visible
SEEN = """() => {
    const whole = document.querySelector(".trl-graph .trl-stage").getBoundingClientRect();
    const inside = ({ left, right, top, bottom }) =>
        left >= whole.left && right <= whole.right && top >= whole.top && bottom <= whole.bottom;
    const nodes = [...document.querySelectorAll(".trl-graph g.node")];
    return nodes.filter((node) => inside(node.getBoundingClientRect())).map(({ id }) => id);
}"""


def test_a_large_graph_opens_at_a_readable_scale_on_what_matters(
    browser: Browser, program: trl.Program
) -> None:
    graph = trl.show.graph_view(program.stages["simplify"].artifact)
    while folded := [node.key for node in graph.nodes if node.is_folded]:
        for key in folded:
            graph = graph.unfold(key)
    assert len(graph.nodes) > 200
    widget = PdgView(graph)
    chosen = [node for node in graph.nodes if "tanh" in node.label][-1]
    starts = dict[str, list[str]]()
    for name, ids in {"first": [], "chosen": list(chosen.op_ids)}.items():
        widget.selected = ids
        alone = Alone(browser, widget)
        assert alone.page.evaluate(LETTER) >= 9
        starts[name] = alone.page.evaluate(SEEN)
        assert alone.said == []
        alone.page.close()
    assert starts["first"] and chosen.key not in starts["first"]
    assert chosen.key in starts["chosen"]


def test_a_graph_opens_on_its_costliest_node_while_costs_are_shown(
    browser: Browser, program: trl.Program
) -> None:
    explorer = Explorer(program, stage="fuse", ahead=False)
    alone = Alone(browser, explorer)
    page = alone.page
    page.get_by_label("colour by").select_option("bytes")
    page.locator('[data-stage="vectorize"]').click()
    alone.settle()

    def costliest() -> str:
        return page.locator(".trl-graph g.node").evaluate_all(
            """(all) => all.sort((a, b) =>
                (Number(b.style.getPropertyValue("--cost")) - Number(a.style.getPropertyValue("--cost"))))[0].id"""
        )

    _until(alone, lambda: costliest() in page.evaluate(SEEN))
    assert page.evaluate(LETTER) >= 9
    assert alone.said == []


@pytest.mark.parametrize("width", [1440, 1100, 800, 500])
def test_a_layout_has_few_stops_and_escape_clears_at_each(
    browser: Browser, program: trl.Program, width: int
) -> None:
    explorer = Explorer(program, ahead=False)
    alone = Alone(browser, explorer, width=width)
    stops = _escape_at_each_stop(alone, explorer, [min(program.pdg.ops)])
    assert len(stops) <= 15 and len({*stops}) >= 11, stops
    assert alone.said == []
    alone.page.close()


@pytest.mark.parametrize("kind", [PdgView, LoopView, IterationSpaceView, MemoryTimeline])
def test_escape_clears_in_single_views(browser: Browser, program: trl.Program, kind: Any) -> None:
    shown = PdgView(program.fused) if kind is PdgView else kind(program)
    alone = Alone(browser, shown)
    acting = next(op.id for op in program.fused if op.label == "acting")
    assert _escape_at_each_stop(alone, shown, [acting])
    assert alone.said == []
    alone.page.close()


def _escape_at_each_stop(alone: Alone, widget: Any, ids: list[int]) -> list[str]:
    """Press Tab through a widget; at each stop, select operations, press Escape, and expect no selection."""
    page, stops = alone.page, list[str]()
    marked = page.locator(".trl-selected")
    page.focus("#before")
    while True:
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUSED)
        if at == "behind":
            return stops
        stops.append(at)
        widget.selected = ids
        alone.settle()
        assert widget.selected == ids and marked.count() > 0, at
        page.keyboard.press("Escape")
        alone.settle()
        assert widget.selected == [] and marked.count() == 0, at
        assert len(stops) < 40, stops


def test_one_tensor_is_selected_with_who_makes_and_reads_it(
    browser: Browser, program: trl.Program
) -> None:
    explorer = Explorer(program, ahead=False)
    alone = Alone(browser, explorer)
    page, plan = alone.page, program.memory
    named = {name: tensor for tensor, name in plan.names.items()}
    rows = page.locator(".trl-at-time .trl-live tbody tr")
    assert rows.count() > 10
    for k in range(8):
        row = rows.nth(k)
        name = row.locator("th").inner_text()
        behind = plan.computing_operation(*named[name])
        row.click()
        alone.settle()
        assert explorer.selected == [behind.id]
        assert page.locator(".trl-live tr.trl-selected th").all_inner_texts() == [name]
        expect(page.locator(".trl-inspector h4")).to_have_count(1)
        expect(page.locator(".trl-inspector h4")).to_contain_text(name)
        expect(page.locator(".trl-inspector p", has_text="stored as")).to_have_count(1)
        made = page.locator(".trl-line.trl-execute.trl-selected").all_inner_texts()
        assert {text.strip().split("(")[0] for text in made} == {maker(program, named[name])}
        read = page.locator(".trl-line.trl-execute.trl-reads").all_inner_texts()
        assert {text.strip().split("(")[0] for text in read} == readers(program, named[name])
        drawn = page.locator(".trl-graph g.node.trl-reads").count()
        assert drawn == len(readers(program, named[name]))
    # a selection from Python selects the operation with all its results
    explorer.selected = []
    alone.settle()
    assert page.locator(".trl-selected, .trl-reads").count() == 0
    assert alone.said == []


def maker(program: trl.Program, tensor: tuple[int, int]) -> str:
    return program.schedule.names[tensor[0]]


def readers(program: trl.Program, tensor: tuple[int, int]) -> set[str]:
    uses = program.memory.constraints.uses
    return {program.schedule.names[u.reader] for u in uses if (u.source, u.out) == tensor}


def test_what_a_change_changed_is_told_with_what_it_is_compared_with(
    browser: Browser, program: trl.Program
) -> None:
    explorer = Explorer(program, ahead=False)
    alone = Alone(browser, explorer)
    page = alone.page
    said = page.locator(".trl-graph .trl-status span")
    marks = page.locator(".trl-graph :is(.trl-added, .trl-changed)")
    clear = page.get_by_role("button", name="clear marks")
    expect(clear).to_be_hidden()

    def change(**options: object) -> None:
        explorer.change(**options)
        alone.settle()

    change(contract=False, lift=False)
    expect(said).to_contain_text("changed, compared with: contract on, lift on")
    assert marks.count() > 0
    change(donate=False)  # unknown to the graph
    expect(said).to_have_text("nothing changed, compared with: donate on")
    assert marks.count() == 0
    change(contract=True, lift=True)
    expect(said).to_contain_text("changed, compared with: contract off, lift off")
    assert marks.count() > 0
    clear.click()
    expect(clear).to_be_hidden()
    expect(said).not_to_contain_text("compared with")
    assert marks.count() == 0
    page.locator('[data-stage="contract"]').click()
    alone.settle()
    expect(said).to_contain_text("compared with: stage fuse")
    explorer.change({"T": 9})
    alone.settle()
    expect(said).to_contain_text("compared with: T = 12")
    assert alone.said == []


def test_nothing_jumps_whatever_is_said(browser: Browser, program: trl.Program) -> None:
    explorer = Explorer(program, ahead=False)
    alone = Alone(browser, explorer, width=1100)
    page = alone.page

    def places() -> list[object]:
        """Return position and height of all elements below the settings."""
        boxes = "all => all.map((e) => [e.offsetTop, e.offsetHeight])"
        return page.locator(".trl-cell").evaluate_all(boxes)

    tabs = page.locator(".trl-tabbed").evaluate_all("all => all.map((e) => e.offsetTop)")
    assert len({*tabs}) == 1, "one row, also where not all of it fits"
    before, more = places(), page.locator(".trl-settings .trl-more")
    explorer.change(device_memory="64B")
    alone.settle()
    assert explorer.status["state"] == "failed"
    expect(more).to_contain_text(explorer.status["hint"])
    assert places() == before
    page.keyboard.press("Tab")
    page.locator(".trl-settings button", has_text="more").press("Escape")
    expect(more).to_be_hidden()
    explorer.change(donate=False)
    alone.settle()
    assert places()[:2] == before[:2]
    # the effect of a switch, and a change that cost nothing because a trial had compiled it
    windows = page.locator('[data-key="switch-windows"]')
    expect(windows).to_have_attribute("aria-label", "lift, which also switches windows")
    expect(page.locator('[data-stage="windows"]')).to_contain_text("option lift")
    stages = explorer.program.stages.values()
    known = [stage.name for stage in stages if stage.known]
    shown = [
        name
        for name in explorer.program.stages
        if "reused" in page.locator(f'[data-stage="{name}"] .trl-figures').inner_text()
    ]
    assert shown == known and known
    assert alone.said == []


def test_what_keeps_a_peak_down_stands_beside_it(browser: Browser, program: trl.Program) -> None:
    whole = reinforce(hidden=(4,)).compile({"B": 3, "I": 4, "T": 12})
    blocks = whole.with_options(rematerialize=True, incrementalize={"t": 5})
    badges = Alone(browser, MemoryTimeline(blocks)).page.locator(".trl-badge")
    expect(badges).to_have_text(list(blocks.memory.saved_by))
    expect(badges.last).to_have_attribute("title", "the options require it")
    expect(Alone(browser, MemoryTimeline(program)).page.locator(".trl-badge")).to_have_count(0)


@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_a_run_says_what_it_waits_for_and_draws_what_is_measured(
    browser: Browser, program: trl.Program, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, start = threading.Event(), Lowered.start

    def slow(lowered: Lowered) -> Any:
        assert go.wait(30)
        return start(lowered)

    monkeypatch.setattr(Lowered, "start", slow)
    monitor = RunMonitor(program.with_options(executor=executor))
    running = monitor.start()
    alone = Alone(browser, monitor)
    state = alone.page.locator(".trl-state")
    if executor == "xla":
        _until(alone, lambda: bool(monitor.run))
        expect(state).to_have_text(re.compile(r"compiling with XLA, \d+ s so far"))
    go.set()
    assert running.result(60)
    _until(alone, lambda: monitor.run.get("json", {})["frame"]["state"] == "finished")
    expect(state).to_have_text("finished")
    lowered = executor == "xla"
    for name, there in {
        "live bytes by executed point": not lowered,
        "memory over time, s": lowered,
    }.items():
        expect(alone.page.get_by_role("figure", name=name)).to_be_visible(visible=there)
    expect(alone.page.get_by_text("XLA's buffers")).to_have_count(int(lowered))
    assert alone.said == []


def _until(alone: Alone, there: Callable[[], bool]) -> None:
    for _ in range(600):
        if there():
            break
        time.sleep(0.05)
    assert there()
    alone.settle()


def test_a_change_that_takes_long_can_be_cancelled(browser: Browser, program: trl.Program) -> None:
    explorer = Explorer(program, ahead=False)
    page = Alone(browser, explorer).page
    cancel = page.locator(".trl-cancel")
    expect(cancel).to_be_hidden()
    explorer.status = {"state": "compiling", "text": "1 tried within 2.0 KiB"}
    page.evaluate("(status) => window.take({ changed: { status }, told: [] })", explorer.status)
    cancel.click()  # waits for the element
    expect(cancel).to_be_visible()
    assert explorer._cancelled.wait(10)
