"""`timerl scope` records unchanged scripts and all their Python child processes."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import timerl_nb as trl
from tests.traced import recorded
from timerl_nb.cli import main
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.recording.process_joining import environment
from timerl_nb.scope.storage.event_format import NAME_BITS, Kind, Library

CHILDREN = """
import multiprocessing, subprocess, sys, time
def child():
    time.sleep(0.01)
if __name__ == "__main__":
    if sys.argv[1] == "subprocess":
        subprocess.run([sys.executable, "-c", "import time; time.sleep(0.01)"])
    else:
        made = multiprocessing.get_context(sys.argv[1]).Process(target=child, name="worker")
        made.start()
        made.join()
"""
PROGRAM = """
import timerl_nb as trl
from timerl_nb.cli import main
from timerl_nb import errors
with trl.Context("t") as ctx:
    ((t, T),) = ctx.dims
    x = trl.tensor((), domain=(t,))
    x[0] = 1.0
    x[t + 1] = x * 0.5
    ctx.output("y", x[0:T].sum())
print(ctx.compile({"T": 4}).execute(progress=False)["y"], trl.errors is errors)
with trl.scope.operation("by the user"):
    pass
"""


def scope(*words: str, folder: Path, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "timerl_nb.cli", "scope", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, **options)  # type: ignore[call-overload]


def slept(recording: Recording, process: int) -> int:
    """Return the number of sleeps of a process."""
    return sum(
        recording.names[top & ((1 << NAME_BITS) - 1)] == "time.sleep"
        for lane in recording.lanes
        if lane.process == process
        for _, top, kind, _ in lane.edges.tolist()
        if kind == Kind.CALL_ENTER and top >> NAME_BITS == Library.WAITING
    )


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver", "subprocess"])
def test_processes_find_the_recording(how: str, tmp_path: Path) -> None:
    if how in ("fork", "forkserver") and not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    (tmp_path / "s.py").write_text(CHILDREN)
    command = [sys.executable, "s.py", how]
    to = environment(tmp_path / "r", os.environ)
    (tmp_path / "r").mkdir()
    done = subprocess.run(command, cwd=tmp_path, env=to, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    recording = trl.scope.read(tmp_path / "r")
    first, *others = recording.processes
    assert first.command == f"s.py {how}"
    found = [one for one in others if slept(recording, one.number)]
    assert len(found) == 1 and slept(recording, found[0].number) == 1
    tree = trl.scope.processes(recording)
    (root,) = tree.roots  # its parent was recorded, as was its creator
    assert root.process == first and {one.process for one in tree} == set(recording.processes)
    (child,) = (one for one in tree if one.process == found[0])
    assert child.started is not None and child.joined is not None
    assert {child.started.process, child.joined.process} == {first.number}
    assert child.started.ts < child.joined.ts and child.process.begin < child.joined.ts
    assert child.name == ("worker" if how != "subprocess" else "")
    assert sum(one.time.total for one in tree) == trl.scope.overlap_of(recording).total
    assert min(root.waiting, child.waiting) >= 10_000_000
    waited = trl.scope.overlap_of(recording).by("library")[("waiting",)]
    assert waited >= 20_000_000  # the child, and its parent meanwhile


def test_status_streams_words_and_signals_are_the_scripts(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__main__.py").write_text(
        "import os, signal, sys\n"
        "print(sys.argv[1:], sys.stdin.read(), file=sys.stderr)\n"
        "print('out', flush=True)\n"
        "sys.exit(int(sys.argv[2])) if sys.argv[1] == '--exit' else os.kill(os.getpid(), 15)\n"
    )
    words = ("run", "--folder", "r", "-m", "pack", "--exit", "7")
    done = scope(*words, folder=tmp_path, input="typed")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert done.stderr.splitlines() == [
        "recording into r; afterwards: timerl scope show r",
        "['--exit', '7'] typed",
    ]
    done = scope("run", "pack", "--signal", folder=tmp_path, input="")
    assert done.returncode == 1 and "pack is not a file" in done.stderr
    (tmp_path / "s.py").write_text((tmp_path / "pack" / "__main__.py").read_text())
    done = scope("run", "--folder=k", "s.py", "--signal", folder=tmp_path, input="")
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "out\n")
    (process,) = trl.scope.read(tmp_path / "k").processes
    assert process.end is None  # it was killed


def test_a_script_that_compiles_is_heard_and_shown(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(PROGRAM)
    done = scope("run", "--folder", "r", "s.py", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1.875 True\n")
    recording = trl.scope.read(tmp_path / "r")
    assert recording.op_ids and "by the user" in recording.names
    shown = scope("show", "r", folder=tmp_path)
    assert shown.returncode == 0 and shown.stderr == ""
    assert " s.py " in shown.stdout and "waiting" in shown.stdout
    assert next(iter(recording.op_ids)) in shown.stdout


def test_what_set_up_this_python_goes_on(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import builtins; builtins.mine = 3\n")
    (tmp_path / "s.py").write_text(
        "import sys\n"
        "print(mine, any('recorded' in path for path in sys.path), 'timerl_nb' in sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "own")}
    done = scope("run", "--folder", "r", "s.py", folder=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (0, "3 False False\n")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("run", "--folder", "r", "s.py"), 1, "r already holds a recording"),
        (("run",), 2, "the script is missing"),
        (("run", "-m"), 2, "the script is missing"),
        (("run", "--foldr", "x", "s.py"), 2, "'--foldr' is unknown"),
        (("run", "no.py"), 1, "no.py is not a file"),
        (("run", "--folder", "s.py/x", "s.py"), 1, "the recording folder s.py/x cannot be written"),
        (("shw", "r"), 2, "the command 'shw' is unknown"),
        ((), 2, "the following arguments are required: run|show|compare|export|add|check"),
        (("show", "nothing"), 1, "nothing contains no recording"),
        (("run", "--devices", "-2", "s.py"), 1, "devices=-2 is not a number of steps"),
        (("add", "r", "s.py"), 1, "s.py is not a known kind of trace"),
        (("add", "nothing", "t.json"), 1, "the folder nothing does not exist"),
        (("add", "r", "no.json"), 1, "no.json is not a trace of PyTorch's profiler: No such file"),
        (
            ("add", "r", "cut.json.gz"),
            1,
            "is not a trace of PyTorch's profiler: Compressed file ended",
        ),
        (("show", "s.py"), 1, "s.py is not a zip file of a recording, or is damaged"),
        (("show", "foreign"), 1, "foreign contains no recording"),
        (
            ("show", "r", "--calibration", "no.json"),
            1,
            "no.json is not a valid calibration: No such file",
        ),
        (("export", "r", "x.txt"), 2, "x.txt has an unknown ending: choose .zip, .svg, .json"),
        (("export", "r", "x.zip", "--begin", "1"), 2, "--begin and --end apply only to a trace"),
        (
            ("export", "r", "x.json", "--begin", "1e3"),
            1,
            "the time window from 1000.0 to the end",
        ),
        (("export", "r", "s.py/x.svg"), 1, "the picture s.py/x.svg cannot be written"),
        (("export", "r", "s.py/x.zip"), 1, "s.py/x.zip cannot be written: "),
    ],
)
def test_wrong_commands_are_refused(
    words: tuple[str, ...],
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text("raise SystemExit('ran')\n")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "package.json").write_text("{}")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b"{}" * 99)[:15])
    with trl.scope.record("r"):
        pass
    assert main(["scope", *words]) == status
    out, told = capsys.readouterr()
    assert out == "" and said in told


def test_devices_are_asked_for_and_traces_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.py").write_text(
        "import timerl_nb as trl\n"
        "for k in range(4):\n"
        "    with trl.scope.operation('o'):\n"
        "        pass\n"
    )
    done = scope("run", "--folder", "r", "--devices", "2", "s.py", folder=tmp_path)
    assert done.returncode == 0
    (window,) = trl.scope.read(tmp_path / "r").devices.windows
    assert window.absent == "JAX sees no GPU"
    assert main(["scope", "show", str(tmp_path / "r")]) == 0
    assert "devices: no data\n  process" in capsys.readouterr().out
    made = Path(__file__).parents[3] / "datasets" / "kineto-made.json"
    assert main(["scope", "add", str(recorded(tmp_path / "made")), str(made)]) == 0
    assert "made GPU A, made GPU B" in capsys.readouterr().out


def test_exact_disables_no_wrappers(tmp_path: Path) -> None:
    text = """
import time, timerl_nb as trl
for _ in range(60):
    with trl.scope.operation("o"):
        time.sleep(0.006)
"""
    (tmp_path / "s.py").write_text(text)
    done = scope("run", "--exact", "--folder", "r", "s.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    recording = trl.scope.read(tmp_path / "r")
    assert "unobserved" not in {cell.library for cell in recording.table().cells}
    assert recording.transitions() == {("o", "python", "waiting"): 60}


def test_two_recordings_of_one_second_get_two_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "20261128-013420")
    monkeypatch.setattr(os, "execve", lambda *command: None)
    (tmp_path / "s.py").write_text("")
    for _ in range(3):
        main(["scope", "run", "s.py"])
    names = {path.name for path in (tmp_path / "runs").iterdir()}
    assert names == {f"scope-20261128-013420{end}" for end in ("", "-2", "-3")}
    assert "scope-20261128-013420-3" in capsys.readouterr().err
