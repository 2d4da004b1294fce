"""Drawings of stream runs, and the widget that steps through them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from timerl_widgets import StreamView as Widget

import timerl_nb as trl
from timerl_nb.base.errors import CallError
from timerl_nb.show.systems.stream_view import StreamView
from timerl_nb.streams import Kernel, Launch, Report, Segment, Stream

LAUNCHES = (
    Launch(0, "load", "a.py:1", (), 0, 0, (), 0.0, 1.0, 4.0),
    Launch(1, "load", "a.py:2", (), 1, 1, (), 0.0, 1.0, 6.0),
    Launch(2, "add<b>", "a.py:3", (7,), 0, 2, (0, 1), 0.5, 6.0, 9.0),
)
MADE_UP = Report("window", 4, 2, 10.0, LAUNCHES, 3)


def test_a_view_has_all_runs_on_one_scale() -> None:
    serial = Report("serial", 0, 1, 20.0, LAUNCHES[:1], 1)
    view = StreamView.from_reports(serial, MADE_UP, name="a step")
    assert [(run.how, run.utilization) for run in view.runs] == [
        ("serial", 1.0),
        ("window", 11 / 16),
    ]
    assert "window: 10 µs, utilization 0.69" in str(view)
    assert "  stream 0: 2 add<b>, 6 to 9 µs after 0, 1" in str(view)
    picture = view.to_svg()
    for said in (
        "a step",
        "serial: 1 stream, 20 µs",
        "pale: waits in the window",
        ">add&lt;b&gt;<",
        "stream 1",
        "slot 2",
        "2 add&lt;b&gt; at a.py:3: 3 µs, after 0, 1",
    ):
        assert said in picture, said
    assert "slot 3" not in picture  # no kernel was in this slot
    assert view.to_json()["runs"][1]["launches"][2]["upstream"] == [0, 1]
    with pytest.raises(CallError, match="3 is not a report"):
        StreamView.from_reports(3)


def test_reports_and_simulations_draw_themselves() -> None:
    segment = Segment(1, 0, 8)
    stream = Stream("two", tuple(Kernel(f"k{k}", (), (segment,), lambda: None) for k in range(2)))
    for report in (stream.run("window"), stream.simulate("acs-hw")):
        bundle = report._repr_mimebundle_()
        assert "<title>1 k1: " in str(bundle["image/svg+xml"])
    assert "<svg" in str(stream._repr_mimebundle_()["image/svg+xml"])


def test_a_run_is_a_chrome_trace(tmp_path: Path) -> None:
    events = json.loads(MADE_UP.chrome_trace(tmp_path / "run.json").read_text())["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert lanes == {1: "stream 0", 2: "stream 1"}
    slices = [(e["name"], e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert slices == [("load", 1, 1.0, 3.0), ("load", 2, 1.0, 5.0), ("add<b>", 1, 6.0, 3.0)]
    assert next(e for e in events if e["name"] == "add<b>")["args"]["upstream"] == [0, 1]


def test_runs_lie_beside_a_profile(tmp_path: Path) -> None:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.tensor((), domain=(t,))
        x[0], x[t + 1] = trl.constant(1.0), x * 0.5
        ctx.output("x", x[0:T].sum())
    program = ctx.compile({T: 3}, options=trl.Options(executor="interpret", fuse=False, lift=False))
    report = trl.streams.record(program).run("window")
    path = trl.profile(program).chrome_trace(tmp_path / "run.json", report, MADE_UP)
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {1: "TimeRL", 2: "streams (window)", 3: "streams (window)"}
    ran = {
        process: [e for e in events if e["ph"] == "X" and e["pid"] == process] for process in names
    }
    assert len(ran[2]) == report.count > 3 and len(ran[3]) == 3
    profiled = {op for e in ran[1] for op in e["args"].get("op_ids", ())}
    assert {op for e in ran[2] for op in e["args"]["op_ids"]} <= profiled


def test_the_widget_is_stepped_and_chosen_in() -> None:
    widget = MADE_UP.explore()
    assert isinstance(widget, Widget) and (widget.step, widget.selected) == (0, [])
    widget.set_state({"step": 2, "selected": [2, 2, 99]})
    assert (widget.step, widget.selected) == (2, [2])
    widget.set_state({"step": 99})
    assert widget.step == 3
    shown, _ = widget._repr_mimebundle_()
    assert "image/svg+xml" in shown
