"""Random programs: reference, fused graph and interpreter agree, whatever the options.

`make fuzz` runs many more of them.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import timerl_nb as trl
from tests.property.programs import Drawn, programs
from tests.unit.checks import assert_memory_is_sound, assert_same
from timerl_nb.events import Event
from timerl_nb.ir.reference import Reference

VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"vectorize": False},
    {"fuse": False},
    {"trial": False},
    {"simplify": False, "accumulate": False},
    {"lift": False, "contract": False, "vectorize": ("t",)},
)


@pytest.mark.filterwarnings("ignore:.*is read in slices")
@settings(
    max_examples=int(os.environ.get("TIMERL_FUZZ", "100")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(programs(), st.sampled_from(VARIANTS))
def test_all_ways_of_running_agree(drawn: Drawn, options: dict[str, Any]) -> None:
    graph = drawn.ctx.pdg()
    want = Reference(graph, drawn.bounds, seed=3).outputs()
    program = drawn.ctx.compile(drawn.bounds, trl.Options(**options))
    assert_same(want, Reference(program.fused, drawn.bounds, seed=3).outputs(), "fused graph")
    events: list[Event] = []
    with jax.disable_jit():  # the kernels' contents, without a compilation per program
        result = program.execute(seed=3, on_event=events.append)
    assert_same(want, result, "run")
    assert_memory_is_sound(program, result, events)
