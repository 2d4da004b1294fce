"""Overhead of recording from whole runs: `timerl scope calibrate`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.cli import main
from timerl_nb.scope.analysis.thread_timelines import Lane, Process
from timerl_nb.scope.calibration import enabled_disabled_blocks as blocks
from timerl_nb.scope.calibration import whole_run_delta as module
from timerl_nb.scope.calibration.alternating_runs import is_sure, ran
from timerl_nb.scope.calibration.bootstrapped_delta import entry_edge_masks
from timerl_nb.scope.calibration.calibration import ANNOTATION, CALL, Calibration
from timerl_nb.scope.calibration.microbenchmark_cost import measure_call_costs
from timerl_nb.scope.calibration.whole_run_delta import (
    Run,
    by_runs,
    run_once,
    tight_loop,
    whole_delta,
)
from timerl_nb.scope.recording import recorder
from timerl_nb.scope.recording.process_joining import environment
from timerl_nb.scope.recording.recorder import prepare_recording_folder
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, Kind, Library
from timerl_nb.scope.storage.recording_reader import read

LOOP = {
    "call": 300.0,
    "annotation": 900.0,
    "silent call": 50.0,
    "silent annotation": 200.0,
    "inside call": 100.0,
    "inside annotation": 600.0,
}
COUNTS = 40_000, 2_000
IN_LOOP = 40_000 * 300 + 2_000 * 900
OURS = Process(1, 0, 0, "train.py", 1, 9, 8, {"recorder": "c"})
SCRIPT = """
import sys, time
assert not sys.stdin.read()
for _ in range(int(sys.argv[1])):
    time.sleep(0)
