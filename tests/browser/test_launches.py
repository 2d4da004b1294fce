"""The launch timeline, the tooltips of the memory, and the zoom of the time axes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Lab, Watched
from tests.browser.opened import change_theme
from tests.browser.test_explorer import SCREENSHOTS, SETUP, assert_clean, explore, node, picture

pytestmark = pytest.mark.browser

PRINTED = """
import json
from timerl_nb.show import LaunchView, MemoryView
print("LAUNCHES", json.dumps(LaunchView.from_program(program).to_json()))
print("MEMORY", json.dumps(MemoryView.from_program(program).to_json()))
"""
EXPLORE = "explorer = program.explore()\nexplorer"
# inside functions: other tests use dimensions of the same names in the same kernel
LONG = """
def long():
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal((4,), domain=(t,)).named("x")
        s = trl.like(x).named("s")
        s[0] = x[0]
        s[t + 1] = (s * 0.5 + x[t + 1]).tanh()
        ctx.output("s", s)
    return ctx.compile({T: 100_000}, trl.Options(vectorize=False))
program = long()
"""
TURNS = """
def turns():
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.random.normal((4,), domain=(i, t)).named("x")
        s = trl.like(x).named("s")
        s[i, 0] = x[i, 0]
        s[i, t + 1] = (s * 0.5 + x[i, t + 1]).tanh()
        ctx.output("s", s.sum(over=t))
    return ctx.compile({I: 10_000, T: 8}, trl.Options(vectorize=False))
program = turns()
"""


def printed(page: Page, name: str) -> Any:
    found = page.locator(".jp-OutputArea-output pre", has_text=name).first.inner_text()
    (line,) = (one for one in found.splitlines() if one.startswith(f"{name} "))
    return json.loads(line.removeprefix(f"{name} "))


def show_launches(page: Page) -> Locator:
    page.locator('.trl-memory [data-pane="launches"]').click()
    pane = page.locator(".trl-launch")
    expect(pane.locator(".trl-launches").first).to_be_attached()
    return pane


def bars(pane: Locator) -> list[list[tuple[float, float]]]:
    """The left end and the width of each bar, by row."""
    paths = pane.locator(".trl-launches").evaluate_all("es => es.map((e) => e.getAttribute('d'))")
    found = re.compile(r"M([\d.]+) [\d.]+h([\d.]+)v")
    return [[(float(x), float(w)) for x, w in found.findall(path)] for path in paths]


def ends(plot: Locator) -> tuple[float, float]:
    """The horizontal ends of a plot's axis: the margins of all plots are equal."""
    return 62, float(plot.get_attribute("width") or 0) - 14


def assert_drawn(pane: Locator, view: Any) -> None:
    """Every launch is a bar at the time of the view."""
    left, right = ends(pane.locator(".trl-plot"))
    begin, scale = view["begin"], (right - left) / view["begin"][-1]
    for row, drawn in zip(view["rows"], bars(pane), strict=True):
        expected = [
            (left + begin[k] * scale, max((begin[k + 1] - begin[k]) * scale, 1))
            for k in row["columns"]
        ]
        assert len(drawn) == len(expected) == row["launches"]
        for one, other in zip(drawn, expected, strict=True):
            assert one == pytest.approx(other, abs=0.02)
    colours = pane.locator(".trl-launches").evaluate_all(
        "es => es.map((e) => e.getAttribute('fill'))"
    )
    assert colours == [row["colour"] for row in view["rows"]]


def click(page: Page, plot: Locator, x: float, y: float) -> None:
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + x, box["y"] + y)


def drag(page: Page, plot: Locator, xs: Sequence[float], y: float) -> None:
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + xs[0], box["y"] + y)
    page.mouse.down()
    page.mouse.move(box["x"] + xs[1], box["y"] + y, steps=4)
    page.mouse.up()


