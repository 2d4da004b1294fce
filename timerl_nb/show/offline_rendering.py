"""What a page would draw, where there is none: its drawing program and Graphviz, in a V8 of our own.

The program is built from `widgets/src/offpage.ts` (`widgets/bundle.py`) and ships with the package.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from py_mini_racer import JSEvalException, JSPromise, JSTimeoutException, MiniRacer, init_mini_racer

from timerl_nb.base.errors import DrawingError

try:
    import resource
except ImportError:  # on Windows
    resource = None

PROGRAM = Path(__file__).parent / "static/offpage.js"
SECONDS = 60.0  # far more than any drawing takes


class TooLong(DrawingError):
    """The program did not answer in the time that there was."""


class Failed(DrawingError):
    """The program threw something."""


def call(function: str, *arguments: Any, seconds: float = SECONDS) -> str:
    """What a function of the program returns for values as JSON has them.

    Raises:
        TooLong: it took longer.
        Failed: it threw.
        DrawingError: the program has not been built.
    """
    return _V8.call(function, arguments, seconds)


def arrange_pictures(rows: Sequence[Sequence[tuple[str, str]]]) -> str:
    """Rows of pictures, each under its title, as one picture."""
    return call(
        "arranged", [[{"title": title, "picture": one} for title, one in row] for row in rows]
    )


class Context:
    """The program, in V8 on a thread of its own.

    MiniRacer adopts the asyncio loop that runs where it is made: in a notebook the kernel's own,
    which would then wait for itself. A context that is freed as the interpreter ends never returns.
    So it is made, used and closed on one private thread: where processors protect memory by thread, another
    one's touch ends the process. No pool's thread still answers when the interpreter ends.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._thread: Thread | None = None
        self._start = Lock()
        self._v8: MiniRacer | None = None

    def call(self, function: str, arguments: tuple[Any, ...], seconds: float) -> str:
        return self._answer(partial(self._call, function, arguments, seconds))

    def end(self) -> None:
        """Close it, as the interpreter ends."""
        if self._thread is not None:
            self._answer(self.close)

    def _answer(self, ask: Callable[[], Any]) -> Any:
        with self._start:
            if self._thread is None:
                _check_addresses()
                init_mini_racer(
                    ignore_duplicate_init=True
                )  # V8 is for threads of the one that does this
                self._thread = Thread(target=self._run_thread, name="drawing", daemon=True)
                self._thread.start()
        future = Future[Any]()
        self._asked.put((future, ask))
        return future.result()

    def _run_thread(self) -> None:
        while True:
            future, ask = self._asked.get()
            try:
                future.set_result(ask())
            except BaseException as error:
                future.set_exception(error)

    def _call(self, function: str, arguments: tuple[Any, ...], seconds: float) -> str:
        v8 = self._v8 = self._v8 or _load_drawing_program()
        try:
            return str(v8.call(f"timerl.{function}", *arguments, timeout_sec=seconds))
        except JSTimeoutException:
            v8.eval("0")  # what was stopped answers once more
            self.close()  # and left its memory in any state
            raise TooLong(f"drawing took more than {seconds:g} s.") from None
        except JSEvalException as error:
            raise Failed("this could not be drawn.", evidence=str(error)[:400]) from None

    def close(self) -> None:
        v8, self._v8 = self._v8, None
        if v8 is not None:
            v8.close()


_RESERVED = 2 << 40  # bytes of addresses, V8's largest reservation; it uses some 50 MiB of them


def _check_addresses() -> None:
    """Refuse to begin V8 if too few addresses are left for it: there it would end the process.

    Raises:
        DrawingError: `ulimit -v` limits them.
    """
    if resource is None:
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _RESERVED:
        raise DrawingError(
            f"pictures cannot be drawn: this process may use {limit:,} bytes of addresses, and the "
            f"drawing engine reserves up to {_RESERVED:,}.",
            hint="run it without a limit of addresses (`ulimit -v unlimited`); text, such as "
            "print(program.ast), needs no drawing.",
        )


def _load_drawing_program() -> MiniRacer:
    if not PROGRAM.exists():
        raise DrawingError(
            f"the drawing program is not built ({PROGRAM.name} is missing).",
            hint="run `make setup`, or `python widgets/bundle.py` in the repository.",
        )
    v8 = MiniRacer()
    v8.eval(PROGRAM.read_text(encoding="utf-8"))
    loading = v8.eval("timerl.load()")
    assert isinstance(loading, JSPromise)
    loading.get(timeout=60)
    return v8


_V8 = Context()


def _reset_after_fork() -> None:
    """A forked process has none of V8's threads: it begins anew, and leaves the old one alone."""
    global _V8
    _LEFT.append(_V8)
    _V8 = Context()


_LEFT: list[Context] = []
atexit.register(lambda: _V8.end())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
