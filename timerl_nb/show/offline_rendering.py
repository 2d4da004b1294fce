"""Rendering without a browser: runs the widgets' drawing code and Graphviz in an embedded V8.

The drawing program is built from `widgets/src/offline_rendering.ts` by `widgets/bundle.py`, and ships with the package.
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

PROGRAM = Path(__file__).parent / "static/offline_rendering.js"
SECONDS = 60.0  # far more than any drawing takes


class TooLong(DrawingError):
    """The drawing program has exceeded its time limit."""


class Failed(DrawingError):
    """The drawing program has raised an error."""


def call(function: str, *arguments: Any, seconds: float = SECONDS) -> str:
    """Call a function of the drawing program with JSON values, and return its result.

    Raises:
        TooLong: the call has exceeded the time limit.
        Failed: the function has raised an error.
        DrawingError: the program has not been built.
    """
    return _V8.call(function, arguments, seconds)


def draw_text(text: str) -> str:
    """Return a picture of the first lines of a text."""
    return call("draw", {"view": "text"}, text, 1000)


def arrange_pictures(rows: Sequence[Sequence[tuple[str, str]]]) -> str:
    """Arrange rows of pictures with titles as one picture."""
    return call(
        "arrange", [[{"title": title, "picture": one} for title, one in row] for row in rows]
    )


class Context:
    """The drawing program in V8, on a dedicated thread.

    MiniRacer adopts the asyncio loop that runs at its creation; in a notebook that is the kernel's loop,
    which would wait for itself. A context freed at interpreter exit never returns. So one private thread
    creates, uses and closes it. On processors with memory protection per thread, access from another thread
    ends the process; and the threads of a pool no longer answer at interpreter exit.
    """

    def __init__(self) -> None:
        self._requests: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._thread: Thread | None = None
        self._start = Lock()
        self._v8: MiniRacer | None = None

    def call(self, function: str, arguments: tuple[Any, ...], seconds: float) -> str:
        return self._answer(partial(self._call, function, arguments, seconds))

    def end(self) -> None:
        """Close the context at interpreter exit."""
        if self._thread is not None:
            self._answer(self.close)

    def _answer(self, ask: Callable[[], Any]) -> Any:
        with self._start:
            if self._thread is None:
                _check_addresses()
                init_mini_racer(
                    ignore_duplicate_init=True
                )  # V8 works only on the thread that calls this
                self._thread = Thread(target=self._run_thread, name="drawing", daemon=True)
                self._thread.start()
        future = Future[Any]()
        self._requests.put((future, ask))
        return future.result()

    def _run_thread(self) -> None:
        while True:
            future, ask = self._requests.get()
            try:
                future.set_result(ask())
            except BaseException as error:
                future.set_exception(error)

    def _call(self, function: str, arguments: tuple[Any, ...], seconds: float) -> str:
        v8 = self._v8 = self._v8 or _load_drawing_program()
        try:
            return str(v8.call(f"timerl.{function}", *arguments, timeout_sec=seconds))
        except JSTimeoutException:
            v8.eval("0")  # the stopped call answers once more
            self.close()  # its memory may be inconsistent
            raise TooLong(f"drawing has exceeded {seconds:g} s.") from None
        except JSEvalException as error:
            raise Failed("the picture cannot be drawn.", evidence=str(error)[:400]) from None

    def close(self) -> None:
        v8, self._v8 = self._v8, None
        if v8 is not None:
            v8.close()


_RESERVED = (
    2 << 40
)  # bytes of address space: V8's largest reservation, of which it uses about 50 MiB


def _check_addresses() -> None:
    """Check that enough address space is left for V8: otherwise V8 would end the process.

    Raises:
        DrawingError: `ulimit -v` is too low.
    """
    if resource is None:
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _RESERVED:
        raise DrawingError(
            f"pictures cannot be drawn: the address space is limited to {limit:,} bytes, and the "
            f"drawing engine reserves up to {_RESERVED:,}.",
            hint="remove the limit (`ulimit -v unlimited`). Text output, such as "
            "print(program.ast), works with it.",
        )


def _load_drawing_program() -> MiniRacer:
    if not PROGRAM.exists():
        raise DrawingError(
            f"the drawing program has not been built ({PROGRAM.name} is missing).",
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
    """Replace the context in a forked process, which has none of V8's threads, and leave the old one unused."""
    global _V8
    _LEFT.append(_V8)
    _V8 = Context()


_LEFT: list[Context] = []
atexit.register(lambda: _V8.end())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
