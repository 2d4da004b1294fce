"""Predefined programs and lessons give equal results under every switch of the explorer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.property import lessons
from tests.unit.checks import assert_same
from timerl_nb.driver.program import Program
from timerl_nb.show.stages.pipeline_view import PipelineView

BOUNDS = {"B": 2, "I": 2, "T": 4}
ALGORITHMS = {
    "reinforce": lambda: trl.algorithms.reinforce(trl.env.make("synthetic", obs_shape=(3,))),
    "ppo": lambda: trl.algorithms.ppo(trl.env.make("synthetic", obs_shape=(3, 4, 4))),
    "clipped_ppo": lambda: trl.algorithms.clipped_ppo(epochs=2, minibatches=2, hidden=(8, 8)),
}
PROGRAMS = (*ALGORITHMS, *lessons.names())
SHORTEST = ("10_the_explorer", "short")


def switches() -> list[dict[str, Any]]:
    """Return the changes of one click, plus tiles of two and two iterations per call."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("t", trl.value(t))
    clicks = PipelineView.from_program(ctx.compile({T: 2})).switches
    return [*clicks, {"incrementalize": 2}, {"fuse_iterations": 2}]


@cache
def compiled(name: str | tuple[str, str]) -> tuple[Program, Mapping[str, np.ndarray]]:
    """Return a program with small bounds, and its outputs."""
    if isinstance(name, str):
        program = ALGORITHMS[name]().compile(BOUNDS)
    else:
        program = lessons.program(*name).with_bounds(BOUNDS)
    return program, program.execute(progress=False, seed=1)


@pytest.mark.filterwarnings("ignore::timerl_nb.base.errors.TimeRLWarning")
@pytest.mark.parametrize("switch", switches(), ids=str)
@pytest.mark.parametrize("name", PROGRAMS, ids=str)
def test_a_switch_changes_no_result(name: str | tuple[str, str], switch: dict[str, Any]) -> None:
    if name != SHORTEST and "TIMERL_FUZZ" not in os.environ:
        pytest.skip("all programs under every switch are for TIMERL_FUZZ")
    program, want = compiled(name)
    result = program.with_options(**switch).execute(progress=False, seed=1)
    assert_same(want, result, str(switch))
