"""Stages as text: lines with their operations, and the user's code with figures."""

from __future__ import annotations

import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.base.errors import OptionError
from timerl_nb.show import Lineage, OutlineView, detail, source_view


@pytest.fixture(scope="module")
def program() -> trl.Program:
    options = trl.Options(executor="xla")
    return reinforce(hidden=(4,)).compile({"B": 3, "I": 4, "T": 12}, options)


def outline(program: trl.Program, stage: str) -> OutlineView:
    view = OutlineView.from_stage(program, stage)
    assert view is not None
    return view


def test_stages_that_are_graphs_have_none(program: trl.Program) -> None:
    without = [name for name in program.stages if OutlineView.from_stage(program, name) is not None]
    assert without == ["source", "schedule", "memory", "ast", "executable"]
    with pytest.raises(OptionError, match="no stage"):
        OutlineView.from_stage(program, "nonsense")


@pytest.mark.parametrize("stage", ["source", "schedule", "memory", "ast", "executable"])
def test_lines_stand_for_operations_that_there_are(program: trl.Program, stage: str) -> None:
    known = {op_id for one in Lineage.from_program(program).generations for op_id in one.ops}
    lines = outline(program, stage).lines
    found = {op_id for line in lines for op_id in line.op_ids}
    assert found and found <= known
    assert all(b.depth <= a.depth + 1 for a, b in zip(lines, lines[1:], strict=False))


def test_the_schedule_says_what_waits_for_what(program: trl.Program) -> None:
    view = outline(program, "schedule")
    acting = program.schedule.statements["acting"]
    (line,) = (one for one in view.lines if one.text.startswith("acting(i, t) -> (1"))
    assert line.op_ids[0] == acting.id
    pairs = [one for one in view.lines if one.folded]
    edges = {(edge.source, edge.sink) for edge in program.schedule.constraints.validity}
    assert len(pairs) == len(edges)
    (own,) = (one for one in pairs if one.text == "acting(i, t) -> acting(i, t)")
    assert "t = 1 + t'" in view.lines[view.lines.index(own) + 1].text


def test_lines_of_the_source_have_what_became_of_them(program: trl.Program) -> None:
    seconds = {program.schedule.statements["acting"].id: 2.0}
    view = source_view(program, seconds)
    assert [column.name for column in view.columns] == ["bytes", "launches", "time"]
    (line,) = (one for one in view.lines if "dnn.sample(o)" in one.text)
    lit = program.stages["source"].artifact
    assert line.op_ids in {tuple(ids) for _, ids in lit.lines.values()}  # type: ignore[attr-defined]
    of = {store.name: store.most * store.unit for store in program.memory.stores.values()}
    nbytes, _, spent = line.figures
    assert nbytes == of["a"] + of["h0"] + of["logits"] and spent == 2.0
    stored = sum(one.figures[0] or 0 for one in view.lines if one.figures)
    assert stored == sum(of.values())  # every store has a line


def test_what_xla_makes_of_a_call(program: trl.Program) -> None:
    names = [line.detail for line in outline(program, "executable").lines if line.detail]
    lowered = program.executable.xla_program
    assert lowered is not None and len(names) == 2 * len(lowered.calls)
    init = program.schedule.statements["init"]
    hlo = detail(program, "hlo 1")
    assert {line.op_ids[0] for line in hlo.lines if line.op_ids} == {init.id}
    assert "lambda" in str(detail(program, "jaxpr 1")) and "metadata" not in str(hlo)
    nines = "9" * 5000
    none = ("step fuse 9999", "step fuse -1", "step source 0", f"step fuse {nines}", f"hlo {nines}")
    for name in ("hlo 0", "hlo 9", "jaxpr", "x 1", *none):
        with pytest.raises(OptionError, match="the detail"):
            detail(program, name)


def test_a_profile_is_told_by_operation() -> None:
    program = (
        reinforce(hidden=(4,)).compile({"B": 3, "I": 2, "T": 4}).with_options(executor="interpret")
    )
    profile = trl.profile(program)
    acting = program.schedule.statements["acting"].id
    (row,) = (row for row in profile.rows if row.name == "acting")
    assert profile.by_op[acting] == row.seconds
