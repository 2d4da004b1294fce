"""Detection of processes forked after JAX had started: JAX's threads are missing there, so it would hang."""

from __future__ import annotations

import os
from typing import Any, cast

import jax

from timerl_nb.base.errors import ExecutionError

_parents: list[int] = []  # parent processes with JAX running before the fork


def check_process() -> None:
    """Check whether this process can run JAX and wait for a run.

    Raises:
        ExecutionError: JAX had started before this process was forked.
    """
    if _parents:
        raise ExecutionError(
            f"this process was forked from process {_parents[0]} after JAX had started there, so it cannot "
            "compute: JAX would wait forever for missing threads.",
            hint='start worker processes by "spawn" instead: multiprocessing.get_context("spawn"), '
            'ProcessPoolExecutor(mp_context=…), DataLoader(…, multiprocessing_context="spawn"). Or let '
            "the workers only prepare arrays, and run programs in the parent process.",
        )


def is_forked() -> bool:
    """Whether JAX had started before this process was forked."""
    return bool(_parents)


def _note_fork() -> None:
    if cast(Any, jax)._src.xla_bridge.backends_are_initialized():
        _parents.append(os.getppid())


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_note_fork)
