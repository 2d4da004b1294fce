"""Buffered writers: a writer belongs to one thread, collects rows and inserts them in groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from timerl_nb.base.array_conversion import Array

Entries = dict[str, Array]


class Actor:
    """Writer of one thread into a buffer, made by `Replay.actor`.

    A writer copies staged rows, so the caller can reuse its arrays after each call.

    Args:
        entries: a function that converts rows to complete entries; it may return the caller's own arrays.
        insert: a function that writes entries into the buffer and copies them.
        stage: the number of entries per insertion.
    """

    def __init__(
        self,
        entries: Callable[[Any], Entries],
        insert: Callable[[Mapping[str, Array]], int],
        stage: int,
    ) -> None:
        self._entries, self._insert, self._stage = entries, insert, stage
        self._staged: list[Entries] = []

    @property
    def staged_count(self) -> int:
        """The number of staged entries."""
        return sum(map(_count, self._staged))

    def put(self, rows: Any) -> None:
        """Add rows in the format of `Replay.insert`.

        Raises:
            ShapeError: the rows do not match the fields; staged entries remain.
        """
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
        entries = self.take_staged()
        return self._insert(entries) if entries else 0

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
