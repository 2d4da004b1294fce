"""Programs of two processes on loopback, and `timerl launch`."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import timerl_nb as trl
from tests.workers import settings
from timerl_nb.base.errors import ExecutionError, OptionError, ShapeError
from timerl_nb.cli import launch, main
from timerl_nb.distributed import initialization
from timerl_nb.distributed.initialization import COORDINATOR, PROCESS, PROCESSES
from timerl_nb.runtime.xla.hlo.collective_traffic import Communication

ROOT = Path(__file__).parents[3]


def run(*words: str, devices: int = 1) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": settings(devices)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)


def launched(*words: str) -> subprocess.CompletedProcess[str]:
    return run("-m", "timerl_nb.cli", "launch", *words)


def test_two_processes_find_what_one_with_two_devices_does(tmp_path: Path) -> None:
    done = launched("-n", "2", "-m", "tests.process_group", str(tmp_path))
    assert done.returncode == 0, done.stderr
    first, second = (
        json.loads(line.removeprefix(f"[{k}] "))
        for k in (0, 1)
        for line in done.stdout.splitlines()
        if line.startswith(f"[{k}] {{")
    )
    assert [first["me"], second["me"]] == [[0, 2, True], [1, 2, True]]
    differ = "seed", "outputs", "saved by one", "folder", "log", "local", "local seeds"
    same = {k: v for k, v in first.items() if k not in ("me", "alone", *differ)}
    assert same == {k: second[k] for k in same}
    assert first["alone"] != second["alone"]  # programs of one process each
    assert first["how"] == [
        "2 XLA programs on 2 devices of 2 processes, divided along b",
        "2 XLA programs on 2 devices of 2 processes, divided along seed",
        "2 XLA programs",
    ]
    assert first["saved"] == [True, 3]
    assert first["finished"] == first["short"]
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 1 + 3
    assert first["each"] == ["0", "2", "4", "6"]
    # without devices=, seed 4 gives the values of the second of the seeds 3 and 4
    assert first["seeds"]["return"][6:] == first["one seed"]["return"]
    across, none, fused = first["communication"]
    assert "plan: 144 bytes of sums" in fused and "program: 144 bytes in" in fused
    assert "plan: 144 bytes of sums" in across and "program: 144 bytes in 2.0 collectives" in across
    assert "program: 0 bytes in 0.0 collectives" in none
    assert first["local"]["shape"] == second["local"]["shape"] == [2, 3, 2]
    for found, span in ((first, "0 to 1"), (second, "2 to 3")):
        assert "'x' is divided among processes along b" in found["local"]["refused"]
        assert f"result.local['x'] has the points {span}" in found["local"]["refused"]
    row, log = first["local seeds"]
    assert row.startswith("OptionError: row 1 is in another process; this one has the rows 0 to 0.")
    assert log.startswith("OptionError: log= needs the outputs of all seeds")
    refused = {
        "start": "OptionError: a program of several processes cannot be controlled during its run.",
        "turns": "OptionError: a program of several processes cannot be controlled during its run.",
        "time": "OptionError: every='1min' is a time, and the clocks of 2 processes differ.",
        "host": "OptionError: least runs on the host",
        "odd": "BoundsError: B = 5 points of b cannot be divided equally among 2 devices.",
        "some": "OptionError: devices=3 is not possible: of the 2 devices of all processes, this process has 1.",
        "seed": "ExecutionError: the processes do not run the same program: the seed of process 1 differs",
        "outputs": "ExecutionError: the processes do not run the same program: outputs= of process 1 differs",
        "saved by one": "ExecutionError: the processes do not run the same program: checkpoint= of process 1",
        "tune": "OptionError: tune=True is not possible in 2 processes: their measurements differ",
    }
    for name in ("folder", "log"):  # process 0 alone opens them
        assert first[name].startswith("ExecutionError: ") and "file" in first[name]
        assert second[name].startswith("ExecutionError: process 0 of the program has failed")
    for name, text in refused.items():
        assert first[name].startswith(text), first[name]
        assert "process_group.py:" in first[name] and "What to do:" in first[name]

    alone = run("-m", "tests.process_group", str(tmp_path), devices=2)
    assert alone.returncode == 0, alone.stderr
    found = json.loads(alone.stdout.splitlines()[-1])
    assert found["whole"] == first["whole"]  # sums of two numbers have one order
    assert found["resumed"] == first["whole"]


def test_train_in_two_processes_and_resume_in_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    words = "-n 2 timerl train reinforce --env CartPole-v1 --bounds B=2,I=2,T=4 --every 1 --log "
    words += "--option executor=xla"
    done = launched(*words.split(), "--folder", str(folder))
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "[Gloo]" not in line]
    assert all(line.startswith("[0] ") for line in lines) and "[0] finished: 2 turns" in done.stdout
    assert main(["resume", str(folder), "--more", "1", "--quiet"]) == 0
    assert "finished: 3 turns" in capfd.readouterr().out
    assert len((folder / "log.csv").read_text().splitlines()) == 1 + 3


SCRIPT = """
import json, os, pathlib, signal, sys, time
number = int(os.environ["TIMERL_PROCESS"])
def note(state):
    pathlib.Path(os.environ["TIMERL_LAUNCH"], str(number)).write_text(json.dumps(state))
