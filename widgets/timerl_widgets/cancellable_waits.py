"""CancellableWaits for work that cannot be interrupted: each names its cause, and can be cancelled."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, TypeVar

from timerl_nb.show.widget_api import ExecutionError

T = TypeVar("T")
Status = dict[str, Any]

SHORT: Final = 0.3  # seconds; shorter waits are not shown


class CancellableWaits:
    """Runs work on threads, and stops waiting for it on request.

    Cancelled work goes on until it ends. It should therefore only fill caches.

    Args:
        read, write: functions that return and set the status that the page shows.
    """

    def __init__(self, read: Callable[[], Status], write: Callable[[Status], object]) -> None:
        self._read, self._write = read, write
        self._open: list[SimpleQueue[tuple[Any, BaseException | None]]] = []
        self._lock = Lock()  # several threads wait
        self._shown: list[Status] = []  # waits that the status has named
        self._before: Status = {}  # the latest status that is none of them

    def run(self, what: str, work: Callable[[], T]) -> T:
        """Return the result of some work; after `SHORT` seconds, the status names it.

        Args:
            what: the work in words.
            work: a function, called on another thread.

        Raises:
            ExecutionError: the wait has been cancelled.
        """
        answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

        def run_work() -> None:
            try:
                answers.put((work(), None))
            except BaseException as error:
                answers.put((None, error))

        waiting = {"state": "compiling", "text": what}
        self._open.append(answers)
        Thread(target=run_work, name=f"timerl {what}", daemon=True).start()
        try:
            try:
                result, error = answers.get(timeout=SHORT)
            except Empty:
                self._begin(waiting)
                result, error = answers.get()
        finally:
            self._open.remove(answers)
            self._end(waiting)
        if error is not None:
            raise error
        return result

    def _begin(self, waiting: Status) -> None:
        """Show a wait."""
        with self._lock:
            now = self._read()
            if now not in self._shown:
                self._before = now
            self._shown.append(waiting)
            self._write(waiting)

    def _end(self, waiting: Status) -> None:
        """Show another wait, or else the status before all of them, unless the status has changed."""
        with self._lock:
            if not any(one is waiting for one in self._shown):  # it was short
                return
            self._shown = [one for one in self._shown if one is not waiting]
            if self._read() != waiting:
                return
            if self._shown:
                self._write(self._shown[-1])
            elif self._before["state"] != "compiling":
                self._write(self._before)

    def cancel(self) -> None:
        """Stop waiting."""
        for answers in [*self._open]:
            text = "the wait has been cancelled; nothing has changed."
            answers.put((None, ExecutionError(text)))
