"""Textual stages show their text, linked with all other views, without Jupyter."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Locator, expect
from timerl_widgets.explorer import Explorer

import timerl_nb as trl
from tests.browser.alone import Alone
from tests.reinforce import reinforce

pytestmark = pytest.mark.browser
TEXTS = {
    "source": "env.step(a)",
    "schedule": "dependences: ",
    "memory": "donations:",
    "ast": "for t in range(0, 12):",
    "executable": "buffers, ",
}


@pytest.fixture(scope="module")
def program() -> trl.Program:
    return reinforce(hidden=(4,)).compile({"B": 3, "I": 4, "T": 12}, trl.Options(executor="xla"))


def line(pane: Locator, text: str) -> Locator:
    return pane.locator(".trl-line", has_text=text).first


def test_stages_show_what_they_are(browser: Browser, program: trl.Program) -> None:
    explorer = Explorer(program, ahead=False)
    alone = Alone(browser, explorer)
    outline, graph = alone.page.locator(".trl-outline"), alone.page.locator(".trl-pane.trl-graph")
    expect(outline).to_be_hidden()
    for stage, text in TEXTS.items():
        explorer.stage = stage
        alone.settle()
        if stage == "memory":  # it has a separate pane
            expect(outline).to_be_hidden()
            alone.page.locator(".trl-stores button", has_text="as text").click()
        expect(outline.locator("h3")).to_have_text(stage)
        expect(line(outline, text)).to_be_visible()
        expect(graph).to_be_hidden()
    explorer.stage = "fuse"
    alone.settle()
    expect(outline).to_be_hidden()
    expect(graph).to_be_visible()
    assert alone.said == []


def test_lines_fold_and_are_found_and_linked(browser: Browser, program: trl.Program) -> None:
    explorer = Explorer(program, stage="schedule", ahead=False)
    alone = Alone(browser, explorer)
    outline = alone.page.locator(".trl-outline")
    pair = line(outline, "acting(i, t) -> learning(i)")
    inside = outline.locator(".trl-line", has_text="{ [i', t'] -> [i = i']").first
    expect(inside).to_be_hidden()  # folded at first
    pair.locator(".trl-fold").click()
    expect(inside).to_be_visible()
    outline.locator("input[type=search]").fill("reset(i)")
    found = outline.locator(".trl-found")
    texts = [
        text
        for one in explorer._drawing.outline("schedule")["json"]["lines"]
        for text in [one["text"]]
    ]
    expect(found).to_have_count(sum("reset(i)" in text for text in texts))
    kernel = program.schedule.statements["reset"]
    line(outline, "reset(i) ->").click()
    alone.settle()
    assert explorer.selected == [kernel.id]
    expect(line(outline, "reset(i) ->")).to_have_class("trl-line trl-lit trl-found trl-selected")
    assert (
        alone.page.locator(".trl-loops .trl-line.trl-selected").count() == 2
    )  # executed, and freed


def test_a_line_of_the_source_is_all_that_came_of_it(
    browser: Browser, program: trl.Program
) -> None:
    explorer = Explorer(program, ahead=False)
    alone = Alone(browser, explorer)
    source = alone.page.locator(".trl-source-pane")
    sampled = line(source, "dnn.sample(o)")
    sampled.click()
    alone.settle()
    ids = [op.id for op in program.pdg if "dnn.sample(o)" in op.origin.text]
    assert sorted(explorer.selected) == ids
    kernel = program.schedule.statements["learning"]
    explorer.selected = [kernel.id]
    alone.settle()
    expect(line(source, "discounted_sum")).to_have_class("trl-line trl-lit trl-selected")
    held, launches = line(source, "env.step(a)").locator(".trl-figure").all_inner_texts()
    assert launches == "49" and held.endswith(
        "B"
    )  # 12 steps in each of 4 iterations, and the first state


def test_what_xla_makes_is_asked_for(browser: Browser, program: trl.Program) -> None:
    explorer = Explorer(program, stage="executable", ahead=False)
    alone = Alone(browser, explorer)
    outline = alone.page.locator(".trl-outline")
    for sort, text in (("jaxpr", "lambda"), ("hlo", "ENTRY")):
        asks = line(outline, f"{sort} of call 1")
        expect(line(outline, text)).to_have_count(0)
        asks.click()
        alone.settle()
        expect(line(outline, text)).to_be_attached()
    init = program.schedule.statements["init"]
    outline.locator(".trl-line.trl-lit", has_text="fusion(").first.click()
    alone.settle()
    assert explorer.selected == [init.id]
