"""Tracing overhead of device calls by difference of averages: simulated programs with known truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from benchmarks.scope.simulated import Process as Simulated
from benchmarks.scope.simulated import recording
from timerl_nb.base.errors import ExecutionError
from timerl_nb.cli import main
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.thread_timelines import Process
from timerl_nb.scope.calibration import difference_of_averages as module
from timerl_nb.scope.calibration.bootstrapped_delta import entry_edge_masks
from timerl_nb.scope.calibration.calibration import API, CALL, TRACER, Calibration, Cost
from timerl_nb.scope.calibration.difference_of_averages import Calls, averages, by_averages
from timerl_nb.scope.calibration.overhead_correction import correct_overhead
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, NAME_MASK, Kind, Library

LAUNCH, COPY = f"{API}cudaLaunchKernel", f"{API}cudaMemcpyAsync"
TRUTH = {"cudaLaunchKernel": 3_000, "cudaMemcpyAsync": 1_000}  # as in RL-Scope's figure 10
OURS = Process(1, 0, 0, "train.py", 1, 9, 8, {"recorder": "c"})


def program(
    traced: Mapping[str, int] | None,
    *,
    noise: int = 0,
    seed: int = 0,
    steps: int = 20,
    apart: bool = True,
) -> Recording:
    """Return a training program and its recording; the work is constant up to noise.

    Args:
        traced: Extra time of calls while traced; None without tracing.
        apart: Whether some calls launch or copy alone; else each `backward` has two launches per
        copy.
    """
    work, other = Random(0), Random(seed)
    one = Simulated(traced=traced or {}, launch=4_000)

    def late(ns: int) -> int:  # sometimes another process has the core
        return ns + other.randrange(noise + 1) + (other.random() < 0.02) * 40 * noise

    for _ in range(steps):
        with one.within("train"):
            for name, kernels, copies in (("linear", 1, 0), ("reshape", 0, 0), ("to", 0, 1)):
                for _ in range(work.randrange(1, 4) if apart else 0):
                    one.runs("backend", late(9_000), [1_000] * kernels, f"torch.{name}", copies)
            copies = work.randrange(10, 40)
            kernels = work.randrange(100, 300) if apart else 2 * copies
            one.runs("backend", late(500_000), [1_000] * kernels, "run_backward", copies)
            one.runs("simulation", late(70_000))
    return replace(recording([one], traced=traced is not None), processes=(OURS,))


def pairs(
    count: int = 3, /, truth: Mapping[str, int] = TRUTH, **how: int
) -> list[tuple[Calls, Calls]]:
    return [
        (
            Calls.from_recording(program(truth, seed=2 * k, **how)),
            Calls.from_recording(program(None, seed=2 * k + 1, **how)),
        )
        for k in range(count)
    ]


def test_each_call_costs_what_tracing_made_it_longer() -> None:
    found = by_averages(pairs())
    assert {*found.costs} == {LAUNCH, COPY}
    for name, ns in TRUTH.items():
        cost = found.costs[f"{API}{name}"]
        assert (cost.inside, cost.outside) == (pytest.approx(ns, rel=1e-9), 0)
        assert cost.draws == pytest.approx([ns] * 200, rel=1e-9)
    assert (found.way, found.measured, found.program) == ("difference of averages", 6, "train.py")
    assert found.made_by == {"recorder": "c", TRACER: "a simulated tracer"}
    traced, untraced = program(TRUTH), program(None)
    assert traced.table().total > untraced.table().total
    left = correct_overhead(traced, found)
    assert left.total.corrected == untraced.table().total and left.unplaced == 0
    by = untraced.table().by("operation", "library")
    without = sum(ns for (_, library), ns in by.items() if library != "backend")
    assert (
        left.breakdown.by("library")[("simulation",)] == without
    )  # nothing is subtracted elsewhere


def test_a_backward_alone_says_what_its_calls_cost_together() -> None:
    """With two launches per copy everywhere, only the sum is identifiable, and it is distributed."""
    costs = by_averages(pairs(apart=False)).costs
    each = (2 * 3_000 + 1_000) / 3
    assert [costs[kind].inside for kind in (LAUNCH, COPY)] == pytest.approx([each] * 2, rel=1e-9)


def test_noise_is_in_the_interval() -> None:
    found = by_averages(pairs(5, noise=5_000))
    for name, ns in TRUTH.items():
        cost = found.costs[f"{API}{name}"]
        assert abs(cost.inside - ns) < 500 and 0 < max(cost.draws) - min(cost.draws) < 1_500


def test_calls_that_wait_or_that_nobody_saw_whole_say_nothing() -> None:
    one = Simulated(traced=TRUTH)
    one.runs("python", 10)
    for name in ("torch.add", "torch.item"):
        with one.calls("backend", name):
            one._launch("cudaLaunchKernel", 50_000)
            if name == "torch.item":
                one.waits()
    seen = replace(recording([one]), processes=(OURS,))
    whole = {key[2]: each.tolist() for key, each in Calls.from_recording(seen).whole.items()}
    assert whole == {"torch.add": [True], "torch.item": [False]}
    (window,) = seen.devices.windows
    late = replace(window, begin=window.begin + 11)
    cut = replace(seen, devices=replace(seen.devices, windows=(late,)))
    assert not any(each.any() for each in Calls.from_recording(cut).whole.values())
    # calls during the tracer's start are not the program's
    first, *rest = np.split(seen.lanes[0].edges.copy(), [1])
    top = Library.WAITING << NAME_BITS | seen.lanes[0].edges["top"][1] & NAME_MASK
    at = int(first["ts"][0])
    begun = np.array(
        [(at, 0, Kind.OFF, 0), (at, top, Kind.CALL_ENTER, 1), (at + 1, 0, Kind.CALL_EXIT, 0)], EDGE
    )
    on = np.array([(at + 1, 0, Kind.ON, 0)], EDGE)
    more = len(begun) + len(on) - len(first)
    assert more == 3 and seen.lanes[0].traced.tolist() == [2, 3, 6, 7, 8, 9]
    edges = np.concatenate([begun, on, *rest])
    late = replace(seen.lanes[0], edges=edges, traced=seen.lanes[0].traced + more)
    took = Calls.from_recording(replace(seen, lanes=(late,))).took
    assert {key[2]: len(each) for key, each in took.items()} == {"torch.add": 1, "torch.item": 1}


def works(tapped: tuple[int, int], traced: Mapping[str, int]) -> Simulated:
    """Return a program whose wrapped calls launch, wait, or are device calls; its work is constant."""
    one = Simulated(tapped=tapped, traced=traced)
    for _ in range(10):
        with one.within("train"):
            one.runs("python", 700)
            one.runs("backend", 9_000, [1_000] * 3, "torch.linear", copies=2)
            with one.calls("backend", "torch.item"):
                one._launch("cudaMemcpyAsync", 1_000)
                one.device = one.now + 5_000  # the wait does not depend on the time added before it
                one.waits()
            one.runs("api", 3_000, name="driver.submit")
            one.runs("waiting", 800, name="torch.cuda.synchronize")
            one.device = one.now + 400
            one.waits()
        one._launch("cudaLaunchKernel", 1_000)
    return one


def test_only_what_is_tapped_costs_what_a_tap_does_and_only_what_is_traced_a_tracer() -> None:
    seen, truth = recording([works((300, 1_000), TRUTH)]), works((0, 0), {})
    costs = {CALL: Cost(300, 1_000)} | {f"{API}{name}": Cost(ns, 0) for name, ns in TRUTH.items()}
    left = correct_overhead(seen, Calibration("given", costs))
    keys = ("operation", "library")
    assert left.breakdown.by(*keys) == recording([truth]).table().by(*keys)
    assert left.total.corrected == truth.took() and left.unplaced == 0
    called, annotated = entry_edge_masks(seen.lanes[0])
    assert (called.sum(), annotated.sum()) == (40, 10)
    calls = Calls.from_recording(replace(seen, processes=(OURS,)))
    assert {name for *_, name in calls.took} == {
        "torch.linear",
        "torch.item",
        "driver.submit",
        "torch.cuda.synchronize",
    }
    assert calls.counts == {LAUNCH: 30, COPY: 30}


@pytest.mark.parametrize(
    ("both", "said"),
    [
        (
            pairs(3, {"cudaLaunchKernel": -500}),
            "less time than untraced ones: API: cudaLaunchKernel, 500 to 500",
        ),
        (
            [*pairs(20, {"cudaLaunchKernel": 200}, steps=1), *pairs(20, steps=1)],
            "the overhead of tracing drifts from",
        ),
        (
            [
                (one, other)
                for (one, _), (_, other) in zip(pairs(2), pairs(2, steps=30), strict=True)
            ],
            "runs of the script differ",
        ),
        (
            [(Calls.from_recording(program({}, steps=0)),) * 2],
            "no wrapped call without waits contains",
        ),
        ([(Calls.from_recording(program(None)),) * 2], "no device was traced"),
    ],
)
def test_runs_that_contradict_each_other(both: list[tuple[Calls, Calls]], said: str) -> None:
    with pytest.raises(ExecutionError, match=said):
        by_averages(both)


def test_pairs_go_on_until_the_costs_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    order, told = list[int](), list[str]()

    def ran(script: Sequence[str], folder: Path, devices: int) -> int:
        assert script == ["train.py"] and not folder.exists()
        order.append(devices)
        return 1

    monkeypatch.setattr(module, "ran", ran)
    monkeypatch.setattr(module, "read", lambda _: program(TRUTH if order[-1] else None))
    found = averages(["train.py"], 8, 5, told=told.append)
    assert found == by_averages(
        [(Calls.from_recording(program(TRUTH)), Calls.from_recording(program(None)))] * 3
    )
    assert len(told) == 3 and "calls of devices' interfaces traced" in told[0]
    assert order[0] == 0 and sorted(order[1:]) == [0] * 3 + [5] * 3


def test_a_script_without_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, out = tmp_path / "script.py", tmp_path / "costs.json"
    script.write_text("import time\nfor _ in range(9):\n    time.sleep(0)\n")
    words = ["--way", "averages", "--pairs", "2", "--devices", "3", "--out", str(out), str(script)]
    assert main(["scope", "calibrate", *words]) == 1
    assert "no device was traced: " in capsys.readouterr().err
    assert not out.exists()


def test_costs_of_taps_and_of_a_tracer_are_taken_off_together(tmp_path: Path) -> None:
    taps = Calibration("given", {CALL: Cost(50, 20)}, {CALL: 5.0}, "train.py", {"recorder": "c"})
    tracer = by_averages(pairs(2))
    both = taps + tracer
    assert Calibration.load(both.save(tmp_path / "both.json")) == both
    assert {*both.costs} == {CALL, LAUNCH, COPY} and both.silent == taps.silent
    seen = program(TRUTH)
    alone = [correct_overhead(seen, one).total for one in (taps, tracer)]
    taken = sum(one.measured - one.corrected for one in alone)
    assert seen.corrected(both).total.corrected == seen.table().total - taken
    with pytest.raises(ExecutionError, match="two calibrations have a cost of 'call'"):
        both + taps
    for other, said in (
        (replace(taps, program="other.py"), "differ in their programs"),
        (replace(taps, made_by={"recorder": "python"}), "differ in recorder"),
    ):
        with pytest.raises(ExecutionError, match=said):
            other + tracer
    with pytest.raises(ExecutionError, match="another tracer of devices: CUPTI, not a sim"):
        correct_overhead(seen, replace(tracer, made_by={TRACER: "CUPTI"}))
    correct_overhead(
        program(None), replace(tracer, made_by={TRACER: "CUPTI"})
    )  # nothing was traced there
