"""The costs of operations agree with the plan, with a run, and with the model of the passes."""

from __future__ import annotations

from collections import Counter

import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.compiler.memory.budget.candidate_cost import graph_seconds
from timerl_nb.driver.compiling.machine_dependent_options import machine_of
from timerl_nb.show import CostView

BOUNDS = {"B": 4, "I": 3, "T": 6}


@pytest.fixture(scope="module")
def program() -> trl.Program:
    return reinforce(5, hidden=(8,)).compile(BOUNDS, trl.Options(executor="interpret"))


def test_costs_are_those_of_the_plan_and_of_a_run(program: trl.Program) -> None:
    costs = {one.name: one.rows for one in CostView.from_program(program).measures}
    assert list(costs) == ["bytes", "launches", "estimated time"]
    stores = program.memory.stores.values()
    assert sum(row.value for row in costs["bytes"]) == sum(s.most * s.unit for s in stores)
    ran: Counter[str] = Counter()

    def note(event: object) -> None:
        if getattr(event, "kind", "") == "execute":
            ran[event.name] += 1

    program.execute(progress=False, on_event=note)
    names = program.ast.names
    assert ran == {names[row.op_ids[0]]: row.value for row in costs["launches"]}
    seconds = graph_seconds(program.memory.pdg, BOUNDS, machine_of(program.options))
    assert sum(row.value for row in costs["estimated time"]) == pytest.approx(seconds)


def test_measured_times_are_those_of_a_profile(program: trl.Program) -> None:
    spent = {op.id: float(k) for k, op in enumerate(program.memory.statements.ops.values(), 1)}
    view = CostView.from_program(program, spent)
    measured = view.measures[-1]
    assert (measured.name, measured.unit) == ("measured time", "seconds")
    assert {row.op_ids[0]: row.value for row in measured.rows} == spent
    assert "measured time" in str(view) and "bytes: " in str(view)