def test_launches_are_as_long_as_the_program_says(watched: Watched, lab: Lab) -> None:
    page = watched.page
    page.set_viewport_size({"width": 1440, "height": 900})
    explore(watched, lab, "launches.ipynb", PRINTED, EXPLORE)
    view = printed(page, "LAUNCHES")
    pane = show_launches(page)
    assert_drawn(pane, view)
    expect(pane.locator(".trl-note")).to_have_text(
        re.compile(rf"^{view['turn']['count']} launches in [\d.]+ (µ|m)s, estimated; at i = 198$")
    )
    names = [row["name"] for row in view["rows"]]
    k = names.index("acting")
    # a click selects the kernel everywhere, and sets the instant
    x, width = bars(pane)[k][2]
    height = float(pane.locator(".trl-plot").get_attribute("height") or 0)
    y = 12 + (k + 0.5) * (height - 46) / len(names)
    click(page, pane.locator(".trl-plot"), x + width / 2, y)
    instant = view["first"][view["rows"][k]["columns"][2]]
    expect(page.locator(".trl-at")).to_have_text(
        f"{instant} / {view['turn']['count'] - 1}  acting(i = 198, t = 2)"
    )
    line = page.locator(".trl-loops .trl-line.trl-execute.trl-selected")
    expect(line).to_have_count(1)
    expect(line).to_contain_text("acting(")
    expect(page.locator(node(page, "acting("))).to_have_class(re.compile("trl-selected"))
    expect(page.locator(".trl-chip", has_text="acting")).to_have_attribute("aria-pressed", "true")
    expect(pane.locator(".trl-tip")).to_have_text(
        f"acting(i = 198, t = 2)\n{view['rows'][k]['seconds'] * 1e6:.3g} µs, estimated\n"
        f"acting, instant {instant}"
    )
    # another launch of the same kernel stays selected
    x, width = bars(pane)[k][5]
    click(page, pane.locator(".trl-plot"), x + width / 2, y)
    expect(page.locator(".trl-at")).to_contain_text("acting(i = 198, t = 5)")
    expect(line).to_have_count(1)
    head = pane.locator(".trl-playhead")
    assert float(head.get_attribute("x") or 0) == pytest.approx(x, abs=0.02)
    assert float(head.get_attribute("width") or 0) == pytest.approx(width, abs=0.02)
    picture(page, "explorer_launches")
    # by instant, the columns are those of the other plots
    pane.get_by_label("axis").select_option("order")
    left, right = ends(pane.locator(".trl-plot"))
    starts = [left + (right - left) * at / view["turn"]["count"] for at in view["first"]]
    for row, drawn in zip(view["rows"], bars(pane), strict=True):
        assert [x for x, _ in drawn] == pytest.approx([starts[c] for c in row["columns"]], abs=0.02)
    heads = page.locator(".trl-playhead:visible").evaluate_all(
        "es => es.map((e) => e.getAttribute('x'))"
    )
    assert len(heads) == 2 and heads[0] == heads[1]
    # a selection elsewhere marks its launches
    page.locator(".trl-loops .trl-line.trl-execute", has_text="learning(").click()
    classes = pane.locator(".trl-launches").evaluate_all("es => es.map((e) => e.classList.value)")
    expected = [
        "trl-launches " + ("trl-selected" if name == "learning" else "trl-faint") for name in names
    ]
    assert classes == expected
    # the page remembers the pane
    assert page.evaluate("localStorage.getItem('timerl-explorer-timed-pane')") == "launches"
    pane.locator('[data-pane="memory"]').click()
    expect(page.locator(".trl-memory .trl-plot")).to_be_visible()
    expect(page.locator('.trl-memory [data-pane="memory"]')).to_be_focused()
    assert_clean(watched)


MEASURED = """
import json
from timerl_nb.show import LaunchView
program = program.with_options(executor={executor!r})
profile = trl.profile(program, turns=3)
print("LAUNCHES", json.dumps(LaunchView.from_program(program, profile).to_json()))
print("PROFILE", json.dumps({{row.name: row.mean for row in profile.rows}}))
"""


