"""The explorer's steps, comparison of graphs, values, bookmarks and colours of lines, against the program's data."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Browser, expect
from timerl_widgets.explorer import Explorer

import timerl_nb as trl
from tests.browser.alone import Alone
from tests.reinforce import reinforce
from timerl_nb.compiler.passes.rewrite_rules import describe_rule
from timerl_nb.show import Lineage, detail, source_view

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def program() -> trl.Program:
    return reinforce(hidden=(4,)).compile({"B": 3, "I": 6, "T": 5})


def until(alone: Alone, there: Callable[[], bool]) -> None:
    for _ in range(600):
        alone.settle()
        if there():
            return
        time.sleep(0.05)
    raise AssertionError("the page did not get there")


def test_a_step_states_its_rule_and_the_text_has_all_changes(
    browser: Browser, program: trl.Program
) -> None:
    alone = Alone(browser, Explorer(program, ahead=False))
    page, steps = alone.page, program.stages["fuse"].steps
    for step in steps[:3]:
        page.get_by_role("button", name="next step").click()
        found = describe_rule(step.rule)
        assert found is not None
        expect(page.locator(".trl-step b")).to_have_text(step.rule)
        expect(page.locator(".trl-rule")).to_contain_text(found.text)
        expect(page.locator(".trl-page")).to_have_text(found.page)
    page.get_by_role("button", name="text", exact=True).click()
    for stage in ("fuse", "vectorize"):
        alone.widget.stage = stage
        lines = detail(program, f"diff {stage}").lines
        alone.settle()
        expect(page.locator(".trl-whole > div")).to_have_count(len(lines))
        for name, sign in (("was", "-"), ("became", "+")):
            expect(page.locator(f".trl-whole .trl-{name}")).to_have_text(
                [line.text for line in lines if line.text[0] == sign]
            )
    added = next(k for k, line in enumerate(lines) if line.text[0] == "+" and line.op_ids)
    page.locator(".trl-whole > div").nth(added).click()
    until(alone, lambda: set(alone.widget.selected) <= set(lines[added].op_ids) != set())
    assert alone.widget.selected
    assert alone.said == []


def test_the_graphs_of_two_programs_follow_each_other(
    browser: Browser, program: trl.Program
) -> None:
    other = program.with_options(fuse=False)
    explorer = Explorer(program, other, ahead=False)
    alone = Alone(browser, explorer)
    page = alone.page
    page.locator(".trl-both-graphs > summary").click()
    page.get_by_label("stage of both graphs").select_option("vectorize")
    panes = page.locator(".trl-both-graphs .trl-graph")
    until(alone, lambda: panes.locator("g.node").count() > 0)
    assert explorer.graphs["stages"] == ["vectorize", "vectorize"]
    left, right = panes.nth(0), panes.nth(1)
    for pane, view in zip((left, right), explorer.graphs["views"], strict=True):
        assert pane.locator("g.node").count() == len(view["json"]["nodes"])
    first = left.locator("g.node").first
    name = first.get_attribute("id")
    first.dispatch_event("click")
    expect(right.locator(f"g.node[id='{name}']")).to_have_class(re.compile("trl-selected"))
    box = "(svg) => svg.getAttribute('viewBox')"
    stage = ".trl-stage > svg:not(.trl-minimap)"
    before = right.locator(stage).evaluate(box)
    left.get_by_role("button", name="zoom in").click()
    after = right.locator(stage).evaluate(box)
    assert after != before
    assert after.split()[2:] == left.locator(stage).evaluate(box).split()[2:]  # the same scale
    assert alone.said == []


def test_stages_are_found_by_name(browser: Browser, program: trl.Program) -> None:
    explorer = Explorer(program, ahead=False)
    alone = Alone(browser, explorer)
    search = alone.page.get_by_role("searchbox", name="search", exact=True)
    search.fill("ize")
    named = [row["name"] for row in explorer.pipeline["json"]["stages"] if "ize" in row["name"]]
    expect(alone.page.locator(".trl-sought")).to_have_count(len(named))
    search.fill("vect")
    search.press("Enter")
    until(alone, lambda: explorer.stage == "vectorize")
    assert alone.said == []


def test_a_paused_run_shows_the_values_of_the_selected_tensors(
    browser: Browser, program: trl.Program
) -> None:
    explorer = Explorer(program, ahead=False)
    alone = Alone(browser, explorer)
    page = alone.page
    expect(page.locator(".trl-values")).to_be_hidden()
    field = page.get_by_label("pause when")
    field.fill("i = 2")
    field.press("Enter")
    until(alone, lambda: explorer.pause_when == "i = 2")
    with explorer.start() as run:
        assert run.wait(60)
        assert run.turn == 2
        values = run.live_values()
        name = next(n for n, one in values.items() if one.values.ndim == 3)
        explorer.selected = [program.memory.pdg[values[name].tensor[0]].id]
        until(alone, lambda: page.locator(".trl-values svg text", has_text=name).count() > 0)
        more = explorer.values["json"]["more"]
        assert more > 1, "the pane must not hide how many tensors it leaves out"
        text = f"after 2 iterations; {more} more tensors"
        expect(page.locator(".trl-values .trl-note")).to_have_text(text)
        view = explorer.values["json"]["maps"]
        shown = next(one for one in view if one["name"] == name)
        cells = page.locator(".trl-values rect > title")
        titles = [cell.text_content() for cell in cells.all()]
        table = values[name].values[-1]
        for index in np.ndindex(*table.shape):
            row, column = index
            said = f"{shown['rows']['name']} = {int(values[name].points[-1, 0])}, {row}; axis 1 = {column}: "
            found = next(title for title in titles if title and title.startswith(said))
            assert float(found.removeprefix(said)) == pytest.approx(float(table[index]), rel=1e-3)
        explorer.selected = []
        until(alone, lambda: not explorer.values)
        expect(page.locator(".trl-values")).to_be_hidden()
    reopened = Alone(browser, Explorer(program, ahead=False))
    expect(reopened.page.get_by_label("pause when")).to_have_value("")
    assert alone.said == []


def test_the_condition_of_a_breakpoint_survives_a_reload(
    browser: Browser, program: trl.Program
) -> None:
    explorer = Explorer(program, ahead=False)
    explorer._receive(None, {"kind": "run", "command": "pause_when", "value": "i = 3"}, None)
    expect(Alone(browser, explorer).page.get_by_label("pause when")).to_have_value("i = 3")


def test_a_bookmark_returns_to_its_stage_selection_and_instant(
    browser: Browser, program: trl.Program
) -> None:
    explorer = Explorer(program, ahead=False)
    alone = Alone(browser, explorer)
    page = alone.page
    chosen = [min(program.pdg.ops)]
    explorer.stage, explorer.selected, explorer.instant = "contract", chosen, 3
    alone.settle()
    page.get_by_text("bookmarks").click()
    page.get_by_label("name of the bookmark").fill("<b>mine</b>")
    page.get_by_label("name of the bookmark").press("Enter")
    until(alone, lambda: len(explorer.bookmarks) == 1)
    explorer.stage, explorer.selected, explorer.instant = "fuse", [], None
    alone.settle()
    page.get_by_role("button", name="<b>mine</b>", exact=True).click()
    until(alone, lambda: explorer.stage == "contract")
    assert (explorer.selected, explorer.instant) == (chosen, 3)
    explorer.set_state({"bookmarks": [{"name": 1}, *explorer.bookmarks]})
    assert [one["name"] for one in explorer.bookmarks] == ["<b>mine</b>"]
    page.get_by_role("button", name="remove <b>mine</b>").click()
    until(alone, lambda: not explorer.bookmarks)
    assert alone.said == []


def test_a_kernel_has_the_colours_of_the_lines_that_it_computes(
    browser: Browser, program: trl.Program
) -> None:
    alone = Alone(browser, Explorer(program, ahead=False))
    page = alone.page
    page.get_by_label("colour by").select_option("source line")
    lineage = Lineage.from_program(program)
    source = [line for line in source_view(program).lines if line.op_ids]
    stripes = "(rows) => rows.map((row) => row.style.getPropertyValue('--stripes'))"
    own = page.locator(".trl-source-pane .trl-striped").evaluate_all(stripes)
    assert len(own) == len(set(own)) == len(source)
    colours = [text.partition("(")[2].partition(" 0%")[0] for text in own]
    for op in program.fused:
        name = re.escape(program.ast.names.get(op.id, "none"))
        lines = page.locator(".trl-loops .trl-execute", has_text=re.compile(rf"^\W*{name}\("))
        if not lines.count():
            continue
        text = lines.first.evaluate("(row) => row.style.getPropertyValue('--stripes')")
        expected = {
            colour
            for line, colour in zip(source, colours, strict=True)
            if lineage.relatives(op.op_ids)["pdg"].intersection(line.op_ids)
        }
        assert {colour for colour in colours if colour in text} == expected != set()
    page.get_by_label("colour by").select_option("")
    expect(page.locator(".trl-striped")).to_have_count(0)
    assert alone.said == []


def test_an_earlier_run_stays_in_the_chart(browser: Browser, program: trl.Program) -> None:
    explorer = Explorer(program, ahead=False)
    alone = Alone(browser, explorer)
    for seed in range(2):
        assert explorer.start(seed=seed).result(60)
        until(
            alone,
            lambda n=seed: (
                len(explorer.run["json"]["earlier"]) == n
                and explorer.run["json"]["frame"]["state"] == "finished"
            ),
        )
    alone.settle()
    (earlier,) = explorer.run["json"]["earlier"]
    assert earlier["name"] == "run 1"
    legend = alone.page.get_by_role("figure", name="outputs by turn").locator(
        ".trl-chart-legend > span"
    )
    expect(legend).to_have_text(["return", "return, run 1"])
    assert alone.said == []


def test_figures_have_explanations(browser: Browser, program: trl.Program) -> None:
    explorer = Explorer(program, ahead=False)
    alone = Alone(browser, explorer)
    assert explorer.start().result(60)
    until(alone, lambda: explorer.run["json"]["frame"]["state"] == "finished")
    terms = alone.page.locator(".trl-figures-of-run dt")
    outputs = set(explorer.run["json"]["frame"]["curves"])
    for one in terms.all():
        assert one.inner_text() in outputs or one.get_attribute("title"), one.inner_text()
    assert "still needed" in str(
        alone.page.get_by_role("columnheader", name="live", exact=True).get_attribute("title")
    )
