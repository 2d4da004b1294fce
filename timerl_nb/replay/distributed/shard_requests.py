"""Contents of the shards of a replay buffer after their newest answers, and requests without an answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.replay.distributed.replay_shard import Pending, ShardDraw, ShardHandle, ShardReport


@dataclass(eq=False)
class KnownShard:
    """Knowledge of the learner's process about one shard.

    Attributes:
        handle: access to the shard.
        capacity: the maximal number of rows.
        start: the number of rows inserted into earlier shards of this place, which have died.
        lost: the number of rows in these earlier shards at their deaths.
        inserted: the number of rows sent to this shard.
        report: the content after the newest call that has an answer.
        calls: the number of calls that change the content.
        answered: the number of the call of `report`.
    """

    handle: ShardHandle
    capacity: int
    start: int = 0
    lost: int = 0
    inserted: int = 0
    report: ShardReport = ShardReport(0, 0.0, np.inf)
    calls: int = 0
    answered: int = 0

    @property
    def size(self) -> int:
        return min(self.inserted, self.capacity)

    @property
    def is_full(self) -> bool:
        return self.inserted >= self.capacity

    @property
    def laps(self) -> float:
        """How often the shard was filled; a successor repeats the laps that the dead shard had in its rows."""
        return (self.start + self.inserted - self.lost) / self.capacity

    def call(self) -> int:
        """Return the number of the next call."""
        self.calls += 1
        return self.calls

    def receive(self, call: int, report: ShardReport) -> None:
        """Store the report of a call, unless a later call has answered before."""
        if call > self.answered:
            self.report, self.answered = report, call


@dataclass(frozen=True)
class Insertion:
    """Rows that were sent to a shard.

    Attributes:
        shard: the number of the shard.
        to: the shard.
        call: the number of the call.
        rows: the number of rows.
        wait: a function that waits for the answer.
    """

    shard: int
    to: KnownShard
    call: int
    rows: int
    wait: Pending[ShardReport]


@dataclass(frozen=True)
class ShardRequest:
    """Draws from one shard, and updates after them.

    Attributes:
        shard: the number of the shard.
        to: the shard.
        call: the number of the call.
        places: the positions of the draws in the batch.
        updates: the number of updated priorities.
        wait: a function that waits for the answer.
    """

    shard: int
    to: KnownShard
    call: int
    places: Array
    updates: int
    wait: Pending[ShardDraw]


@dataclass(frozen=True)
class BatchRequest:
    """Draws of a batch from all shards.

    Attributes:
        count: the number of draws.
        totals: the sum of priorities of each shard to which the draws refer.
        least: the smallest positive priority of each shard.
        parts: the requests to the shards.
    """

    count: int
    totals: Array
    least: Array
    parts: tuple[ShardRequest, ...]
