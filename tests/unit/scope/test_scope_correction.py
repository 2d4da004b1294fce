"""Overhead correction: programs with known truth under test clocks."""

from __future__ import annotations

import json
import mmap
import sys
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.recorders import recorder_in as recorder_in
from timerl_nb.base.errors import ExecutionError
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Lane, Process
from timerl_nb.scope.analysis.time_breakdown import Breakdown, Cell, Used, overlap_of
from timerl_nb.scope.calibration import enabled_disabled_blocks as blocks
from timerl_nb.scope.calibration import microbenchmark_cost as tight_loop
from timerl_nb.scope.calibration.calibration import ANNOTATION, API, CALL, Calibration, Cost
from timerl_nb.scope.calibration.in_run_delta import in_run
from timerl_nb.scope.calibration.overhead_correction import Figure, correct_overhead
from timerl_nb.scope.recording.recorder import ThreadLane, this_lane
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, Kind, Library
from timerl_nb.scope.wrappers import c_or_python_recorder as native

NAMES = ("", "collect", "learn", "act", "step", "matmul", "copy", "launch", "wait")
COSTS = {
    CALL: Cost(300, 1_000),
    ANNOTATION: Cost(2_000, 400),
    f"{API}copy": Cost(500, 0),
    f"{API}launch": Cost(3_000, 0),
}
SILENT = {CALL: 70, ANNOTATION: 130}
NOTHING = Cost(0, 0)
FREE = {kind: Cost(0, 0) for kind in COSTS}
MS = 1_000_000


class Program:
    """A program and its recording, on a clock that both advance."""

    def __init__(self, costs: dict[str, Cost], silent: Mapping[str, int]) -> None:
        self.costs, self.silent, self.now, self.count = costs, silent, 1, 1
        self.memory = mmap.mmap(-1, 1 << 20)
        self.writer: Any = native.module.Lane(lambda: self.memory)
        self.open: dict[Kind, list[int]] = {}
        self.traced: list[int] = []  # events seen by a tracer, without a wrapper
        self.writer.put(0, Kind.MARK, 0, self.now)

    def put(self, top: int, kind: Kind, depth: int, ahead: float, behind: float) -> None:
        self.now += int(ahead / 2)
        self.writer.put(top, kind, depth, self.now)
        self.now += int(behind / 2)
        self.count += 1

    def passes(self, draw: Random) -> None:
        """Make unrecorded calls and operations."""
        for which, kind in enumerate((CALL, ANNOTATION)):
            count = draw.randrange(4)
            self.now += count * self.silent.get(kind, 0)
            self.put(count, Kind.PASSED, which, 0, 0)

    def run(self, draw: Random, depth: int = 0) -> None:
        """Run some work, with nested calls and annotations."""
        for _ in range(draw.randrange(1, 5)):
            self.now += draw.randrange(10_000)
            self.passes(draw)
            if depth == 5:
                return
            if not self.open.get(Kind.OPERATION_ENTER) and draw.random() < 0.2:
                self.put(0, Kind.OFF, 0, 0, 0)
                self.now += draw.randrange(10_000)
                self.passes(draw)
                self.put(0, Kind.ON, 0, 0, 0)
            kind = draw.choice([Kind.CALL_ENTER, Kind.OPERATION_ENTER, Kind.PHASE_ENTER])
            top, cost, is_traced = draw.randrange(1, 5), self.costs[ANNOTATION], False
            if kind is Kind.CALL_ENTER:
                is_traced = draw.random() < 0.5
                # "api" calls may also be wrapped; waits have no known overhead
                library = draw.choice([Library.API, [Library.BACKEND, Library.WAITING][is_traced]])
                name = draw.choice(["copy", "launch"]) if library is Library.API else "wait"
                top = library << NAME_BITS | NAMES.index(name)
                cost = self.costs.get(f"{API}{name}", NOTHING) if is_traced else self.costs[CALL]
            stack = self.open.setdefault(kind, [])
            stack.append(top)
            self.traced += [self.count] * is_traced
            self.put(top, kind, len(stack), cost.outside, cost.inside)
            self.run(draw, depth + 1)
            stack.pop()
            below = stack[-1] if stack else 0
            self.traced += [self.count] * is_traced
            self.put(below, Kind(kind + 1), len(stack), cost.inside, cost.outside)

    @property
    def recording(self) -> Recording:
        edges = np.frombuffer(self.memory, EDGE)[: self.count].copy()
        return Recording((Lane(1, 1, "", edges, self.now, np.array(self.traced, int)),), NAMES)