if sys.argv[1] == "reads":
    print(sys.stdin.read())
    sys.exit()
print("process", number, sys.argv[1:], os.environ["TIMERL_PROCESSES"], os.environ.get("XLA_FLAGS", ""))
if sys.argv[1] == "status" and number == 1:
    print("the reason\\n  a detail\\n[Gloo] closed", file=sys.stderr, end="")
    sys.exit(3)
if sys.argv[1] == "early":
    note("waiting") if number == 0 else sys.exit()
if sys.argv[1] in ("noted", "elsewhere"):
    which, host = (1, "here") if sys.argv[1] == "noted" else (5, "other")
    note({"process": which, "host": host, "what": "failed: ValueError: no"})
    sys.exit(1 if number == 0 else time.sleep(600))
if sys.argv[1] == "aborted" and number == 0:
    os.abort()
if sys.argv[1] == "killed" and number == 0:
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] != "fine":
    time.sleep(600)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def test_launch_numbers_the_processes_and_their_lines(
    script: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        launch.main(["-n", "2", "--devices-per-process", "3", script, "fine", "--steps", "2"]) == 0
    )
    lines = sorted(capfd.readouterr().out.splitlines())
    for k, line in enumerate(lines):
        assert line.startswith(f"[{k}] process {k} ['fine', '--steps', '2'] 2 ")
        assert line.endswith("--xla_force_host_platform_device_count=3")
    assert len(lines) == 2
    assert (
        launch.main(
            ["-n", "4", "--nodes", "2", "--node", "1", "--coordinator", "h:1", script, "fine"]
        )
        == 0
    )
    assert sorted(line[:3] for line in capfd.readouterr().out.splitlines()) == ["[2]", "[3]"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("status", "process 1 ended with status 3: the reason"),
        ("killed", "process 0, the coordinator, was ended by SIGKILL"),
        ("aborted", "process 0, the coordinator, was ended by SIGABRT"),
        ("noted", "process 1 failed: ValueError: no"),
        ("elsewhere", "process 5 on other failed: ValueError: no"),
        (
            "early",
            "process 1 ended with status 0 before trl.distributed.initialize(), where another",
        ),
    ],
)
def test_launch_names_the_process_that_fails(
    script: str,
    how: str,
    said: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, send = set[int](), launch._signal

    def record(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        ended.add(process.pid)
        send(process, number)

    monkeypatch.setattr(launch, "_signal", record)
    assert launch.main(["-n", "2", script, how]) == 1
    err = capfd.readouterr().err.splitlines()
    assert err[-2].startswith(f"timerl launch: {said}")
    assert err[-1].startswith("  All others are ended. Start the command again; ")
    assert len(ended) == 2 or how == "early"  # also the children of the process that has failed


def test_only_process_0_reads_the_input(script: str, capfd: pytest.CaptureFixture[str]) -> None:
    out, into = os.pipe()
    before = os.dup(0)
    os.dup2(out, 0)
    try:
        os.write(into, b"line\n")
        os.close(into)
        assert launch.main(["-n", "2", script, "reads"]) == 0
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(out)
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0] ", "[0] line", "[1] "]


class _Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_launch_ends_when_nobody_reads_its_output(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", _Closed())
    with pytest.raises(BrokenPipeError):  # `timerl` ends with status 141
        launch.main(["-n", "1", script, "sleeps"])


def test_launch_replaces_characters_that_its_output_lacks(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", written)
    monkeypatch.setenv("PYTHONUTF8", "1")
    assert launch.main(["-n", "1", script, "fine", "é"]) == 0
    written.seek(0)
    assert written.read().startswith("[0] process 0 ['fine', '?")


def test_an_interrupt_while_the_processes_end_leaves_none(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, send = [], launch._signal

    def interrupted(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        sent.append(number)
        if len(sent) == 1:
            raise KeyboardInterrupt
        send(process, number)

    monkeypatch.setattr(launch, "_signal", interrupted)
    assert launch.main(["-n", "2", script, "status"]) == 130
    assert sent[:2] == [signal.SIGTERM, signal.SIGKILL]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-n", "3", "--nodes", "2", "train.py"], "3 processes on 2 hosts"),
        (["-n", "2", "--nodes", "2", "train.py"], "--coordinator is missing"),
        (["-n", "2", "--nodes", "2", "--node", "2", "train.py"], "of which this is number 2"),
    ],
)
def test_launch_refuses_impossible_hosts(words: Sequence[str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        launch.main(words)


def test_commands_of_one_process_are_refused() -> None:
    with pytest.raises(OptionError, match="cannot run 'timerl sweep' in several processes"):
        launch.main(["-n", "2", "timerl", "sweep", "ppo"])


def test_a_script_without_launch_has_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trl.distributed.initialize() == trl.distributed.Processes(0, 1)
    assert trl.distributed.initialize("localhost:1", 1, 0).is_first
    trl.distributed.shutdown()
    for name, value in ((COORDINATOR, "localhost:1"), (PROCESSES, "1"), (PROCESS, "0")):
        monkeypatch.setenv(name, value)
    assert trl.distributed.initialize().count == 1
    assert COORDINATOR not in os.environ  # programs that this one starts do not belong to it


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({COORDINATOR: "h:1"}, f"{PROCESSES} is missing"),
        ({COORDINATOR: "h:1", PROCESSES: "2"}, f"{PROCESS} is missing"),
        ({COORDINATOR: "h:1", PROCESSES: "two", PROCESS: "0"}, f"{PROCESSES} is 'two'"),
        ({"SLURM_NTASKS": "x"}, "SLURM_NTASKS is 'x'"),
    ],
)
def test_wrong_environment_variables(
    variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OptionError, match=said):
        trl.distributed.initialize()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"processes": 2}, "coordinator, process must be set"),
        ({"coordinator": "localhost", "processes": 2, "process": 0}, "is not an address"),
        ({"coordinator": "h:1", "processes": 2, "process": 2}, "process=2"),
        ({"coordinator": "h:1", "processes": "2", "process": 0}, "processes='2'"),
        ({"heartbeat": 2.5}, "heartbeat=2.5"),
        ({"timeout": 0}, "timeout=0"),
    ],
)
def test_wrong_arguments_of_initialize(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        trl.distributed.initialize(**given)


def test_initialize_after_the_first_use_of_jax_is_refused() -> None:
    code = (
        "import timerl_nb as trl, jax, socket; jax.devices(); s = socket.create_server(('127.0.0.1', 0))\n"
        "try: trl.distributed.initialize(f'127.0.0.1:{s.getsockname()[1]}', 2, 1)\n"
        "except trl.errors.ExecutionError as error: print(error)"
    )
    done = run("-c", code)
    assert "JAX was used before trl.distributed.initialize" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        # salloc: no step
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, "SLURM has allocated 4 tasks.*srun -n 1"),
        (
            {  # an interactive step of salloc
                "SLURM_JOB_ID": "7",
                "SLURM_NTASKS": "4",
                "SLURM_STEP_NUM_TASKS": "1",
                "SLURM_STEP_NODELIST": "n[1-2]",
                "SLURM_PROCID": "0",
                "SLURM_LOCALID": "0",
            },
            "SLURM has allocated 4 tasks.*not started by `srun`",
        ),
        # Open MPI 5 and MPICH do not state an address
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE is 2, but the address"),
        ({"PMI_SIZE": "2"}, "PMI_SIZE is 2, but the address of process 0 is unknown"),
    ],
)
def test_a_scheduler_that_has_not_started_the_process(
    variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OptionError, match=f"(?s){said}"):
        trl.distributed.initialize()


