"""Writers in other processes: connections over which they send complete entries to the buffer's process."""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import current_process
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Final

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError

_BACKLOG: Final = 128  # processes that connect in one moment


class WriterServer:
    """Threads that insert the entries of writers in other processes.

    A writer sends one block at a time, and waits until it is inserted. So a block is inserted whole or not at
    all, and a writer is never more than one block ahead of the buffer.

    Args:
        insert: a weak method of the buffer that inserts entries and returns their number.

    Attributes:
        address: the address for `connect`.
    """

    def __init__(self, insert: weakref.WeakMethod[Callable[[Mapping[str, Array]], int]]) -> None:
        self._insert = insert
        self._listener = Listener(backlog=_BACKLOG, authkey=bytes(current_process().authkey))
        self._open: set[Connection] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self._process = os.getpid()
        self.address = self._listener.address
        self._start(self._accept)

    def close(self) -> None:
        """End all connections; has no effect in a forked process."""
        if self._is_closed or os.getpid() != self._process:
            return
        self._is_closed = True
        family = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET
        # wakes the thread that waits for connections, without the handshake of `Client`
        with suppress(OSError), socket.socket(family) as wakes:
            wakes.settimeout(1.0)
            wakes.connect(self.address)
        self._listener.close()
        with self._lock:
            for one in self._open:
                _shut_down(one)

    @staticmethod
    def _start(function: Callable[..., None], *given: Any) -> None:
        threading.Thread(
            target=function, args=given, name="timerl replay writers", daemon=True
        ).start()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection = self._listener.accept()
            except Exception:  # a process that died while it connected, or one with another key
                continue
            with self._lock:
                self._open.add(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: Connection) -> None:
        """Insert the blocks of one writer until it ends."""
        try:
            while not self._is_closed:
                entries = connection.recv()
                insert = self._insert()
                if insert is None:
                    return
                try:
                    answer: Any = insert(entries)
                except Exception as error:  # the writer raises it
                    answer = str(error)
                del insert  # the buffer may end while this thread waits
                connection.send(answer)
        except (EOFError, OSError, TypeError):  # the writer or the buffer has ended
            return
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()


def _shut_down(connection: Connection) -> None:
    """End a connection, also for a thread that waits for data: closing would not wake it."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.shutdown(socket.SHUT_RDWR)


def connect(address: Any) -> Callable[[Mapping[str, Array]], int]:
    """Return a function that sends entries to the buffer's process, and returns their number once inserted.

    Raises:
        ExecutionError: the buffer or its process has ended.
    """
    try:
        connection = Client(address, authkey=bytes(current_process().authkey))
    except (OSError, EOFError) as error:
        raise _ended() from error
    lock = threading.Lock()

    def insert(entries: Mapping[str, Array]) -> int:
        try:
            with lock:
                connection.send(dict(entries))
                answer = connection.recv()
        except (OSError, EOFError) as error:
            raise _ended() from error
        if isinstance(answer, str):
            raise ExecutionError(
                f"the buffer's process has refused the rows: {answer}",
                hint="correct the rows that the writer inserts.",
            )
        return answer

    return insert


def _ended() -> ExecutionError:
    return ExecutionError(
        "the buffer of this writer has ended.",
        hint="keep the buffer and its process alive until all writers have ended.",
    )
