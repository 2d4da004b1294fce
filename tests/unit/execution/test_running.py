"""Background runs: commands, frames, results, and ends."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.episodes import cartpole
from tests.patterns import PATTERNS
from tests.reinforce import reinforce
from timerl_nb.base.errors import BoundsError, ExecutionError, OptionError
from timerl_nb.driver.program import Program
from timerl_nb.execution.control.pause_and_stop import ENDS, RunControl, Stopped
from timerl_nb.execution.telemetry.live_view_frames import Device, Frame
from timerl_nb.execution.telemetry.process_metrics import ProcessMetrics
from timerl_nb.execution.telemetry.program_live_frames import Telemetry, Watched
from timerl_nb.execution.telemetry.progress_bar import saying
from timerl_nb.runtime.state.run_folder import RunFolder
from timerl_nb.runtime.xla.lowering.lowered_program import Lowered

EXECUTORS = ("interpret", "xla")
BOUNDS = {"B": 4, "I": 12, "T": 8}


@pytest.fixture(params=EXECUTORS)
def program(request: pytest.FixtureRequest) -> Program:
    return learning(request.param)


_LEARNING: dict[tuple[str, int], Program] = {}


def learning(executor: str, fuse: int = 1) -> Program:
    key = executor, fuse
    if key not in _LEARNING:
        options = trl.Options(executor=executor, fuse_iterations=fuse)
        _LEARNING[key] = reinforce(hidden=(8,)).compile(BOUNDS, options)
    return _LEARNING[key]


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 30
    while any(t.name.startswith("timerl") for t in threading.enumerate()):
        assert time.monotonic() < deadline, "a thread of a run is still there"
        time.sleep(0.01)


def same(a: trl.Result, b: trl.Result) -> None:
    assert set(a) == set(b) and set(a.parameters) == set(b.parameters)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
    for name in a.parameters:
        np.testing.assert_array_equal(a.parameters[name], b.parameters[name])


# --- results ---------------------------------------------------------------------------------------


def test_it_returns_what_execute_returns(program: Program) -> None:
    run = program.start(seed=3)
    have, want = run.result(), program.execute(seed=3)
    same(have, want)
    assert have.memory.peak == want.memory.peak and have.instructions == want.instructions
    assert run.state == "finished" and run.turn == run.turns == 12 and run.error is None
    assert "turn 12 of 12, finished" in repr(run)
    assert run.result() is have


def test_two_runs_at_once_do_not_meet(program: Program) -> None:
    runs = [program.start(seed=seed) for seed in (1, 2)]
    for seed, run in enumerate(runs, start=1):
        same(run.result(), program.execute(seed=seed))


def test_outputs_can_be_chosen(program: Program) -> None:
    assert list(program.start(outputs=[]).result()) == []
    assert list(program.start(outputs=["return"]).result()) == ["return"]


# --- commands --------------------------------------------------------------------------------------


def test_steps_pause_and_resume(program: Program) -> None:
    with program.start(seed=3, paused=True) as run:
        assert run.wait(30) and run.state == "paused" and run.turn == 0
        run.step()
        assert run.wait(30) and run.turn == 1
        run.step(3)
        run.step(2)
        assert run.wait(30) and (run.turn, run.state) == (6, "paused")
        run.resume()
        same(run.result(), program.execute(seed=3))


def test_pausing_takes_effect_at_the_end_of_a_turn(program: Program) -> None:
    with program.start(speed=200.0) as run:
        run.pause()
        assert run.wait(30) and run.state in ("paused", "finished")
        turn = run.turn
        time.sleep(0.05)
        assert run.turn == turn


def test_a_stopped_run_returns_what_is_there(program: Program) -> None:
    """As the program returns it for that many iterations, parameters included."""
    run = program.start(seed=3, paused=True)
    run.step(5)
    assert run.wait(30)
    run.stop()
    have = run.result()
    assert run.state == "stopped" and run.turn == 5
    same(have, program.with_bounds({"I": 5}).execute(seed=3))


def test_a_stopped_run_keeps_the_parameters_of_a_larger_program() -> None:
    """Its loss is an axis along i: one operation after the last iteration."""
    ctx = trl.algorithms.ppo(hidden=(4,))
    options, bounds = trl.Options(executor="xla"), {"B": 2, "T": 5}
    run = ctx.compile({**bounds, "I": 6}, options).start(seed=1, paused=True)
    run.step(3)
    run.wait(60)
    run.stop()
    have, want = run.result(), ctx.compile({**bounds, "I": 3}, options).execute(seed=1)
    assert list(have) == ["return"] and set(have.parameters) == set(want.parameters)
    np.testing.assert_array_equal(have["return"], want["return"])
    for name, value in want.parameters.items():
        np.testing.assert_allclose(have.parameters[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.some_of("executor", 1)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", sorted(PATTERNS)[::10])
def test_what_a_stopped_run_returns_is_a_part_of_the_whole(name: str, executor: str) -> None:
    pattern = PATTERNS[name]
    options = trl.Options(executor=executor, vectorize=False)
    program = pattern.context().compile(pattern.bounds, options)
    whole = program.execute(seed=5)
    for turns in range(1, program.executable.progress().turns or 1):
        run = program.start(seed=5, paused=True)
        run.step(turns)
        run.wait(60)
        run.stop()
        for key, part in run.result().items():
            there = whole[key][tuple(map(slice, part.shape))]
            np.testing.assert_array_equal(part, there, err_msg=f"{key} after {turns} turns")


def test_stopped_before_it_begins(program: Program) -> None:
    run = program.start(paused=True)
    run.stop()
    have = run.result()
    assert have["return"].shape == (0,) and not have.parameters and run.turn == 0


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_comes_after_all_turns_is_missing_from_a_stopped_run(executor: str) -> None:
    """`each` has a second loop after the first; `late` is computed at the end."""
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        noise = trl.random.normal((), domain=(i, t))
        x = trl.tensor((), "f32", domain=(i, t))
        x[i, 0] = noise[i, 0]
        x[i, t + 1] = (x + noise).tanh()
        ctx.output("each", x.mean(over=t))
        ctx.output("total", x.sum(over=(i, t)))
        ctx.output("late", x[I - 1, T - 1])
    program = ctx.compile({I: 6, T: 5}, trl.Options(executor=executor, vectorize=False))
    assert program.executable.progress().outer == "i"
    whole = program.execute()
    for turns, there in ((4, 0), (6, 0), *([(10, 4)] if executor == "interpret" else [])):
        run = program.start(paused=True)
        run.step(turns)
        run.wait(30)
        run.stop()
        have = run.result()
        assert list(have) == ["each"] and run.turns == (6 if executor == "xla" else 12)
        np.testing.assert_array_equal(have["each"], whole["each"][:there])


def test_speed_limits_turns_a_second(program: Program) -> None:
    program.execute()  # compiled
    with program.start(speed=50.0) as run:
        begun = time.perf_counter()
        run.result()
        assert time.perf_counter() - begun >= 11 / 50 - 0.06
        assert run.speed == 50.0
    with program.start(speed=0.01) as run:  # a limit does not delay commands
        run.speed = None
        assert run.result(30) is not None


def test_turns_that_are_one_call_are_one_step() -> None:
    with learning("xla", 5).start(seed=1, paused=True) as run:
        run.step()
        assert run.wait(30) and run.turn == 5
        run.step(2)
        run.resume()
        same(run.result(), learning("xla").execute(seed=1))
        assert run.turn == 12


@pytest.mark.parametrize(
    ("host", "fuse", "told"), [(True, 1, [1] * 7), (False, 1, [1] * 7), (False, 3, [3, 3, 1])]
)
def test_turns_are_told_as_they_are_made(host: bool, fuse: int, told: list[int]) -> None:
    """One by one if the host runs the outer loop, else by calls of several iterations."""
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x, y = trl.tensor((), domain=(i,)), trl.tensor((), domain=(i, t))
        x[0] = 1.0
        y[i, 0] = x
        made = ((y + x) * 0.5).exp()
        y[i, t + 1] = trl.udf(np.tanh, made, out="f32", name="host") if host else made.tanh()
        x[i + 1] = (y[i, T - 1] * 0.5).tanh()
        ctx.output("x", x)
    options = trl.Options(executor="xla", vectorize=False, fuse=False, fuse_iterations=fuse)
    found: list[int] = []
    ctx.compile({I: 7, T: 3}, options).begin(progress=found.append).complete()
    assert found == told


def test_commands_to_a_run_that_has_ended_do_nothing(program: Program) -> None:
    run = program.start()
    run.result()
    for command in (run.pause, run.resume, run.stop, run.step):
        command()
    assert run.state == "finished" and run.wait(0)


def test_wrong_commands_say_so() -> None:
    program = learning("xla")
    with program.start(paused=True) as run:
        with pytest.raises(ExecutionError, match="paused after 0 turns"):
            run.wait(30)
            run.result()
        with pytest.raises(TimeoutError, match="turn 0 of 12, paused"):
            run.result(timeout=0.01)
        with pytest.raises(OptionError, match=r"step\(0\)"):
            run.step(0)
        with pytest.raises(OptionError, match="speed=0"):
            run.speed = 0
        run.speed = 0.1
        run.resume()
        with pytest.raises(ExecutionError, match="needs a paused run"):
            run.step()
    for wrong in ({"outputs": ["x"]}, {"outputs": "return"}, {"on_event": 3}, {"seed": "x"}):
        with pytest.raises(OptionError):
            program.start(**wrong)


def test_leaving_the_block_stops_it(program: Program) -> None:
    with program.start(speed=1.0) as run:
        pass
    assert run.state == "stopped" and run.turn <= 1


def test_a_paused_run_that_nobody_holds_ends(program: Program) -> None:
    run = program.start(paused=True)
    run.wait(30)
    control = run._control
    del run
    gc.collect()
    assert control.ended.wait(30) and control.state == "stopped"


def test_a_run_without_a_handle_stops(tmp_path: Path) -> None:
    """It is saved where it stops."""
    program = learning("xla")
    run = program.start(speed=4.0, checkpoint=tmp_path / "run", every=1000)
    while not run.turn:
        time.sleep(0.001)
    control = run._control
    del run
    gc.collect()
    assert control.ended.wait(30) and control.state == "stopped" and control.turn < 12
    assert RunFolder(tmp_path / "run").manifest().turn == control.turn


# --- programs of other kinds -----------------------------------------------------------------------


def test_a_program_without_turns() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        ctx.output("x", trl.data(np.arange(4, dtype=np.float32), domain=(t,)) * 2)
    for executor in EXECUTORS:
        program = ctx.compile({T: 4}, trl.Options(executor=executor))
        run = program.start()
        *_, frame = run.frames()
        assert frame.state == "finished" and frame.turns_per_second == 0 and not frame.curves
        assert frame.outputs == {"x": "float32 [4], 0 to 6"}
        same(run.result(), program.execute())


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_dynamic_bound_needs_a_ceiling(executor: str) -> None:
    ctx, done = cartpole(None)
    options, bounds = trl.Options(executor=executor), {"B": 2, "I": 4}
    with pytest.raises(BoundsError, match="an observed run cannot be repeated"):
        ctx.compile({**bounds, "T": done}, options).start()
    program = ctx.compile({**bounds, "T": trl.until(done, at_most=40)}, options)
    run = program.start(seed=2)
    *_, last = run.frames()
    want = program.execute(seed=2)
    same(run.result(), want)
    np.testing.assert_array_equal(run.result().lengths["T"], want.lengths["T"])
    np.testing.assert_allclose(last.curves["return"].values, want["return"])
    assert last.steps_per_second is None
    assert (last.held is None) == (executor == "xla")
    if last.held is not None:
        assert last.held.peak <= program.memory.peak


def counted(executor: str, fail_at: int = -1) -> tuple[Program, list[int]]:
    """A program with a host function in every iteration."""
    calls: list[int] = []

    def look(x: Any) -> Any:
        calls.append(threading.get_ident())
        if len(calls) == fail_at:
            raise ValueError("not this one")
        return x

    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        x = trl.tensor((), "f32", domain=(i, t))
        x[i, 0] = trl.random.normal((), domain=(i,))
        x[i, t + 1] = x.tanh()
        y = trl.udf(look, x[i, T - 1], out="f32")  # here
        ctx.output("y", y * 2)
    return ctx.compile({I: 5, T: 4}, trl.Options(executor=executor)), calls


@pytest.mark.parametrize("executor", EXECUTORS)
def test_host_functions_run_on_the_threads_of_runs(executor: str) -> None:
    program, calls = counted(executor)
    have = program.start().result()
    assert calls and threading.get_ident() not in calls
    same(have, program.execute())


@pytest.mark.parametrize("executor", EXECUTORS)
def test_errors_come_with_the_users_line(executor: str) -> None:
    program, _ = counted(executor, fail_at=3)
    run = program.start()
    *_, frame = run.frames()
    assert frame.state == run.state == "failed" and "not this one" in (frame.error or "")
    for _ in range(2):
        with pytest.raises(ExecutionError, match="look raised ValueError") as caught:
            run.result()
        assert "# here" in str(caught.value)
    assert run.error is caught.value


def test_errors_that_nobody_asks_for_are_warned_of() -> None:
    program, _ = counted("interpret", fail_at=1)
    run = program.start()
    assert run.wait(30)
    with pytest.warns(RuntimeWarning, match="its result was never requested"):
        del run
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            gc.collect()
            time.sleep(0.02)
            if not any(t.name.startswith("timerl") for t in threading.enumerate()):
                break


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_environment_of_gymnasiums(executor: str) -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, _) = ctx.dims
        env = trl.env.make("gym.CartPole-v1")
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        o[b, i, t + 1], r, d = env.step((o.take(2) > 0).cast("i32"))
        ctx.output("return", r.sum(over=t).mean(over=b))
    program = ctx.compile({"B": 2, "I": 3, "T": 20}, trl.Options(executor=executor))
    run = program.start(seed=2, paused=True)
    run.step(2)
    assert run.wait(60) and run.turn == 2
    run.resume()
    same(run.result(), program.execute(seed=2))
    assert (
        Watched(program.source_graph, program.memory, program.executable.progress()).steps == 2 * 20
    )


# --- frames ----------------------------------------------------------------------------------------


def test_frames_show_the_run(program: Program) -> None:
    seen: list[Frame] = []
    run = program.start(seed=3, paused=True)
    leave = run.on_frame(seen.append)
    frames = run.frames()
    run.step(4)
    run.wait(30)
    for frame in frames:
        if len(frame.curves["return"]) == 4:
            break
    assert frame.turn == 4 and frame.turns == 12 and frame.state == "paused"
    assert frame.turns_per_second == 0 and frame.steps_per_second == 0
    want = program.execute(seed=3)["return"]
    curve = frame.curves["return"]
    np.testing.assert_array_equal(curve.at, range(4))
    np.testing.assert_allclose(curve.values, want[:4])
    with pytest.raises(ValueError, match="read-only"):
        curve.values[0] = 1
    run.resume()
    *_, last = frames
    assert last.state == "finished" and last.turn == 12
    np.testing.assert_allclose(last.curves["return"].values, want)
    np.testing.assert_allclose(curve.values, want[:4])  # frames are values
    run.result()
    leave()
    assert [f.number for f in seen] == sorted({f.number for f in seen}) and seen[-1].state in ENDS
    assert run.latest is not None and run.latest.state == "finished"
    assert "return = " in repr(run)


def test_live_bytes_are_the_ledgers_alone(program: Program) -> None:
    frames = list(program.start(seed=1).frames())
    held = [frame.held for frame in frames if frame.held is not None]
    lowered = program.executable.xla_program
    if lowered is not None:  # without viewers; only the sizes of process and buffers are known
        assert not held and {frame.buffers for frame in frames} == {lowered.nbytes}
        assert all(frame.process.resident != 0 for frame in frames)
        return
    assert len(held) == len(frames) and {frame.buffers for frame in frames} == {None}
    assert max(h.bytes.max(initial=0) for h in held) == held[-1].peak == program.memory.peak
    assert held[0].first == 0 and held[-1].last == len(program.memory.timeline().time)
    for one, after in zip(held, held[1:], strict=False):
        assert one.last == after.first and one.first <= one.last


def test_waiting_for_xla_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    program = learning("xla")
    go, start = threading.Event(), Lowered.start

    def slow(lowered: Lowered) -> Any:
        assert go.wait(30)
        return start(lowered)

    monkeypatch.setattr(Lowered, "start", slow)
    with program.start() as run:
        frames = run.frames()
        first = next(frames)
        assert first.compiling is not None and first.turn == 0
        assert f"{first.compiling:.0f} s so far" in repr(run) and "turns/s" not in repr(run)
        go.set()
        *_, last = frames
        assert last.compiling is None and "compiling" not in repr(run)


def test_a_bar_says_what_a_run_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timerl_nb.execution.telemetry.progress_bar._SECOND", 0.01)
    run: Any = SimpleNamespace(compiling=12.3, compiling_part="call 1 of 2 (learning)")
    said: list[str] = []
    told = threading.Event()

    class Bar(SimpleNamespace):
        def set_description_str(self, text: str) -> None:
            self.desc = text
            said.append(text)
            run.compiling = None
            if not text:
                told.set()

    bar: Any = Bar(disable=False, desc="")
    with saying(bar, run):
        assert told.wait(30)
    assert said == ["compiling call 1 of 2 (learning) with XLA, 12 s so far", ""]


@pytest.mark.parametrize("kind", ["turns", "no turns", "a budget"])
def test_execute_says_in_a_plain_terminal_that_xla_compiles(
    kind: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("timerl_nb.execution.telemetry.progress_bar._SECOND", 0.01)
    program = learning("xla")
    if kind == "no turns":
        with trl.Context("t") as ctx:
            ((t, T),) = ctx.dims
            ctx.output("x", trl.value(t) * 2)
        program = ctx.compile({T: 4}, trl.Options(executor="xla"))
    elif kind == "a budget":
        program = program.with_options(device_memory="1MiB")
    name = "temporaries" if kind == "a budget" else "start"
    found, said = vars(Lowered)[name], list[str]()

    def slow(lowered: Lowered) -> Any:
        deadline = time.monotonic() + 30
        while not said or ("compiling with XLA" not in said[-1] and time.monotonic() < deadline):
            said.append(capfd.readouterr().err)
            time.sleep(0.005)
        return found.func(lowered) if kind == "a budget" else found(lowered)

    monkeypatch.setattr(Lowered, name, property(slow) if kind == "a budget" else slow)
    program.execute(progress=True)
    assert "compiling with XLA, 0 s so far" in said[-1]


def test_a_run_that_nobody_watches_says_that_xla_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    go, start = threading.Event(), Lowered.start

    def slow(lowered: Lowered) -> Any:
        assert go.wait(30)
        return start(lowered)

    monkeypatch.setattr(Lowered, "start", slow)
    with learning("xla").start() as run:
        while "compiling" not in repr(run):
            time.sleep(0.005)
        assert run.latest is None and "0 s so far" in repr(run)
        go.set()
        run.result()
    assert repr(run) == "Running(turn 12 of 12, finished)"


def test_frames_are_json(program: Program) -> None:
    *_, last = program.start().frames()
    data = json.loads(json.dumps(last.to_json(), allow_nan=False))
    assert data["curves"]["return"]["at"] == list(range(12))
    assert (data["held"] is None) == (program.options.executor == "xla")
    assert last.to_json(since=10)["curves"]["return"]["at"] == [10, 11]
    assert data["process"]["cores"] >= 1 and data["process"]["resident"] != 0


@pytest.mark.parametrize("executor", EXECUTORS)
def test_outputs_that_are_made_after_all_turns_say_so(executor: str) -> None:
    with trl.Context("i", "t") as ctx:
        (i, I), (t, T) = ctx.dims
        w, x = trl.tensor((), domain=(i,)), trl.tensor((), domain=(i, t))
        w[0] = 1.0
        x[i, 0] = w.tanh()
        x[i, t + 1] = (x + trl.random.normal(domain=(i, t))).tanh()
        made = x.mean(over=t)
        w[i + 1] = w - 0.1 * made
        ctx.output("made", made)
        slow = trl.tensor((), domain=(i,))
        slow[0] = made[0]
        slow[i + 1] = 0.9 * slow + 0.1 * made[i + 1]
        ctx.output("slow", slow)
    program = ctx.compile({I: 9, T: 4}, trl.Options(executor=executor))
    alone = {"vectorize": ("t",), "lift": False}
    for one, late in ((program, True), (program.with_options(**alone), False)):
        with one.start(paused=True) as run:
            run.step(4)
            run.wait(30)
            frame = next(f for f in run.frames() if len(f.curves["made"]) == 4)
            assert [c.is_late for c in frame.curves.values()] == [False, late]
            assert len(frame.curves["slow"]) == (0 if late else 4)
            run.resume()
            *_, last = run.frames()
            np.testing.assert_array_equal(last.curves["slow"].values, run.result()["slow"])


def test_steps_are_those_of_the_environments() -> None:
    program = learning("xla")
    watched = Watched(program.source_graph, program.memory, program.executable.progress())
    assert watched.progress.outer == "i" and watched.steps == 4 * 8


def test_a_listener_that_fails_is_left_out() -> None:
    seen: list[Frame] = []

    def fails(frame: Frame) -> None:
        raise RuntimeError("no picture")

    with pytest.warns(UserWarning, match="receives no more frames"):
        run = learning("xla").start(paused=True)
        run.on_frame(fails)
        run.on_frame(seen.append)
        run.wait(30)
        run.resume()
        deadline = time.monotonic() + 30
        while (not seen or seen[-1].state not in ENDS) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert seen[-1].state == "finished"


def test_a_listener_may_leave_and_fail() -> None:
    seen: list[Frame] = []
    with pytest.warns(UserWarning, match="receives no more frames"):
        run = learning("xla").start(paused=True)
        run.wait(30)

        def fails(frame: Frame) -> None:
            leave()
            raise RuntimeError("no picture")

        leave = run.on_frame(fails)
        run.on_frame(seen.append)
        deadline = time.monotonic() + 60
        while not seen and time.monotonic() < deadline:
            time.sleep(0.01)
        run.resume()
        while (not seen or seen[-1].state not in ENDS) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert seen and seen[-1].state == "finished"


def test_who_waits_for_frames_hears_that_there_are_no_more(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise OSError("no metrics")

    with program.start(paused=True) as run, monkeypatch.context() as patch:
        patch.setattr(run._telemetry, "_frame", breaks)
        with (
            pytest.warns(UserWarning, match="frames of the run have stopped"),
            pytest.raises(ExecutionError, match="no metrics"),
        ):
            next(run.frames())
        patch.undo()
        assert next(run.frames()).state == "paused"  # new observers poll


def test_a_listener_gets_frames_in_order_from_the_last_on(program: Program) -> None:
    """The frame thread and the thread that starts to listen may each deliver a frame."""
    with program.start(paused=True) as run:
        first = next(run.frames())
        telemetry, seen = run._telemetry, list[int]()
        late = replace(first, number=first.number + 100)

        def hears(frame: Frame) -> None:
            if not seen:  # a later frame arrives while the first is being drawn
                seen.append(frame.number)
                telemetry._deliver_to_all(late)
                telemetry._deliver_to_all(replace(first, number=first.number + 1))
            else:
                seen.append(frame.number)

        run.on_frame(hears)
        assert seen[:2] == [first.number, late.number]
        assert seen == sorted(set(seen))


def test_a_paused_run_shows_its_last_turn(program: Program) -> None:
    with program.start(paused=True) as run:
        run.step()
        assert run.wait(30)
        telemetry = run._telemetry
        telemetry._take()  # before it is drawn, another iteration ends, and the run pauses
        run.step()
        assert run.wait(30)
        telemetry._looked = run.turn
        telemetry._take()
        deadline = time.monotonic() + 10
        for frame in run.frames():
            if len(frame.curves["return"]) == 2:
                break
            assert time.monotonic() < deadline, "a value is not shown"


def test_a_run_that_has_ended_has_a_last_frame() -> None:
    run = learning("xla").start()
    run.result()
    (frame,) = run.frames()
    assert frame.state == "finished" and len(frame.curves["return"]) == 12
    (again,) = run.frames()
    seen: list[Frame] = []
    run.on_frame(seen.append)
    assert seen == [again] and again is frame


def test_the_busy_fraction_is_measured_in_turns(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timerl_nb.execution.telemetry.program_live_frames._MEASURE", 0.0)
    want = program.execute(seed=5)
    run = program.start(seed=5, speed=40.0)
    *_, last = run.frames()
    assert last.busy is not None and 0 < last.busy <= 1
    same(run.result(), want)  # measuring does not change the results


def test_watching_costs_a_turn_one_look_at_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """For any number of iterations, the run's thread only works for requested frames."""
    taken: list[int] = []
    plain = Telemetry._take

    def take(self: Telemetry) -> None:
        taken.append(threading.get_ident())
        plain(self)

    monkeypatch.setattr(Telemetry, "_take", take)
    attended: list[int] = []
    attend = RunControl._handle_requests

    def counting(self: RunControl, count: int) -> None:
        attended.append(count)
        attend(self, count)

    monkeypatch.setattr(RunControl, "_handle_requests", counting)
    program = learning("xla").with_bounds({"I": 2000})
    run = program.start()
    asked = sum(1 for _ in run.frames())
    run.result()
    assert run.turn == 2000
    assert len(taken) <= asked + 1  # one check for new values per frame
    assert len(attended) <= 3 * (asked + 2)  # start and end of the measured iterations