def test_variables_of_schedulers(monkeypatch: pytest.MonkeyPatch) -> None:
    """`srun` and `mpirun`: the connection has the address and the number of the task."""
    found = list[Any]()

    def connect(named: dict[str, Any], *_: Any) -> None:
        found.append((named["coordinator_address"], named["num_processes"], named["process_id"]))
        raise ConnectionError("1 of 4 processes came within 1 seconds. Missing: process 1, 2, 3")

    monkeypatch.setattr(initialization, "connect", connect)
    monkeypatch.setattr(initialization, "was_jax_used", lambda: False)
    slurm = {
        "SLURM_JOB_ID": "7",
        "SLURM_NTASKS": "4",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "1",
    }
    mpi = {
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_MCA_orte_hnp_uri": "4096.0;tcp://10.96.0.1:34911",
    }
    for variables, address in ((slurm, "n1:61447"), (mpi, "10.96.0.1:61441")):
        with monkeypatch.context() as at:
            for name, value in variables.items():
                at.setenv(name, value)
            said = f"could not be connected at {address}: 1 of 4 processes came .* Missing"
            with pytest.raises(ExecutionError, match=said):
                trl.distributed.initialize()
    assert found == [("n1:61447", 4, 3), ("10.96.0.1:61441", 2, 1)]