def test_what_was_added_leaves_where_it_was_added(recorder_in: str) -> None:
    calibration = Calibration("given", COSTS, SILENT)
    for seed in range(100):
        observed, truth = Program(COSTS, SILENT), Program(FREE, {})
        observed.run(Random(seed))
        truth.run(Random(seed))
        found = correct_overhead(observed.recording, calibration)
        cells = {cell: ns for cell, ns in found.breakdown.cells.items() if ns}
        assert cells == overlap_of(truth.recording).cells, seed
        assert found.unplaced == 0 and found.total.corrected == truth.now - 1


def lane(*rows: tuple[int, int, Kind, int], end: int) -> Recording:
    return Recording((Lane(1, 1, "", np.array([*rows], EDGE), end),), NAMES)


def test_nothing_goes_below_zero_and_the_rest_is_told() -> None:
    call = Library.BACKEND << NAME_BITS | 5
    one = lane((1, call, Kind.CALL_ENTER, 1), (101, 0, Kind.CALL_EXIT, 0), end=1_101)
    found = correct_overhead(one, Calibration("given", {CALL: Cost(300, 1_000)}))
    assert found.by("library") == {
        ("python",): Figure(1_000, 0, 0, 0),
        ("backend",): Figure(100, 0, 0, 0),
    }
    assert found.unplaced == 200
    assert "could not be subtracted" in str(found)


def test_each_cell_of_a_place_loses_its_share() -> None:
    call = Library.BACKEND << NAME_BITS | 5
    one = lane((1, call, Kind.CALL_ENTER, 1), (1_001, 0, Kind.CALL_EXIT, 0), end=1_001)
    measured = Breakdown(
        {Cell("", "", "backend", Used.CPU): 333, Cell("", "", "backend", Used.BOTH): 667}
    )
    found = correct_overhead(one, Calibration("given", {CALL: Cost(100, 0)}), measured).breakdown
    assert list(found.cells.values()) == [299, 601] and found.total == 900


def test_the_bottleneck_that_recording_moved() -> None:
    call = Library.BACKEND << NAME_BITS | 5
    rows = [(1, 3, Kind.OPERATION_ENTER, 1)]
    for k in range(10):
        rows += [
            (1 + k * 100, call, Kind.CALL_ENTER, 1),
            (101 + k * 100, 0, Kind.CALL_EXIT, 0),
        ]
    rows += [(1_001, 4, Kind.OPERATION_ENTER, 1), (1_001, call, Kind.CALL_ENTER, 1)]
    one = lane(*rows, end=1_901)
    draws = tuple(float(x) for x in range(50, 71))
    found = correct_overhead(one, Calibration("given", {CALL: Cost(60, 0, draws)}))
    assert found.largest("operation") == (("act",), ("step",))
    assert found.by("operation")[("act",)] == Figure(1_000, 400, 300, 500)
    assert "bottleneck: act / backend as measured, step / backend after correction" in str(found)


# --- costs measured in the same run
# --------------------------------------------------------------------------


