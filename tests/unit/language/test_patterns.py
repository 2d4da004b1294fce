"""Every hand-written program: interpreter against reference, with passes on and off."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

import timerl_nb as trl
from tests import patterns_conditional, patterns_indexing  # noqa: F401  (enter their programs)
from tests.patterns import PATTERNS, Pattern
from tests.unit.checks import assert_memory_is_sound, assert_same, assert_same_points
from timerl_nb.base.runtime_events import Event
from timerl_nb.compiler.ir.reference.evaluator import Reference

SEED = 7
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "vectorize off": {"vectorize": False},
    "fuse off": {"fuse": False},
    "as the paper": {"trial": False},
    "point maps": {"stores": "point", "donate": False},
    "plain": {"simplify": False, "accumulate": False, "lift": False, "contract": False},
}


@lru_cache(maxsize=1)  # variants of a program run one after the other
def meant(name: str) -> tuple[trl.Program, Reference]:
    """Return a program, compiled once for all variants, and its reference results."""
    pattern: Pattern = PATTERNS[name]
    program = pattern.context().compile(pattern.bounds)
    return program, Reference(program.pdg, pattern.bounds, SEED)


def test_there_are_enough_of_them() -> None:
    assert len(PATTERNS) >= 25


@pytest.mark.some_of("variant", 1)
@pytest.mark.filterwarnings("ignore:.*is read in slices")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", PATTERNS)
def test_run_agrees_with_reference(name: str, variant: str) -> None:
    default, reference = meant(name)
    want = reference.outputs()
    program = default.with_options(**VARIANTS[variant])
    assert_same(want, Reference(program.fused, program.bounds, SEED).outputs(), "fused graph")

    events: list[Event] = []
    result = program.execute(seed=SEED, on_event=events.append)
    assert_same(want, result, "run")
    assert_same_points(reference.coordinates(), result.coordinates)
    assert_same(reference.outputs("parameter"), result.parameters, "parameters")
    assert_memory_is_sound(program, result, events)
    compiles = program.executable.compiles()
    assert all(count == 1 for count in compiles.values()), compiles

    again = program.execute(seed=SEED)
    assert_same(dict(result.items()), again, "second run")


@pytest.mark.parametrize("name", ["training", "cartpole", "window"])
def test_stepping_runs_the_same_program(name: str) -> None:
    pattern = PATTERNS[name]
    program = pattern.context().compile(pattern.bounds)
    whole = program.execute(seed=SEED)
    count = 0
    while (instruction := program.step(seed=SEED)) is not None:
        count += 1
        assert instruction.kind in ("execute", "free")
        if instruction.kind == "execute":
            assert program.stores
    assert count == whole.instructions
    assert program.stores == {}
