"""The explorer's traits without a browser: outgoing and incoming messages, and their effects."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import timerl_widgets
from timerl_widgets import Explorer, IterationSpaceView, LoopView, MemoryTimeline, RunMonitor
from timerl_widgets.background_worker import BackgroundWorker
from timerl_widgets.drawing import Drawing

import timerl_nb as trl
from tests.patterns import PATTERNS
from tests.reinforce import reinforce
from tests.unit.checks import leaving
from timerl_nb.base.errors import ExecutionError
from timerl_nb.execution.telemetry.live_view_frames import Curve
from timerl_nb.show.systems.run_view import MOST, downsample_curve

VIEWS = ("pipeline", "lineage", "graph", "steps", "loops", "space", "memory", "search")


@pytest.fixture(scope="module")
def program() -> trl.Program:
    return reinforce(hidden=(4,)).compile({"B": 3, "I": 4, "T": 6})


@pytest.fixture
def explorer(program: trl.Program) -> Explorer:
    return program.explore()


def say(explorer: Explorer, **message: Any) -> None:
    """Send a page's message through the comm, and wait for its effect."""
    explorer._handle_custom_msg(message, [])
    assert explorer.wait(60)


def arrays(packed: dict[str, Any]) -> Any:
    """Return the arrays that the page unpacks."""

    def fill(value: Any) -> Any:
        if isinstance(value, dict) and set(value) == {"buffer", "dtype", "shape"}:
            flat = np.frombuffer(packed["buffers"][value["buffer"]], value["dtype"])
            return flat.reshape(value["shape"]).tolist()
        if isinstance(value, dict):
            return {key: fill(one) for key, one in value.items()}
        return [fill(one) for one in value] if isinstance(value, list) else value

    return fill(packed["json"])


def test_all_views_go_out(explorer: Explorer, program: trl.Program) -> None:
    assert isinstance(explorer, timerl_widgets.Explorer)
    state = explorer.get_state()
    for name in VIEWS:
        assert state[name]["json"], name
    assert arrays(state["loops"]) == trl.show.LoopView.from_program(program).to_json()
    assert arrays(state["space"]) == trl.show.IterationSpaceView.from_program(program).to_json()
    assert arrays(state["memory"]) == trl.show.MemoryView.from_program(program).to_json()
    assert arrays(state["graph"])["svg"].startswith("<svg")
    assert state["stage"] == "fuse" and state["status"] == {"state": "ready"}


def test_a_selection_is_data(explorer: Explorer) -> None:
    known = explorer.program.fused.sinks[0].id
    explorer.set_state({"selected": [known, known, -5, 10**9]})
    assert explorer.selected == [known]
    explorer.selected = []
    assert explorer.get_state()["selected"] == []


def test_an_instant_is_in_the_turn(explorer: Explorer) -> None:
    count = arrays(explorer.space)["turn"]["count"]
    explorer.set_state({"instant": 10**6})
    assert explorer.instant == count - 1
    explorer.set_state({"instant": None})
    assert explorer.instant is None


def test_another_stage_is_drawn(explorer: Explorer, program: trl.Program) -> None:
    explorer.set_state({"stage": "pdg"})
    assert explorer.wait(60)
    shown = {k for node in arrays(explorer.graph)["nodes"] for k in node["op_ids"]}
    assert shown == set(program.pdg.ops)
    explorer.set_state({"stage": "simplify"})
    assert explorer.wait(60)
    steps = arrays(explorer.steps)
    assert steps["stage"] == "simplify"
    assert len(steps["steps"]) == len(program.stages["simplify"].steps) > 0


def test_a_stage_that_there_is_not_leaves_what_is_shown(explorer: Explorer) -> None:
    explorer.set_state({"stage": "<script>"})
    assert explorer.stage == "fuse"


