"""Every rule of a pass has a description, which its page of the documentation repeats."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import timerl_nb as trl
from tests.patterns import PATTERNS
from timerl_nb.compiler.passes.rewrite_rules import describe_rule, rules_of
from timerl_nb.compiler.passes.simplification import algebra_rules, contraction_recognition
from timerl_nb.show import StepsView, detail

PAGES = Path(__file__).parents[3] / "docs/passes"
PASSES = {path.stem for path in PAGES.glob("*.md")} - {"index", "separate"}


@pytest.mark.parametrize("name", sorted(PASSES))
def test_the_page_of_a_pass_lists_its_rules(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text()
    listed = dict(re.findall(r"^\| \*(.+?)\* \| (.+) \|$", text, re.MULTILINE))
    assert listed == dict(rules_of(name)) != {}


def test_every_rule_of_a_table_has_a_description() -> None:
    tables = {**algebra_rules.RULES, **contraction_recognition.RULES}
    assert [name for name in tables if describe_rule(name) is None] == []


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_every_step_of_a_program_has_a_description(name: str) -> None:
    given = PATTERNS[name]
    program = given.context().compile(given.bounds)
    steps = {step.rule for stage in program.stages.values() for step in stage.steps}
    assert [rule for rule in sorted(steps) if describe_rule(rule) is None] == []


def test_names_with_a_variable_part_have_the_description_of_their_rule() -> None:
    found = describe_rule("vectorize over a dimension")
    assert found is not None and found.page == "docs/passes/vectorize.md"
    assert describe_rule("suffix step by step") == describe_rule("prefix step by step") is not None
    assert describe_rule("no such rule") is None


def test_steps_contain_the_descriptions_of_their_rules() -> None:
    program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 3, "T": 4})
    view = StepsView.from_stage(program.stages["fuse"])
    assert view.rules and {one.page for one in view.rules} == {"docs/passes/fuse.md"}
    assert {one.rule: one.text for one in view.rules}.items() <= rules_of("fuse").items()


@pytest.mark.parametrize("stage", ["simplify", "vectorize", "fuse"])
def test_the_difference_of_a_pass_consists_of_the_lines_of_both_graphs(stage: str) -> None:
    program = trl.algorithms.reinforce(hidden=(8,)).compile({"B": 2, "I": 3, "T": 4})
    lines = [one.text for one in detail(program, f"diff {stage}").lines]
    before, after = (
        str(graph).splitlines()
        for graph in (program.stages[stage].previous, program.stages[stage].artifact)
    )

    def rest(sign: str, text: list[str]) -> list[str]:
        """Return the lines of a graph that are neither in the difference nor hidden by it."""
        known = [line[2:].strip() for line in lines if line[0] in (sign, " ")]
        return [line.strip() for line in text[1:] if line.strip() not in known]

    hidden = sum(
        int(re.search(r"[\d,]+", line)[0].replace(",", "")) for line in lines if "…" in line
    )  # type: ignore[index]
    assert any(line[0] in "+-" for line in lines)
    assert len(rest("-", before)) == len(rest("+", after)) <= hidden
    with pytest.raises(trl.errors.OptionError):
        detail(program, "diff nothing")
