"""Access to files of a source checkout, which an installed package lacks."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def in_checkout(part: str) -> Path | None:
    """Return a path in the checkout; None without a checkout."""
    root = Path(__file__).parents[3]
    is_checkout = (root / "pyproject.toml").is_file() and (root / "timerl_nb").is_dir()
    return root / part if is_checkout and (root / part).exists() else None


def foreground(command: Sequence[str], where: Path | None = None) -> int:
    """Run a program in the foreground, and return its exit status.

    After Ctrl-C or SIGTERM this process waits for the end of the program.
    """
    with subprocess.Popen(list(command), cwd=where) as process, _passed_on(process):
        while True:
            try:
                status = process.wait()
                return status if status >= 0 else 128 - status
            except KeyboardInterrupt:  # the program receives it as well
                continue


@contextmanager
def _passed_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass SIGTERM on to a process, which would otherwise outlive this one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
