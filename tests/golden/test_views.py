"""JSON of every view model of a small n-step program: the interface of the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.show import (
    Index,
    InspectorView,
    IterationSpaceView,
    Lineage,
    LoopView,
    MemoryView,
    PipelineView,
    StepsView,
    StoresView,
    View,
)

Golden = Callable[[str, str], None]
TIMES = ("seconds", "doc")  # varies with the machine or with documentation pages


@pytest.fixture(scope="module")
def program() -> trl.Program:
    """A recurrence, and sums of three of its values, computed in the same loop."""
    with trl.Context("i", "t") as ctx:
        (i, _), (t, bound) = ctx.dims
        with ctx.region("acting"):
            x = trl.tensor((2,), "f32", domain=(i, t)).named("x")
            x[i, 0] = trl.data(np.ones((2, 2), np.float32), domain=(i,))
            x[i, t + 1] = (x[i, t] * 0.5).tanh()
        with ctx.region("learning"):
            window = x[i, t : trl.min(t + 3, bound)].discounted_sum(0.9).named("window")
            total = (window * window).sum(over=t).named("total")
        ctx.output("total", total)
    return ctx.compile({"I": 2, "T": 6}, trl.Options(vectorize=False))


def lines(value: dict[str, Any]) -> Iterator[str]:
    """Return a line per field, and per entry of a list of objects."""
    for key, one in value.items():
        if isinstance(one, list) and any(isinstance(part, dict) for part in one):
            yield f"{key}:"
            yield from (f"  {json.dumps(part)}" for part in one)
        else:
            yield f"{key}: {json.dumps(one)}"


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(one) for k, one in value.items() if k not in TIMES}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def views(program: trl.Program) -> dict[str, View]:
    chosen = next(op.id for op in program.pdg if op.label == "window")
    return {
        "pipeline": PipelineView.from_program(program),
        "steps": StepsView.from_stage(program.stages["fuse"]),
        "loop": LoopView.from_program(program),
        "space": IterationSpaceView.from_program(program),
        "memory": MemoryView.from_program(program),
        "stores": StoresView.from_program(program),
        "lineage": Lineage.from_program(program),
        "inspector": InspectorView.from_program(program, [chosen]),
        "search": Index(program).search("window"),
    }


NAMES = (
    "pipeline",
    "steps",
    "loop",
    "space",
    "memory",
    "stores",
    "lineage",
    "inspector",
    "search",
)


@pytest.mark.parametrize("name", NAMES)
def test_view_as_json(program: trl.Program, name: str, golden: Golden) -> None:
    found = without_times(views(program)[name].to_json())
    if name == "inspector":
        (found,) = found["ops"]
    golden(f"views.{name}", "\n".join(lines(found)))
