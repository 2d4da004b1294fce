"""What is there where TimeRL-nb lies in a checkout, and is not where it was installed as a package."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def in_checkout(part: str) -> Path | None:
    """A part of the checkout; None where there is none."""
    root = Path(__file__).parents[3]
    is_checkout = (root / "pyproject.toml").is_file() and (root / "timerl_nb").is_dir()
    return root / part if is_checkout and (root / part).exists() else None


def foreground(command: Sequence[str], where: Path | None = None) -> int:
    """Run a program in the foreground; returns its exit status.

    At Ctrl-C, and where this process is to end, it is waited for until it has ended itself.
    """
    with subprocess.Popen(list(command), cwd=where) as process, _passed_on(process):
        while True:
            try:
                status = process.wait()
                return status if status >= 0 else 128 - status
            except KeyboardInterrupt:  # which it was sent, too
                continue


@contextmanager
def _passed_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Have a process end where this one is to, which it would outlive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