def test_nobody_watching_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunControl, "_handle_requests", lambda self, count: pytest.fail("attended"))
    monkeypatch.setattr(Telemetry, "_watch", lambda self: pytest.fail("watched"))
    assert learning("xla").start().result() is not None


class Driver(ModuleType):
    """NVIDIA's driver with one device, which disappears after a while."""

    class NVMLError(Exception):
        pass

    nvmlInit = staticmethod(lambda: None)
    nvmlDeviceGetCount = staticmethod(lambda: 1)
    nvmlDeviceGetHandleByIndex = staticmethod(lambda k: k)
    nvmlDeviceGetName = staticmethod(lambda device: "H1")
    gone = False

    def nvmlDeviceGetMemoryInfo(self, device: int) -> SimpleNamespace:
        if self.gone:
            raise self.NVMLError
        return SimpleNamespace(used=10, total=40)

    def nvmlDeviceGetUtilizationRates(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=75)

    def nvmlDeviceGetPowerUsage(self, device: int) -> int:
        raise self.NVMLError


def test_devices_are_asked_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    metrics = ProcessMetrics(lambda: None)
    want = (Device("H1", 0.75, 10, 40, None),)
    assert metrics.devices() == want
    driver.gone = True
    assert metrics.devices() == want
    monkeypatch.setattr("timerl_nb.execution.telemetry.process_metrics._PERIOD", 0.0)
    assert metrics.devices() == ()
    monkeypatch.setitem(sys.modules, "pynvml", None)  # is not installed
    assert ProcessMetrics(lambda: None).devices() == ()


