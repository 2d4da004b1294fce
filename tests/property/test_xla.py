"""Random programs under XLA: the reference's numbers."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.drawn import Drawn
from tests.property.learning import environment
from tests.property.programs import STEPS, chain, ending_programs, hosted, programs
from tests.property.rollouts import rollouts
from tests.property.test_programs import BLOCKS, RUNS, TILES, VARIANTS, chosen, ending, sampled
from tests.property.ways import Way, some_swaps, ways
from tests.unit.checks import Expected, assert_same, lowered_with_swaps
from timerl_nb.base.errors import BoundsError, ReadError, ScheduleError
from timerl_nb.compiler.memory.budget.swapping import Slack

pytestmark = pytest.mark.filterwarnings("ignore:.*is read in slices")

XLA = {"executor": "xla"}


def lowered(program: trl.Program) -> trl.Program:
    assert program.executable.xla_program is not None, program.executable.how
    return program


@sampled(RUNS // 2)
@given(
    st.one_of(programs(), programs(4, last=chain)),
    st.sampled_from(VARIANTS + BLOCKS),
    ways("default"),
)
def test_lowered_programs_agree(drawn: Drawn, options: dict[str, Any], way: Way) -> None:
    expected = Expected(drawn.ctx.pdg(), drawn.bounds, way.seed)
    program = lowered(way.compiled(drawn.ctx, drawn.bounds, chosen(drawn, options)))
    result = way.run(program)
    expected.assert_same(result, "lowered")
    expected.assert_same(result.parameters, "parameters", "parameter")


@sampled(RUNS // 4)
@given(
    st.one_of(programs(), programs(3, last=environment)),
    st.sampled_from(TILES),
    ways("default"),
)
def test_tiled_programs_agree(drawn: Drawn, options: dict[str, Any], way: Way) -> None:
    agree_in_blocks(drawn, options, way)


@sampled(RUNS // 4)
@given(rollouts(), st.sampled_from(TILES[:3]), st.sampled_from((2, 1)), ways("default"))
def test_rollouts_agree_in_blocks(
    drawn: Drawn, options: dict[str, Any], devices: int, way: Way
) -> None:
    agree_in_blocks(drawn, options, replace(way, devices=devices))


def agree_in_blocks(drawn: Drawn, options: dict[str, Any], way: Way) -> None:
    expected = Expected(drawn.ctx.pdg(), drawn.bounds, way.seed)
    program = lowered(way.compiled(drawn.ctx, drawn.bounds, chosen(drawn, options)))
    if "tile" in program.stages:
        event(f"tiles on devices: {[tile.devices for tile in program.executable.tiles]}")
    result = way.run(program)
    expected.assert_same(result, "tiled")
    expected.assert_same(result.parameters, "parameters", "parameter")


@sampled(RUNS // 4)
@given(ending_programs(), st.sampled_from(VARIANTS), ways("default"))
def test_lowered_programs_end_early(
    drawn: tuple[Drawn, trl.RecurrentTensor], options: dict[str, Any], way: Way
) -> None:
    d, done = drawn
    last = d.ctx.space.all[-1].bound
    try:
        bounds = {**d.bounds, last: trl.until(done, at_most=d.bounds[last])}
        program = lowered(way.compiled(d.ctx, bounds, chosen(d, options)))
    except (BoundsError, ReadError, ScheduleError) as error:
        event(f"refused: {type(error).__name__}")
        return
    expected = Expected(program.source_graph, d.bounds, way.seed)
    have = way.run(program)
    assert_same(expected.reference.lengths(), have.lengths, "lengths")
    expected.assert_same(have, "lowered")


HOSTED = (*STEPS, *[hosted] * 6)


@pytest.fixture
def whatever_it_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower programs around host functions even if hardly anything lies between."""
    monkeypatch.setattr("timerl_nb.runtime.executable.too_little", lambda _: None)