print(f"slept {sys.argv[1]} times, by {hash('a')}")
sys.exit(int(sys.argv[2]))
"""


def pairs(
    *factors: float, counts: Sequence[tuple[int, int]] | None = None, noise: int = 0
) -> list[tuple[Run, Run]]:
    """Return pairs of runs in which recording costs a multiple of its cost in a tight loop."""
    draw, made = Random(0), list[tuple[Run, Run]]()
    for k, factor in enumerate(factors):
        cpu = draw.randrange(10**9, 2 * 10**9)
        added = round(factor * IN_LOOP) + draw.randrange(-noise, noise + 1)
        made.append((Run(cpu + added, counts[k] if counts else COUNTS, process=OURS), Run(cpu)))
    return made


def test_the_cost_is_what_was_added_by_how_often() -> None:
    for factor in (1.5, 3, 20):
        found = by_runs(pairs(*[factor] * 4), LOOP)
        for kind in (CALL, ANNOTATION):
            cost = found.costs[kind]
            assert cost.total == pytest.approx(factor * LOOP[kind], rel=1e-9)
            assert cost.inside == pytest.approx(factor * LOOP[f"inside {kind}"], rel=1e-9)
            assert cost.draws == pytest.approx([factor * LOOP[kind]] * 200, rel=1e-9)
            assert found.silent[kind] == LOOP[f"silent {kind}"]
        assert is_sure(found, [dict(zip((CALL, ANNOTATION), COUNTS, strict=True))])
        assert (found.way, found.measured) == ("whole-run delta", 8)
        assert (found.program, found.made_by) == (OURS.command, OURS.made_by)


def test_what_passed_is_known_and_in_no_other_cost() -> None:
    passed = (30_000, 500)
    ns = 30_000 * LOOP["silent call"] + 500 * LOOP["silent annotation"]
    made = [
        (replace(run, cpu=run.cpu + round(ns), passed=passed), bare) for run, bare in pairs(3, 3, 3)
    ]
    assert by_runs(made, LOOP).costs[CALL].total == pytest.approx(3 * LOOP["call"], rel=1e-9)


def test_one_far_pair_moves_little_and_none_costs_less_than_a_tight_loop() -> None:
    found = by_runs(pairs(3, 3, 90, 3, 3), LOOP)
    assert 900 <= found.costs[CALL].total < 1_100  # on average they would be 6,120
    assert by_runs(pairs(0.5, 0.5), LOOP).costs[CALL].total == LOOP["call"]


def test_kinds_are_counted_but_for_calls_that_a_tracer_saw() -> None:
    call, api = Library.BACKEND << NAME_BITS, Library.API << NAME_BITS
    rows = [
        (1, call, Kind.CALL_ENTER, 1),
        (2, api, Kind.CALL_ENTER, 2),
        (3, 0, Kind.CALL_EXIT, 0),
        (4, 1, Kind.OPERATION_ENTER, 1),
        (5, 1, Kind.PHASE_ENTER, 1),
        (6, 0, Kind.PHASE_EXIT, 0),
    ]
    traced = np.array([1, 2])
    calls, annotations = entry_edge_masks(Lane(1, 1, "", np.array(rows, EDGE), 7, traced))
    assert np.flatnonzero(calls).tolist() == [0]
    assert np.flatnonzero(annotations).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("both", "said"),
    [
        (pairs(-2, -3, -2), "recorded runs take less time than unrecorded ones"),
        (pairs(*[1.5] * 20, *[9] * 20), "drifts from"),
        (pairs(3, 3, counts=[COUNTS, (50_000, 2_000)]), "from 42,000 to 52,000 calls"),
        (pairs(3, 3, counts=[(0, 0)] * 2), "no wrapped calls and no operations"),
        ([(Run(2), Run(1))], "no wrapped calls and no operations"),
    ],
)
def test_runs_that_contradict_each_other(both: list[tuple[Run, Run]], said: str) -> None:
    with pytest.raises(ExecutionError, match=said):
        by_runs(both, LOOP)


@pytest.mark.parametrize(("noise", "count"), [(0, 3), (5 * IN_LOOP, 8)])
def test_pairs_go_on_until_the_cost_is_known(
    monkeypatch: pytest.MonkeyPatch, noise: int, count: int
) -> None:
    made = pairs(*[3] * 8, noise=noise)
    left = {True: [one for one, _ in made], False: [Run(7), *[other for _, other in made]]}
    order, told = list[bool](), list[str]()

    def run(script: Sequence[str], *, recorded: bool) -> Run:
        assert script == ["train.py"]
        order.append(recorded)
        return left[recorded].pop(0)

    monkeypatch.setattr(module, "run_once", run)
    monkeypatch.setattr(module, "tight_loop", lambda: LOOP)
    found = whole_delta(["train.py"], 8, told=told.append)
    assert found == by_runs(made[:count], LOOP) and len(told) == count
    assert is_sure(found, [dict(zip((CALL, ANNOTATION), COUNTS, strict=True))]) is (noise == 0)
    assert not order[0]  # fills caches
    halves = [tuple(order[k : k + 2]) for k in range(1, len(order), 2)]
    assert {*halves} == {(True, False), (False, True)} and len(halves) == count


def test_a_script_is_run_in_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, out = tmp_path / "script.py", tmp_path / "costs.json"
    script.write_text(SCRIPT)
    words = [str(script), "50", "0"]
    assert run_once(words, recorded=True).counts == (50, 0)
    status = main(["scope", "calibrate", "--pairs", "2", "--out", str(out), *words])
    said = capsys.readouterr()
    assert "pair 2 of 2" in said.err and "slept" not in said.out + said.err
    if status:  # the machine does something else
        assert "take less time than unrecorded ones" in said.err and not out.exists()
        Calibration("given", {}, program=" ".join(words)).save(out)
    found = Calibration.load(out)
    assert found.program == " ".join(words)
    folder = tmp_path / "recording"
    prepare_recording_folder(folder)
    subprocess.run([sys.executable, *words], env=environment(folder, os.environ), check=True)
    assert main(["scope", "show", str(folder), "--calibration", str(out)]) == 0
    assert f"\n{read(folder).corrected(out)}\n" in capsys.readouterr().out
    prepare_recording_folder(tmp_path / "other")
    subprocess.run(
        [sys.executable, str(script), "9", "0"],
        env=environment(tmp_path / "other", os.environ),
        check=True,
    )
    assert main(["scope", "show", str(tmp_path / "other"), "--calibration", str(out)])
    assert "belongs to another program" in capsys.readouterr().err
    least = tight_loop()
    assert status or (found.measured == 4 and {*found.costs} == {CALL, ANNOTATION})
    assert {*least} == {*LOOP} and min(least.values()) >= 0


@pytest.mark.parametrize("drawn", [False, True])
def test_recorded_runs_count_blocks_of_which_none_is_silent(
    drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "SHORTEST", 0)  # an operation each
    monkeypatch.setattr(blocks, "_LONGEST", 1 << 60)
    recorder.begin(tmp_path / "r", timed=measure_call_costs, drawn=drawn)
    try:
        for _ in range(200):
            with trl.scope.operation("step"):
                pass
    finally:
        recorder.end()
    recording = read(tmp_path / "r")
    kinds = recording.lanes[0].edges["kind"]
    assert (kinds == Kind.BLOCK_ENTER).sum() == 200
    assert bool((kinds == Kind.OFF).any()) is drawn
    assert len(blocks.between_blocks(recording.lanes[0].edges)[0]) == 200
    counts = {"count of blocks": "operations"}
    assert counts.items() <= recording.processes[0].made_by.items()
    with trl.scope.record(tmp_path / "other", taps=False, calibrated=False) as rec:
        pass
    calibration = Calibration("given", {}, made_by=counts)
    recording.corrected(calibration)
    with pytest.raises(ExecutionError, match="only one of the calibration"):
        rec.corrected(calibration)


def test_what_cannot_be_calibrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with pytest.raises(ExecutionError, match=r"ended with status 3:\n    slept 1 times, by"):
        ran([str(script), "1", "3"], None)
    with pytest.raises(OptionError, match="1 pairs of runs are too few"):
        whole_delta([str(script)], 1)
    for words, what in (
        (["--pairs", "1", str(script)], "1 pairs of runs are too few"),
        (["--pairs", "many", str(script)], "invalid int value"),
        (["--out", str(tmp_path / "no" / "such.json"), str(script)], "does not exist"),
        (["--pairs", "3"], "the script is missing"),
        ([str(tmp_path / "none.py")], "is not a file"),
    ):
        try:
            assert main(["scope", "calibrate", *words])
        except SystemExit as error:
            assert error.code == 2
        assert what in capsys.readouterr().err