@pytest.mark.parametrize("executor", ["interpret", "xla"])
def test_launches_show_the_times_of_a_profile(watched: Watched, lab: Lab, executor: str) -> None:
    page = watched.page
    page.set_viewport_size({"width": 1440, "height": 900})
    shown = f"{EXPLORE.splitlines()[0]}\nexplorer.measured(profile)\nexplorer"
    explore(watched, lab, f"measured_{executor}.ipynb", MEASURED.format(executor=executor), shown)
    view, means = printed(page, "LAUNCHES"), printed(page, "PROFILE")
    pane = show_launches(page)
    assert_drawn(pane, view)
    if executor == "interpret":
        assert view["how"] == "measured"
        assert [row["seconds"] for row in view["rows"]] == pytest.approx(
            [means[row["name"]] for row in view["rows"]]
        )
    else:
        assert view["how"] == "measured by call"
        (turn,) = [mean for name, mean in means.items() if name == "call 2"]
        assert view["begin"][-1] == pytest.approx(turn)
    expect(pane.locator(".trl-note")).to_contain_text(f", {view['how']}; at i = 198")
    # the costs follow, too
    choice = page.get_by_label("colour by")
    expect(choice.locator("option").last).to_have_text("colour by measured time")
    assert_clean(watched)


def test_a_long_turn_has_few_bars(watched: Watched, lab: Lab) -> None:
    page = explore(watched, lab, "long_launches.ipynb", LONG, PRINTED, EXPLORE)
    view = printed(page, "LAUNCHES")
    assert view["turn"]["count"] == 199_999
    assert [row["launches"] for row in view["rows"]] == [100_000, 99_999]
    assert all(sum(row["counts"]) == row["launches"] for row in view["rows"])
    pane = show_launches(page)
    left, right = ends(pane.locator(".trl-plot"))
    for drawn in bars(pane):
        assert 1 < len(drawn) <= 2 * (right - left)
        assert drawn[0][0] == pytest.approx(left, abs=1)
        assert sum(drawn[-1]) == pytest.approx(right, abs=1.5)
    picture(page, "explorer_launches_long")
    assert pane.locator("*").count() < 120
    height = float(pane.locator(".trl-plot").get_attribute("height") or 0)
    for k, row in enumerate(view["rows"]):
        click(page, pane.locator(".trl-plot"), 0.4 * right, 12 + (k + 0.5) * (height - 46) / 2)
        name = row["name"]
        expect(page.locator(".trl-at")).to_have_text(
            re.compile(rf"^\d+ / 199998  {name}\(t = \d+\)$")
        )
    assert_clean(watched)


def said(n: float) -> str:
    """The text of a number of bytes."""
    if n < 1024:
        return f"{n:g} B"
    digits = 2 if n < 10 * 1024 else 1
    return f"{float(f'{n / 1024:.{digits}f}'):g} KiB"


def reasons(tensor: Any) -> str:
    return f"{tensor['place']}: {tensor['line']}\n{tensor['store']}: {tensor['why']}"


def test_the_memory_names_the_line_behind_each_tensor(watched: Watched, lab: Lab) -> None:
    page = watched.page
    page.set_viewport_size({"width": 1440, "height": 900})
    explore(watched, lab, "reasons.ipynb", PRINTED, EXPLORE)
    view = printed(page, "MEMORY")
    written = SETUP.strip().splitlines()
    tensors = [one for one in view["tensors"] if max(one["held"]) > 0]
    assert len(tensors) > 7
    for one in tensors:
        number = int(one["place"].rpartition(":")[2])
        assert written[number - 1].strip() == one["line"]
    # the rows of live tensors, by the pointer
    tip = page.locator(".trl-memory .trl-tip")
    for one in tensors:
        row = page.locator(".trl-live tbody tr").filter(
            has=page.get_by_role("button", name=one["name"], exact=True)
        )
        row.hover()
        most = said(max(one["held"]) * one["value_bytes"])
        expect(tip).to_have_text(f"{one['name']}: at most {most}\n{reasons(one)}")
    page.screenshot(path=SCREENSHOTS / "explorer_memory_tooltip.png")
    # and by the keyboard
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()
    buttons = page.locator(".trl-live tbody button")
    buttons.first.focus()
    by_name = {one["name"]: one for one in tensors}
    for k in range(3):
        name = buttons.nth(k).inner_text()
        expect(buttons.nth(k)).to_be_focused()
        expect(tip).to_contain_text(reasons(by_name[name]))
        page.keyboard.press("ArrowDown")
    # the largest tensor is at the bottom of the drawing
    largest = max(tensors, key=lambda one: max(one["held"]) * one["value_bytes"])
    plot = page.locator(".trl-memory .trl-plot")
    plot.scroll_into_view_if_needed()
    left, right = ends(plot)
    height = float(plot.get_attribute("height") or 0)
    at = view["turn"]["count"] // 2
    x = left + (right - left) * (at + 0.5) / view["turn"]["count"]
    plot.hover(position={"x": x, "y": height - 34 - 3})
    held = largest["held"][at]
    values = "1 value" if held == 1 else f"{held} values"
    expect(tip).to_contain_text(
        f"{largest['name']}: {said(held * largest['value_bytes'])} in {values}\n{reasons(largest)}"
    )
    assert_clean(watched)