def test_a_missing_coordinator_and_a_used_port_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initialization, "was_jax_used", lambda: False)  # by another test
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{used.getsockname()[1]}"
        said = f"could not be connected at {address}"
        with pytest.raises(ExecutionError, match=said):  # bound, but nobody listens
            trl.distributed.initialize(address, 2, 1, timeout=1)
        with pytest.raises(ExecutionError, match=said):
            trl.distributed.initialize(address, 2, 0, timeout=1)


def test_predicted_weak_scaling() -> None:
    """Ten collectives of 1,000 bytes together per iteration, on two numbers of devices."""
    one = Communication(2, 2, 100, {}, 1_000, 100_000)
    found = one.predict_weak_scaling(1e-3, (1, 4), latency=1e-5, bandwidth=1e9)
    assert found == {1: 1.0, 4: pytest.approx(1e-3 / (1e-3 + 10 * 4e-5 + 1.5e-6))}
    for wrong in (-1, "x", None, float("nan")):
        with pytest.raises(ShapeError, match="turn_seconds must be a number"):
            one.predict_weak_scaling(wrong)  # pyrefly: ignore[bad-argument-type]
    with pytest.raises(ShapeError, match="a number of devices"):
        one.predict_weak_scaling(1.0, (0,))


def test_all_devices_are_those_of_this_process() -> None:
    import jax

    context = trl.algorithms.reinforce("CartPole-v1", hidden=(4,))
    options = trl.Options(executor="xla", devices="all")
    program = context.compile({"B": len(jax.devices()), "I": 1, "T": 2}, options)
    assert program.options.devices == len(jax.devices())
    with pytest.raises(OptionError, match='a positive integer or "all"'):
        trl.Options(devices="some")  # pyrefly: ignore[bad-argument-type]
