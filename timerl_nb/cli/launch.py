"""`timerl launch -n 2 train.py`: starts the processes of a distributed program, and names the one that fails."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, Final, NoReturn

from timerl_nb.base.errors import OptionError
from timerl_nb.base.options import environment
from timerl_nb.cli.support.argument_parser import Parser, positive
from timerl_nb.cli.support.exit_status import FAILED, FINE, INTERRUPTED
from timerl_nb.cli.support.process_output import ProcessOutput
from timerl_nb.cli.support.sweep_workers import CHILD, ROOT
from timerl_nb.distributed.initialization import (
    COORDINATOR,
    HEARTBEAT,
    NOTES,
    PROCESS,
    PROCESSES,
    WAITING,
)
from timerl_nb.runtime.jax_backend.peer_hub import DIED, Failure

_EXAMPLES: Final = """  timerl launch -n 2 train.py --steps 1000
  timerl launch -n 2 timerl train ppo --folder runs/ppo
  timerl launch -n 2 timerl resume runs/ppo
  timerl launch -n 4 --devices-per-process 2 train.py
  timerl launch -n 8 --nodes 2 --node 0 --coordinator 10.0.0.1:1234 train.py    on the first host
  timerl launch -n 8 --nodes 2 --node 1 --coordinator 10.0.0.1:1234 train.py    on the second host

A Python file calls trl.distributed.initialize() first.
"""
_OURS: Final = "timerl"
_GRACE: Final = 5.0  # seconds between a request to end and a kill
_POLL: Final = 0.05
_VIRTUAL: Final = "--xla_force_host_platform_device_count"


def main(words: Sequence[str]) -> int:
    """Run `timerl launch`."""
    own, script = _split(words)
    parser = Parser("launch", "Start the processes of a distributed program.", _EXAMPLES)
    parser.add_argument(
        "-n",
        "--processes",
        type=positive,
        required=True,
        help="the number of processes on all hosts",
    )
    parser.add_argument(
        "--nodes", type=positive, default=1, help="the number of hosts (default: 1)"
    )
    parser.add_argument("--node", type=int, default=0, help="the number of this host, from 0 on")
    parser.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="the address of process 0 (default: a free port of this machine)",
    )
    parser.add_argument(
        "--devices-per-process",
        type=positive,
        help="virtual CPU devices of each process (default: 1)",
    )
    parser.add_argument(
        "--heartbeat",
        type=positive,
        default=30,
        help="seconds after which a process without a heartbeat counts as dead (default: 30)",
    )
    parser.add_argument(
        "script",
        nargs="?",
        help="a Python file with its arguments, -m MODULE, or timerl train or timerl resume",
    )
    given = parser.parse_words(own)
    if not script:
        parser.error("the script is missing")
    if given.processes % given.nodes or not 0 <= given.node < given.nodes:
        raise OptionError(
            f"{given.processes} processes on {given.nodes} hosts, of which this is number {given.node}, are "
            "not possible.",
            hint="choose --processes as a multiple of --nodes, and --node from 0 to --nodes - 1.",
        )
    if given.nodes > 1 and given.coordinator is None:
        raise OptionError(
            f"--coordinator is missing, which --nodes {given.nodes} requires.",
            hint="pass the address of the first host with a free port, such as 10.0.0.1:1234, on all hosts.",
        )
    address = given.coordinator or f"127.0.0.1:{_free_port()}"
    here = given.processes // given.nodes
    numbers = range(given.node * here, (given.node + 1) * here)
    variables = {
        COORDINATOR: address,
        PROCESSES: str(given.processes),
        HEARTBEAT: str(given.heartbeat),
        "PYTHONUNBUFFERED": "1",
        "TIMERL_PROGRESS": environment().get("TIMERL_PROGRESS", "0"),  # a bar would be many lines
    }
    if given.devices_per_process is not None:
        flags = environment().get("XLA_FLAGS", "")
        variables["XLA_FLAGS"] = f"{flags} {_VIRTUAL}={given.devices_per_process}".strip()
    with (
        _interrupted_by(signal.SIGTERM, signal.SIGHUP),
        TemporaryDirectory(prefix="timerl-launch-") as folder,
    ):
        return _Launched(_command(script), numbers, variables, Path(folder)).wait()


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of the command from the script with its own arguments."""
    with_value = {
        "-n",
        "--processes",
        "--nodes",
        "--node",
        "--coordinator",
        "--devices-per-process",
        "--heartbeat",
    }
    k = 0
    while k < len(words) and words[k].startswith("-") and words[k] not in ("-m", "--"):
        k += 2 if words[k] in with_value else 1
    rest = list(words[k:])
    return list(words[:k]), rest[1:] if rest[:1] == ["--"] else rest