# --- the control alone --------------------------------------------------------------------------------


def turning(control: RunControl, turns: int) -> threading.Thread:
    def go() -> None:
        try:
            control.enter()
            for _ in range(turns):
                control.on_turn()
            control.end("finished")
        except Stopped:
            control.end("stopped")

    thread = threading.Thread(target=go, name="timerl test")
    thread.start()
    return thread


def test_commands_are_pending_until_they_take_effect() -> None:
    control = RunControl()
    control.pause()
    assert control.state == "pending pause"
    control.resume()
    assert control.state == "pending resume"
    control.on_turn()
    assert control.state == "running"
    control.stop()
    assert control.state == "pending stop"
    with pytest.raises(Stopped):
        control.on_turn()


def test_the_slowest_run_still_obeys() -> None:
    control = RunControl()
    control.speed = 1e-300  # longer than the maximal timeout of a thread's wait
    threading.Timer(0.1, control.stop).start()
    with pytest.raises(Stopped):
        control.on_turn()


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_commands_ends(seed: int) -> None:
    rng = np.random.default_rng(seed)
    control = RunControl(held=True)
    thread = turning(control, 10_000)

    def stepping() -> None:
        if control.is_held:
            control.step(3)

    commands = [control.pause, control.resume, stepping, lambda: control.ask(lambda: None)]
    for k in rng.integers(0, len(commands), 300):
        commands[k]()
    control.resume()
    assert control.ended.wait(30) and control.state == "finished" and control.turn == 10_000
    thread.join()