def test_the_time_axes_zoom_together(watched: Watched, lab: Lab) -> None:
    page = watched.page
    page.set_viewport_size({"width": 1440, "height": 900})
    explore(watched, lab, "zoom.ipynb", PRINTED, EXPLORE)
    count = printed(page, "MEMORY")["turn"]["count"]
    view = printed(page, "LAUNCHES")
    plot = page.locator(".trl-memory .trl-plot")
    left, right = ends(plot)
    whole = [
        page.locator(f".trl-{name} .trl-bar button[title*='whole turn']")
        for name in ("space", "memory")
    ]
    for one in whole:
        expect(one).to_be_hidden()
    marks = page.locator(".trl-space .trl-marks")

    def drawn() -> int:
        paths = marks.evaluate_all("es => es.map((e) => e.getAttribute('d')).join('')")
        return len(re.findall("M", paths))

    at_first = drawn()
    # drag from the middle of instant 3 to the middle of instant 6
    middles = [left + (right - left) * (k + 0.5) / count for k in (3, 6)]
    drag(page, plot, middles, 40)
    for one in whole:
        expect(one).to_have_text("instants 3–6 ×")
    assert drawn() == 4 < at_first
    xs = [
        float(x)
        for path in marks.evaluate_all("es => es.map((e) => e.getAttribute('d'))")
        for x in re.findall(r"M([\d.]+) ", path)
    ]
    r = xs[0] - (left + (right - left) * 0.5 / 4)
    assert xs == pytest.approx(
        [left + (right - left) * (k + 0.5) / 4 + r for k in range(4)], abs=0.2
    )
    for path in page.locator(".trl-memory .trl-area").evaluate_all(
        "es => es.map((e) => e.getAttribute('d'))"
    ):
        across = [float(x) for x in re.findall(r"[MLH]([\d.]+)", path)]
        assert (min(across), max(across)) == pytest.approx((left, right), abs=0.1)
    # the launches follow
    pane = show_launches(page)
    expect(pane.locator("button[title*='whole turn']")).to_have_text("instants 3–6 ×")
    (launched,) = [
        one for row, one in zip(view["rows"], bars(pane), strict=True) if row["name"] == "acting"
    ]
    for k, (x, width) in enumerate(launched):
        assert x == pytest.approx(left + (right - left) * k / 4, abs=0.02)
        assert width == pytest.approx((right - left) / 4, abs=0.02)
    assert len(launched) == 4
    pane.locator('[data-pane="memory"]').click()
    # the instant stays visible
    page.locator(".trl-scrubber input").focus()
    page.keyboard.press("End")
    expect(whole[1]).to_have_text(f"instants {count - 4}–{count - 1} ×")
    heads = page.locator(".trl-playhead:visible").evaluate_all(
        "es => es.map((e) => e.getAttribute('x'))"
    )
    assert len(heads) == 2 and heads[0] == heads[1]
    # Escape shows the whole turn before it ends a selection
    page.locator(".trl-loops .trl-line.trl-execute", has_text="learning(").click()
    plot.focus()
    page.keyboard.press("Escape")
    expect(whole[1]).to_be_hidden()
    assert drawn() == at_first
    expect(page.locator(".trl-loops .trl-line.trl-selected")).not_to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.locator(".trl-loops .trl-line.trl-selected")).to_have_count(0)
    # the wheel with Control zooms around the pointer; a double click shows everything
    plot.hover(position={"x": left + 2, "y": 40})
    page.mouse.wheel(0, -100)
    expect(whole[1]).to_be_hidden()
    plot.hover(position={"x": left + 2, "y": 40})
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    expect(whole[0]).to_have_text(f"instants 0–{-(-count * 2 // 3) - 1} ×")
    plot.dblclick(position={"x": left + 2, "y": 40})
    expect(whole[0]).to_be_hidden()
    # keys
    plot.focus()
    page.keyboard.press("Home")
    page.keyboard.press("+")
    expect(whole[0]).to_have_text(re.compile("^instants 0–"))
    page.keyboard.press("0")
    expect(whole[0]).to_be_hidden()
    assert_clean(watched)


