"""Meeting of the processes of a program, and reports of their failures. Threads play the processes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from threading import Thread
from typing import Any

import pytest

from timerl_nb.base.errors import ExecutionError
from timerl_nb.runtime.jax_backend import peer_hub
from timerl_nb.runtime.jax_backend.peer_connection import Peers, reach
from timerl_nb.runtime.jax_backend.peer_hub import DIED, Hub

WAIT = 30.0


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close all connections after a test, which a failure must not end."""
    made, begin = list[Peers](), Peers.__init__

    def record(self: Peers, *args: Any) -> None:
        made.append(self)
        begin(self, *args)

    monkeypatch.setattr(Peers, "__init__", record)
    monkeypatch.setattr(Peers, "_force", lambda self: None)
    monkeypatch.setattr(peer_hub, "_LEFT", 0.2)
    yield
    for one in made:
        one.close()


def in_threads(work: Mapping[int, Callable[[], Any]]) -> dict[int, Any]:
    """Results or errors of functions that wait for each other."""
    found = dict[int, Any]()

    def run(k: int, do: Callable[[], Any]) -> None:
        try:
            found[k] = do()
        except Exception as error:
            found[k] = error

    threads = [Thread(target=run, args=one) for one in work.items()]
    for one in threads:
        one.start()
    for one in threads:
        one.join(WAIT)
    return found


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def meet(count: int, *numbers: int, **differing: Any) -> dict[int, Any]:
    """Connect processes; `differing` are the number of processes or the version of process 1."""
    port, timeout = free_port(), 1.0 if numbers else WAIT

    def first() -> Peers:
        hub = Hub(count, port)
        return Peers(hub.meet({"the version": "1"}, timeout), 0, "here", hub)

    def other(k: int) -> Peers:
        facts = {"the version": differing.get("version", "1") if k == 1 else "1"}
        given = differing.get("claimed", count)
        connection, host = reach(f"127.0.0.1:{port}", k, given, facts, timeout)
        return Peers(connection, k, host)

    return in_threads(
        {n: (lambda k=k: other(k) if k else first()) for n, k in enumerate(numbers or range(count))}
    )


def reasons(peers: Mapping[int, Peers]) -> set[str]:
    failures = [one.await_failure(WAIT) for one in peers.values()]
    return {f"{one.process} {one.what}" if one else "none" for one in failures}


def test_processes_run_and_end_together() -> None:
    peers = meet(4)
    for _ in range(2):
        for one in peers.values():
            one.enter()
        for one in peers.values():
            one.leave(None)
    offers = {k: (lambda k=k: peers[k].combine("memory", str(9 - k))) for k in peers}
    assert in_threads(offers) == dict.fromkeys(peers, ["9", "6"])
    assert in_threads({k: one.finish for k, one in peers.items()}) == dict.fromkeys(peers, True)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (lambda: meet(4, 0, 2), "2 of 4 processes came within 1 seconds. Missing: process 1, 3"),
        (lambda: meet(3, 0, 1, 1), "two processes have the number 1"),
        (lambda: meet(2, claimed=3), "belongs to 3 processes, and process 0 to 2"),
        (
            lambda: meet(2, version="2"),
            "the version of process 1 on .* is 2, and .* process 0 is 1",
        ),
    ],
)
def test_all_processes_learn_why_they_do_not_meet(
    found: Callable[[], dict[int, Any]], said: str
) -> None:
    errors = found()
    assert len(errors) > 1
    for error in errors.values():
        with pytest.raises(ConnectionError, match=said):
            raise error


def test_strangers_at_the_port_are_ignored() -> None:
    port = free_port()
    hub = Hub(2, port)

    def visit() -> Peers:
        for text in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"[1]\n",
            b'{"hello": "x"}\n',
            b"\xff" * 99_999,
            b"",
        ):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(text)
        return Peers(*_swapped(reach(f"127.0.0.1:{port}", 1, 2, {}, WAIT), 1))

    found = in_threads({0: lambda: Peers(hub.meet({}, WAIT), 0, "here", hub), 1: visit})
    assert in_threads({k: one.finish for k, one in found.items()}) == {0: True, 1: True}


def _swapped(reached: tuple[socket.socket, str], number: int) -> tuple[socket.socket, int, str]:
    return reached[0], number, reached[1]


@pytest.mark.parametrize("culprit", [0, 1])
def test_an_error_in_one_process_is_known_to_all(
    culprit: int, capfd: pytest.CaptureFixture[str]
) -> None:
    peers = meet(3)
    peers[culprit].fail(ValueError("no\nmore"))
    assert reasons(peers) == {f"{culprit} failed: ValueError: no more"}
    said = f"process {culprit} on {socket.gethostname()} failed: ValueError: no more"
    with pytest.raises(ExecutionError, match=said):
        peers[2].enter()
    peers[2].fail(ExecutionError("secondary"))  # is not the first
    assert peers[1].failure == peers[0].failure
    lines = sorted(capfd.readouterr().err.splitlines())
    assert lines == [f"timerl: {said}. Process {k} ends." for k in range(3) if k != culprit]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_connection_is_a_death(lost: int) -> None:
    peers = meet(3)
    peers[lost]._lines.socket.shutdown(socket.SHUT_RDWR)
    others = {k: one for k, one in peers.items() if k != lost}
    assert reasons(others) == {f"{lost} {DIED}"}


def test_a_process_that_ends_too_early_is_named() -> None:
    peers = meet(3)
    for one in peers.values():
        one.enter()
        one.leave(None)
    peers[1].end_early()
    assert peers[0].await_failure(0.1) is None  # nobody needs it
    peers[0].enter()
    assert reasons(peers) == {"1 ended before process 0, which executes a further run"}


def test_a_process_that_leaves_a_run_by_an_error_is_named() -> None:
    peers = meet(3)
    for one in peers.values():
        one.enter()
    peers[2].leave(OSError("full"))
    assert reasons(peers) == {"2 left a run that others still execute: OSError: full"}


def test_an_error_of_all_processes_is_no_failure() -> None:
    peers = meet(2)
    for one in peers.values():
        one.enter()
    for one in peers.values():
        one.leave(OSError("full"))
    assert peers[0].await_failure(1) is None