def _command(script: Sequence[str]) -> list[str]:
    """Return the command of each process.

    Raises:
        OptionError: it is a command of `timerl` that has one process.
    """
    if script[0] != _OURS or Path(_OURS).exists():
        return [sys.executable, *script]
    if script[1:2] not in (["train"], ["resume"]):
        raise OptionError(
            f"`timerl launch` cannot run {shlex.join(script[:2])!r} in several processes.",
            hint="launch a Python file, `timerl train` or `timerl resume`.",
        )
    return [sys.executable, "-c", CHILD, ROOT, *script[1:]]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class _Launched:
    """Started processes.

    Args:
        command: the command of each process.
        numbers: the numbers of the processes on this host.
        variables: environment variables of all of them.
        folder: the folder for their notes.
    """

    def __init__(
        self, command: Sequence[str], numbers: range, variables: Mapping[str, str], folder: Path
    ) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._outputs: list[ProcessOutput] = []
        self._errors: dict[int, ProcessOutput] = {}
        self._folder = folder
        self._lost = Event()  # nobody reads the output any more
        try:
            for number in numbers:
                own = {**environment(), **variables, PROCESS: str(number), NOTES: str(folder)}
                process = subprocess.Popen(
                    command,
                    env=own,
                    stdin=None if number == 0 else subprocess.DEVNULL,  # only one can read a line
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,  # Ctrl-C reaches them through this process, once
                )
                self._processes[number] = process
                for stream, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                    assert stream is not None
                    self._errors[number] = ProcessOutput(stream, target, number, self._lost)
                    self._outputs.append(self._errors[number])
        except BaseException:
            self._end(signal.SIGKILL)
            raise

    def wait(self) -> int:
        """Wait for all processes, and return the exit status. If one fails, the others are ended.

        Raises:
            BrokenPipeError: nobody reads the output.
        """
        try:
            while True:
                codes = {number: one.poll() for number, one in self._processes.items()}
                if self._lost.is_set():
                    self._end(signal.SIGINT)
                    raise BrokenPipeError
                if any(codes.values()) or self._waits_in_vain(codes):
                    return self._report(codes)
                if None not in codes.values():
                    self._finish_output()
                    return FINE
                time.sleep(_POLL)
        except KeyboardInterrupt:
            self._end(signal.SIGINT)
            self._finish_output()
            print("timerl launch: interrupted; all processes have ended.", file=sys.stderr)
            return INTERRUPTED

    def _waits_in_vain(self, codes: Mapping[int, int | None]) -> bool:
        """Whether a process waits for one that has ended without connecting to the others."""
        ended = any(code == 0 and self._note(number) is None for number, code in codes.items())
        return ended and any(self._note(number) == WAITING for number in codes)

    def _note(self, number: int) -> Any:
        """Return the note of a process: a state, or the fields of a `Failure`; None without a note."""
        try:
            return json.loads((self._folder / str(number)).read_text())
        except (OSError, ValueError):
            return None

    def _report(self, codes: Mapping[int, int | None]) -> int:
        """End all processes, and name the first that failed as the last line of the output."""
        self._end(signal.SIGTERM)
        self._finish_output()
        notes = {number: self._note(number) for number in codes}
        known = [Failure(**note) for note in notes.values() if isinstance(note, dict)]
        if known:
            number, code = known[0].process, codes.get(known[0].process)
        else:  # JAX aborts a process after the connection to another one is lost
            ranks = {None: 3, 0: 2, -signal.SIGABRT: 1}
            waiting = WAITING in notes.values() and not any(codes.values())
            number = min(
                codes, key=lambda k: 0 if waiting and codes[k] == 0 else ranks.get(codes[k], 0)
            )
            code = codes[number]
        about = f"process {number}{', the coordinator,' if number == 0 else ''}"
        if number not in codes:
            about = f"process {number} on {known[0].host}"
        if known and (code is None or known[0].what != DIED):
            what = known[0].what
        elif not known and code == 0:
            what = "ended with status 0 before trl.distributed.initialize(), where another process waits for it"
        else:
            last = self._errors[number].last_line
            what = f"{_ending(code)}{f': {last}' if last and code != 0 else ''}"
        print(
            f"timerl launch: {about} {what}\n"
            "  All others are ended. Start the command again; a script with program.resume(folder) continues from the "
            "last saved state.",
            file=sys.stderr,
        )
        return FAILED

    def _end(self, first: signal.Signals) -> None:
        """End all processes: by a signal, and by SIGKILL after some seconds or a second interrupt."""
        alive = [one for one in self._processes.values() if one.poll() is None]
        failed = [one for one in self._processes.values() if one.poll() not in (None, 0)]
        try:
            for one in failed:  # its children, such as the workers of a collector, may still run
                _signal(one, signal.SIGTERM)
            for one in alive:
                _signal(one, first)
            until = time.monotonic() + _GRACE
            for one in alive:
                with suppress(subprocess.TimeoutExpired):
                    one.wait(max(0.0, until - time.monotonic()))
        finally:
            for one in alive:
                if one.poll() is None:
                    _signal(one, signal.SIGKILL)
                    one.wait()

    def _finish_output(self) -> None:
        until = time.monotonic() + _GRACE
        for one in self._outputs:
            one.join(max(0.0, until - time.monotonic()))


def _ending(code: int | None) -> str:
    """Describe the end of a process by its exit status."""
    assert code is not None
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process and its children."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


@contextmanager
def _interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """End the command by a signal as by Ctrl-C, so that no process stays behind. `nohup` still ignores SIGHUP."""
    before = {one: signal.getsignal(one) for one in signals}
    before = {one: handler for one, handler in before.items() if handler is not signal.SIG_IGN}
    try:
        for one in before:
            signal.signal(one, _interrupt)
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
