"""The progress bar of a run: the turns that are done, and what it waits for meanwhile."""

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
    """What may wait for XLA to compile: for so many seconds until now, or None."""

    @property
    def compiling(self) -> float | None: ...


class _Since:
    """What waits for XLA from now on."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def compiling(self) -> float:
        return time.perf_counter() - self._start


def turns_bar(turns: int | None, done: int = 0, *, shown: bool) -> tqdm[Any]:
    """A bar over turns; where there are none, only what is said, once something is."""
    if turns is None:
        return tqdm(bar_format="{desc}", delay=_SECOND, disable=not shown, leave=False)
    return tqdm(total=turns, initial=done, disable=not shown, leave=False)


@contextmanager
def compiling(*, shown: bool) -> Generator[None]:
    """Say, second by second, that what happens inside waits for XLA to compile."""
    with turns_bar(None, shown=shown) as bar, saying(bar, _Since()):
        yield


@contextmanager
def saying(bar: tqdm[Any], run: Waiting) -> Generator[None]:
    """Let a bar say, second by second, that a run waits for XLA to compile."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_SECOND):
            waits = run.compiling
            text = "" if waits is None else compiling_text(waits)
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
