"""Commands in the documentation and the help, run verbatim with smaller sizes."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import timerl_command
from tests.conftest import SHARED
from timerl_nb.cli import bench, lab, main, train
from timerl_nb.cli import scope as scope_commands
from timerl_nb.cli.main import COMMANDS
from timerl_nb.cli.support import foreground_run as attended_run
from timerl_nb.cli.support import sweep_workers as workers
from timerl_nb.cli.support.algorithm_arguments import algorithm
from timerl_nb.cli.support.exit_status import INTERRUPTED
from timerl_nb.cli.support.run_request import RunRequest
from timerl_nb.driver.program import Program
from timerl_nb.execution.control.background_run import Running
from timerl_nb.runtime.state.run_folder import RunFolder

ROOT = Path(__file__).parents[3]
MESSAGES = ROOT / "docs/reference/messages.md"  # its commands have placeholders
DOCS = (p for p in (ROOT / "docs").rglob("*.md") if p != MESSAGES)
PAGES = [Path("README.md"), *sorted(p.relative_to(ROOT) for p in DOCS)]
SCOPE = ("run", "show", "compare", "export", "add", "check", "calibrate")
HELPS = [(), *((name,) for name in COMMANDS), *(("scope", name) for name in SCOPE)]
PLACEHOLDERS = {
    "FOLDER": "runs/begun",
    "ALGORITHM": "reinforce",
    "SCRIPT": "train.py",
    "RECORDING": "runs/recording",
    "FIRST": "runs/first",
    "SECOND": "runs/second",
    "PATH": "recording.zip",
    "TRACE": "trace.json",
}
FEWER = {"--seeds": "2", "--pairs": "2", "--iterations": "5"}  # values of options
SIZES = ["--bounds", "B=2,I=2,T=4"]
PAIRS = ["--bounds", "N=2,I=2,T=4"]
STEPS = ["--bounds", "B=2,T=24", "--learning-starts", "4", "--batch", "2"]
PROGRAM = """\
import timerl_nb as trl

with trl.Context("i", "t") as ctx:
    (i, I), (t, T) = ctx.dims
    x = trl.tensor((), domain=(i, t))
    x[i, 0] = 1.0
    x[i, t + 1] = x * 0.5
    ctx.output("x", x)
program = ctx.compile({I: 6, T: 3}, trl.Options(executor="interpret"))
program.execute()
"""
SCRIPT = """\
import select, time

for _ in range(50):
    select.select([], [], [], 0)
    time.sleep(0)
