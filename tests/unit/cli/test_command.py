"""The command `timerl`: output, refusals, and runs that it starts, stops and resumes."""

from __future__ import annotations

import csv
import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import timerl_command
import timerl_nb as trl
from tests.conftest import SHARED
from timerl_nb.base.errors import OptionError
from timerl_nb.cli import bench, lab, main, sweep, train
from timerl_nb.cli.main import COMMANDS
from timerl_nb.cli.support import foreground_run as attended_run
from timerl_nb.cli.support import sweep_workers as workers
from timerl_nb.cli.support.algorithm_arguments import algorithm, format_argument, inspect_algorithm
from timerl_nb.cli.support.run_request import ASKED, RunRequest
from timerl_nb.execution.control.background_run import Running
from timerl_nb.runtime.state.run_folder import RunFolder

ROOT = Path(__file__).parents[3]
SMALL = ["--hidden", "4", "--bounds", "B=2,T=5,I=4"]
SCRIPT = """\
import sys

import timerl_nb as trl

with trl.Context("i", "t") as ctx:
    (i, I), (t, T) = ctx.dims
    w = trl.parameter((), domain=(i,), init=1.0, name="w")
    x = trl.tensor((), domain=(i, t))
    x[i, 0] = 1.0
    x[i, t + 1] = x * 0.5 + w
    loss = ((x - 3.0) ** 2).mean(over=t)
    loss.backward()
    trl.optim.SGD([w], lr=0.1).step()
    ctx.output("loss", loss)
program = ctx.compile({I: 5, T: 4}, trl.Options(executor="interpret"))
print("words:", sys.argv[1:])
if __name__ == "__main__":
    try:
        program.execute()
    except Exception:
        print("the script may catch what it likes")
    print("it has run")
"""
RUNS = "program.execute()"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIMERL_PROGRESS", "0")
    monkeypatch.setenv("TIMERL_CACHE", os.environ[SHARED])  # patched tests compile nothing
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'widgets'}")


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def when_saved(folder: Path, then: Any) -> threading.Thread:
    """Call a function as soon as a run has saved its state."""

    def watch() -> None:
        until = time.monotonic() + 120
        while not (folder / "manifest.json").exists() and time.monotonic() < until:
            time.sleep(0.005)
        then()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


# --- output --------------------------------------------------------------------------------------


def test_help_imports_neither_jax_nor_isl() -> None:
    code = """
import sys, timerl_command
assert timerl_command.main(["--help"]) == 0
assert timerl_command.main(["--version"]) == 0
print(sorted({"jax", "islpy", "numpy", "timerl_nb"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    assert re.search(r"timerl \d+\.\d+", done.stdout)
    for name in COMMANDS:
        assert f"  {name} " in done.stdout


def test_an_unknown_command_imports_neither_jax_nor_isl() -> None:
    code = """