def test_an_option_compiles_again(explorer: Explorer, program: trl.Program) -> None:
    before = explorer.graph
    say(explorer, kind="options", changes={"fuse": False})
    assert explorer.status["state"] == "ready" and explorer.status["seconds"] > 0
    assert explorer.program.options.fuse is False and program.options.fuse is True
    assert explorer.stage in explorer.program.stages
    assert arrays(explorer.graph) != arrays(before)
    rows = {row["name"]: row for row in arrays(explorer.pipeline)["stages"]}
    assert not rows.get("fuse", {"ran": False})["ran"]
    expected = trl.show.LoopView.from_program(explorer.program).to_json()
    assert arrays(explorer.loops) == expected
    say(explorer, kind="options", changes={"fuse": True})
    assert str(explorer.program.ast) == str(program.ast)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Compilations that announce their start, and wait for permission to continue."""
    begun, go = threading.Event(), threading.Event()

    def slow(of: Callable[..., trl.Program]) -> Callable[..., trl.Program]:
        def compiled(*given: Any, **options: Any) -> trl.Program:
            begun.set()
            assert go.wait(30)
            return of(*given, **options)

        return compiled

    monkeypatch.setattr(trl.Program, "again", slow(trl.Program.again))
    return begun, go


def test_changes_add_up_however_quickly_they_come(
    explorer: Explorer, held: tuple[threading.Event, threading.Event]
) -> None:
    begun, go = held
    explorer.change(lift=False)
    assert begun.wait(30)
    explorer._handle_custom_msg({"kind": "options", "changes": {"simplify": False}}, [])
    explorer._handle_custom_msg({"kind": "bounds", "changes": {"T": 7}}, [])
    go.set()
    assert explorer.wait(60)
    options = explorer.program.options
    assert (options.lift, options.simplify, explorer.program.bounds["T"]) == (False, False, 7)
    assert explorer.status["state"] == "ready"


def test_a_stage_that_is_chosen_while_another_program_is_compiled_is_drawn_of_that(
    explorer: Explorer, held: tuple[threading.Event, threading.Event]
) -> None:
    begun, go = held
    explorer.change({"T": 9})
    assert begun.wait(30)
    explorer.set_state({"stage": "pdg"})
    go.set()
    assert explorer.wait(60)
    assert explorer.stage == "pdg"
    assert arrays(explorer.graph) == arrays(Explorer(explorer.program, stage="pdg").graph)


def test_a_stage_that_is_switched_off_meanwhile_gives_way(
    explorer: Explorer, held: tuple[threading.Event, threading.Event]
) -> None:
    begun, go = held
    explorer.change(lift=False)
    assert begun.wait(30)
    explorer.set_state({"stage": "lift"})
    go.set()
    assert explorer.wait(60)
    assert explorer.stage == "fuse" and explorer.status["state"] == "ready"
    assert arrays(explorer.graph) == arrays(Explorer(explorer.program).graph)


def test_a_search_within_a_budget_says_what_it_tries_and_can_be_given_up() -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.random.normal((8,), domain=(t,))
        ctx.output("y", x.square().sum(axis=0).sum(over=t))
    program = ctx.compile({T: 100}, trl.Options(fuse=False))
    explorer, told = program.explore(), list[str]()
    explorer.observe(lambda change: told.append(change["new"].get("text", "")), "status")

    def cancel(_: Any) -> None:
        if "tried within" in told[-1]:
            explorer._handle_custom_msg({"kind": "cancel"}, [])

    explorer.observe(cancel, "status")
    budget = leaving(program, 0.5)
    explorer.change(device_memory=budget)
    assert explorer.wait(60)
    assert explorer.program is program and explorer.status["state"] == "failed"
    assert explorer.status["text"] == "the change has been cancelled; the program is unchanged."
    explorer.unobserve(cancel, "status")
    told.clear()
    explorer.change(device_memory=budget)
    assert explorer.wait(60)
    assert explorer.status["state"] == "ready" and explorer.program.memory.needed <= budget
    tried = [text for text in told if "tried within" in text]
    assert [int(text.split()[0]) for text in tried] == [*range(1, len(tried) + 1)]
    assert len(tried) > 1 and any("needs at least" in text for text in tried)


def test_bounds_compile_again(explorer: Explorer) -> None:
    say(explorer, kind="bounds", changes={"T": 9})
    assert explorer.program.bounds["T"] == 9
    assert arrays(explorer.space)["turn"]["bounds"]["T"] == 9


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"kind": "options", "changes": {"vectorize": 3}}, "vectorize=3"),
        ({"kind": "options", "changes": {"no_such": True}}, "no_such"),
        ({"kind": "options", "changes": [1]}, "by name"),
        ({"kind": "bounds", "changes": {"T": "9"}}, "not a bound"),
        ({"kind": "bounds", "changes": {"T": True}}, "not a bound"),
        ({"kind": "bounds", "changes": {"T": -1}}, "T"),
        ({"kind": "inspect", "ids": ["1"]}, "list of ids"),
        ({"kind": "search", "query": 3}, "query"),
        ({"kind": "search", "query": "", "of_kind": "no such"}, "no such"),
        ({"kind": "eval", "text": "1"}, "eval"),
        ({}, "None"),
        ("text", "kind"),
    ],
)
def test_what_cannot_be_is_answered_and_changes_nothing(
    explorer: Explorer, message: Any, text: str
) -> None:
    before = explorer.program
    explorer._handle_custom_msg(message, [])
    assert explorer.wait(60)
    assert explorer.status["state"] == "failed"
    assert text in explorer.status["text"]
    assert explorer.program is before


def test_an_error_of_the_compiler_comes_with_its_hint(explorer: Explorer) -> None:
    say(explorer, kind="options", changes={"device_memory": "64B"})
    assert explorer.status["state"] == "failed" and explorer.status["hint"]
    say(explorer, kind="options", changes={"lift": False})
    assert explorer.status["state"] == "ready"


def test_operations_are_told_of(explorer: Explorer, program: trl.Program) -> None:
    kernel = next(op for op in program.fused if op.kind == "dataflow")
    ids = list(kernel.op_ids)
    say(explorer, kind="inspect", ids=ids, stage="fuse")
    told = arrays(explorer.inspector)
    assert told["asked"] == [ids, []]
    assert [op["op_id"] for op in told["ops"]] == [kernel.id]  # for all that is inside
    say(explorer, kind="inspect", ids=[10**9], stage="no such")
    assert arrays(explorer.inspector) == told  # nothing to report


def test_a_kernel_is_told_of_by_all_lines_that_it_runs(
    explorer: Explorer, program: trl.Program
) -> None:
    for kernel in (op for op in program.fused if op.kind == "dataflow"):
        body = trl.show.stages.operation_lineage.operations(program.fused)
        inside = [body[k] for k in kernel.op_ids[1:]]
        say(explorer, kind="inspect", ids=[kernel.id], stage="fuse")
        source = arrays(explorer.inspector)["ops"][0]["source"]
        numbers = [line["number"] for line in source["lines"]]
        assert numbers == sorted({op.origin.line for op in inside} & set(numbers))
        assert all("reinforce.py" in source["place"] and line["marked"] for line in source["lines"])
        here = [op for op in inside if op.origin.file.endswith("reinforce.py")]
        assert {op.origin.line for op in here} == set(numbers)


def test_a_search_goes_through_all_stages(explorer: Explorer) -> None:
    say(explorer, kind="search", query="acting", of_kind=None, region=None, changed=False)
    found = arrays(explorer.search)
    assert found["query"] == "acting" and {"pdg", "fuse"} <= {s["stage"] for s in found["stages"]}


def test_a_search_goes_on_in_what_a_change_makes(explorer: Explorer) -> None:
    say(explorer, kind="search", query="", of_kind="dataflow", region=None, changed=False)
    assert explorer.search["json"]["stages"][0]["stage"] == "fuse"
    say(explorer, kind="search", query="learning", of_kind=None, region=None, changed=True)
    before = explorer.search["json"]
    explorer.change(vectorize=False)
    assert explorer.wait(60)
    after = explorer.search["json"]
    assert after["query"] == "learning" and after["changed"]
    stages = [one["stage"] for one in after["stages"]]
    assert "fuse" in stages and "vectorize" not in stages
    assert before["stages"] != after["stages"]
    # filters by removed things are dropped
    say(explorer, kind="search", query="", of_kind="dataflow", region=None, changed=False)
    explorer.change(fuse=False)
    assert explorer.wait(60)
    shown = explorer.search["json"]
    assert shown["kind"] == (None if "dataflow" not in shown["kinds"] else "dataflow")
    assert explorer.status["state"] == "ready"


def test_a_selection_outlives_a_change_where_it_can(explorer: Explorer) -> None:
    written = explorer.program.pdg.sinks[0].id
    explorer.selected = [written]
    say(explorer, kind="options", changes={"lift": False})
    assert explorer.selected == [written]


def test_saved_pages_keep_the_pictures(explorer: Explorer) -> None:
    bundle, _ = explorer._repr_mimebundle_()
    assert bundle["image/svg+xml"].count("<svg") > 4
    assert "application/vnd.jupyter.widget-view+json" in bundle


@pytest.mark.parametrize("widget", [LoopView, IterationSpaceView, MemoryTimeline])
def test_panes_alone(widget: Any, program: trl.Program) -> None:
    view = getattr(trl.show, {"MemoryTimeline": "MemoryView"}.get(widget.__name__, widget.__name__))
    alone = widget(program)
    assert (
        arrays(alone.view)
        == view.from_program(program).to_json()
        == arrays(widget(view.from_program(program)).view)
    )
    kernel = next(op.id for op in program.fused if op.kind == "dataflow")
    alone.set_state({"selected": [kernel, kernel, -1]})
    assert alone.selected == [kernel]
    bundle, _ = alone._repr_mimebundle_()
    assert bundle["image/svg+xml"] == view.from_program(program).to_svg()


def test_programs_of_all_patterns_can_be_explored() -> None:
    for pattern in PATTERNS.values():
        explorer = pattern.context().compile(pattern.bounds).explore()
        assert all(explorer.get_state()[name]["json"] for name in VIEWS)


def test_a_closed_explorer_compiles_nothing(program: trl.Program) -> None:
    explorer = program.explore()
    say(explorer, kind="shown")
    begun, go = threading.Event(), threading.Event()

    def block(change: Any) -> None:
        if change["new"]["state"] == "compiling" and threading.current_thread() != main:
            begun.set()
            assert go.wait(60)

    main = threading.current_thread()
    explorer.observe(block, "status")
    explorer._handle_custom_msg({"kind": "options", "changes": {"contract": False}}, [])
    assert begun.wait(60)
    explorer.close()
    go.set()
    assert explorer.wait(60)
    assert explorer.program is program and explorer.status["state"] == "failed"
    assert explorer._worker.wait(60, spare=True)
    assert not explorer._worker._spare


def test_two_programs_are_compared(explorer: Explorer, program: trl.Program) -> None:
    assert explorer.comparison == {}
    say(explorer, kind="compare")
    say(explorer, kind="options", changes={"fuse": False})
    shown = arrays(explorer.comparison)
    assert shown["options"] == [{"name": "fuse", "values": [True, False]}]
    assert len(shown["spaces"]) == len(shown["memories"]) == 2
    say(explorer, kind="compare", close=True)
    assert explorer.comparison == {}
    beside = program.explore(explorer.program)
    assert arrays(beside.comparison)["options"] == [{"name": "fuse", "values": [False, True]}]


# --- runs ----------------------------------------------------------------------------------------


@pytest.fixture(params=["explorer", "monitor"])
def monitor(request: pytest.FixtureRequest, program: trl.Program) -> Iterator[Any]:
    interpreted = program.with_options(executor="interpret")
    shown = interpreted.explore() if request.param == "explorer" else RunMonitor(interpreted)
    yield shown
    if shown.running is not None:
        shown.running.stop()
        assert shown.running.wait(30)


def test_a_run_is_started_paused_stepped_and_stopped(monitor: Any) -> None:
    def command(name: str, number: int, **more: Any) -> None:
        message = {"kind": "run", "command": name, "number": number, **more}
        monitor._handle_custom_msg(message, [])
        assert monitor.acknowledged == number

    command("speed", 1, value=5.0)
    command("step", 2)
    assert monitor.running.wait(30) and monitor.running.state == "paused"
    assert monitor.running.turn == 1 and monitor.running.speed == 5.0
    command("speed", 3, value=None)
    command("step", 4)
    assert monitor.running.wait(30) and monitor.running.turn == 2
    command("resume", 5)
    result = monitor.running.result(60)
    assert _until(lambda: _is_finished(monitor))
    drawn = arrays(monitor.run)
    assert drawn["frame"]["turn"] == drawn["frame"]["turns"] == 4
    assert np.allclose(drawn["frame"]["curves"]["return"]["values"], result["return"])
    assert drawn["held"]["bytes"] == drawn["held"]["predicted"]  # the ledger agrees with the plan
    # also at the instants of an iteration
    over, shown = drawn["over"], monitor_program(monitor)
    line, count = shown.memory.timeline(), len(trl.show.Turn.from_program(shown))
    predicted = line.bytes[line.turn == over["turn"]]
    assert over["reason"] == "" and len(predicted) == count and over["bytes"]
    for first, last, measured in zip(over["first"], over["last"], over["bytes"], strict=True):
        assert 0 <= first < last <= count
        if first > 0 and last < count:  # parts at both ends may belong to other iterations
            assert measured == max(predicted[first:last])


def monitor_program(monitor: Any) -> trl.Program:
    return monitor.program if isinstance(monitor, Explorer) else monitor._program


def test_an_instant_is_a_launch_of_the_next_iteration() -> None:
    """A loop over j runs before the drawn loop over i; its iterations have other launches."""
    with trl.Context("j", "i", "t") as ctx:
        (j, J), (i, I), (t, T) = ctx.dims
        z = trl.tensor((2,), domain=(j,)).named("z")
        z[0] = trl.constant(np.array([1.0, 2.0], np.float32))
        z[j + 1] = z * 1.5
        x = trl.tensor((2,), domain=(i, t)).named("x")
        x[0, 0] = z[J - 1]
        x[i + 1, 0] = x[i, T - 1] + 1.0
        x[i, t + 1] = x * 1.25
        ctx.output("last", x[i, T - 1])
    program = ctx.compile({J: 4, I: 5, T: 3}, trl.Options(executor="interpret"))
    drawing, found = Drawing(program), list[int]()
    with program.start(paused=True) as run:
        for turn in range(1, 7):
            run.step()
            assert run.wait()
            found.append(0)
            for instant in range(len(drawing.turn)):
                seen, is_last = list[Any](), drawing.launch_at(instant)

                def look(done: Any, seen: Any = seen, is_last: Any = is_last) -> bool:
                    seen.append(done)
                    return is_last(done)

                with suppress(ExecutionError):
                    program.values_after(run, look)
                    one = drawing.turn.points[drawing.turn.statement[instant]]
                    assert (seen[-1].name, seen[-1].point[0]) == (one.name, turn - 4)
                    assert len(seen) == instant + 1
                    found[-1] += 1
    assert found == [0, 0, 0, *[len(drawing.turn)] * 3]


def test_values_of_a_paused_run_are_read_once_for_each_position(
    program: trl.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, plain = list[Any](), Drawing.values

    def values(drawing: Drawing, running: Any, ids: Any, tensors: Any, instant: Any) -> Any:
        read.append((tuple(ids), instant))
        return plain(drawing, running, ids, tensors, instant)

    monkeypatch.setattr(Drawing, "values", values)
    explorer = Explorer(program.with_options(executor="interpret"), ahead=False)
    chosen = [min(op.id for op in explorer.program.fused)]
    with explorer.start(paused=True) as run:
        run.step()
        assert run.wait(60) and _until(lambda: explorer._run_controller.view is not None)
        explorer.selected = chosen
        assert explorer.wait(60) and read == [(tuple(chosen), None)]
        for _ in range(3):  # frames of the paused run, and the inspector's request of the page
            explorer._show_run(explorer._run_controller.view)
            explorer._receive(None, {"kind": "inspect", "ids": chosen, "stage": "fuse"}, None)
            assert explorer.wait(60)
        assert len(read) == 1 and explorer.values
        explorer.instant = 0
        assert explorer.wait(60) and len(read) == 2
        run.step()
        assert run.wait(60) and _until(lambda: len(read) == 3)  # by the next frame
        explorer.selected = []
        assert explorer.wait(60) and not explorer.values
    explorer.close()


def test_a_run_is_saved_as_its_charts(program: trl.Program) -> None:
    monitor = RunMonitor(program.with_options(executor="interpret"))
    assert (
        "B = 3, I = 4, T = 6): the run had not" in monitor._repr_mimebundle_()[0]["image/svg+xml"]
    )
    monitor.start().result(60)  # its last frame arrives a moment later
    bundle, _ = monitor._repr_mimebundle_()
    svg = ElementTree.fromstring(bundle["image/svg+xml"])
    lines = [one.get("points") for one in svg.iter("{http://www.w3.org/2000/svg}polyline")]
    assert len(lines) >= 4 and len(lines[0].split()) == 4  # a return for each iteration
    texts = [one.text for one in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"return", "predicted", "measured", "host cores"} <= set(texts)
    assert "finished after turn 4 of 4" in bundle["text/plain"]


def test_turns_are_measured_under_any_bounds() -> None:
    long = reinforce(hidden=(4,)).compile({"B": 2, "I": 2, "T": 50})
    monitor = RunMonitor(long)
    monitor.start().result(60)
    assert _until(lambda: _is_finished(monitor))
    over = arrays(monitor.run)["over"]
    assert over["reason"] == "" and max(over["last"]) == len(trl.show.Turn.from_program(long))


def test_commands_that_cannot_be_obeyed_are_answered(monitor: Any) -> None:
    for message, text in (
        ({"kind": "run", "command": "pause"}, "no run is active"),
        ({"kind": "run", "command": "launch"}, "launch"),
        ({"kind": "run", "command": "speed", "value": -1}, "speed"),
        ({"kind": "run", "command": "speed", "value": "fast"}, "speed"),
    ):
        monitor._handle_custom_msg(message, [])
        told = monitor.problem if isinstance(monitor, RunMonitor) else monitor.status["text"]
        assert text in told
    assert monitor.running is None


def test_a_run_that_goes_on_is_not_started_again(monitor: Any) -> None:
    monitor.start(paused=True)
    first = monitor.running
    monitor._handle_custom_msg({"kind": "run", "command": "start", "number": 7}, [])
    assert monitor.running is first
    first.stop()
    assert first.wait(30)
    assert monitor.start() is monitor.running is not first


def test_a_widget_that_is_closed_hears_no_more_of_its_run(monitor: Any) -> None:
    monitor.start(paused=True)
    assert _until(lambda: bool(monitor.run))
    monitor.close()
    last = monitor.run
    monitor.running.resume()
    monitor.running.result(60)
    assert monitor.run is last


def test_charts_are_as_wide_as_screens() -> None:
    long = np.arange(10_000.0)
    curve = downsample_curve(Curve(long, -long))
    assert len(curve) == MOST and curve.at[-1] == 9999 and np.array_equal(curve.values, -curve.at)
    assert len(downsample_curve(Curve(long[:7], long[:7]))) == 7


def _is_finished(monitor: Any) -> bool:
    return bool(monitor.run) and monitor.run["json"]["frame"]["state"] == "finished"


def _until(holds: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


# --- background thread
# -----------------------------------------------------------------------------


def test_a_worker_does_the_last_of_a_kind() -> None:
    worker, begun, go, done = (
        BackgroundWorker("test", _raised),
        threading.Event(),
        threading.Event(),
        list[str](),
    )

    def first() -> None:
        begun.set()
        go.wait(10)

    worker.ask("slow", first)
    assert begun.wait(10)
    for text in ("a", "b", "c"):
        worker.ask("quick", lambda text=text: done.append(text))
    worker.ask("other", lambda: done.append("d"))
    assert not worker.wait(0.01)
    go.set()
    assert worker.wait(10)
    assert done == ["c", "d"]


@pytest.mark.filterwarnings("ignore:test. ZeroDivisionError")
def test_a_worker_outlives_its_jobs_errors() -> None:
    heard, done = list[str](), list[int]()

    def failed(error: Exception) -> None:
        heard.append(str(error))
        if len(heard) > 1:
            raise RuntimeError("nobody can be told")

    worker = BackgroundWorker("test", failed)
    for k in range(3):
        worker.ask("breaks", lambda: done.append(1 // 0))
        worker.ask("works", lambda k=k: done.append(k))
        assert worker.wait(10)
    assert done == [0, 1, 2] and len(heard) == 3


def test_an_error_in_the_background_is_shown(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any, **__: Any) -> None:
        raise KeyError("no such thing")

    with monkeypatch.context() as patch:
        patch.setattr(explorer._drawing, "inspector", breaks)
        say(
            explorer, kind="inspect", ids=explorer.graph["json"]["nodes"][0]["op_ids"], stage="fuse"
        )
    assert explorer.status["state"] == "failed" and "no such thing" in explorer.status["text"]
    explorer.stage = "pdg"
    assert explorer.wait(60)
    assert explorer.graph["json"]["name"] == "pdg"


def _raised(error: Exception) -> None:
    raise error


def test_a_worker_that_rests_begins_anew() -> None:
    worker, done = BackgroundWorker("test", _raised, idle=0.01), list[int]()
    for k in range(3):
        worker.ask("job", lambda k=k: done.append(k))
        assert worker.wait(10)
        while worker._thread is not None:
            pass
    assert done == [0, 1, 2]


def test_clusters_fold_and_stay_so(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer.stage = "pdg"
    assert explorer.wait(60)
    graph = explorer.graph["json"]
    key = next(c["id"] for c in graph["clusters"] if c["label"] == "update")
    say(explorer, kind="fold", id=key, folded=True)
    assert key in {node["id"] for node in explorer.graph["json"]["nodes"]}
    explorer.change(simplify=False)
    assert explorer.wait(60)
    assert key in {node["id"] for node in explorer.graph["json"]["nodes"]}
    say(explorer, kind="fold", id=key, folded=False)
    assert {node["id"] for node in explorer.graph["json"]["nodes"]} == {
        node["id"] for node in graph["nodes"]
    }
    told = list[Any]()
    monkeypatch.setattr(explorer, "send", told.append)
    say(explorer, kind="fold", id="<script>", folded=True)
    assert told == [{"kind": "refused", "request": "fold"}]
    assert explorer.status["state"] == "failed" and "no cluster" in explorer.status["text"]


def test_the_passes_are_shown_before_memory_is_planned(explorer: Explorer) -> None:
    """Early results stay until the rest arrives, and are withdrawn if it fails."""
    said: list[tuple[str, Any]] = []
    for name in ("graph", "pipeline", "loops", "status"):
        explorer.observe(lambda change, n=name: said.append((n, change["new"])), name)
    explorer.change(fuse=False)
    assert explorer.wait(60)
    order = [name for name, _ in said]
    texts = [s.get("text", "") for name, s in said if name == "status"]
    count = len(explorer.program.schedule.statements)
    assert f"scheduling {count} statements …" in texts
    assert f"planning the memory of {count} statements …" in texts
    assert max(order.index("graph"), order.index("pipeline")) < order.index("loops")
    assert arrays(explorer.graph) == arrays(Explorer(explorer.program).graph)
    assert explorer.stage == "separate"

    before = explorer.graph, explorer.pipeline, explorer.steps
    said.clear()
    explorer.change(fuse=True, device_memory=1)
    assert explorer.wait(60)
    assert explorer.status["state"] == "failed" and "graph" in [name for name, _ in said]
    assert (explorer.graph, explorer.pipeline, explorer.steps) == before
