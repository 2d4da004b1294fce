"""Random programs, interrupted and resumed between two iterations, end with the same bits."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.drawn import Drawn
from tests.property.programs import STEPS, chain, ending_programs, hosted, programs
from tests.property.test_programs import BLOCKS, VARIANTS, chosen, ending, few, sampled
from tests.property.test_xla import whatever_it_gains  # noqa: F401  (a fixture)
from tests.property.ways import some_swaps
from tests.unit.checks import assert_equal, assert_same, with_swaps
from timerl_nb.compiler.memory.budget.swapping import Slack
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.interpreter.interpreter import Run
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.state.resumable_state import RunState
from timerl_nb.runtime.xla.execution.lowered_run import LoweredRun

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is read in slices"),
    pytest.mark.filterwarnings(
        "ignore:invalid value:RuntimeWarning"
    ),  # for odd numbers, on the host
    pytest.mark.usefixtures("whatever_it_gains"),
]

# vectorised dimensions leave few loops
LOOPED: tuple[dict[str, Any], ...] = (
    {"vectorize": False},
    {"vectorize": False, "fuse": False},
    {"vectorize": False, "stores": "point"},
    *VARIANTS,
    *BLOCKS,
)
EXECUTORS: tuple[dict[str, Any], ...] = (
    {"executor": "interpret"},
    {"executor": "xla"},
    {"executor": "xla", "fuse_iterations": 2},
)
Outputs = dict[str, np.ndarray]


def run_of(executable: Executable, progress: Any = None) -> RunProtocol:
    lowered = executable.xla_program
    if lowered is None:
        return Run(executable, 3, progress=progress and (lambda: progress(1)))
    return LoweredRun(lowered, 3, progress)


def ended(run: RunProtocol) -> Outputs:
    run.complete()
    found = {f"{role} {name}": x for (role, name), x in run.outputs().items()}
    run.release()
    return found


def cut_everywhere(executable: Executable) -> tuple[Outputs, list[RunState]]:
    """Return the results of a run, and its state after each iteration and at the end."""
    cuts, states, turns = executable.cuts(), list[RunState](), [0]

    def turned(count: int) -> None:
        turns[0] += count
        if (cut := cuts.cut_after(turns[0])) is not None:
            states.append(run.state(turns[0], cut, cuts.live(cut)))

    run = run_of(executable, turned)
    run.complete()
    states.append(run.state(turns[0], None, cuts.live(None)))
    found = {f"{role} {name}": x for (role, name), x in run.outputs().items()}
    run.release()
    return found, states


def gone_on(executable: Executable, state: RunState) -> Outputs:
    run = run_of(executable)
    run.resume(state)
    return ended(run)


def assert_goes_on(executable: Executable, random: Random) -> list[RunState]:
    """Check that runs resumed from some states end with the same bits."""
    if executable.cuts().why_none:
        event("no turns")
        return []
    want, states = cut_everywhere(executable)
    event(f"{min(len(states) - 1, 4)} turns")
    for state in random.sample(states, min(3, len(states))):
        assert_equal(want, gone_on(executable, state))
    return states


@sampled(few(2))
@given(
    st.one_of(programs(), programs(4, last=chain), programs(6, hosted, (*STEPS, hosted))),
    st.sampled_from(LOOPED),
    st.sampled_from(EXECUTORS),
    st.integers(0, 2**32),
)
def test_a_run_that_is_cut_goes_on_to_the_same_bits(
    drawn: Drawn, options: dict[str, Any], executor: dict[str, Any], seed: int
) -> None:
    program = drawn.ctx.compile(drawn.bounds, chosen(drawn, {**options, **executor}))
    assert_goes_on(program.executable, Random(seed))


@sampled(few(4))
@given(ending_programs(), st.sampled_from(LOOPED), st.sampled_from(EXECUTORS), st.integers(0, 9))
def test_so_it_does_where_a_dimension_ends_early(
    drawn: tuple[Drawn, trl.RecurrentTensor],
    options: dict[str, Any],
    executor: dict[str, Any],
    seed: int,
) -> None:
    program = ending(drawn, {**options, **executor})
    if program is None:
        return
    assert_goes_on(program.executable, Random(seed))


@sampled(few(4))
@given(
    st.one_of(programs(), programs(4, last=chain)),
    st.sampled_from(LOOPED),
    st.builds(Slack, st.integers(0, 3), st.integers(0, 2)),
    st.sampled_from(EXECUTORS[:2]),
    st.integers(0, 2**32),
)
def test_so_it_does_where_values_wait_on_the_host(
    drawn: Drawn, options: dict[str, Any], slack: Slack, executor: dict[str, Any], seed: int
) -> None:
    program, random = drawn.ctx.compile(drawn.bounds, chosen(drawn, options)), Random(seed)
    swaps = some_swaps(program, slack, random)
    executable = with_swaps(program, swaps, 3).executable
    if executor["executor"] == "xla":
        executable = Executable(executable.pdg, executable.ast, executable.plan, "xla")
    assert_goes_on(executable, random)


@sampled(few(4))
@given(
    st.one_of(programs(), programs(4, last=chain)),
    st.sampled_from(LOOPED),
    st.permutations(EXECUTORS),
    st.integers(0, 2**32),
)
def test_another_executor_goes_on_as_near_as_it_comes(
    drawn: Drawn, options: dict[str, Any], executors: list[dict[str, Any]], seed: int
) -> None:
    one, other = (
        drawn.ctx.compile(drawn.bounds, chosen(drawn, {**options, **executor})).executable
        for executor in executors[:2]
    )
    if one.cuts().why_none or other.cuts().why_none:
        event("no turns")
        return
    want, states = cut_everywhere(one)
    state = Random(seed).choice(states)
    if state.cut is not None and other.cuts().turns(state.cut) is None:
        event("within a call")
        return
    assert_same(want, gone_on(other, state), "gone on")
