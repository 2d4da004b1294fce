"""A writer of one thread's: its rows wait until there are enough of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from timerl_nb.arrays import Array

Entries = dict[str, Array]


class Actor:
    """What one thread writes into a buffer by. `Replay.actor` makes it.

    Args:
        entries: makes whole entries of rows.
        insert: writes them into the buffer.
        stage: so many are inserted at once.
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
    def staged(self) -> int:
        """How many entries wait."""
        return sum(map(_count, self._staged))

    def put(self, rows: Any) -> None:
        """Add rows, as `Replay.insert` takes them.

        Raises:
            ShapeError: they are no rows of the buffer; what waits stays.
        """
        self.keep(rows)
        if self.staged >= self._stage:
            self.flush()

    __call__ = put

    def keep(self, rows: Any) -> None:
        """Add rows that wait for `taken` or `flush`, however many they are."""
        made = self._entries(rows)
        if _count(made):
            self._staged.append(made)

    def taken(self) -> Entries:
        """What waits, for who inserts it himself (`Replay.insert_entries`); empty where there is nothing."""
        staged, self._staged = self._staged, []
        return joined(staged)

    def flush(self) -> int:
        """Insert what waits; returns how many entries that were."""
        entries = self.taken()
        return self._insert(entries) if entries else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


def joined(parts: list[Entries]) -> Entries:
    """Entries one behind the other."""
    if len(parts) < 2:
        return parts[0] if parts else {}
    return {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}


def _count(entries: Entries) -> int:
    return len(next(iter(entries.values())))
