"""Processes forked from one in which JAX had started: its threads are missing there, and it hangs."""

from __future__ import annotations

import os
from typing import Any, cast

import jax

from timerl_nb.base.errors import ExecutionError

_parents: list[int] = []  # in which JAX had started when this process was forked from it


def check_process() -> None:
    """Refuse to wait for what another process computes, or for JAX where it cannot run.

    Raises:
        ExecutionError: JAX had started before this process was forked.
    """
    if _parents:
        raise ExecutionError(
            f"this process was forked from process {_parents[0]} after JAX had started there: "
            "nothing can be computed in it, JAX would wait forever for threads that it lacks.",
            hint='start workers anew instead of forking them: multiprocessing.get_context("spawn"), '
            'ProcessPoolExecutor(mp_context=…), DataLoader(…, multiprocessing_context="spawn"); or '
            "let workers prepare arrays alone, and run programs in the process that JAX started in.",
        )


def is_forked() -> bool:
    """Whether JAX had started before this process was forked."""
    return bool(_parents)


def _note_fork() -> None:
    if cast(Any, jax)._src.xla_bridge.backends_are_initialized():
        _parents.append(os.getppid())


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_note_fork)