@pytest.mark.usefixtures("whatever_it_gains")
@sampled(RUNS // 2)
@given(programs(6, hosted, HOSTED), st.sampled_from(VARIANTS + BLOCKS), ways("default"))
def test_what_lies_between_host_functions_agrees(
    drawn: Drawn, options: dict[str, Any], way: Way
) -> None:
    expected = Expected(drawn.ctx.pdg(), drawn.bounds, way.seed)
    program = lowered(way.compiled(drawn.ctx, drawn.bounds, chosen(drawn, options)))
    have = way.run(program)
    expected.assert_same(have, "lowered")
    assert_near(drawn, expected)


def assert_near(drawn: Drawn, expected: Expected) -> None:
    """Compare the calls with effects, and their arguments."""
    key = lambda call: (call[0], sorted(call[1].items()))  # noqa: E731
    want, have = (sorted(x, key=key) for x in (expected.calls, drawn.calls))
    assert [key(x) for x in want] == [key(x) for x in have]
    np.testing.assert_allclose(
        [x[2] for x in have], [x[2] for x in want], rtol=1e-3, atol=1e-4 + expected.calls_off
    )
    drawn.calls.clear()


@pytest.mark.usefixtures("whatever_it_gains")
@sampled(RUNS // 4)
@given(ending_programs(HOSTED, hosted), st.sampled_from(VARIANTS))
def test_what_ends_early_between_host_functions_agrees(
    drawn: tuple[Drawn, trl.RecurrentTensor], options: dict[str, Any]
) -> None:
    d, done = drawn
    last = d.ctx.space.all[-1].bound
    try:
        bounds = {**d.bounds, last: trl.until(done, at_most=d.bounds[last])}
        program = lowered(d.ctx.compile(bounds, chosen(d, {**options, **XLA})))
    except (BoundsError, ReadError, ScheduleError) as error:
        event(f"refused: {type(error).__name__}")
        return
    expected = Expected(program.source_graph, d.bounds, seed=3)
    have = program.execute(seed=3)
    assert_same(expected.reference.lengths(), have.lengths, "lengths")
    expected.assert_same(have, "lowered")
    assert_near(d, expected)


SLACKS = st.builds(Slack, st.integers(0, 3), st.integers(0, 2))


@sampled(RUNS // 2)
@given(
    st.one_of(programs(), programs(4, last=chain)),
    st.sampled_from(VARIANTS + BLOCKS),
    SLACKS,
    st.integers(0, 2**32),
)
def test_swapped_programs_agree(
    drawn: Drawn, options: dict[str, Any], slack: Slack, seed: int
) -> None:
    expected = Expected(drawn.ctx.pdg(), drawn.bounds, seed=3)
    program = drawn.ctx.compile(drawn.bounds, chosen(drawn, options))
    expected.assert_same(swapped_outputs(program, slack, Random(seed)), "swapped")


@sampled(RUNS // 4)
@given(ending_programs(), st.sampled_from(VARIANTS), SLACKS, st.integers(0, 2**32))
def test_swapped_programs_end_early(
    drawn: tuple[Drawn, trl.RecurrentTensor], options: dict[str, Any], slack: Slack, seed: int
) -> None:
    d, _ = drawn
    program = ending(drawn, options)
    if program is None:
        return
    expected = Expected(program.source_graph, d.bounds, seed=3)
    expected.assert_same(swapped_outputs(program, slack, Random(seed)), "swapped")


@sampled(RUNS // 4)
@given(programs(6, hosted, HOSTED), st.sampled_from(VARIANTS), SLACKS, st.integers(0, 2**32))
def test_swapped_programs_around_host_functions_agree(
    drawn: Drawn, options: dict[str, Any], slack: Slack, seed: int
) -> None:
    expected = Expected(drawn.ctx.pdg(), drawn.bounds, seed=3)
    program = drawn.ctx.compile(drawn.bounds, chosen(drawn, options))
    expected.assert_same(swapped_outputs(program, slack, Random(seed)), "swapped")
    assert_near(drawn, expected)


def swapped_outputs(program: trl.Program, slack: Slack, random: Random) -> dict[str, Any]:
    """Return the outputs under XLA with a random choice of swaps."""
    swaps = some_swaps(program, slack, random)
    run = lowered_with_swaps(program, swaps, seed=3)
    try:
        run.complete()
        host = run.ledger.host_trace
        assert not swaps.all or max(host) <= run.lowered.plan.timeline().host_peak
        return {name: value for (role, name), value in run.outputs().items() if role == "output"}
    finally:
        run.release()
        assert run.ledger.host == 0
