"""Random programs under partial isl schedules and under user-defined orders."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.eager import eagerly
from tests.property.drawn import Drawn
from tests.property.programs import programs
from tests.property.test_programs import BLOCKS, RUNS, VARIANTS, chosen, sampled
from tests.unit.checks import Expected, assert_memory_is_sound
from tests.unit.ir.test_orders import assert_orders_hold
from timerl_nb.base.errors import CeilingError, DomainError, ScheduleError
from timerl_nb.base.runtime_events import Event

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is read in slices"),
    pytest.mark.filterwarnings("ignore:a trial schedule"),
    pytest.mark.filterwarnings("ignore:scheduling "),
]


@sampled(max(1, RUNS // 4))
@given(programs(), st.sampled_from(VARIANTS + BLOCKS))
def test_schedules_by_parts_give_the_same(drawn: Drawn, options: dict[str, Any]) -> None:
    expected = Expected(drawn.ctx.pdg(), drawn.bounds, seed=3)
    try:
        tiny = chosen(drawn, options).with_(isl_operations=1)
        program = drawn.ctx.compile(drawn.bounds, tiny)
    except CeilingError:
        return  # isl alone could order some component
    events: list[Event] = []
    with eagerly():
        result = program.execute(seed=3, on_event=events.append)
    expected.assert_same(result, "by parts")
    assert_memory_is_sound(program, result, events)


@sampled(max(1, RUNS // 4))
@given(programs(), st.sampled_from(VARIANTS + BLOCKS), st.data())
def test_orders_hold_and_change_no_value(
    drawn: Drawn, options: dict[str, Any], data: st.DataObject
) -> None:
    """`a` comes first in the source, so it does not depend on `b` and can always run before it."""
    expected = Expected(drawn.ctx.pdg(), drawn.bounds, seed=3)
    b = data.draw(st.sampled_from(drawn.tensors))
    earlier = [x for x in drawn.tensors if x.op.id < b.op.id]
    if not earlier:
        return
    try:
        drawn.ctx.before(data.draw(st.sampled_from(earlier)), b)
    except DomainError:
        return  # a merge, or a read at another point
    try:
        program = drawn.ctx.compile(drawn.bounds, chosen(drawn, options))
    except ScheduleError as error:
        assert "in a cycle" in str(error)
        return
    assert_orders_hold(program)
    with eagerly():
        expected.assert_same(program.execute(seed=3), "with an order")
