"""Device tracing of some steps, by any available tracer; without one, the recording has the reason."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import timerl_nb as trl
from tests.fake_cupti import ActivityKind, ActivityThreadIdType, Fake
from tests.reinforce import reinforce
from timerl_nb.base.errors import ExecutionError, OptionError, TimeRLWarning
from timerl_nb.scope.analysis.time_breakdown import Used
from timerl_nb.scope.device_activity import cupti
from timerl_nb.scope.device_activity import tracer_backends as tracers
from timerl_nb.scope.device_activity import tracing_session as tracing
from timerl_nb.scope.device_activity.device_operations import Sort
from timerl_nb.scope.device_activity.trace_data import Rows, Trace
from timerl_nb.scope.recording.annotations import operation, phase
from timerl_nb.scope.recording.recording_session import record

AHEAD = 10**15


class Made:
    """A tracer with a fast clock that reports a kernel for each call."""

    name = "a tracer"

    def __init__(self, absent: str = "") -> None:
        self.absent, self.stopped = absent, 0
        self.rows = Rows()

    def start(self) -> str:
        self.began = time.monotonic_ns() + AHEAD
        return self.absent

    def read_clock(self, number: int) -> int | None:
        return time.monotonic_ns() + AHEAD

    def stop(self) -> Trace:
        self.stopped += 1
        end = time.monotonic_ns() + AHEAD
        return self.rows.trace(os.getpid(), self.name, self.began, end, {0: "gpu"})

    def launch(self) -> None:
        """Make a call that takes a while, and a kernel that ends at the next event."""
        begin = time.monotonic_ns()
        thread, number = threading.get_native_id(), len(self.rows.called) + 1
        time.sleep(0.0001)
        end = time.monotonic_ns()
        self.rows.call("cudaLaunchKernel", begin + AHEAD, end + AHEAD, thread, number)
        time.sleep(0.0001)
        until = time.monotonic_ns()
        self.rows.run(Sort.KERNEL, "k", end + AHEAD, until + AHEAD, 0, 7, number)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    tracer = Made()
    monkeypatch.setattr(tracing, "find_tracer", lambda: (tracer, ""))
    return tracer


def test_threads_that_cupti_counts_are_the_systems() -> None:
    """CUPTI counts the lower half of Python's thread ids if PyTorch's profiler traces only devices."""
    rows = Rows()
    rows.call("cudaLaunchKernel", 1, 2, threading.get_ident(), 1)
    rows.call("cudaLaunchKernel", 3, 4, 17, 2)  # a thread created by PyTorch
    found = tracers._by_native(rows.trace(os.getpid(), "", 0, 9, {0: "gpu"}))
    assert found.called["thread"].tolist() == [threading.get_native_id(), 17]


def test_that_recording_times_itself_is_no_step(made: Made, tmp_path: Path) -> None:
    """The recording times itself after the first operation, by more operations than the window."""
    with record(tmp_path / "r", devices=2) as rec:
        for name in "abcde":
            with operation(name):
                sum(range(10_000))
    by = rec.table().by("operation", "used")
    assert {name for name, used in by if name and used is not Used.UNTRACED} == {"b", "c"}


def test_some_steps_behind_the_first_are_traced(made: Made, tmp_path: Path) -> None:
    with record(tmp_path / "r", taps=False, devices=2) as rec:
        for name in "abcde":
            with operation(name), operation("inner"):
                made.launch()
    recording = rec.read()
    (window,) = recording.devices.traced_windows
    assert made.stopped == 1 and window.process == os.getpid() and window.tracer == "a tracer"
    table = rec.table()
    by = {key[0]: set[Any]() for key in table.by("operation", "used")}
    for operation_, used in table.by("operation", "used"):
        by[operation_].add(used)
    names = {cell.operation for cell in table.cells if cell.library == "api"}
    assert names == {"inner"}
    assert by["a"] == by["d"] == by["e"] == {Used.UNTRACED}
    assert Used.UNTRACED not in by["b"] | by["c"]
    # the launches inside the window belong to this thread, with their times
    inside = (recording.devices.begin >= window.begin) & (recording.devices.end <= window.end)
    assert inside.sum() == 2 and (recording.devices.lane[inside] == 0).all()
    devices = recording.devices
    took = int((devices.end - devices.begin)[inside].sum())
    assert (
        sum(ns for (used,), ns in table.by("used").items() if used in (Used.BOTH, Used.GPU)) == took
    )
    moved = trl.scope.overlap_of(recording, by="launch").by("operation", "library", "used")
    assert moved["inner", "python", Used.BOTH] == took
    assert table.by("library")[("unobserved",)] > 0  # start and end of the tracer


def test_steps_are_outermost_phases_and_operations_outside_of_any(
    made: Made, tmp_path: Path
) -> None:
    with record(tmp_path / "r", taps=False, devices=1) as rec:
        for name in ("x", "y", "z"):
            with operation("all of it"), phase(name):
                for _ in range(3):
                    with operation("o"):
                        pass
    table = rec.table()
    traced = {cell.phase for cell in table.cells if cell.used == Used.CPU and cell.phase}
    assert traced == {"y"} and rec.read().devices.windows[0].devices == ("gpu",)


def test_a_window_is_what_is_open(made: Made, tmp_path: Path) -> None:
    with trl.scope.devices():  # outside a recording
        pass
    assert made.stopped == 0
    with record(tmp_path / "r", taps=False) as rec:
        for _ in range(2):
            with trl.scope.devices():
                made.launch()
            made.rows = Rows()
        with (
            trl.scope.devices(),
            pytest.raises(ExecutionError, match="this recording traces them already"),
        ):
            trl.scope.devices().__enter__()
        with pytest.raises(ValueError, match="the user's"), trl.scope.devices():
            raise ValueError("the user's")
    windows = rec.read().devices.windows
    assert len(windows) == made.stopped == 4
    assert all(a.end <= b.begin for a, b in zip(windows, windows[1:], strict=False))
    assert sorted(path.name for path in rec.folder.glob("*.devices")) == [
        f"{os.getpid()}-{k}.devices" for k in range(4)
    ]


def test_where_there_is_no_device_the_recording_says_why(tmp_path: Path) -> None:
    rec = (
        reinforce(hidden=(8,))
        .compile({"B": 4, "I": 6, "T": 8})
        .scope(turns=4, devices=2, folder=tmp_path / "r")
    )
    recording = rec.read()
    assert recording.devices.traced_windows == () and len(recording.devices.windows) == 1
    assert str(recording.devices).splitlines()[0] == "devices: no data"
    assert "JAX sees no GPU" in str(recording.devices)
    assert {cell.used for cell in rec.table().cells} == {Used.UNTRACED}
    assert str(rec.table()).splitlines()[0].endswith("no device data")


def test_who_else_looks_at_devices_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profiler = pytest.importorskip("jax").profiler
    monkeypatch.setattr(tracing, "find_tracer", lambda: (tracers.JaxTracer(sys.modules["jax"]), ""))
    profiler.start_trace(str(tmp_path / "t"))
    try:
        already = pytest.raises(ExecutionError, match="JAX's profiler traces them already")
        with record(tmp_path / "r", taps=False), already:
            trl.scope.devices().__enter__()
        with (
            pytest.warns(TimeRLWarning, match="JAX's profiler traces them already"),
            record(tmp_path / "s", taps=False, devices=2) as rec,
        ):
            for _ in range(4):
                with operation("goes on"):
                    pass
    finally:
        profiler.stop_trace()
    assert rec.read().devices.windows == ()
    torch = SimpleNamespace(autograd=SimpleNamespace(_profiler_enabled=lambda: True))
    with pytest.raises(ExecutionError, match="PyTorch's profiler traces them already"):
        tracers.TorchTracer(torch).start()
    gpu = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True))
    monkeypatch.setitem(sys.modules, "torch", gpu)  # type: ignore[arg-type]
    assert isinstance(tracers.find_tracer()[0], tracers.TorchTracer)
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "9")
    with pytest.raises(ExecutionError, match="Nsight Systems traces them already"):
        tracers.find_tracer()


def test_jax_tells_its_clock_by_marks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(tracing, "find_tracer", lambda: (tracers.JaxTracer(jax), ""))
    traces: list[Trace] = []
    write = tracing.write_trace
    monkeypatch.setattr(tracing, "write_trace", lambda f, t: (traces.append(t), write(f, t)))
    with record(tmp_path / "r", taps=False) as rec, trl.scope.devices():
        jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    (window,) = rec.read().devices.windows
    assert window.tracer == "JAX's profiler" and window.drift is not None
    assert (window.devices, window.absent) == ((), "the trace has no GPU")
    assert {mark[0] for mark in traces[0].marks.values()} == {threading.get_native_id()}
    assert len(traces[0].marks) == 10


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    api = Fake()
    monkeypatch.setitem(sys.modules, "cupti", ModuleType("cupti"))
    monkeypatch.setitem(sys.modules, "cupti.cupti", api)  # type: ignore[arg-type]
    return api


def test_cupti_gives_kernels_copies_and_calls(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert cupti.absent() == ""
    monkeypatch.setattr(
        tracing, "find_tracer", lambda: (cupti.CuptiTracer(tracers.tracer_busy_error), "")
    )
    with record(tmp_path / "r", taps=False) as rec, operation("o"), trl.scope.devices():
        at = [time.monotonic_ns() for _ in range(2) if not time.sleep(0.001)]
        assert fake.subscribed and len(fake.enabled) == 7
        assert fake.thread_ids is ActivityThreadIdType.SYSTEM
        thread, kinds = threading.get_native_id(), ActivityKind
        here = {"thread_id": thread, "process_id": os.getpid()}
        fake.ran(kinds.DEVICE, id=1, name="NVIDIA made up")
        fake.ran(kinds.RUNTIME, cbid=211, start=at[0], end=at[0] + 40, correlation_id=3, **here)
        fake.ran(kinds.DRIVER, cbid=307, start=at[0] + 9, end=at[0] + 30, correlation_id=3, **here)
        device = {"device_id": 1, "stream_id": 7}
        fake.ran(
            kinds.CONCURRENT_KERNEL,
            name="k",
            start=at[0] + 50,
            end=at[1],
            correlation_id=3,
            **device,
        )
        fake.ran(kinds.MEMCPY, copy_kind=1, start=at[1], end=at[1] + 5, correlation_id=4, **device)
        fake.ran(kinds.MEMSET, start=at[1] + 5, end=at[1] + 6, correlation_id=0, **device)
    assert not fake.subscribed and fake.enabled == []
    recording = rec.read()
    devices, (window,) = recording.devices, recording.devices.windows
    assert window.devices == ("device 0", "NVIDIA made up") and window.nested == 1
    assert [recording.names[k] for k in devices.name] == ["k", "Memcpy HtoD", "Memset"]
    assert devices.sort.tolist() == [Sort.KERNEL, Sort.COPY, Sort.SET]
    assert devices.lane.tolist() == [0, -1, -1] and devices.device.tolist() == [1, 1, 1]
    slack = window.width + abs(window.drift or 0)
    assert abs(int(devices.begin[0]) - at[0] - 50) <= slack
    assert recording.table().by("operation", "library").get(("o", "api"), 0) > 0


def test_cupti_that_cannot_begin_says_why(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.holder = "another profiler"
    with pytest.raises(ExecutionError, match="another profiler traces them already"):
        cupti.CuptiTracer(tracers.tracer_busy_error).start()
    fake.holder, fake.refuses = None, ActivityKind.RUNTIME
    tracer = cupti.CuptiTracer(tracers.tracer_busy_error)
    assert tracer.start() == "CUPTI does not start: ERROR_NOT_INITIALIZED"
    assert fake.enabled == [] and not fake.subscribed

    def no_driver() -> int:
        raise RuntimeError("CUDA driver is not found")

    monkeypatch.setattr(fake, "get_timestamp", no_driver)
    assert cupti.absent() == "CUPTI sees no GPU: CUDA driver is not found"
    monkeypatch.setitem(sys.modules, "cupti.cupti", None)
    assert "cupti-python is not installed" in cupti.absent()
    monkeypatch.setattr(tracers.sys, "modules", {})  # neither PyTorch nor JAX
    assert tracers.find_tracer() == (None, cupti.absent())


def test_pytorch_tells_its_clock_by_the_wall(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(tracing, "find_tracer", lambda: (tracers.TorchTracer(torch, "CPU"), ""))
    traces: list[Trace] = []
    monkeypatch.setattr(tracing, "write_trace", lambda _, trace: traces.append(trace))
    with record(tmp_path / "r", taps=False), trl.scope.devices():
        around: list[tuple[int, int]] = []
        for k in range(5):
            before = time.monotonic_ns()
            with torch.profiler.record_function(f"timerl mark {k}"):
                pass
            around.append((before, time.monotonic_ns()))
        tracer = tracing._now._tracer  # type: ignore[union-attr]
        with pytest.raises(ExecutionError, match="PyTorch's profiler traces them already"):
            tracers.TorchTracer(torch).start()
        assert tracer is not None
    (trace,) = traces
    slack = trace.window.width + 5_000
    assert trace.window.absent == "the trace has no device"
    assert len(trace.marks) == 5
    for (before, after), (thread, begin, end) in zip(around, trace.marks.values(), strict=True):
        assert thread == threading.get_native_id()
        assert before - slack <= begin <= end <= after + slack


@pytest.mark.parametrize("count", [-1, True, 1.5, "3"])
def test_what_is_no_number_of_steps_is_refused(count: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is not a number of steps"):
        record(tmp_path / "r", devices=count)


def test_a_library_that_fails_leaves_the_program_alone(made: Made, tmp_path: Path) -> None:
    def fails() -> Any:
        raise RuntimeError("CUPTI is unwell")

    made.start = fails  # type: ignore[method-assign]
    with (
        pytest.warns(TimeRLWarning, match="CUPTI is unwell"),
        record(tmp_path / "r", taps=False, devices=1) as rec,
    ):
        for _ in range(3):
            with operation("o"):
                pass
    del made.start  # type: ignore[attr-defined]
    made.stop = fails  # type: ignore[method-assign]
    with (
        pytest.warns(TimeRLWarning, match="CUPTI is unwell"),
        record(tmp_path / "s", taps=False, devices=5) as other,
    ):
        for _ in range(3):
            with operation("o"):
                pass
    for one in (rec, other):
        assert one.read().devices.windows == ()
        calls = [
            k for (name, _), k in one.table().by("operation", "library").items() if name == "o"
        ]
        assert sum(calls) > 0
    with record(tmp_path / "t", taps=False), trl.scope.devices() as again:  # no references remain
        del made.stop  # type: ignore[attr-defined]
        assert tracing._now is again


FORKS = """
import os, sys
from tests.unit.scope.test_scope_tracing import Made
from timerl_nb.scope.device_activity import tracing_session as tracing
from timerl_nb.scope.recording.recording_session import record
tracer = Made()
tracing.find_tracer = lambda: (tracer, "")
with record(sys.argv[1], taps=False):
    with tracing.devices():
        child = os.fork()
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if not child:
        os._exit(tracer.stopped)
assert tracer.stopped == 1
print(os.getpid())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_does_not_end_its_parents_window(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path / "r")]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, check=True, timeout=120, cwd=root, stdout=subprocess.PIPE)
    windows = trl.scope.read(tmp_path / "r").devices.windows
    assert [one.process for one in windows] == [int(done.stdout)]
