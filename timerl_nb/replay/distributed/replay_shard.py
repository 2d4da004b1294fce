"""One shard of a replay buffer, and the interface through which the learner's process calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.replay.storage.replay_buffer import Replay

T = TypeVar("T")
Pending = Callable[[], T]  # waits for the result of a call, and returns it


NO_ROWS: Final = np.zeros(0, np.int64)


class ShardLost(Exception):
    """A shard has died with its rows. The message has the reason."""


class RowsLost(Exception):
    """The rows of a call have disappeared before they reached the shard, which is intact."""


@dataclass(frozen=True)
class ShardReport:
    """Content of a shard after a call.

    Attributes:
        inserted: the number of rows inserted so far.
        total: the sum of all priorities; with uniform sampling the number of rows.
        least: the smallest positive priority; infinite for an empty shard.
        dropped: the number of rows of the call that were overwritten before.
        greatest: the greatest absolute error of the call's other rows.
    """

    inserted: int
    total: float
    least: float
    dropped: int = 0
    greatest: float = 0.0


@dataclass(frozen=True)
class ShardDraw:
    """Rows drawn from a shard; no rows if all its priorities are zero.

    Attributes:
        rows: copies of the rows, [count, …] by field.
        index: the slots of the rows.
        serial: the number of rows inserted before each row.
        priority: the priority of each row.
        report: the content of the shard at the time of the draw.
        after: the content after the updates of the request.
    """

    rows: Mapping[str, Array]
    index: Array
    serial: Array
    priority: Array
    report: ShardReport
    after: ShardReport


class ReplayShard(Replay):
    """Buffer of a part of the rows. The priority of new rows comes from the learner's process."""

    _next_priority = 1.0

    @property
    def _initial_priority(self) -> float:
        return self._next_priority

    def report(self, dropped: int = 0, greatest: float = 0.0) -> ShardReport:
        """Return the content of the shard."""
        size, tree = len(self), self._tree
        total = float(size) if tree is None else tree.total
        least = (1.0 if size else np.inf) if tree is None else tree.least_priority
        return ShardReport(self.inserted, total, least, dropped, greatest)

    def add(
        self, entries: Mapping[str, Array], first: int, last: int, priority: float
    ) -> ShardReport:
        """Insert the entries from `first` to `last` with one priority."""
        with self._lock:
            self._next_priority = priority
            self.insert_entries({n: x[first:last] for n, x in entries.items()})
            return self.report()

    def draw(
        self, targets: Array, total: float, serial: Array = NO_ROWS, errors: Array = NO_ROWS
    ) -> ShardDraw:
        """Draw the rows at targets, f64[count] from 0 to `total`; then update priorities.

        Args:
            total: the sum of priorities that the caller knows. If the sum has changed, the targets are scaled.
            serial, errors: the rows to update, and their TD errors.
        """
        with self._lock:
            before = self.report()
            if not len(targets) or not before.total:
                after = self.set_errors(serial, errors) if len(serial) else before
                return ShardDraw({}, NO_ROWS, NO_ROWS, np.zeros(0), before, after)
            targets = targets * (before.total / total)
            if self._tree is None:
                index = np.minimum(targets.astype(np.int64), len(self) - 1)
                priority = np.ones(len(index))
            else:
                index = self._tree.entries_at_sums(targets)
                priority = self._tree.priorities[index]
            rows, drawn = self._rows.gather(index), self._serial(index)
            after = self.set_errors(serial, errors) if len(serial) else before
            return ShardDraw(rows, index, drawn, priority, before, after)

    def set_errors(self, serial: Array, errors: Array) -> ShardReport:
        """Set the priorities of rows that are still in the shard, and count the other ones."""
        with self._lock:
            there = serial >= self.inserted - self.capacity
            kept = errors[there]
            assert self.priority is not None
            priorities, greatest = self.priority.from_errors(kept)
            self.tree.update(serial[there] % self.capacity, priorities)
            return self.report(len(there) - len(kept), greatest)

    def load_state(self, state: Mapping[str, Array]) -> ShardReport:
        """Load the arrays returned by `state`."""
        self.restore(state)
        return self.report()


class ShardHandle(Protocol):
    """Access to one shard. Calls are executed in their order.

    A returned function waits for the result. It raises `ShardLost` if the shard has died, and `RowsLost` if only the
    entries of an insertion have disappeared.
    """

    def add(self, entries: Any, first: int, last: int, priority: float) -> Pending[ShardReport]: ...

    def draw(
        self, targets: Array, total: float, serial: Array = NO_ROWS, errors: Array = NO_ROWS
    ) -> Pending[ShardDraw]: ...

    def state(self) -> Pending[dict[str, Array]]: ...

    def load_state(self, state: Mapping[str, Array]) -> Pending[ShardReport]: ...

    def close(self) -> None: ...


class LocalShard:
    """Shard in this process."""

    def __init__(self, shard: ReplayShard) -> None:
        self.shard = shard

    def add(self, entries: Any, first: int, last: int, priority: float) -> Pending[ShardReport]:
        return _done(self.shard.add(entries, first, last, priority))

    def draw(
        self, targets: Array, total: float, serial: Array = NO_ROWS, errors: Array = NO_ROWS
    ) -> Pending[ShardDraw]:
        return _done(self.shard.draw(targets, total, serial, errors))

    def state(self) -> Pending[dict[str, Array]]:
        return _done(self.shard.state())

    def load_state(self, state: Mapping[str, Array]) -> Pending[ShardReport]:
        return _done(self.shard.load_state(state))

    def close(self) -> None:
        """A shard of this process ends with the buffer."""


def _done(made: T) -> Pending[T]:
    return lambda: made
