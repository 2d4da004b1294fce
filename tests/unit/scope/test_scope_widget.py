"""The recording widget without a browser, `%%scope`, and `timerl scope export`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from timerl_widgets import ScopeView, load_ipython_extension

import timerl_nb as trl
from tests.reinforce import reinforce
from timerl_nb.cli import main
from timerl_nb.scope import operation

record = partial(trl.scope.record, taps=False)


def recorded(folder: Path | None = None) -> trl.scope.record:
    with record(folder) as rec:
        for _ in range(3):
            with operation("step"):
                pass
    return rec


def told(widget: ScopeView, message: object) -> None:
    widget._handle_custom_msg(message, [])


def test_a_stretch_is_sent_as_it_is_asked_for() -> None:
    widget = recorded().explore()
    assert isinstance(widget, ScopeView) and widget.stretch == {}
    end = widget.drawn.end
    told(widget, {"kind": "zoom", "begin": 0, "end": end, "width": 50, "process": None})
    found, buffers = widget.stretch["json"], widget.stretch["buffers"]
    assert (found["begin"], found["end"], found["width"]) == (0, end, 50)
    (lane,) = found["lanes"]
    shares = lane["tracks"][1]["shares"]
    assert shares["dtype"] == "uint8" and len(buffers[shares["buffer"]]) == shares["shape"][0]
    assert found["names"] == ["", "step"]


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "zoom", "begin": 5, "end": 5, "width": 50},
        {"kind": "zoom", "begin": 0, "end": 5, "width": 10**9},
        {"kind": "zoom", "begin": "0", "end": 5, "width": 50},
        {"kind": "zoom", "begin": 0, "end": 5.5, "width": 50},
        {"kind": "zoom", "begin": 0, "end": 5, "width": 50, "process": "x"},
        {"kind": "compare"},
        None,
    ],
)
def test_what_is_no_stretch_is_told(message: object) -> None:
    widget = recorded().explore()
    told(widget, message)
    assert widget.stretch == {} and widget.problem
    told(widget, {"kind": "zoom", "begin": 0, "end": 5, "width": 5})
    assert widget.stretch and not widget.problem


def test_what_is_selected_is_so_in_the_explorer() -> None:
    program = reinforce(hidden=(4,)).compile({"B": 2, "I": 2, "T": 3})
    explorer = program.explore(ahead=False)
    view = program.scope().explore(explorer=explorer)
    launch = next(one for one in view.drawn.operations if one.op_ids)
    view.set_state({"selected": list(launch.op_ids), "operation": launch.name})
    assert explorer.selected == list(launch.op_ids) and view.operation == launch.name
    explorer.selected = [min(program.pdg.ops)]
    assert view.selected == explorer.selected and view.lineage == explorer.lineage
    view.set_state({"operation": "nothing of that name"})
    assert view.operation == ""


def test_a_cell_is_recorded_each_time_that_it_runs() -> None:
    shell = InteractiveShell()
    load_ipython_extension(shell)
    shell.user_ns["trl"] = trl
    cell = "with trl.scope.operation('step'):\n    a = 1 + 1"
    for _ in range(2):
        shown: Any = shell.run_cell_magic("scope", "rec", cell)
        assert isinstance(shown, ScopeView) and shell.user_ns["a"] == 2
        counts = {one.name: one.count for one in shown.drawn.operations}
        assert counts["step"] == 1
        assert shell.user_ns["rec"].read().lanes
        del shell.user_ns["a"]


def test_a_cell_that_fails_ends_its_recording() -> None:
    shell = InteractiveShell()
    load_ipython_extension(shell)
    done = shell.run_cell("%%scope\n1 / 0")
    error = done.error_in_exec
    assert error is not None and isinstance(error.__cause__, ZeroDivisionError)
    assert recorded().table().total > 0  # another may begin


def test_a_recording_is_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path / "r")
    for name in ("made.zip", "made.svg"):
        assert main(["scope", "export", str(tmp_path / "r"), str(tmp_path / name)]) == 0
        assert capsys.readouterr().out == f"written: {tmp_path / name}\n"
    assert trl.scope.read(tmp_path / "made.zip").lanes
    assert (tmp_path / "made.svg").read_text().startswith("<svg")
    assert main(["scope", "export", str(tmp_path / "r"), str(tmp_path / "made.txt")]) == 2
