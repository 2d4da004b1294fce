"""Comparison of the clocks of two hosts, by messages over the network.

The recorded program answers each message with its CLOCK_MONOTONIC. A process of another host sends several messages,
and uses the one with the shortest round trip: the answer belongs to its midpoint, up to half of the round trip.
Source: Cristian; see docs/references.md.
"""

from __future__ import annotations

import _thread
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns
from typing import Final

from timerl_nb.scope.device_activity.clock_alignment import Anchor

ROUNDS: Final = 16
_TIMEOUT: Final = 0.2  # seconds for one answer
_MESSAGE: Final = struct.Struct("<Q")  # a number; the answer repeats it
_ANSWER: Final = struct.Struct("<QQ")  # the number and the time


def compare_clocks(
    read_theirs: Callable[[], int | None],
    rounds: int = ROUNDS,
    clock: Callable[[], int] = monotonic_ns,
) -> Anchor | None:
    """Return the anchor of the shortest of several round trips; None without an answer.

    Args:
        read_theirs: asks the other host for its time in nanoseconds; None if there was no answer.
        rounds: the number of round trips. Without an answer to the first three, there are no more.
        clock: the clock of this host.

    Returns:
        An anchor from this host's clock (`theirs`) to the other host's clock (`ours`), whose times the recording uses.
    """
    best: Anchor | None = None
    for k in range(rounds):
        before = clock()
        theirs = read_theirs()
        after = clock()
        if theirs is not None:
            width = after - before
            found = Anchor(before + width // 2, theirs, (width + 1) // 2)
            best = found if best is None or found.width < best.width else best
        elif best is None and k == 2:
            break
    return best


def request_anchor(address: tuple[str, int]) -> Anchor | None:
    """Return the anchor to the clock of a `ClockServer`; None if it does not answer."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.settimeout(_TIMEOUT)
        own.connect(address)
        asked = int.from_bytes(
            os.urandom(4), "little"
        )  # tells the answers of earlier messages apart

        def read_theirs() -> int | None:
            nonlocal asked
            asked += 1
            with suppress(OSError):
                own.send(_MESSAGE.pack(asked))
                while True:
                    answer = own.recv(_ANSWER.size)
                    if len(answer) == _ANSWER.size:
                        number, time = _ANSWER.unpack(answer)
                        if number == asked:
                            return int(time)
            return None

        return compare_clocks(read_theirs)
    return None


class ClockServer:
    """Answers messages with the CLOCK_MONOTONIC of this process, until it is closed.

    Attributes:
        port: the UDP port.
    """

    def __init__(self) -> None:
        self._own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._own.bind(("", 0))
        self.port: int = self._own.getsockname()[1]
        self.process, self._is_closed = os.getpid(), False
        # not a `threading.Thread`: the recorder would give it a timeline
        _thread.start_new_thread(self._answer, ())

    def _answer(self) -> None:
        with suppress(OSError), self._own:
            while True:
                message, sender = self._own.recvfrom(_MESSAGE.size + 1)
                if self._is_closed:
                    return
                if len(message) == _MESSAGE.size:
                    (number,) = _MESSAGE.unpack(message)
                    self._own.sendto(_ANSWER.pack(number, monotonic_ns()), sender)

    def close(self) -> None:
        self._is_closed = True
        if self.process == os.getpid():  # a forked child has the socket, but not the thread
            with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
                own.sendto(b"", ("127.0.0.1", self.port))  # wakes the thread


def address_of_this_host() -> str:
    """Return the address by which other hosts reach this one, as far as the routing table tells."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])
    return "127.0.0.1"