import sys, timerl_command
assert timerl_command.main(["trian", "reinforce"]) == 2
print(sorted({"jax", "islpy", "numpy", "timerl_nb"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n" and "did you mean 'train'?" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
def test_output_that_nobody_reads_or_holds_ends_without_a_traceback() -> None:
    command = [sys.executable, "-m", "timerl_command", "--help"]
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writes)
    assert done.returncode == 141 and not done.stderr
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1
        assert done.stderr == "timerl: the output cannot be written: No space left on device.\n"


def test_all_commands_are_there_and_explain_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(timerl_command.COMMANDS) == list(COMMANDS)
    for name in COMMANDS:
        assert timerl_command.main([name, "--help"]) == 0
        assert f"timerl {name}" in capsys.readouterr().out
    for name in trl.algorithms.__all__:
        for command in ("train", "sweep"):
            assert main([command, name, "--help"]) == 0
            said = re.sub(r"\s+", " ", capsys.readouterr().out)
            for one in algorithm(name).arguments.values():
                assert f"--{one.name.replace('_', '-')}" in said and one.what in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "train     train a built-in algorithm"),
        (["trian"], "did you mean 'train'?"),
        (["train"], "reinforce    REINFORCE with Monte-Carlo or n-step returns"),
        (["train", "reinforc"], "did you mean 'reinforce'?"),
        (["train", "reinforce", "--step", "5"], "did you mean '--steps'?"),
        (["train", "reinforce", "--steps", "five"], "'five' is not an integer or none"),
        (["train", "reinforce", "--hidden", "4,x"], "'4,x' is not integers separated by commas"),
        (["train", "reinforce", "--lr", "inf"], "not a finite number"),
        (["train", "reinforce", "--bounds", "B=0"], "'B=0' is not a list of bounds"),
        (["train", "reinforce", "--every", "0"], "'0' is not 10 (turns) or 5min"),
        (["train", "reinforce", "--option", "lift"], "'lift' is not NAME=VALUE"),
        (["sweep", "ppo", "--workers", "0", "--folder", "f"], "'0' is not a positive number"),
        (["sweep", "ppo"], "required: --folder"),
        (["explain"], "required: script"),
        (["explain", "x.py", "--stag", "ast"], "did you mean '--stage'?"),
    ],
)
def test_wrong_usage_is_answered(
    words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert timerl_command.main(words) == 2
    out, err = capsys.readouterr()
    assert said in err and not out
    assert not os.listdir()


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (["train", "reinforce", "--bounds", "B=2,Q=3"], "Q", "T"),
        (["train", "reinforce", "--env", "CartPol"], "CartPol", "CartPole-v1"),
        (["train", "reinforce", "--option", "liftt=False"], "no option 'liftt'", "'lift'"),
        (["train", "reinforce", "--option", "lift=no"], "lift='no'", "True or False"),
        (["train", "reinforce", "--option", "random=rbg"], "random='rbg'", '"threefry13" or'),
        (["train", "clipped_ppo", "--minibatches", "7"], "divide into 7", ""),
        (["resume", "nowhere"], "the folder nowhere does not exist", "timerl train"),
        (["resume", "."], "has no asked.json", "program.resume(folder)"),
        (["explain", "nowhere.py"], "nowhere.py is not a file", "Python script"),
        (["sweep", "ppo", "--set", "l=1", "--folder", "f"], "no argument 'l'", "'lr'"),
        (["sweep", "ppo", "--set", "lr=a", "--folder", "f"], "lr = 'a'", "a number"),
        (["sweep", "ppo", "--set", "lr=1,1.0", "--folder", "f"], "occurs twice", "remove one"),
        (["sweep", "ppo", "--set", "lr=1", "--lr", "2", "--folder", "f"], "from --set", "one"),
    ],
)
def test_errors_say_what_to_do(
    words: Sequence[str], what: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert what in err and hint in err and "Traceback" not in err and not out
    assert not re.search(r"^  at ", err, re.MULTILINE)  # no line is the user's
    assert not os.listdir()
    assert main([*words, "--traceback"]) == 1
    assert "Traceback" in capsys.readouterr().err


# --- arguments -----------------------------------------------------------------------------------


def made_up(
    env: str | trl.env.Environment = "CartPole-v1",
    *,
    mode: Literal["fast", "slow"] = "fast",
    layers: Sequence[float] = (1.0, 2.0),
    rate: float | None = None,
    deep: bool = False,
    then: Any = max,
    loss: trl.RecurrentTensor | None = None,
) -> trl.Context:
    """Learn.

    Args:
        env: a name.
        mode, rate: how, and
            how fast.
    """
    raise NotImplementedError


def test_arguments_are_those_of_the_signature() -> None:
    about = inspect_algorithm("made_up", made_up)
    assert {name: one.what for name, one in about.arguments.items()} == {
        "env": "a text",
        "mode": "one of fast, slow",
        "layers": "numbers separated by commas",
        "rate": "a number or none",
        "deep": "true or false",
    }
    assert about.argument("rate").about == "how, and how fast."
    assert [about.argument("rate").read(text) for text in ("none", "1e-3")] == [None, 0.001]
    assert about.argument("layers").read("1, 2.5") == (1.0, 2.5)
    for name in ("mode", "deep", "rate"):
        with pytest.raises(ValueError):
            about.argument(name).read("maybe")
    for one in about.arguments.values():
        assert one.validate(one.default) == one.default


@pytest.mark.parametrize("name", trl.algorithms.__all__)
def test_every_argument_of_an_algorithm_can_be_typed(name: str) -> None:
    about = algorithm(name)
    own = inspect.signature(about.make).parameters
    assert {*about.arguments} == {*own} - {"mask"}  # a function cannot be typed
    for one in about.arguments.values():
        assert one.read(format_argument(one.default)) == one.default
        assert one.about or one.name == "minibatches"  # which the docstring explains above
    train.parser_of("train", about, "")  # no argument has the name of an option of the command


# --- runs ----------------------------------------------------------------------------------------


def test_a_run_is_kept_stopped_and_gone_on_with(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path("here")
    words = ["train", "reinforce", "--hidden", "4", "--steps", "3", "--bounds", "B=2,T=5"]
    words += ["--bounds", "I=20", "--seed", "4", "--every", "1", "--log", "--folder", "here"]
    asked_to_stop, stop, write = threading.Event(), Running.stop, RunFolder.write

    def written(kept: RunFolder, about: Any, arrays: Any) -> Any:
        made = write(kept, about, arrays)
        if about.turn == 3:  # and the run resumes only if it was asked to stop
            os.kill(os.getpid(), signal.SIGINT)
            assert asked_to_stop.wait(60)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write", written)
        patch.setattr(Running, "stop", lambda run: (stop(run), asked_to_stop.set()))
        assert main(words) == 130
    said = capsys.readouterr().out
    turn = manifest(folder)["turn"]
    assert f"stopped and saved after turn {turn} of 20; `timerl resume here` continues" in said
    assert turn in (3, 4) and not (folder / attended_run.RESULT).exists()

    assert main(words) == 1  # never mixed
    assert "`timerl resume here`" in capsys.readouterr().err
    assert manifest(folder)["turn"] == turn

    assert main(["resume", "here"]) == 0
    said = capsys.readouterr().out
    assert f"continuing after turn {turn} of 20" in said and "finished: 20 turns" in said
    code = said.partition("next, in a notebook:\n")[2]
    lines = [line.strip() for line in code.splitlines()]
    assert lines[1] == "ctx = trl.algorithms.reinforce(env='CartPole-v1', hidden=(4,), steps=3)"
    space: dict[str, Any] = {}
    exec("\n".join(lines[:-1]), space)
    ctx = trl.algorithms.reinforce(hidden=[4], steps=3)
    whole = ctx.compile({"B": 2, "I": 20, "T": 5}).execute(seed=4)
    for name in whole:
        np.testing.assert_array_equal(space["result"][name], whole[name])
    for name, value in whole.policy().weights.items():
        np.testing.assert_array_equal(space["policy"].weights[name], value)
    kept = attended_run.read_final_means(folder)
    assert kept == {name: float(np.mean(x[-2:], dtype=np.float64)) for name, x in whole.items()}

    with open(folder / "log.csv") as file:
        logged = list(csv.DictReader(file))
    assert [int(row["i"]) for row in logged] == list(range(20))
    assert [float(row["return"]) for row in logged] == whole["return"].tolist()

    assert main(["resume", "here", "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("finished: 20 turns")
    assert main(["resume", "here", "--more", "2"]) == 0  # longer than planned
    said = capsys.readouterr().out
    assert "I = 22" in said and "finished: 22 turns" in said
    with open(folder / "log.csv") as file:
        logged = list(csv.DictReader(file))
    assert [int(row["i"]) for row in logged] == list(range(22))
    assert [float(row["return"]) for row in logged[:20]] == whole["return"].tolist()
    for wrong in (["--more", "0"], ["--more", "1", "--iterations", "30"]):
        assert main(["resume", "here", *wrong]) == 1
    said = capsys.readouterr().err
    assert "--more 0 is not a positive number" in said and "leave out one of them" in said


def test_what_is_asked_for_is_kept_whole(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--option", "lift=False", "--option", "random=hash32"]
    assert main(["train", "reinforce", *SMALL, *options, "--quiet"]) == 0
    assert main(["train", "reinforce", *SMALL, "--lr", "1e-2", "--baseline", "yes"]) == 0
    assert sorted(os.listdir("runs")) == ["reinforce-CartPole-v1-1", "reinforce-CartPole-v1-2"]
    first, second = (
        RunRequest.read_from(Path("runs") / name) for name in sorted(os.listdir("runs"))
    )
    assert first.options == {"lift": False, "random": "hash32"} and first.bounds == {
        "B": 2,
        "I": 4,
        "T": 5,
    }
    assert second.arguments["lr"] == 0.01 and second.arguments["baseline"] is True
    assert second.arguments["hidden"] == (4,) and second.arguments["steps"] is None
    assert "trl.Options(lift=False, random='hash32')" in "\n".join(first.in_python())

    path = Path("runs/reinforce-CartPole-v1-1") / ASKED
    was = path.read_text()
    for wrong, said in [
        (was.replace('"seed": 0', '"seed": 1'), "`checksum` does not match"),
        (was[:-20], "is not JSON"),
        (was.replace("timerl asked", "asked"), "`format` is not 'timerl asked'"),
        (was.replace('"version": 1', '"version": 2'), "`version` 2"),
        ("[]", "`format`"),
    ]:
        path.write_text(wrong)
        capsys.readouterr()
        assert main(["resume", str(path.parent)]) == 1
        assert said in capsys.readouterr().err
    path.write_text(was)
    (path.parent / "manifest.json").unlink()  # as if killed before the first state: it starts over
    assert main(["resume", str(path.parent), "--quiet"]) == 0
    (path.parent / "manifest.json").write_text("{}")
    assert main(["resume", str(path.parent), "--quiet"]) == 1


def test_a_run_that_is_refused_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(asked: RunRequest, program: trl.Program, folder: Path, **_: Any) -> int:
        assert (folder / ASKED).exists()
        raise OptionError("its resource cannot be saved.")

    monkeypatch.setattr(train, "attend", refused)
    Path("mine").mkdir()
    for folder in ("mine", "new"):
        assert main(["train", "reinforce", *SMALL, "--folder", folder]) == 1
    assert os.listdir() == ["mine"] and not os.listdir("mine")


def test_several_seeds_are_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "reinforce", *SMALL, "--seeds", "2", "--seed", "3", "--folder", "here"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "seeds 3 to 4" in said and "result.row(0).policy()" in said
    lines = [line.strip() for line in said.partition("next, in a notebook:\n")[2].splitlines()]
    space: dict[str, Any] = {}
    exec("\n".join(lines[:-1]), space)
    program = trl.algorithms.reinforce(hidden=[4]).compile({"B": 2, "I": 4, "T": 5})
    alone = [program.execute(seed=seed)["return"] for seed in (3, 4)]
    np.testing.assert_allclose(space["result"]["return"], alone, rtol=1e-5)
    kept = attended_run.read_final_means(Path("here"))
    assert kept is not None and kept["return"] == pytest.approx(np.mean([x[-1] for x in alone]))


def test_usual_bounds_are_those_that_are_free() -> None:
    about = algorithm("clipped_ppo")
    usual = {name: bound for name, bound in train.USUAL.items() if name in "BIT"}
    for words, bounds in [([], {"B": 64, "I": 100, "T": 500}), (["--bounds", "I=3"], {"I": 3})]:
        given = train.parser_of("train", about, "").parse_args(words)
        assert train.make_request(about, given, 0).bounds == {**usual, **bounds}


# --- scripts -------------------------------------------------------------------------------------


def test_a_script_is_explained_without_being_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("script.py").write_text(SCRIPT)
    line = next(k for k, text in enumerate(SCRIPT.splitlines(), 1) if RUNS in text)
    assert main(["explain", "script.py", "--", "--lr", "3"]) == 0
    out, err = capsys.readouterr()
    assert "words: ['--lr', '3']" in err and "it has run" not in err
    assert "compiled at script.py:15" in out and "I = 5, T = 4" in out
    for part in ("stages:\nsource", "peak:\n", "schedule:\nschedule of", "for i in range(0, 5):"):
        assert part in out
    assert f"stopped before running the program at script.py:{line}: {RUNS}" in out

    assert main(["explain", "script.py", "--stage", "ast", "--bounds", "I=7", "--run"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("init()\nfor i in range(0, 7):") and "stopped" not in out
    assert "it has run" in err

    assert main(["explain", "script.py", "--html", "out.html", "--stage", "source"]) == 0
    assert "script.py" in Path("out.html").read_text()
    capsys.readouterr()
    assert main(["explain", "script.py", "--stage", "as"]) == 1
    assert "did you mean 'ast'?" in capsys.readouterr().err
    assert sys.argv[0] != "script.py"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f():\n    return 1 / 0\nf()\n", 'File "s.py", line 3, in <module>\n    f()'),
        ("x = (\n", 'File "s.py", line 1'),
        ("x = 1\n", "compiles no program"),
        ("import sys; sys.exit(3)\n", "compiles no program"),
        (
            "import timerl_nb as trl\nwith trl.Context('t'):\n    trl.zeros((2,)) + trl.zeros((3,))\n",
            "at s.py:3: trl.zeros((2,))",
        ),
    ],
)
def test_errors_of_a_script_are_at_its_own_lines(
    code: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("s.py").write_text(code)
    assert main(["explain", "s.py"]) == 1
    err = capsys.readouterr().err
    assert said in err and "runpy" not in err


def test_a_script_is_profiled(capsys: pytest.CaptureFixture[str]) -> None:
    twice = SCRIPT.replace(")\nprint", ")\nother = program.with_bounds({I: 3})\nprint")
    Path("script.py").write_text(twice)
    assert main(["profile", "script.py", "--turns", "2", "--trace", "run.json"]) == 0
    out = capsys.readouterr().out
    assert out.count("2 turns in") == 2 and "compiled at script.py:16: other" in out
    for name in ("run.json", "run-2.json"):
        assert json.loads(Path(name).read_text())["traceEvents"]


# --- other commands ------------------------------------------------------------------------------


def test_lab_opens_on_this_machine_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = lab.command(["--no-browser"])
    assert opened[:5] == [sys.executable, "-P", "-m", "jupyterlab", "--ip=127.0.0.1"]
    assert opened[-2].endswith("00_the_one_line_change.ipynb") and opened[-1] == "--no-browser"
    assert not [word for word in opened if "token" in word]  # Jupyter's own is requested
    monkeypatch.setattr(lab, "in_checkout", lambda part: None)
    assert not [word for word in lab.command() if word.endswith(".ipynb")]
    monkeypatch.setattr(lab, "find_spec", lambda name: None)
    assert main(["lab"]) == 1
    assert "timerl-nb[lab]" in capsys.readouterr().err


def test_lab_answers_whoever_has_the_token_and_ends_when_told(tmp_path: Path) -> None:
    pytest.importorskip("jupyterlab")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kinds = ("CONFIG", "DATA", "RUNTIME")
    environment = {
        **os.environ,
        **{f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in kinds},
        "JUPYTER_TOKEN": "a-token",
    }
    command = [sys.executable, "-m", "timerl_nb.cli", "lab", "--", "--no-browser"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={ROOT}"]
    with (
        open(tmp_path / "said", "w+") as said,
        subprocess.Popen(command, env=environment, stdout=said, stderr=said) as running,
    ):
        try:
            status = f"http://127.0.0.1:{port}/api/status"
            with pytest.raises(urllib.error.HTTPError, match="403"):
                answered(status, running)
            with answered(f"{status}?token=a-token", running) as reply:
                assert json.load(reply)["kernels"] == 0
            running.terminate()
            assert running.wait(60) == 0
        finally:
            running.kill()
        said.seek(0)
        assert "Traceback" not in said.read()
    with pytest.raises(OSError):  # no listener remains
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


def answered(address: str, running: subprocess.Popen[Any]) -> Any:
    """Return a server's answer, once it listens."""
    until = time.monotonic() + 120
    while True:
        try:
            return urllib.request.urlopen(address, timeout=30)
        except urllib.error.HTTPError:
            raise
        except OSError:
            assert running.poll() is None and time.monotonic() < until
            time.sleep(0.05)


def test_bench_needs_a_checkout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(bench, "foreground", lambda *given: asked.append(given) or 0)
    assert main(["bench", "race", "S"]) == 0
    assert main(["bench", "paper", "fig9", "--predict", "--scale=0.5"]) == 0
    run = [sys.executable, "-m", "benchmarks"]
    assert asked == [
        ([*run, "race", "S"], ROOT),
        ([*run, "paper", "fig9", "--predict", "--scale=0.5"], ROOT),
    ]
    monkeypatch.setattr(bench, "in_checkout", lambda part: None)
    assert main(["bench"]) == 1
    assert "make bench" in capsys.readouterr().err


def test_bench_prints_a_table(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "lines"]) == 0
    rows = dict(re.findall(r"^\| (\S+) \| ([\d,]+) \|$", capfd.readouterr().out, re.MULTILINE))
    assert {"timerl_nb/cli", "timerl_nb/execution", "widgets/src"} <= set(rows)
    assert all(int(count.replace(",", "")) > 0 for count in rows.values())


# --- sweeps --------------------------------------------------------------------------------------


def table(folder: Path) -> list[dict[str, str]]:
    with open(folder / sweep.TABLE) as file:
        return list(csv.DictReader(file))


def alone(lr: float, seed: int, iterations: int) -> float:
    """Return the return of one run of the sweep, formatted as in the table."""
    ctx = trl.algorithms.reinforce(hidden=[4], lr=lr)
    result = ctx.compile({"B": 2, "I": iterations, "T": 5}).execute(seed=seed)
    return float(np.mean(result["return"][-(iterations // 10) :], dtype=np.float64))


def test_a_killed_worker_goes_on_from_what_it_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("sweep")
    begun: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def known(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        begun.append(popen(command, **options))
        return begun[-1]

    monkeypatch.setattr(workers.subprocess, "Popen", known)
    words = ["sweep", "reinforce", "--hidden", "4", "--bounds", "B=2,T=5,I=60", "--every", "1"]
    words += ["--set", "lr=0.1,0.001", "--seed", "5", "--workers", "2", "--folder", "sweep"]
    killer = when_saved(folder / "000-lr=0.1-seed=5", lambda: begun_first(begun).kill())
    assert main(words) == 0
    killer.join()
    said = capsys.readouterr().out
    assert "000-lr=0.1-seed=5 died of SIGKILL: restarting (1 of 3)" in said
    assert len(begun) == 3
    went_on = (folder / "000-lr=0.1-seed=5" / workers.OUTPUT).read_text()
    assert "finished: 60 turns" in went_on
    rows = table(folder)
    assert [(row["lr"], row["seed"], row["state"]) for row in rows] == [
        ("0.1", "5", "finished"),
        ("0.001", "5", "finished"),
    ]
    assert [float(row["return"]) for row in rows] == [alone(0.1, 5, 60), alone(0.001, 5, 60)]

    # second call: nothing to do; another sweep is refused
    assert main(words) == 0
    assert "2 finished" in capsys.readouterr().out and len(begun) == 3
    assert main(["resume", "sweep"]) == 0 and len(begun) == 3
    capsys.readouterr()
    assert main([*words, "--seeds", "2"]) == 1
    assert "another sweep" in capsys.readouterr().err


def begun_first(begun: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Return the process that runs the first of the folders."""
    return next(one for one in begun if any("000-" in str(word) for word in one.args))  # type: ignore[union-attr]


def test_a_sweep_does_what_is_missing_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Here:
        """Runs in this process; some fail."""

        failing = "seed=1"

        def __init__(self, *given: Any) -> None:
            pass

        def run(self, folders: Sequence[Path]) -> Any:
            for path in folders:
                asked.append(path.name)
                failing = self.failing in path.name
                yield path, 1 if failing else main(["resume", str(path), "--quiet"])

    asked: list[str] = []
    monkeypatch.setattr(sweep, "Processes", Here)
    words = ["sweep", "reinforce", *SMALL, "--set", "hidden=4,4", "--set", "hidden=3"]
    words.remove("--hidden"), words.remove("4")
    words += ["--seeds", "2", "--folder", "sweep"]
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert "2 runs failed" in err and "`timerl resume sweep`" in err
    assert len(asked) == 4 and asked[0] == "000-hidden=4,4-seed=0"
    rows = table(Path("sweep"))
    assert [row["state"] for row in rows] == ["finished", "missing"] * 2
    assert [row["return"] == "" for row in rows] == [False, True] * 2
    monkeypatch.setattr(Here, "failing", "none")
    assert main(["resume", "sweep"]) == 0
    assert len(asked) == 6 and all("seed=1" in name for name in asked[4:])
    assert all(float(row["return"]) > 0 for row in table(Path("sweep")))
    assert re.search(r"^ +4,4 +1 ", out, re.MULTILINE)  # one run with these widths has finished


def test_ray_is_asked_for_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["sweep", "reinforce", *SMALL, "--ray", "--folder", "s"]) == 1
    err = capsys.readouterr().err
    assert "timerl-nb[ray]" in err and "omit --ray" in err


def test_a_loop_without_inner_loops_is_divided_for_a_command() -> None:
    bounds, xla = {"B": 2, "T": 60}, {"executor": "xla"}
    arguments = {"env": "CartPole-v1", "hidden": (4,), "buffer_size": 20, "batch": 4}
    asked, program = RunRequest("dqn", arguments, bounds, xla).prepared()
    assert asked.options == {**xla, "fuse_iterations": 20} and program.options.fuse_iterations == 20
    own, chosen = RunRequest("dqn", arguments, bounds, {**xla, "fuse_iterations": 5}).prepared()
    assert own.options["fuse_iterations"] == 5 and chosen.options.fuse_iterations == 5
    inner = RunRequest("reinforce", {"hidden": (4,)}, {"B": 2, "I": 3, "T": 4}, xla)
    assert inner.prepared()[0].options == xla
