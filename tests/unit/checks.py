"""Invariants of every run, shared by unit and property tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from timerl_nb.base.runtime_events import Event
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.compiler.ir.shapes import HALF, NUMPY
from timerl_nb.compiler.loops.loop_builder import build_ast
from timerl_nb.compiler.memory.budget.swapping import Swaps
from timerl_nb.compiler.scheduling import vectorization_trials as trial
from timerl_nb.driver.program import Program
from timerl_nb.execution.results.run_result import Result
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.interpreter.interpreter import Run
from timerl_nb.runtime.xla.execution.lowered_run import LoweredRun
from timerl_nb.runtime.xla.lowering.lowered_program import Lowered

# Values pass through a few float32 operations, in another order under each schedule.
RTOL, ATOL = 2e-4, 2e-4
_HALVES = tuple(NUMPY[name] for name in HALF)
ROLES = ("output", "parameter")


def tried_schedules(monkeypatch: pytest.MonkeyPatch) -> list[Pdg]:
    """Record the graphs that are scheduled on trial from here on."""
    seen: list[Pdg] = []
    once = trial.find_schedule

    def counted(constraints: Any, ceiling: int) -> Any:
        seen.append(constraints.pdg)
        return once(constraints, ceiling)

    monkeypatch.setattr(trial, "find_schedule", counted)
    return seen


def assert_same(
    want: Mapping[str, np.ndarray],
    have: Mapping[str, Any],
    what: str,
    off: Mapping[str, float] | None = None,
) -> None:
    """Check equal outputs: exactly if discrete, within the tolerance if floating-point.

    Args:
        off: Additional absolute tolerance.
    """
    for name, expected in want.items():
        found = np.asarray(have[name])
        assert found.shape == expected.shape, f"{what}: {name} has shape {found.shape}"
        assert found.dtype == expected.dtype, f"{what}: {name} is {found.dtype}"
        if expected.dtype.kind == "f" or expected.dtype in _HALVES:
            more = (off or {}).get(name, 0.0)
            if expected.dtype in _HALVES:
                found, expected = (np.asarray(x, np.float32) for x in (found, expected))
            np.testing.assert_allclose(
                found, expected, rtol=RTOL, atol=ATOL + more, err_msg=f"{what}: {name}"
            )
        else:
            np.testing.assert_array_equal(found, expected, err_msg=f"{what}: {name}")


def assert_equal(want: Mapping[str, np.ndarray], have: Mapping[str, Any]) -> None:
    """Check bitwise equal outputs; NaNs must match."""
    for name, value in want.items():
        # NumPy has no NaN comparison for some half-precision types
        wide = [
            np.asarray(x, np.float32 if value.dtype in _HALVES else None)
            for x in (have[name], value)
        ]
        np.testing.assert_array_equal(*wide, err_msg=name)


def total(x: np.ndarray) -> Any:
    """Return the sum, also with infinities of both signs."""
    with np.errstate(invalid="ignore"):
        return x.sum()


class Expected:
    """The reference's results for a graph, with tolerances.

    For half precision, the tolerance is the spread of roundings, which float64 does not have.
    """

    def __init__(self, pdg: Pdg, bounds: Mapping[str, int], seed: int) -> None:
        self.reference = Reference(pdg, bounds, seed)
        self.outputs = {role: self._outputs(self.reference, role) for role in ROLES}
        self.off: dict[str, float] = {}
        calls = self.reference.calls()
        self.calls = [(name, point, float(total(x))) for name, point, (x,) in calls]
        self.calls_off = 0.0
        if any(output.type.dtype in HALF for op in pdg for output in op.outputs):
            precise = Reference(pdg, bounds, seed, precise=True)
            for role in ROLES:
                exact = self._outputs(precise, role)
                self.off |= {name: _off(x, exact[name]) for name, x in self.outputs[role].items()}
            if calls:
                exact = np.array([x.sum() for _, _, (x,) in precise.calls()])
                self.calls_off = _off(np.array([x for _, _, x in self.calls]), exact)

    def _outputs(self, reference: Reference, role: str) -> dict[str, np.ndarray]:
        with np.errstate(all="ignore"):
            return reference.outputs(role)

    def assert_same(self, have: Mapping[str, Any], what: str, role: str = "output") -> None:
        assert_same(self.outputs[role], have, what, self.off)


def _off(x: np.ndarray, exact: np.ndarray) -> float:
    """Return the tolerance around `x`: a multiple of its rounding errors."""
    with np.errstate(all="ignore"):
        far = np.abs(np.asarray(x, np.float64) - exact)
        size = np.nan_to_num(np.abs(np.asarray(x, np.float64)), posinf=0.0).max(initial=0.0)
    return float(8 * far[np.isfinite(far)].max(initial=0.0) + 2**-7 * size)


def assert_same_points(
    want: Mapping[str, Mapping[str, np.ndarray]], have: Mapping[str, Mapping[str, np.ndarray]]
) -> None:
    """Compare values of conditional tensors at equal points."""
    places = [
        {name: {d: x.tolist() for d, x in at.items()} for name, at in where.items()}
        for where in (want, have)
    ]
    assert places[0] == places[1]


def assert_memory_is_sound(program: Program, result: Result, events: Sequence[Event]) -> None:
    """Check that no read misses, nothing leaks, and memory equals the prediction byte for byte."""
    live: Counter[tuple[str, tuple[int, ...]]] = Counter()
    away: Counter[tuple[str, tuple[int, ...]]] = Counter()  # of these, on the host
    summed = {  # may be read before any addition
        store.name
        for (op_id, out), store in program.memory.stores.items()
        if program.fused[op_id].outputs[out].reduce is not None
    }
    total = 0
    ended = max((k for k, event in enumerate(events) if event.kind != "read"), default=0)
    for k, event in enumerate(events):
        key = (event.name, event.point)
        if event.kind == "write":
            live[key] = 1 if event.name in summed else live[key] + 1
        elif event.kind == "free":
            assert live[key] > away[key], f"{key} is freed but not there"
            live[key] -= 1
        elif event.kind == "offload":
            assert live[key] > away[key], f"{key} leaves but is not there"
            away[key] += 1
        elif event.kind == "fetch":
            assert away[key] > 0, f"{key} returns but has not left"
            away[key] -= 1
        elif event.kind == "read":
            there = live[key] - (away[key] if k < ended else 0)  # outputs are read on the host, too
            assert there > 0 or event.name in summed, f"{key} is read but not there"
        total += event.nbytes
        assert total >= 0
    assert total == result.memory.retained, "bytes that are neither freed nor kept by an output"
    ends = set(result.lengths)
    # an operation at, say, `t == T - 1` is planned for every length
    chosen = any(ends & op.where.symbols for op in program.fused)
    if chosen or any((x < program.bounds[n]).any() for n, x in result.lengths.items()):
        assert result.memory.peak <= program.memory.peak
        return
    predicted = program.memory.timeline()
    np.testing.assert_array_equal(predicted.bytes, result.memory.timeline())
    np.testing.assert_array_equal(predicted.host, result.memory.host_timeline())
    assert program.memory.peak == result.memory.peak
    budget = program.options.budget
    assert budget is None or result.memory.peak + program.memory.overhead_bytes <= budget


def leaving(program: Program, share: float) -> int:
    """Return a budget with room for some of the carried bytes, besides the kernels' temporaries."""
    return int(program.memory.peak * share) + program.memory.overhead_bytes


def with_swaps(program: Program, swaps: Swaps, seed: int = 0) -> Run:
    """Run the program with chosen swaps, by the interpreter."""
    return Run(_swapped(program, swaps, "interpret"), seed=seed)


def lowered_with_swaps(program: Program, swaps: Swaps, seed: int = 0) -> LoweredRun:
    """Run the program with chosen swaps, under XLA."""
    executable = _swapped(program, swaps, "xla")
    return LoweredRun(Lowered(executable.ast, executable.plan, executable.kernels), seed=seed)


def _swapped(program: Program, swaps: Swaps, executor: str) -> Executable:
    plan = program.memory.with_swaps(swaps)
    tree, lives = program.schedule.tree, plan.lifetimes.values()
    ast = build_ast(plan.constraints, tree, lives, plan.bounds, plan.names, swaps)
    engine = program.executable.engine if executor == "interpret" else None
    return Executable(plan.pdg, ast, plan, executor, engine=engine)
