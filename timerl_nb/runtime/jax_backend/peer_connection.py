"""Connection of a process to the meeting point of its program (`peer_hub`)."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event, Thread
from typing import Any, Final

from timerl_nb.runtime.jax_backend.peer_hub import DIED, FAILED, Failure, Hub, Lines, summary

GRACE: Final = 2.0  # seconds between the report of a failure and the forced end of a process
_RETRY: Final = 0.2  # seconds between two attempts to reach process 0


def reach(
    address: str, number: int, count: int, facts: Mapping[str, str], timeout: float
) -> tuple[socket.socket, str]:
    """Return the connection of another process to the hub, and the name of the hub's host, after all have come.

    Raises:
        OSError: process 0 does not answer, or refuses because processes are missing or differ.
    """
    host, _, port = address.rpartition(":")
    until = time.monotonic() + timeout
    while True:
        try:
            connection = socket.create_connection(
                (host.strip("[]"), int(port)), timeout=max(0.1, until - time.monotonic())
            )
            break
        except OSError:
            if time.monotonic() >= until:
                raise
            time.sleep(_RETRY)
    lines = Lines(connection)
    connection.settimeout(None)
    hello = {"hello": number, "count": count, "host": socket.gethostname(), "facts": dict(facts)}
    lines.send(hello)
    # process 0 may have started later, and reports missing processes itself
    if not select.select([connection], [], [], 2 * timeout + 5)[0]:
        connection.close()
        raise TimeoutError("process 0 does not answer")
    try:
        answer = _first_line(connection)
    except OSError:
        connection.close()
        raise ConnectionError("process 0 has ended") from None
    if "refused" in answer:
        connection.close()
        raise ConnectionError(answer["refused"])
    return connection, answer["go"]


def _first_line(connection: socket.socket) -> dict[str, Any]:
    """Return the first message; later ones stay in the socket."""
    line = b""
    while not line.endswith(b"\n"):
        found = connection.recv(1)
        if not found:
            raise ConnectionError("closed")
        line += found
    return json.loads(line)


class Peers:
    """The connection of this process to the hub.

    Args:
        connection: the connection, after all processes have come.
        number: the number of this process.
        host: the name of the hub's host.
        hub: the hub, in process 0.
        note: receives the first failure.
    """

    def __init__(
        self,
        connection: socket.socket,
        number: int,
        host: str,
        hub: Hub | None = None,
        note: Callable[[Failure], object] = id,
    ) -> None:
        self.number, self.failure = number, None
        self._host, self._hub, self._note = host, hub, note
        self._owner = os.getpid()
        self._lines = Lines(connection)
        self._run = 0
        self._known = Event()  # a failure, or the end of all processes
        self._over = False
        self._leaving = False
        self._combined: dict[str, tuple[str, str]] = {}
        self._received = Event()
        self._until, self._ending = float("inf"), Event()
        # started now, since a process that ends cannot start threads
        Thread(target=self._end_late, name="timerl-end", daemon=True).start()
        self._thread = Thread(target=self._listen, name="timerl-peers", daemon=True)
        self._thread.start()

    failure: Failure | None

    def _listen(self) -> None:
        try:
            while True:
                for message in self._lines.receive():
                    if "failure" in message:
                        self._end(Failure(**message["failure"]))
                    elif "over" in message:
                        self._over = True
                        self._known.set()
                    elif "combined" in message:
                        self._combined[message["combined"]] = message["texts"]
                        self._received.set()
        except OSError:
            if not self._over and self.failure is None:
                self._end(Failure(0, self._host, DIED))
        finally:
            self._lines.close()

    def _end(self, failure: Failure) -> None:
        """Take note of a failure, and end this process if it does not end by itself."""
        if self.failure is not None:
            return
        self.failure = failure
        self._note(failure)
        # an error has its traceback, and ends its process
        own = failure.process == self.number and failure.what.startswith(FAILED)
        if not own:
            _say(f"timerl: {failure}. Process {self.number} ends.")
        self._known.set()
        self._received.set()
        self.end_within(GRACE + 8 if own else GRACE)

    def end_within(self, seconds: float) -> None:
        """End the process after a time: its main thread may wait for another one in a collective operation."""
        self._until = min(self._until, time.monotonic() + seconds)
        self._ending.set()

    def _end_late(self) -> None:
        self._ending.wait()
        while not self._over and (left := self._until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
        if not self._over:
            self._force()

    def _force(self) -> None:
        if self._hub is not None:
            self._hub.wait_for_others(GRACE)
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(1)

    @property
    def is_own(self) -> bool:
        """Whether this process has made the connection, rather than being a fork of such a process."""
        return os.getpid() == self._owner

    def enter(self) -> None:
        """Begin a run of all processes, or another step that needs all.

        Raises:
            ExecutionError: another process has failed.
        """
        if self.failure is not None:
            raise self.failure.error()
        self._run += 1
        self._lines.send({"run": self._run, "inside": True, "why": None})

    def leave(self, error: BaseException | None) -> None:
        """End a run of all processes, by an error or without."""
        why = None if error is None else summary(error)
        self._lines.send({"run": self._run, "inside": False, "why": why})

    def await_failure(self, seconds: float) -> Failure | None:
        """Return the first failure, if it becomes known within a time."""
        self._known.wait(seconds)
        return self.failure

    def fail(self, error: BaseException) -> None:
        """Report an error that ends this process, and wait until the others know it."""
        if self.failure is None and not self._over and self.is_own:
            self._lines.send({"failed": f"{FAILED}{summary(error)}"})
            self._known.wait(GRACE)

    def combine(self, name: str, text: str) -> tuple[str, str]:
        """Wait until all processes offer a text; return that of process 0, and the smallest number of all.

        Raises:
            ExecutionError: another process has failed.
        """
        if name in self._combined:
            return self._combined[name]
        self.enter()
        self._lines.send({"combined": name, "text": text})
        while name not in self._combined:
            self._received.wait()
            self._received.clear()
            if self.failure is not None:
                raise self.failure.error()
        self.leave(None)
        return self._combined[name]

    def finish(self) -> bool:
        """Wait for the end of all processes; return whether all have ended without a failure."""
        self.end_early()
        self._known.wait()
        if not self._over and self._hub is not None:
            self._hub.wait_for_others(GRACE + 1)
        return self._over

    def end_early(self) -> None:
        """Report that this process takes part in no further run."""
        if not self._leaving:
            self._leaving = True
            self._lines.send({"ended": True})

    def close(self) -> None:
        """Close the connection."""
        self._over = True
        self._ending.set()
        self._lines.close()
        self._thread.join(GRACE)

    def drop(self) -> None:
        """Close a fork's copy of the connection, so that the death of this process is noticed."""
        for lines in (
            self._lines,
            *(m.lines for m in (self._hub.members if self._hub else {}).values()),
        ):
            lines.socket.close()


def _say(line: str) -> None:
    """Print a line on the standard error, which another thread may be writing to."""
    with suppress(OSError, ValueError):
        os.write(2, f"{line}\n".encode(errors="replace"))