# --- interpreter exit
# ------------------------------------------------------------------------------------

LEAVES = """
import threading, timerl_nb as trl
with trl.Context("i", "t") as ctx:
    (i, I), (t, T) = ctx.dims
    x = trl.tensor((), "f32", domain=(i, t))
    x[0, 0] = 1.0
    x[i + 1, 0] = x[i, T - 1]
    x[i, t + 1] = x.tanh()
    ctx.output("x", x[I - 1, T - 1])
run = ctx.compile({I: 20_000, T: 20}).start(speed=%s, paused=%s)
run.on_frame(lambda frame: None)
threading.Event().wait(0.5)
assert run.turn < 20_000 and run.state in ("running", "paused")
"""


@pytest.mark.parametrize("speed,paused", [(None, False), (0.01, False), (None, True)])
def test_a_process_ends_though_a_run_goes_on(speed: float | None, paused: bool) -> None:
    command = [sys.executable, "-W", "error", "-c", LEAVES % (speed, paused)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr


LEAVES_SWAPPING = """
import threading, timerl_nb as trl
from tests.unit.checks import leaving
with trl.Context("i", "t") as ctx:
    (i, I), (t, T) = ctx.dims
    w, x, g = (trl.tensor((2000,), "f32", domain=d).named("x") for d in ((i,), (i, t), (i, t)))
    w[0] = trl.random.normal((2000,))
    x[i, 0] = w
    x[i, t + 1] = (x * 1.5).sin()
    g[i, T - 1] = x[i, T - 1]
    g[t < T - 1] = x * 0.5 + g[i, trl.min(t + 1, T - 1)].tanh()
    w[i + 1] = g[i, 0]
    ctx.output("w", w[I - 1].sum())
options = trl.Options(executor="%s", vectorize=False, incrementalize=False)
whole = ctx.compile({I: 1_500, T: 14}, options.with_(lift=False))
program = whole.with_options(device_memory=leaving(whole, 5 / 6))
assert program.memory.swaps.all and (program.executable.xla_program is None) == %s
run = program.start()
run.on_frame(lambda frame: None)
threading.Event().wait(0.5)
assert run.state == "running", run
"""


@pytest.mark.parametrize("executor", ["xla", "interpret"])
def test_a_process_ends_though_values_go_to_the_host(executor: str) -> None:
    """Threads cannot start then, but pending copies must finish."""
    script = LEAVES_SWAPPING % (executor, executor == "interpret")
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr
