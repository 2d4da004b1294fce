"""Text of every stage of the two REINFORCE programs, and their loop nests at full size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import timerl_nb as trl
from tests.reinforce import reinforce

SMALL = {"B": 2, "I": 3, "T": 12}
FULL = {"B": 64, "I": 20, "T": 500}
PROGRAMS = {"mc": None, "nstep": 5}
STAGES = (
    "source",
    "pdg",
    "simplify",
    "lift",
    "vectorize",
    "windows",
    "accumulate",
    "contract",
    "fuse",
    "schedule",
    "memory",
    "ast",
    "executable",
)
Golden = Callable[[str, str], None]


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> tuple[str, trl.Program]:
    """Return the program without hidden layers, so that the texts are short."""
    window = PROGRAMS[request.param]
    return request.param, reinforce(window, hidden=()).compile(SMALL)


def test_there_is_a_golden_for_every_stage(program: tuple[str, trl.Program]) -> None:
    assert tuple(program[1].stages) == STAGES


@pytest.mark.parametrize("stage", STAGES)
def test_stage_text(program: tuple[str, trl.Program], stage: str, golden: Golden) -> None:
    name, compiled = program
    golden(f"{name}.{stage}", str(compiled.stages[stage].artifact))


def test_calls_and_buffers(golden: Golden) -> None:
    program = reinforce(5, hidden=()).compile(FULL, trl.Options(executor="xla"))
    golden("nstep.xla", str(program.executable))


def test_monte_carlo_acts_in_one_loop_and_learns_in_a_second(golden: Golden) -> None:
    options = trl.Options(vectorize=("b",))
    ast = reinforce(checkpoint="runs/cartpole").compile(FULL, options).ast
    golden("loops.mc.two_loops", str(ast))


def test_monte_carlo_learns_vectorised_by_default(golden: Golden) -> None:
    golden("loops.mc", str(reinforce(checkpoint="runs/cartpole").compile(FULL).ast))


def test_n_step_learns_four_steps_behind_in_the_same_loop(golden: Golden) -> None:
    for options in (trl.Options(), trl.Options(vectorize=("b",))):
        ast = reinforce(5, checkpoint="runs/cartpole").compile(FULL, options).ast
        golden("loops.nstep", str(ast))


def test_an_average_over_time_takes_the_overlap_away(golden: Golden) -> None:
    options = trl.Options(vectorize=("b",))
    ast = reinforce(5, average_over_time=True).compile(FULL, options).ast
    golden("loops.nstep.average_over_time", str(ast))
