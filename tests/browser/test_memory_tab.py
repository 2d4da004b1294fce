"""The stage `memory` shows buffers, shared slots with reasons, and totals."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from timerl_widgets.explorer import Explorer

import timerl_nb as trl
from tests.browser.alone import Alone
from tests.reinforce import reinforce
from timerl_nb.show import MemoryView, StoresView

pytestmark = pytest.mark.browser


def compiled(executor: str) -> trl.Program:
    return reinforce(5, hidden=(4,)).compile(
        {"B": 3, "I": 4, "T": 12}, trl.Options(executor=executor)
    )


def amount(page: Page, part: str, known: str) -> Locator:
    return page.locator(f'.trl-amounts dd[data-part="{part}"][data-known="{known}"]')


def size(text: str) -> float:
    """Return the approximate bytes of a text such as `1.5 KiB planned`."""
    number, unit = re.findall(r"([\d.]+) (B|KiB|MiB|GiB)", text)[0]
    return float(number) * 1024 ** ["B", "KiB", "MiB", "GiB"].index(unit)


def test_the_memory_tab_says_what_is_kept_where_and_why(browser: Browser) -> None:
    program = compiled("xla")
    view = StoresView.from_program(program)
    explorer = Explorer(program, ahead=False)
    alone = Alone(browser, explorer)
    page = alone.page
    pane, rows = page.locator(".trl-stores"), page.locator(".trl-stores tbody tr")
    expect(pane).to_be_hidden()
    page.locator('.trl-strip [role="tab"][data-stage="memory"]').click()
    alone.settle()
    expect(pane).to_be_visible()
    expect(page.locator(".trl-pane.trl-graph")).to_be_hidden()
    # every buffer, the largest first
    expect(rows).to_have_count(len(view.places))
    names = rows.evaluate_all("all => all.map((one) => one.dataset.place)")
    assert names == [place.name for place in view.places]
    sizes = [size(text) for text in rows.locator(".trl-bytes").all_inner_texts()]
    assert sizes == sorted(sizes, reverse=True)
    # parts and sum, each with its source
    plan = program.memory
    for part, known, nbytes in (
        ("carried", "planned", plan.peak),
        ("temporaries", "estimated", plan.temporaries),
        ("constants", "given", plan.constants),
        ("needed", "estimated", plan.needed),
    ):
        text = amount(page, part, known).inner_text()
        assert text.endswith(known) and size(text) == pytest.approx(nbytes, rel=0.006), text
    expect(amount(page, "process", "measured")).to_have_count(0)
    # reason for the storage of an initial weight
    weight = next(one for one in view.places if one.tensors[0].name == "trunk.0.weight'")
    row = page.locator(f'.trl-stores tr[data-place="{weight.name}"]')
    for shared in weight.shared:
        expect(row).to_contain_text(shared.why)
    # a click selects the operation in every view; a selection marks its row
    row.click()
    alone.settle()
    assert explorer.selected == [weight.tensors[0].op_ids[0]]
    expect(row).to_have_attribute("aria-selected", "true")
    expect(page.locator(".trl-stores tr.trl-selected")).to_have_count(1)
    assert page.locator(".trl-live tr.trl-selected").count() == 1
    row.locator("button", has_text="trunk.0.weight.init").click()
    alone.settle()
    assert explorer.selected == [weight.tensors[1].op_ids[0]]
    explorer.selected = []
    alone.settle()
    expect(page.locator(".trl-stores tr.trl-selected")).to_have_count(0)
    acting = program.schedule.statements["acting"]
    page.locator(".trl-loops .trl-line.trl-execute", has_text="acting(").first.click()
    alone.settle()
    made = [p.name for p in view.places if any(t.tensor[0] == acting.id for t in p.tensors)]
    marked = page.locator(".trl-stores tr.trl-selected")
    assert set(made) == set(marked.evaluate_all("all => all.map((one) => one.dataset.place)"))
    assert alone.said == []


def test_what_a_run_measures_stands_beside_what_was_planned(browser: Browser) -> None:
    program = compiled("interpret")
    explorer = Explorer(program, stage="memory", ahead=False)
    alone = Alone(browser, explorer)
    page = alone.page
    expect(amount(page, "carried", "measured")).to_have_count(0)
    explorer.start().result(60)
    assert explorer._run_controller.latest() is not None
    alone.settle()
    text = amount(page, "carried", "measured").inner_text()
    assert size(text) == size(amount(page, "carried", "planned").inner_text())
    assert size(amount(page, "process", "measured").inner_text()) > 1 << 20
    given = [d for d in program.memory.donations.values() if d.output is not None]
    for donation in given:
        expect(page.locator(".trl-stores tbody", has_text=donation.why)).to_have_count(1)
    # other programs have no measurements
    explorer.change(lift=False)
    alone.settle()
    expect(amount(page, "carried", "measured")).to_have_count(0)
    planned = amount(page, "carried", "planned").inner_text()
    assert size(planned) == pytest.approx(explorer.program.memory.peak, rel=0.006)
    assert alone.said == []


def test_what_repeats_in_a_long_run_is_folded_behind_a_break(browser: Browser) -> None:
    program = compiled("xla").with_bounds({"I": 100_000})
    run = MemoryView.from_program(program).run
    assert run is not None
    (steady,) = (one for one in run.stretches if one.turns)
    explorer = Explorer(program, stage="memory", ahead=False)
    alone = Alone(browser, explorer)
    page = alone.page
    overview = page.locator(".trl-memory .trl-whole-run")
    expect(overview).to_have_attribute("aria-label", re.compile(f"{run.points:,} .*{steady.note}"))
    expect(overview.locator(".trl-break text")).to_have_text(steady.note)
    expect(overview.locator(".trl-run-area")).to_have_count(len(run.stretches))
    told = f"{steady.turns:,} equal turns, of which one is drawn"
    expect(overview.locator(".trl-break title")).to_contain_text(told)
    assert size(amount(page, "carried", "planned").inner_text()) == pytest.approx(
        program.memory.peak, rel=0.006
    )
    # the drawn iteration is that of the peak, numbered as in the run
    peak = page.locator(".trl-memory .trl-live caption").inner_text()
    assert size(peak) == pytest.approx(program.memory.peak, rel=0.006)
    # short runs have none
    explorer.change({"I": 3})
    alone.settle()
    expect(overview.locator(".trl-run-area")).to_have_count(1)
    expect(overview.locator(".trl-break")).to_have_count(0)
    explorer.change({"I": 1})
    alone.settle()
    assert alone.said == []
