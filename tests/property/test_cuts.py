"""Live values between two iterations of random programs, compared with the interpreter's memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.eager import eagerly
from tests.property.drawn import Drawn
from tests.property.programs import chain, ending_programs, programs
from tests.property.test_programs import BLOCKS, VARIANTS, chosen, ending, few, sampled
from timerl_nb.runtime.interpreter.interpreter import Run

pytestmark = pytest.mark.filterwarnings("ignore:.*is read in slices")

Points = set[tuple[str, tuple[int, ...]]]


@sampled(few(2))
@given(st.one_of(programs(), programs(4, last=chain)), st.sampled_from(VARIANTS + BLOCKS))
def test_what_lives_between_turns_is_held_there(drawn: Drawn, options: dict[str, Any]) -> None:
    program = drawn.ctx.compile(drawn.bounds, chosen(drawn, options))
    assert_live(program, exactly=True)


@sampled(few(4))
@given(ending_programs(), st.sampled_from(VARIANTS))
def test_what_lives_is_among_it_where_a_dimension_ends_early(
    drawn: tuple[Drawn, trl.RecurrentTensor], options: dict[str, Any]
) -> None:
    program = ending(drawn, options)
    if program is None:
        return
    assert_live(program, exactly=False)


def assert_live(program: trl.Program, *, exactly: bool) -> None:
    """Check that each live value is stored at every cut, and no other except tile rows and sums."""
    plan, progress = program.memory, program.executable.progress(recorded=True)
    cuts = program.executable.cuts(recorded=True)
    if cuts.why_none:
        event(cuts.why_none)
        return
    seen, turns = list[tuple[Points, Points]](), [0]
    # a tile is freed as a whole; a sum without terms is not stored
    loose = {
        store.name
        for (op_id, out), store in plan.stores.items()
        if store.kind == "block" or plan.pdg[op_id].outputs[out].reduce is not None
    }

    def held() -> Points:
        return {
            (name, at if isinstance(at, tuple) else (at,))
            for name, values in run.stores.items()
            for at in values
        }

    def turned() -> None:
        turns[0] += 1
        if (cut := cuts.cut_after(turns[0])) is None:
            return
        live = {
            (plan.stores[tensor].name, tuple(row))
            for tensor, rows in cuts.live(cut).items()
            for row in rows.tolist()
        }
        seen.append((live, held()))

    run = Run(program.executable, 0, progress=turned, follow=True)
    with eagerly():
        run.complete()
    assert turns[0] == progress.turns
    event(f"{min(len(seen), 3)} turns")
    for live, there in seen:
        assert {at for at in there - live if at[0] not in loose} == set()
        if exactly:
            assert {at for at in live - there if at[0] not in loose} == set()
    run.release()
