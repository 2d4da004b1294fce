"""Simulated machine with known truth: its recordings are exact to the nanosecond."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks.scope import devices
from benchmarks.scope.simulated import START, Process, recording
from timerl_nb.base.errors import OptionError
from timerl_nb.scope.analysis.library_transitions import transitions
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.time_breakdown import Used, overlap_of
from timerl_nb.scope.device_activity.device_operations import Devices


@pytest.mark.parametrize("drift", [0, 1_700, -40_000])
def test_what_is_recorded_is_the_truth(drift: int) -> None:
    for name, one in devices.algorithms(steps=16).items():
        one.drift = drift
        read = recording([one])
        (window,) = read.devices.windows
        assert window.drift == drift and window.misfits == window.elsewhere == window.early == 0
        table = read.table()
        assert table.total == one.took() == one.now - START
        # under drift, each moment is rounded once
        slack = 0 if drift == 0 else len(one.launches)
        by = Counter[tuple[str, str]]()
        for begin, end, operation, library in one.spent:
            by[operation, library] += end - begin
        for key, ns in table.by("operation", "library").items():
            assert abs(by[key] - ns) <= slack, (name, key)
        for operation in (None, *devices.LEARNING):
            found = sum(
                ns
                for cell, ns in table.cells.items()
                if cell.used in (Used.BOTH, Used.GPU) and operation in (None, cell.operation)
            )
            assert abs(found - one.busy(operation)) <= slack, (name, operation)
        launched = overlap_of(read, by="launch")
        assert launched.total == table.total and launched.unplaced == 0
        on_gpu = [(c, ns) for c, ns in launched.cells.items() if c.used in (Used.BOTH, Used.GPU)]
        assert abs(sum(ns for _, ns in on_gpu) - one.busy()) <= slack
        assert {cell.library for cell, _ in on_gpu} == {"backend"}  # caller of each launch
        counts = transitions(read)
        calls = Counter(name for _, _, name in one.launches)
        there = sum(n for (_, left, to), n in counts.items() if (left, to) == ("backend", "api"))
        assert there == calls["cudaLaunchKernel"]


def test_what_nvidia_smi_says_is_periods_in_which_some_kernel_ran() -> None:
    playing = devices.workers(3, 8)
    read = recording(playing)
    begin, end = START, max(one.now for one in playing)
    for seconds in (1 / 6, 0.01, 10.0):
        count = max(1, round((end - begin) / (seconds * 1e9)))
        edges = np.linspace(begin, end, count + 1).astype(np.int64).tolist()
        kernels = [kernel for one in playing for kernel in one.kernels]
        some = [
            any(b < until and e > since for b, e, _ in kernels)
            for since, until in zip(edges, edges[1:], strict=False)
        ]
        found = read.utilization(seconds)
        assert [*found] == [0] and found[0].reported == sum(some) / count
    reach = busy = 0
    for b, e, _ in sorted(kernels):
        busy, reach = busy + max(0, e - max(b, reach)), max(reach, e)
    assert abs(found[0].busy * (end - begin) - busy) <= len(kernels)
    with pytest.raises(OptionError, match="seconds=0 is not positive"):
        read.utilization(0)
    assert Recording((), ("",), devices=Devices.empty()).utilization() == {}


def test_findings_are_what_is_true_of_the_simulated_device() -> None:
    made = devices.algorithms(steps=64)
    trained = {name: recording([one]).table() for name, one in made.items()}
    for find in (devices.f7, devices.f8, devices.f9):
        one = find(trained, made)
        assert (
            one.found == one.truth and one.verdict == "holds" and one.source == "simulated device"
        )
    assert devices.f11(devices.workers(16, 8)).verdict == "holds"
    # a busy device contradicts the paper's finding
    busy = Process()
    with busy.within("inference"):
        busy.runs("backend", 20_000, [900_000])
        busy.waits()
    with busy.within("backpropagation"):
        busy.runs("backend", 20_000, [900_000])
        busy.waits()
    for find in (devices.f7, devices.f8, devices.f9):
        assert find({"busy": recording([busy]).table()}, {"busy": busy}).verdict == "does not hold"
