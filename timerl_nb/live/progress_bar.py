"""The progress bar of a run: the turns that are done, and what it waits for meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from tqdm.auto import tqdm

from timerl_nb.live.frames import compiling_text
from timerl_nb.runtime.run_protocol import RunProtocol

_SECOND: Final = 1.0


@contextmanager
def saying(bar: tqdm[Any], run: RunProtocol) -> Generator[None]:
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
