"""Progress bar of a run: completed iterations, and the wait for XLA to compile."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from tqdm.auto import tqdm

from timerl_nb.execution.telemetry.live_view_frames import compiling_text

_SECOND: Final = 1.0


class Waiting(Protocol):
    """Object with a `compiling` time in seconds, None while it does not wait for XLA, and the compiled part."""

    @property
    def compiling(self) -> float | None: ...

    @property
    def compiling_part(self) -> str: ...


class _Since:
    """Wait for XLA, timed from its creation."""

    compiling_part = ""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def compiling(self) -> float:
        return time.perf_counter() - self._start


def turns_bar(turns: int | None, done: int = 0, *, shown: bool) -> tqdm[Any]:
    """Return a bar over iterations; without a number of iterations, it shows a description only."""
    if turns is None:
        return tqdm(bar_format="{desc}", delay=_SECOND, disable=not shown, leave=False)
    return tqdm(total=turns, initial=done, disable=not shown, leave=False)


@contextmanager
def compiling(*, shown: bool) -> Generator[None]:
    """Show the seconds of XLA's compilation in a bar, while the code inside runs."""
    with turns_bar(None, shown=shown) as bar, saying(bar, _Since()):
        yield


@contextmanager
def saying(bar: tqdm[Any], run: Waiting) -> Generator[None]:
    """Show the seconds of XLA's compilation in a bar, while a run is active."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_SECOND):
            waits = run.compiling
            text = "" if waits is None else compiling_text(waits, run.compiling_part)
            if text or bar.desc:
                bar.set_description_str(text)

    thread = threading.Thread(target=watch, name="timerl bar", daemon=True)
    if not bar.disable:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if not bar.disable:
            thread.join()