"""


def help_of(*words: str) -> str:
    said = io.StringIO()
    with redirect_stdout(said):
        assert timerl_command.main([*words, "--help"]) == 0
    return said.getvalue()


def typed_in(text: str) -> list[str]:
    """Return the commands of a text: lines without their explanations, and spans in backticks."""
    lines = [
        line.removeprefix("$ ")
        for line in re.findall(r"^(?:\$ | *)timerl (?!launch: ).*$", text, re.M)
    ]
    found = [re.split(r"\s{2,}|\s#", line.strip())[0] for line in lines]
    found += [" ".join(span.split()) for span in re.findall(r"`(timerl [^`]+)`", text)]
    return list(dict.fromkeys(found))


OFF_POLICY = ("dqn", "ddpg", "td3", "sac")  # programs without iterations


def small(words: list[str]) -> list[str]:
    """Return the command with few iterations, seeds and steps."""
    words = [PLACEHOLDERS.get(word.strip("[]"), word.strip("[]")) for word in words]
    words = [word.replace("000-...", "000-") for word in words]
    if words[:2] == ["scope", "calibrate"] and "--pairs" not in words:
        words = [*words[:2], "--pairs", "2", *words[2:]]
    fewer = {**FEWER, "--seeds": "1"} if "--set" in words else FEWER
    words = [fewer.get(before, word) for before, word in zip(["", *words], words, strict=False)]
    if (
        words[0] == "launch" and "timerl" in words
    ):  # one process; several are tested in tests/unit/distributed
        return ["launch", "-n", "1", "timerl", *small(words[words.index("timerl") + 1 :])]
    if words[0] not in ("train", "sweep") or "--help" in words:
        return words
    sizes = PAIRS if words[1] == "evolution_strategies" else SIZES
    sizes = STEPS if words[1] in OFF_POLICY else [*sizes, "--option", "executor=interpret"]
    if "hidden=" not in " ".join(words):
        sizes = [*sizes, "--hidden", "4"]
    return [*words, *sizes]


def is_example(words: list[str]) -> bool:
    """Return whether this is a whole command rather than only its name."""
    if words[-1].startswith("--"):
        return words[-1] == "--help"
    needs = {"lab": 1, "bench": 1, "scope": 3}.get(words[0], 2)
    return len(words) >= needs


def prepare(words: list[str]) -> None:
    """Make the input files of a command, if no earlier command has made them."""
    script = SCRIPT if words[0] == "scope" else PROGRAM
    Path("train.py").write_text(script)
    Path("my").mkdir(exist_ok=True)
    Path("my/module.py").write_text(SCRIPT)
    if words[0] == "resume" and not list(Path().glob(f"{words[1]}*")):
        folder = words[1].removesuffix("/000-")
        begin = "train" if folder == words[1] else "sweep"
        made = small([begin, "reinforce", "--folder", folder])
        if "--iterations" in words:
            with stopping_after(1):
                assert main(made) == INTERRUPTED
        else:
            assert main(made) == 0
    if words[0] == "scope" and words[1] in ("show", "export", "compare", "add"):
        given = [word for word in words[2:] if word.startswith("runs/")]
        for folder in given:
            if not Path(folder).exists():
                assert main(["scope", "run", "--folder", folder, "train.py"]) == 0


@contextmanager
def stopping_after(turns: int) -> Iterator[None]:
    """Send Ctrl-C after some iterations of a run."""
    start = Program.start

    def show(run: Running, *, shown: bool) -> None:
        run.step(turns)
        assert run.wait(120) and not shown
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "start", lambda *given, **named: start(*given, **named, paused=True))
        patch.setattr(attended_run, "_show", show)
        yield


def run_here(_: Any, folder: Path) -> int:
    """Execute a run of a sweep in this process."""
    return main(["resume", str(folder), "--quiet"])


def become(file: str, words: list[str], environment: dict[str, str]) -> None:
    """Run a program in place of `exec`."""
    raise SystemExit(subprocess.run(words, env=environment, capture_output=True).returncode)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    begun: list[Any] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIMERL_PROGRESS", "0")
    monkeypatch.setenv("TIMERL_CACHE", os.environ[SHARED])
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'widgets'}")
    monkeypatch.setattr(workers.Processes, "_run_once", run_here)
    monkeypatch.setattr(scope_commands.os, "execve", become)
    for module in (lab, bench):  # servers and long benchmarks have other tests
        monkeypatch.setattr(module, "foreground", lambda *given: begun.append(given) or 0)
    yield begun


# optional packages: commands that need them, and their errors
MISSING: dict[str, tuple[Callable[[list[str]], bool], str]] = {
    "Ray": (lambda words: "--ray" in words, "Ray cannot be imported"),
    "a GPU": (lambda words: "averages" in words, "device"),
    "a quiet machine": (lambda words: "calibrate" in words, "take less time than unrecorded ones"),
    "a calibration": (
        lambda words: "--calibration" in words and not Path("calibration.json").exists(),
        "not a valid calibration: No such file",
    ),
    "a trace of a profiler": (lambda words: words[:2] == ["scope", "add"], "is not a trace"),
    "pyarrow": (lambda words: words[-1].endswith(".parquet"), "pyarrow"),
}


def run(command: str) -> None:
    words = small(shlex.split(command)[1:])
    prepare(words)
    if words[-1].endswith("000-"):
        words[-1] = str(next(Path(words[-1]).parent.glob("000-*")))
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        status = timerl_command.main(words)
    missing = [why for needed, why in MISSING.values() if needed(words)]
    if status and missing:
        assert status == 1 and re.search("|".join(missing), said.getvalue()), said.getvalue()
    else:
        assert status == 0, f"{command}\n{said.getvalue()}"
    assert "Traceback" not in said.getvalue()


def texts() -> dict[str, str]:
    pages = {str(page): (ROOT / page).read_text() for page in PAGES}
    helps = {" ".join(["timerl", *words, "--help"]): help_of(*words) for words in HELPS}
    found = {name: text for name, text in {**pages, **helps}.items() if typed_in(text)}
    return found


TEXTS = texts()


def with_own_examples() -> list[str]:
    """Return texts with examples that no other text contains; one of those with equal examples."""
    examples = {name: frozenset(examples_in(text)) for name, text in TEXTS.items()}
    first = {found: name for name, found in reversed(examples.items())}
    return [name for found, name in first.items() if not any(found < other for other in first)]


def examples_in(text: str) -> list[str]:
    return [command for command in typed_in(text) if is_example(shlex.split(command)[1:])]


def test_commands_are_found_in_all_places() -> None:
    assert {"README.md", "docs/guides/seeds-and-sweeps.md", "timerl train --help"} <= set(TEXTS)
    text = "$ timerl train a  # why\n  timerl resume r   goes on\nthe `timerl scope\n  show r` of"
    assert typed_in(text) == ["timerl train a", "timerl resume r", "timerl scope show r"]
    assert len({command for text in TEXTS.values() for command in typed_in(text)}) > 30


@pytest.mark.parametrize("name", TEXTS)
def test_names_of_commands_exist(name: str) -> None:
    for command in typed_in(TEXTS[name]):
        words = shlex.split(command)[1:]
        assert words[0].startswith("--") or words[0] in COMMANDS, command
        if words[0] == "scope" and len(words) > 1:
            assert words[1] in SCOPE, command


def own_examples() -> dict[str, list[str]]:
    """Return the examples of each text that no earlier text contains; of equal texts, one has all."""
    seen = set[str]()
    found: dict[str, list[str]] = {}
    for name in with_own_examples():
        found[name] = [command for command in examples_in(TEXTS[name]) if command not in seen]
        seen.update(found[name])
    return {name: commands for name, commands in found.items() if commands}


OWN = own_examples()


@pytest.mark.parametrize("name", OWN)
def test_commands_work_as_typed(name: str) -> None:
    for command in OWN[name]:
        run(command)


# --- the algorithms ------------------------------------------------------------------------


ALGORITHMS = {
    "a2c": [],
    "reinforce": [],
    "ppo": [],
    "clipped_ppo": ["--minibatches", "2"],
    "impala": [],
    "recurrent_ppo": ["--segment", "2", "--minibatches", "2", "--state-size", "2"],
    "evolution_strategies": [],
    "dqn": [],
    "r2d2": ["--state-size", "3", "--batch", "2", "--learning-starts", "1"],
    "ddpg": ["--env", "Pendulum-v1"],
    "td3": ["--env", "Pendulum-v1"],
    "sac": ["--env", "Pendulum-v1"],
}


@pytest.mark.some_of("name", 6)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_runs_stops_and_resumes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = small(["train", name, *ALGORITHMS[name], "--seed", "5", "--quiet"])
    assert main([*words, "--folder", "whole"]) == 0
    steps = name in OFF_POLICY
    with stopping_after(3 if steps else 1):
        assert main([*words, "--folder", "half"]) == INTERRUPTED
    turn = RunFolder("half").manifest().turn
    assert f"stopped and saved after turn {turn} of" in capsys.readouterr().out
    assert 3 <= turn < 24 if steps else turn == 1
    assert main(["resume", "half", "--quiet"]) == 0
    results = [(Path(folder) / attended_run.RESULT).read_text() for folder in ("whole", "half")]
    assert results[0] == results[1]


def test_the_steps_of_a_program_without_iterations_suffice_to_learn() -> None:
    for name in OFF_POLICY:
        chosen = algorithm(name)
        given = train.parser_of("train", chosen, "").parse_args([])
        asked = train.make_request(chosen, given, 0)
        assert asked.bounds == {"B": 64, "T": 5000}
        assert asked.arguments["learning_starts"] < 5000


def test_resume_goes_on_to_other_numbers_of_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    words = small(["train", "reinforce", "--quiet"])
    with stopping_after(1):
        assert main([*words, "--folder", "half"]) == INTERRUPTED
    assert main(["resume", "half", "--iterations", "0"]) == 1
    assert "--iterations 0 is not a positive number" in capsys.readouterr().err
    assert main(["resume", "half", "--iterations", "5", "--quiet"]) == 0
    assert "finished: 5 turns" in capsys.readouterr().out
    assert RunRequest.read_from(Path("half")).bounds == {"B": 2, "I": 5, "T": 4}
    assert main([*words, "--bounds", "I=5", "--folder", "whole"]) == 0
    results = [(Path(folder) / attended_run.RESULT).read_text() for folder in ("whole", "half")]
    assert results[0] == results[1]


def test_resume_says_why_a_number_of_iterations_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with stopping_after(1):
        assert main([*small(["train", "dqn", "--quiet"]), "--folder", "steps"]) == INTERRUPTED
    assert main(["resume", "steps", "--iterations", "30", "--quiet"]) == 1
    assert "depends on T" in capsys.readouterr().err
    assert main([*small(["sweep", "reinforce"]), "--folder", "several"]) == 0
    assert main(["resume", "several", "--iterations", "5"]) == 1
    assert "several/000-" in capsys.readouterr().err
