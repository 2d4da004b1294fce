"""Ready programs give the same under every switch, one at a time off."""

from __future__ import annotations

import os
from typing import Any

import pytest

import timerl_nb as trl
from tests.unit.checks import assert_same

FUZZ = "TIMERL_FUZZ" in os.environ
BOUNDS = {"B": 2, "I": 2, "T": 4}
OFF: dict[str, Any] = {
    "simplify": False,
    "lift": False,
    "vectorize": False,
    "accumulate": False,
    "contract": False,
    "trial": False,
    "fuse": False,
    "donate": False,
    "stores": "point",
    "incrementalize": False,
}
PROGRAMS = {
    "reinforce": lambda: trl.algorithms.reinforce(trl.env.make("synthetic", obs_shape=(3,))),
    "ppo": lambda: trl.algorithms.ppo(trl.env.make("synthetic", obs_shape=(3, 4, 4))),
}


@pytest.mark.filterwarnings("ignore::timerl_nb.errors.TimeRLWarning")
@pytest.mark.parametrize("option", OFF)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_switch_changes_no_result(name: str, option: str) -> None:
    if not FUZZ and (name, option) != ("reinforce", "simplify"):
        pytest.skip("every algorithm under every switch is for TIMERL_FUZZ")
    program = PROGRAMS[name]().compile(BOUNDS)
    want = program.execute(progress=False, seed=1)
    other = program.with_options(**{option: OFF[option]})
    assert_same(want, other.execute(progress=False, seed=1), option)