def test_a_folded_run_keeps_its_number_of_turns(watched: Watched, lab: Lab) -> None:
    page = explore(watched, lab, "turns.ipynb", TURNS, PRINTED, EXPLORE)
    (note,) = [one["note"] for one in printed(page, "MEMORY")["run"]["stretches"] if one["note"]]
    run = page.locator(".trl-memory .trl-whole-run")
    expect(run.locator(".trl-break text")).to_have_text(note)
    plot = page.locator(".trl-memory .trl-plot")
    left, right = ends(plot)
    drag(page, plot, (left + 0.3 * (right - left), left + 0.6 * (right - left)), 40)
    expect(page.locator(".trl-memory button[title*='whole turn']")).to_be_visible()
    expect(run.locator(".trl-break text")).to_have_text(note)
    picture(page, "explorer_zoomed")
    assert_clean(watched)


def test_compared_programs_zoom_together(watched: Watched, lab: Lab) -> None:
    other = "program.explore(program.with_bounds({'T': 8}))"
    page = explore(watched, lab, "zoom_two.ipynb", other)
    plots = page.locator(".trl-compare .trl-memory .trl-plot")
    expect(plots).to_have_count(2)
    left, right = ends(plots.first)
    # the second half of the longer turn: the shorter one has ended
    drag(page, plots.first, (left + 0.5 * (right - left), left + 0.95 * (right - left)), 40)
    buttons = page.locator(".trl-compare button[title*='whole turn']:visible")
    expect(buttons).to_have_count(4)
    (text,) = set(buttons.all_inner_texts())
    first, last = map(int, re.findall(r"\d+", text))
    marked = {
        int(tick)
        for tick in page.locator(".trl-compare .trl-memory .trl-axes text").all_text_contents()
        if tick.isdigit()
    }
    assert first - 1 <= min(marked) and max(marked) <= last + 1
    page.locator(".trl-compare").screenshot(path=SCREENSHOTS / "explorer_zoomed_comparison.png")
    plots.first.focus()
    page.keyboard.press("Escape")
    expect(buttons).to_have_count(0)
    assert_clean(watched)


# whether the plot is as wide as its pane, in two consecutive frames
RESIZED = """() => new Promise((resolve) => {
    const fits = () => {
        const plot = document.querySelector(".trl-launch .trl-plot");
        return Math.floor(plot.parentElement.clientWidth) === Number(plot.getAttribute("width"));
    };
    const frame = (act) => requestAnimationFrame(() => setTimeout(act));
    frame(() => frame(() => resolve(fits() && new Promise((r) => frame(() => r(fits()))))));
})"""


def test_launches_fit_into_narrow_and_dark_pages(watched: Watched, lab: Lab) -> None:
    page = explore(watched, lab, "narrow_launches.ipynb", PRINTED, EXPLORE)
    view = printed(page, "LAUNCHES")
    pane = show_launches(page)
    for width in (800, 1100, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(RESIZED)
        assert_drawn(pane, view)
        area = pane.bounding_box()
        assert area is not None
        for control in pane.locator(".trl-bar :is(button, select):visible").all():
            box = control.bounding_box()
            assert box is not None and box["x"] + box["width"] <= area["x"] + area["width"]
        pane.scroll_into_view_if_needed()
        page.screenshot(path=SCREENSHOTS / f"explorer_launches_{width}.png")
    change_theme(page, "JupyterLab Dark")
    pane.scroll_into_view_if_needed()
    page.screenshot(path=SCREENSHOTS / "explorer_launches_dark.png")
    change_theme(page, "JupyterLab Light")
    assert_clean(watched)
