"""Comparison of two programs: reports all real differences, and no others."""

from __future__ import annotations

import json
import re

import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.show import ComparisonView, LoopView

BOUNDS = {"B": 3, "I": 4, "T": 12}


@pytest.fixture(scope="module")
def monte_carlo() -> trl.Program:
    return reinforce(hidden=(4,)).compile(BOUNDS)


@pytest.fixture(scope="module")
def windowed() -> trl.Program:
    return reinforce(5, hidden=(4,)).compile(BOUNDS)


def test_a_program_does_not_differ_from_itself(monte_carlo: trl.Program) -> None:
    view = ComparisonView.from_programs(monte_carlo, monte_carlo)
    found = view.to_json()
    for what in ("options", "bounds", "operations", "kernels", "stores"):
        assert found[what] == [], what
    assert found["same_graph"] and {line.sign for line in view.loops} == {" "}
    assert found["spaces"][0] == found["spaces"][1]


def test_the_loops_of_both_can_be_read_off_the_lines(
    monte_carlo: trl.Program, windowed: trl.Program
) -> None:
    view = ComparisonView.from_programs(monte_carlo, windowed)
    for program, sign in ((monte_carlo, "-"), (windowed, "+")):
        lines = [line.text for line in view.loops if line.sign in (" ", sign)]
        assert "\n".join(lines) == str(LoopView.from_program(program))
    assert {"-", "+"} <= {line.sign for line in view.loops}


def test_n_step_is_seen_to_need_less(monte_carlo: trl.Program, windowed: trl.Program) -> None:
    found = ComparisonView.from_programs(monte_carlo, windowed, ("Monte Carlo", "5-step")).to_json()
    assert json.loads(json.dumps(found)) == found
    assert found["peak"] == [monte_carlo.memory.peak, windowed.memory.peak]
    stores = {row["name"]: row for row in found["stores"]}
    assert stores["a"]["kinds"] == ["block of 12 along t", "ring of 5 along t"]
    assert stores["a"]["bytes"] == [12 * 12, 5 * 12]
    assert stores["state'[:]"]["kinds"][1] is None
    kernels = {row["name"]: row["operations"] for row in found["kernels"]}
    assert kernels["update"][0] is None and kernels["learning"][0] > kernels["learning"][1]
    ends = [(len(s["instants"]["line"]), s["turn"]["size"]) for s in found["spaces"]]
    assert found["axes"]["time"] == max(time for time, _ in ends)
    assert found["axes"]["bytes"] == max(max(m["bytes"]) for m in found["memories"])


def test_options_and_bounds_that_differ_are_named(monte_carlo: trl.Program) -> None:
    other = monte_carlo.with_options(vectorize=("b",), donate=False).with_bounds({"T": 20})
    view = ComparisonView.from_programs(monte_carlo, other)
    options = {one.name: one.values for one in view.options}
    assert options == {"vectorize": (True, ["b"]), "donate": (True, False)}
    assert [(one.name, one.values) for one in view.bounds] == [
        ("T", (12, 20))
    ] and view.axes.up == 20
    text = str(view)
    assert "option donate: True -> False" in text and "bound T: 12 -> 20" in text
    assert "predicted peak: " in text and " times " in text


def test_both_are_drawn_on_the_same_axes(monte_carlo: trl.Program, windowed: trl.Program) -> None:
    view = ComparisonView.from_programs(monte_carlo, windowed, ("<b>one</b>", "two"))
    svg = view.to_svg()
    assert "&lt;b&gt;one" in svg and "<b>" not in svg
    # the longer one is drawn as usual, the other on its axes
    (first, second) = (
        re.findall(r'<path class="trl-marks".*?</path>', s.to_svg()) for s in view.spaces
    )
    assert all(mark in svg for mark in second) and not all(mark in svg for mark in first)