class Clock:
    """Known overhead: nanoseconds by kind, of recorded and of disabled events."""

    loud = {"call": 1_300, "annotation": 2_500}
    quiet = {"call": 100, "annotation": 500}
    less = {"call": 300, "annotation": 500}  # of both in a tight loop, without the disabled cost

    def __init__(self) -> None:
        self.now, self.noise, self.draw = MS, 0, Random(1)
        self.grows = 1.0  # factor of the recorded cost in the program over that in a loop

    def __call__(self) -> int:
        return self.now

    def step(self, calls: int, name: str = "act") -> None:
        lane = this_lane()
        assert lane is not None
        costs = self.quiet if lane.silent else {k: v * self.grows for k, v in self.loud.items()}
        with trl.scope.operation(name):
            self.now += round(20_000 + 3_000 * calls + costs["annotation"])
            self.now += self.draw.randrange(self.noise + 1)
            for _ in range(calls):
                zlib.crc32(b"x")
                self.now += round(costs["call"])


@pytest.fixture
def clock(recorder_in: str, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(blocks, "monotonic_ns", made)
    monkeypatch.setattr(blocks, "thread_time_ns", made)

    def timed(lane: ThreadLane) -> None:
        costs = {kind: made.quiet[kind] + made.less[kind] for kind in made.loud}
        silent = {f"silent {kind}": ns for kind, ns in made.quiet.items()}
        inside = {f"inside {kind}": ns / 2 for kind, ns in costs.items()}
        lane.recorder.add_line({"costs": {**costs, **silent, **inside}})

    monkeypatch.setattr(
        sys.modules["timerl_nb.scope.recording.recording_session"], "measure_call_costs", timed
    )
    return made


def recorded(
    folder: Path,
    clock: Clock,
    steps: int = 12_000,
    ends: float = 1.0,
    calls: dict[str, int] | None = None,
) -> Recording:
    draw = Random(0)
    with (
        trl.scope.tap(zlib, "backend"),
        trl.scope.record(folder, taps=False, calibrated=True) as rec,
    ):
        for k in range(steps):
            clock.grows = 1 + (ends - 1) * k / steps
            name = draw.choice(["act", "learn"])
            clock.step(calls[name] if calls else draw.randrange(20), name)
    return rec.read()


def test_costs_are_those_of_the_run(clock: Clock, tmp_path: Path) -> None:
    recording = recorded(tmp_path / "r", clock, calls={"act": 2, "learn": 17})
    found = in_run(recording)
    for kind, ns in clock.loud.items():
        assert found.costs[kind].total == pytest.approx(ns, rel=1e-4)
        assert found.costs[kind].inside == pytest.approx(ns / 2, rel=1e-4)
        assert found.silent[kind] == clock.quiet[kind]
    assert found.program == recording.processes[0].command and found.measured >= 40
    assert found.made_by["recorder"] in ("c", "python") and "numpy" in found.made_by


def test_silent_costs_are_those_behind_other_work_and_hold_what_blocks_count(
    recorder_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting for blocks takes 300 ns in a loop, and 700 after other work."""
    now, is_warm, left = [0], [True], native.module.Operation.__exit__

    def works() -> None:
        now[0], is_warm[0] = now[0] + 8_000, False

    def leaves(self: trl.scope.operation, *_: object) -> None:
        lane = this_lane()
        tallies = (
            {} if lane is None else lane.writer.tallies
        )  # those of the loop, where it is timed
        before = sum(tallies.values())
        left(self)
        now[0] += (300 if is_warm[0] else 700) * (sum(tallies.values()) - before)
        is_warm[0] = True

    for name in ("thread_time_ns", "monotonic_ns"):
        monkeypatch.setattr(tight_loop, name, lambda: now[0])
    monkeypatch.setattr(tight_loop, "_work", works)
    with trl.scope.record(tmp_path / "r", taps=False, calibrated=True) as rec:
        monkeypatch.setattr(trl.scope.operation, "__exit__", leaves)
        with trl.scope.operation("first"):
            pass
    costs = rec.read().processes[0].costs
    assert (costs["silent annotation"], costs["silent call"]) == (700, 0)
    assert costs["annotation"] == pytest.approx(
        700, abs=2
    )  # equal to the disabled cost: nothing else takes time


def test_what_calls_do_is_no_cost_of_recording_them(clock: Clock, tmp_path: Path) -> None:
    """Operations with more calls take longer by the calls' work, too."""
    clock.noise = 40_000
    found = in_run(recorded(tmp_path / "r", clock))
    costs = found.costs
    step, truth = (9.5 * costs[CALL].total + costs[ANNOTATION].total), 9.5 * 1_300 + 2_500
    draws = 9.5 * np.array(costs[CALL].draws) + np.array(costs[ANNOTATION].draws)
    assert 0.005 * truth < draws.std() < 0.2 * truth
    assert abs(step - truth) < 4 * draws.std()


def test_what_cannot_be_is_refused(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ExecutionError, match="drifts from"):
        in_run(recorded(tmp_path / "drifts", clock, 40_000, ends=12.0))
    few = recorded(tmp_path / "few", clock, 200)
    with pytest.raises(ExecutionError, match="pairs of a recorded and a disabled block"):
        in_run(few)
    monkeypatch.setattr(Clock, "loud", {"call": -900, "annotation": -100})
    with pytest.raises(ExecutionError, match="take less time than disabled ones"):
        in_run(recorded(tmp_path / "less", clock))


def test_a_record_corrects_itself(clock: Clock, tmp_path: Path) -> None:
    with (
        trl.scope.tap(zlib, "backend"),
        trl.scope.record(tmp_path / "r", taps=False, calibrated=True) as rec,
    ):
        for _ in range(10_000):
            clock.step(3)
    found = rec.corrected()
    assert found.measured.cells == rec.table().cells
    assert found.calibration == in_run(rec.read())
    assert all(ns >= 0 for ns in found.breakdown.cells.values())
    saved = found.calibration.save(tmp_path / "costs.json")
    assert trl.scope.Calibration.load(saved) == found.calibration
    assert rec.corrected(trl.scope.Calibration.load(saved)).breakdown == found.breakdown


# --- foreign calibrations -----------------------------------------------------------------------


def of(**made_by: str) -> Recording:
    one = lane((1, 0, Kind.MARK, 0), end=9)
    return replace(one, processes=(Process(1, 0, 0, "train.py", 1, 9, 8, made_by),))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (of(recorder="python"), "another recorder: c, not python"),
        (of(recorder="c", numpy="2.1"), "another numpy: 2.0, not 2.1"),
        (of(machine="another"), "another machine"),
        (
            replace(of(), processes=(Process(1, 0, 0, "other.py", 1, 9),)),
            "another program: train.py, not other.py",
        ),
    ],
)
def test_what_is_of_something_else_is_refused(other: Recording, said: str) -> None:
    made_by = {"recorder": "c", "numpy": "2.0", "machine": "this"}
    calibration = Calibration("given", COSTS, program="train.py", made_by=made_by)
    correct_overhead(of(**made_by), calibration)
    with pytest.raises(ExecutionError, match=said):
        correct_overhead(other, calibration)


def test_files_that_hold_no_calibration(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    calibration = Calibration("given", COSTS, program="train.py")
    calibration.save(path)
    whole = json.loads(path.read_bytes())
    wrong = {**whole, "costs": {CALL: {"inside": -1, "outside": 0, "draws": []}}}
    for content, said in (
        ({}, "is not a valid calibration"),
        ({**whole, "version": 99}, "has version 99"),
        ({**whole, "costs": 3}, "is not a valid calibration"),
        (wrong, "is invalid"),
    ):
        path.write_text(json.dumps(content))
        with pytest.raises(ExecutionError, match=said):
            Calibration.load(path)
    with pytest.raises(ExecutionError, match="is not a valid calibration"):
        Calibration.load(tmp_path / "none.json")
    with pytest.raises(ExecutionError, match="cannot be written"):
        calibration.save(tmp_path / "no" / "such" / "folder.json")
