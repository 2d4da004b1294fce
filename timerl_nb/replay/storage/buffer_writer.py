"""Buffered writers: a writer belongs to one thread or process, collects rows and inserts them in groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError

Entries = dict[str, Array]


class Actor:
    """Writer of one thread into a buffer, made by `Replay.actor`.

    A pickled writer, such as an argument of a spawned process, is a new writer into the same buffer.

    A writer copies staged rows, so the caller can reuse its arrays after each call.

    Args:
        entries: a function that converts rows to complete entries; it may return the caller's own arrays.
        insert: a function that writes entries into the buffer and copies them.
        stage: the number of entries per insertion.
        reduce: a function that returns what pickles the writer.
        incomplete: a function that returns the number of steps in incomplete entries.
    """

    def __init__(
        self,
        entries: Callable[[Any], Entries],
        insert: Callable[[Mapping[str, Array]], int],
        stage: int,
        reduce: Callable[[], tuple[Any, ...]],
        incomplete: Callable[[], int] = lambda: 0,
    ) -> None:
        self._entries, self._insert, self._stage = entries, insert, stage
        self._reduce, self._process = reduce, os.getpid()
        self._staged: list[Entries] = []
        self._incomplete = incomplete

    @property
    def incomplete_count(self) -> int:
        """The number of steps in incomplete entries, such as n-step returns."""
        return self._incomplete()

    @property
    def staged_count(self) -> int:
        """The number of staged entries."""
        return sum(map(_count, self._staged))

    def put(self, rows: Any) -> None:
        """Add rows in the format of `Replay.insert`.

        Raises:
            ShapeError: the rows do not match the fields; staged entries remain.
        """
        self._check_process()
        made = self._entries(rows)
        if (
            not self._staged and _count(made) >= self._stage
        ):  # no copy necessary: the buffer copies them in this call
            self._insert(made)
            return
        self._stage_entries(made)
        if self.staged_count >= self._stage:
            self.flush()

    __call__ = put

    def stage(self, rows: Any) -> None:
        """Stage rows without inserting any; `take_staged` or `flush` empties the stage."""
        self._check_process()
        self._stage_entries(self._entries(rows))

    def _stage_entries(self, entries: Mapping[str, Array]) -> None:
        if _count(entries):
            self._staged.append({name: np.array(x) for name, x in entries.items()})

    def take_staged(self) -> Entries:
        """Remove and return the staged entries, for `Replay.insert_entries`; an empty dictionary if there are
        none.
        """
        staged, self._staged = self._staged, []
        return concatenate_entries(staged)

    def flush(self) -> int:
        """Insert the staged entries, and return their number."""
        self._check_process()
        entries = self.take_staged()
        return self._insert(entries) if entries else 0

    def _check_process(self) -> None:
        """Check that this process made the writer: a forked process has a copy of the buffer.

        Raises:
            ExecutionError: the writer was made before a fork.
        """
        if os.getpid() != self._process:
            raise ExecutionError(
                "the writer belongs to the parent process; rows of a forked process would be lost.",
                hint='start the process with multiprocessing.get_context("spawn"), with the writer as an argument.',
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduce()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


def concatenate_entries(parts: list[Entries]) -> Entries:
    if len(parts) < 2:
        return parts[0] if parts else {}
    return {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}


def _count(entries: Mapping[str, Array]) -> int:
    return len(next(iter(entries.values())))
