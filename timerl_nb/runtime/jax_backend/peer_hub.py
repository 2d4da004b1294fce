"""Meeting point of the processes of a distributed program, in process 0.

JAX ends a process without an error if another one is missing at the start, and notices a failure of a process that is
still alive only after minutes. The processes therefore meet at the coordinator's port before JAX opens it. Their
connections stay open, and process 0 reports every failure to all others at once.

Messages are lines of JSON. All decisions are made by the hub, a thread of process 0.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from threading import Lock, Thread
from typing import Any, Final

from timerl_nb.base.errors import ExecutionError, TimeRLError

_LEFT: Final = 3.0  # seconds that others may stay in a run that one process has left with an error
_LONGEST: Final = 1 << 16  # bytes of a line, and of a first line
_TEXT: Final = 2_000  # characters of a reported error
FAILED: Final = "failed: "
DIED: Final = "has died: it was killed, or its connection was lost"
_AGAIN: Final = "correct the cause, and start all processes again; program.resume(folder) continues from the last saved state."


@dataclass(frozen=True)
class Failure:
    """The first failure of a program.

    Attributes:
        process: the number of the process that failed.
        host: the name of its host.
        what: a predicate, such as "failed: ValueError: no".
    """

    process: int
    host: str
    what: str

    def __str__(self) -> str:
        return f"process {self.process} on {self.host} {self.what}"

    def error(self) -> ExecutionError:
        """Return the error of another process."""
        return ExecutionError(f"{self}", hint=_AGAIN)


def summary(error: BaseException) -> str:
    """Return the type and the message of an error in one line."""
    text = " ".join((error.what if isinstance(error, TimeRLError) else str(error)).split())
    text = text.removesuffix(".")
    return f"{type(error).__name__}: {text}"[:_TEXT] if text else type(error).__name__


def _as_number(text: str) -> float:
    """Return the order of offered numbers; others have none."""
    return float(text) if text.isdecimal() else float("inf")


class Lines:
    """A socket that sends and receives messages."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._read = b""
        self._sending = Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; nothing if the other side has closed the connection."""
        with suppress(OSError), self._sending:
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]]:
        """Wait for messages.

        Raises:
            ConnectionError: the other side has closed the connection, or sends something else.
        """
        found = self.socket.recv(_LONGEST)
        if not found:
            raise ConnectionError("closed")
        *lines, self._read = (self._read + found).split(b"\n")
        if len(self._read) > _LONGEST:
            raise ConnectionError("too long")
        try:
            messages: list[Any] = [json.loads(line) for line in lines]
        except ValueError:
            raise ConnectionError("no message") from None
        if not all(isinstance(one, dict) for one in messages):
            raise ConnectionError("no message")
        return messages

    def close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


@dataclass
class _Member:
    """State of one process, as the hub knows it."""

    lines: Lines
    host: str
    run: int = 0  # the number of the current or last run
    inside: bool = False
    why: str | None = None  # the error with which the process left the run
    since: float = 0.0  # the time of that
    ended: bool = False
    gone: bool = False


@dataclass
class Hub:
    """Meeting point of the processes, in process 0.

    Args:
        count: the number of processes.
        port: the port of the coordinator.

    Raises:
        OSError: the port is in use.
    """

    count: int
    port: int
    members: dict[int, _Member] = field(default_factory=dict[int, _Member])
    failure: Failure | None = None

    def __post_init__(self) -> None:
        both = socket.has_dualstack_ipv6()
        where: dict[str, Any] = {"family": socket.AF_INET6} if both else {}
        self._listening = socket.create_server(
            ("", self.port), dualstack_ipv6=both, backlog=min(self.count + 16, 4096), **where
        )
        self._over = False
        self._offers: dict[str, dict[int, str]] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)

    def meet(self, facts: Mapping[str, str], timeout: float) -> socket.socket:
        """Wait for all processes, and return the connection of process 0 to the hub.

        Args:
            facts: texts by name that must be equal in all processes.
            timeout: seconds.

        Raises:
            ConnectionError: some processes have not come, or one does not belong to the program.
        """
        with self._listening:
            return self._meet(facts, timeout)

    def _meet(self, facts: Mapping[str, str], timeout: float) -> socket.socket:
        own, other = socket.socketpair()
        self.members[0] = _Member(Lines(other), socket.gethostname())
        until, refused = time.monotonic() + timeout, ""
        new: dict[socket.socket, Lines] = {}
        while not refused and len(self.members) < self.count:
            left = until - time.monotonic()
            if left <= 0:
                missing = [str(k) for k in range(self.count) if k not in self.members]
                refused = (
                    f"{len(self.members)} of {self.count} processes came within {timeout:g} seconds. Missing: "
                    f"process {', '.join(missing[:20])}{', …' if len(missing) > 20 else ''}"
                )
                break
            for key, _ in self._selector.select(left):
                if key.fileobj is self._listening:
                    connection, _ = self._listening.accept()
                    new[connection] = Lines(connection)
                    self._selector.register(connection, selectors.EVENT_READ)
                    continue
                connection: Any = key.fileobj
                lines = new.get(connection) or next(
                    one.lines for one in self.members.values() if one.lines.socket is connection
                )
                try:
                    hello = lines.receive()
                except OSError:  # a stranger, or a process that has ended
                    self._selector.unregister(connection)
                    connection.close()
                    new.pop(connection, None)
                    self.members = {
                        k: m for k, m in self.members.items() if m.lines.socket is not connection
                    }
                    continue
                if hello and connection in new:
                    refused = refused or self._admit(new.pop(connection), hello[0], facts)
        self._selector.unregister(self._listening)
        if refused:
            for member in [*self.members.values(), *(_Member(one, "") for one in new.values())]:
                member.lines.send({"refused": refused})
                member.lines.close()
            own.close()
            self._selector.close()
            raise ConnectionError(refused)
        for stranger in new:
            self._selector.unregister(stranger)
            stranger.close()
        self._selector.register(other, selectors.EVENT_READ)
        self._listening.close()  # JAX opens the port next
        self._tell({"go": self.members[0].host})
        Thread(target=self._serve, name="timerl-hub", daemon=True).start()
        return own

    def _admit(self, lines: Lines, hello: Mapping[str, Any], facts: Mapping[str, str]) -> str:
        """Add a process, and return "", or the reason why it does not belong to the program."""
        number, count, host = hello.get("hello"), hello.get("count"), hello.get("host")
        if not isinstance(number, int) or not isinstance(host, str):
            self._selector.unregister(lines.socket)
            lines.close()
            return ""
        refused, facts_there = "", hello.get("facts")
        theirs = facts_there if isinstance(facts_there, dict) else {}
        differ = [name for name, text in facts.items() if theirs.get(name) != text]
        if count != self.count:
            refused = f"process {number} on {host} belongs to {count} processes, and process 0 to {self.count}"
        elif number in self.members:
            refused = f"two processes have the number {number}: on {self.members[number].host} and on {host}"
        elif differ:
            refused = (
                f"{differ[0]} of process {number} on {host} is {theirs.get(differ[0])}, and that of process 0 is "
                f"{facts[differ[0]]}"
            )
        if refused:
            lines.send({"refused": refused})
            lines.close()
        else:
            self.members[number] = _Member(lines, host)
        return refused

    # --- in the thread of the hub ----------------------------------------------------------------

    def _serve(self) -> None:
        by_socket = {one.lines.socket: number for number, one in self.members.items()}
        while not all(one.gone for one in self.members.values()):
            waits = any(one.why is not None for one in self.members.values())
            for key, _ in self._selector.select(0.5 if waits else None):
                connection: Any = key.fileobj
                number = by_socket[connection]
                try:
                    messages = self.members[number].lines.receive()
                except OSError:
                    self._selector.unregister(connection)
                    self.members[number].lines.close()
                    self._lose(number)
                    continue
                for message in messages:
                    self._take(number, message)
            self._judge()
        self._selector.close()

    def _take(self, number: int, message: Mapping[str, Any]) -> None:
        member = self.members[number]
        if "failed" in message:
            self._fail(number, message["failed"])
        elif "run" in message:
            member.run, member.inside = message["run"], message["inside"]
            member.why, member.since = message["why"], time.monotonic()
        elif "ended" in message:
            member.ended = True
            if all(one.ended for one in self.members.values()):
                self._over = True
                self._tell({"over": True})
        elif "combined" in message:
            self._combine(number, message["combined"], message["text"])

    def _combine(self, number: int, name: str, text: str) -> None:
        offers = self._offers.setdefault(name, {})
        offers[number] = text
        if len(offers) == self.count:
            self._tell(
                {"combined": name, "texts": [offers[0], min(offers.values(), key=_as_number)]}
            )

    def _judge(self) -> None:
        """Find processes on which others wait in vain."""
        inside = [(one.run, k) for k, one in self.members.items() if one.inside]
        if not inside:
            return
        last, waiting = max(inside)
        for number, one in self.members.items():
            if one.ended and one.run < last:
                why = f"; it left the last one with {one.why}" if one.why else ""
                what = f"ended before process {waiting}, which executes a further run{why}"
                self._fail(number, what)
            elif one.why is not None and time.monotonic() - one.since > _LEFT:
                if any(run == one.run for run, _ in inside):
                    self._fail(number, f"left a run that others still execute: {one.why}")

    def _lose(self, number: int) -> None:
        self.members[number].gone = True
        if not self._over:
            self._fail(number, DIED)

    def _fail(self, number: int, what: str) -> None:
        if self.failure is None:
            self.failure = Failure(number, self.members[number].host, what)
            self._tell({"failure": asdict(self.failure)})

    def _tell(self, message: Mapping[str, Any]) -> None:
        for one in self.members.values():
            if not one.gone:
                one.lines.send(message)

    def wait_for_others(self, seconds: float) -> None:
        """Wait until the other processes have ended: JAX would abort them without process 0."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not all(m.gone for k, m in self.members.items() if k):
            time.sleep(0.02)
