"""The memory view agrees with the plan, the layout, and the arrays of a run."""

from __future__ import annotations

import pytest

import timerl_nb as trl
from tests.pixels import pixels
from tests.reinforce import reinforce
from tests.unit.checks import leaving
from timerl_nb.show import StoresView
from timerl_nb.show.memory.store_view import Amount, BufferRow, measured_amounts

BOUNDS = {"B": 3, "I": 4, "T": 12}


def compiled(window: int | None = 5, executor: str = "xla") -> trl.Program:
    return reinforce(window, hidden=(4,)).compile(BOUNDS, trl.Options(executor=executor))


@pytest.fixture(scope="module")
def lowered() -> trl.Program:
    return compiled()


@pytest.fixture(scope="module")
def interpreted() -> trl.Program:
    return compiled(executor="interpret")


def place(view: StoresView, tensor: str) -> BufferRow:
    """Return the slot of a tensor."""
    return next(one for one in view.places if one.tensors[0].name == tensor)


def amounts(view: StoresView) -> dict[tuple[str, str], int]:
    return {(one.part, one.known): one.bytes for one in view.amounts}


def test_amounts_are_those_of_the_plan(lowered: trl.Program, interpreted: trl.Program) -> None:
    for program in (lowered, interpreted):
        plan, found = program.memory, amounts(StoresView.from_program(program))
        assert found["carried", "planned"] == plan.peak
        assert found["temporaries", "estimated"] == plan.temporaries
        assert found["constants", "given"] == plan.constants
        assert found["needed", "estimated"] == plan.needed
        carried = "planned" if program is interpreted else "laid out"
        parts = [("carried", carried), ("temporaries", "estimated"), ("constants", "given")]
        assert plan.needed == sum(found[part] for part in parts)
    nest = lowered.executable.xla_program
    assert nest is not None and ("carried", "laid out") not in found
    assert amounts(StoresView.from_program(lowered))["carried", "laid out"] == nest.nbytes


def test_places_are_all_that_there_are_the_largest_first(
    lowered: trl.Program, interpreted: trl.Program
) -> None:
    nest = lowered.executable.xla_program
    assert nest is not None
    view = StoresView.from_program(lowered)
    assert view.executor == "xla" and view.bytes == nest.nbytes
    assert {one.name: one.bytes for one in view.places} == {
        name: buffer.nbytes for name, buffer in nest.layout.buffers.items()
    }
    for one in view.places:
        buffer = nest.layout.buffers[one.name]
        assert tuple(axis.size for axis in one.axes) == buffer.slot_counts
        assert {tensor.name for tensor in one.tensors} == set(buffer.tensors)
        assert one.tensors[0].name == buffer.tensors[0]
    view, plan = StoresView.from_program(interpreted), interpreted.memory
    assert view.executor == "interpreter"
    assert {one.tensors[0].tensor for one in view.places} == plan.stores.keys()
    for one in view.places:
        store = plan.stores[one.tensors[0].tensor]
        assert (one.bytes, one.why) == (store.most * store.unit, store.why)
    for program in (lowered, interpreted):
        sizes = [one.bytes for one in StoresView.from_program(program).places]
        assert sizes == sorted(sizes, reverse=True)


def test_a_ring_a_start_and_an_update_say_why(lowered: trl.Program) -> None:
    view = StoresView.from_program(lowered)
    ring = next(one for one in view.places if one.axes and one.axes[0].ring)
    assert ring.layout == f"ring of {ring.axes[0].size} along t"
    assert ring.why == f"live values differ in t % {ring.axes[0].size}"
    weight = place(view, "trunk.0.weight'")
    start, update = weight.shared
    assert (start.how, start.name) == ("starts from", "trunk.0.weight.init")
    assert "is read without a choice" in start.why
    assert (update.how, update.name) == ("in place of", "trunk.0.weight'")
    assert "is the last reader of the previous value" in update.why
    plain = next(one for one in view.places if not one.shared and not one.axes)
    assert plain.layout == "one slot" and plain.why == "one live value at a time"


def test_what_a_kernel_takes_over_says_why_and_what_it_does_not_why_not(
    interpreted: trl.Program,
) -> None:
    view, plan = StoresView.from_program(interpreted), interpreted.memory
    given = {(d.op_id, d.output): d for d in plan.donations.values() if d.output is not None}
    assert given
    for one in view.places:
        donation = given.get(one.tensors[0].tensor)
        if donation is not None:
            assert {shared.why for shared in one.shared} == {donation.why}
            assert {shared.how for shared in one.shared} <= {"in place of", "takes over"}
        else:
            assert not one.shared
    first = place(view, "trunk.0.weight'").shared
    assert [one.name for one in first] == ["trunk.0.weight.init", "trunk.0.weight'"]
    refused = {why for one in view.places for why in one.tensors[0].not_given}
    kept = {d.why for d in plan.donations.values() if d.output is None}
    assert {why.partition(": ")[2] for why in refused} - {"it gets a copy"} == kept


def test_what_waits_on_the_host_says_from_when_until_when() -> None:
    options = trl.Options(vectorize=("b",), lift=False, incrementalize=False)
    whole = pixels().compile({"B": 8, "I": 2, "T": 12}, options)
    program = whole.with_options(device_memory=leaving(whole, 0.7))
    plan = program.memory
    assert plan.swaps.all
    view = StoresView.from_program(program)
    moved = {one.tensor for p in view.places for one in p.tensors if one.waits}
    assert moved == set(plan.swaps.tensors)
    for swap in plan.swaps.all:
        found = (p.tensors[0] for p in view.places if p.tensors[0].tensor == swap.tensors[0])
        assert any(f"{swap.away.turns} times" in text for text in next(found).waits)


def test_what_xla_states_is_told_once_it_has_compiled() -> None:
    program = compiled(7)
    nest = program.executable.xla_program
    assert nest is not None and nest.reported_temporaries is None
    assert not [one for one in StoresView.from_program(program).amounts if one.known == "stated"]
    states = nest.temporaries  # waits for XLA
    found = amounts(StoresView.from_program(program))
    assert found["temporaries", "stated"] == nest.reported_temporaries == states
    parts = [("carried", "laid out"), ("temporaries", "stated"), ("constants", "given")]
    assert found["needed", "stated"] == sum(found[part] for part in parts)


def test_what_a_run_held_stands_beside_what_was_planned(interpreted: trl.Program) -> None:
    running = interpreted.start()
    frames = list(running.frames())
    running.result()
    found = {(one.part, one.known): one for one in measured_amounts(frames[-1])}
    assert found["carried", "measured"].bytes == interpreted.memory.peak
    resident = found["process", "measured"]
    assert isinstance(resident, Amount) and resident.bytes > interpreted.memory.peak


def test_reasons_are_in_the_text_and_in_the_picture(lowered: trl.Program) -> None:
    view = StoresView.from_program(lowered)
    text = str(view)
    for one in view.places:
        assert one.why in text and all(shared.why in text for shared in one.shared)
    assert view.to_svg().startswith("<svg") and view.to_json()["bytes"] == view.bytes
