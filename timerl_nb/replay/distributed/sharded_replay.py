"""Replay buffer divided into shards, with the sampling probabilities of one buffer.

A tree over the shards' sums of priorities selects a shard for each draw, and the tree of this shard selects the row. So
row i has the probability p_i / Σ p, as without shards. The draws are stratified over the sum of all priorities.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array, convert_array, indices
from timerl_nb.base.errors import ExecutionError, OptionError, ShapeError, warn
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.replay.distributed.lost_rows import ProcessLoss
from timerl_nb.replay.distributed.replay_shard import (
    NO_ROWS,
    RowsLost,
    ShardDraw,
    ShardHandle,
    ShardLost,
)
from timerl_nb.replay.distributed.shard_division import divide_shares, shard_capacities
from timerl_nb.replay.distributed.shard_requests import (
    BatchRequest,
    Insertion,
    KnownShard,
    ShardRequest,
)
from timerl_nb.replay.prioritization.priorities import importance_weights
from timerl_nb.replay.storage.rate_limits import Beta, beta_at
from timerl_nb.replay.storage.replay_buffer import Replay, construction_of
from timerl_nb.replay.storage.sample import Epoch, Sample, Ticket


class NothingToDraw(ExecutionError):
    """All shards are empty, or all priorities are zero."""


_LIVES = 3  # deaths of a shard before its first answer, after which the run fails


class ShardedReplay:
    """Replay buffer whose rows are divided among shards. Only one thread may call it.

    A shard that dies is replaced by an empty one. Its rows are counted in `losses`, and their tickets in `dropped`.

    Args:
        like: an empty buffer with the fields and options of the whole.
        count: the number of shards.
        opened: a function that opens the shard with a number and a capacity.
        most_pending: the maximal number of insertions without an answer.
        losses: the list that receives the losses; by default a new one.
        draws_ahead: request the next batch when a batch is complete. An update is sent with the next request, which
            draws first. So draws have the priorities before the last two updates.

    Raises:
        OptionError: the number of shards is out of range, or `like` has rows.

    Attributes:
        losses: the shards that have died, and insertions that did not arrive.
        inserted, sampled, dropped: numbers of rows, as in `trl.Replay`.
    """

    def __init__(
        self,
        like: Replay,
        count: int,
        opened: Callable[[int, int], ShardHandle],
        most_pending: int = 4,
        losses: list[ProcessLoss] | None = None,
        draws_ahead: bool = False,
    ) -> None:
        self.capacity = like.capacity
        sizes = shard_capacities(like.capacity, count)
        if len(like):
            raise OptionError(
                f"the buffer contains {len(like):,} rows, which cannot be moved into shards.",
                hint="pass an empty buffer, or omit shards.",
            )
        self.fields, self.priority, self.limiter = like.fields, like.priority, like.limiter
        self.nbytes = like.nbytes
        _, options = construction_of(like)
        self._by_batch = options["weights"] == "batch"
        self._random = np.random.default_rng(options["seed"] % 2**64)
        self._name = secrets.token_hex(8)
        self._opened, self._most_pending = opened, most_pending
        self._pending: list[Insertion] = []
        self._draws_ahead = draws_ahead
        self._ahead: BatchRequest | None = None  # the next batch
        self._updates: list[
            tuple[Array, Array]
        ] = []  # serial numbers and errors for the next request
        self.losses = [] if losses is None else losses
        self.inserted = self.sampled = self.dropped = 0
        self._draws, self._greatest = 0, 1.0
        self._unborn: dict[int, int] = {}  # successive deaths before the first answer, by shard
        self._shards = [KnownShard(opened(k, size), size) for k, size in enumerate(sizes)]

    def __len__(self) -> int:
        return sum(one.size for one in self._shards)

    @property
    def can_insert(self) -> bool:
        """Whether the limiter allows an insertion now."""
        return self.limiter is None or self.limiter.can_insert(self.inserted, self.sampled)

    @property
    def can_sample(self) -> bool:
        """Whether the limiter allows a draw now."""
        return self.limiter is None or self.limiter.can_sample(self.inserted, self.sampled)

    @property
    def shard_sizes(self) -> tuple[int, ...]:
        """The number of rows of each shard."""
        return tuple(one.size for one in self._shards)

    def claim(self, run: object) -> None:
        """The buffer belongs to one run, which has created it."""

    def release(self, run: object) -> None:
        """End all shards."""
        for one in self._shards:
            one.handle.close()

    # --- writing ---------------------------------------------------------------------------------

    def insert_block(self, entries: Any, count: int) -> int:
        """Insert entries. The overwritten rows are the oldest up to some rollouts, and only rows of a full buffer.

        The shards take rollouts in turn: entries go to the shard with the fewest laps. Shards with room come first.

        Args:
            entries: an array [count, …] by field, or a reference to them that the shards can resolve.
            count: the number of entries.

        Returns:
            The number of inserted rows.
        """
        priority = self._initial_priority
        first = max(count - self.capacity, 0)  # later rows of this call would overwrite these
        while first < count:
            k, one = min(enumerate(self._shards), key=lambda x: (x[1].is_full, x[1].laps))
            room = one.capacity if one.is_full else one.capacity - one.size
            last = min(count, first + room)
            wait = one.handle.add(entries, first, last, priority)
            self._pending.append(Insertion(k, one, one.call(), last - first, wait))
            one.inserted += last - first
            first = last
        self.inserted += count
        while len(self._pending) > self._most_pending:
            self._settle(1)
        return count

    def insert_entries(self, entries: Mapping[str, Array]) -> int:
        """Insert entries, [count, …] by field."""
        return self.insert_block(entries, len(next(iter(entries.values()))))

    @property
    def _initial_priority(self) -> float:
        if self.priority is None:
            return 1.0
        return float(self.priority.from_errors(np.array([self._greatest]))[0][0])

    def _settle(self, count: int | None = None) -> None:
        """Wait for the oldest `count` insertions; by default for all of them."""
        due = self._pending[:count]
        del self._pending[: len(due)]
        for one in due:
            try:
                one.to.receive(one.call, one.wait())
            except ShardLost as error:
                self._replace(one.shard, one.to, error)
            except RowsLost as error:
                one.to.inserted -= one.rows
                self._lose(ProcessLoss(f"a rollout for shard {one.shard}", one.rows, str(error)))

    def _replace(self, k: int, lost: KnownShard, error: ShardLost) -> None:
        """Replace a dead shard by an empty one; no effect if this has happened before."""
        if self._shards[k] is not lost:
            return
        self._unborn[k] = self._unborn.get(k, 0) + 1 if not lost.answered else 0
        if self._unborn[k] >= _LIVES:
            raise ExecutionError(
                f"shard {k} has died {_LIVES} times before its first answer: {error}.",
                hint="check that its machines can import this package, and have enough memory.",
            ) from error
        self._pending = [one for one in self._pending if one.to is not lost]
        self._lose(ProcessLoss(f"shard {k}", lost.size, str(error)))
        lost.handle.close()
        start, gone = lost.start + lost.inserted, lost.lost + lost.size
        self._shards[k] = KnownShard(self._opened(k, lost.capacity), lost.capacity, start, gone)

    def _lose(self, loss: ProcessLoss) -> None:
        self.losses.append(loss)
        warn(str(loss), hint="the run continues without these rows.")

    # --- reading ---------------------------------------------------------------------------------

    def sample(self, count: int, beta: Beta = 0.4) -> Sample:
        """Draw rows with replacement, as `trl.Replay.sample`.

        Raises:
            NothingToDraw: the buffer is empty, or all priorities are zero.
        """
        drawn = self._sample(count, beta)
        self._request_next(count)
        return drawn

    def sample_in_parts(self, count: int, beta: Beta = 0.4, *, chunks: int) -> Iterator[Sample]:
        """Draw the same rows as `sample`, as an iterator over parts, whose end requests the next batch."""
        drawn = self._sample(count, beta)
        ends = [count * k // chunks for k in range(chunks + 1)]

        def parts() -> Iterator[Sample]:
            for cut in (slice(a, b) for a, b in pairwise(ends) if a < b):
                rows = {n: x[cut] for n, x in drawn.rows.items()}
                ticket = replace(drawn.ticket, serial=drawn.ticket.serial[cut])
                weight, chance = drawn.weight[cut], drawn.probability[cut]
                yield Sample(rows, drawn.index[cut], weight, chance, ticket)
            self._request_next(count)

        return parts()

    def _sample(self, count: int, beta: Beta) -> Sample:
        count = integer("the number of entries", count, least=1)
        by = beta_at(beta, self._draws)
        request = self._take_next(count) or self._request_batch(count)
        rows = {n: np.empty((count, *f.shape), f.dtype) for n, f in self.fields.items()}
        index, serial = np.empty((2, count), np.int64)
        priority = np.empty(count)
        scale = float(request.totals.sum())
        units = np.ones(len(self._shards))  # of the priorities, relative to the first totals
        smallest: dict[int, float] = {}  # positive priority at the time of the draw
        left = np.arange(count)
        while True:
            total = float(request.totals.sum())
            again: list[Array] = []
            for part, one in zip(request.parts, self._receive(request), strict=True):
                k, places = part.shard, left[part.places]
                if one is None or not one.report.total:
                    again.append(places)
                    continue
                if not len(places):
                    continue
                # 1, unless the shard has changed since its total was read
                units[k] = request.totals[k] / one.report.total * (scale / total)
                smallest[k] = one.report.least
                for name, x in rows.items():
                    x[places] = one.rows[name]
                index[places] = one.index + self._first_slot(k)
                serial[places] = (one.serial + part.to.start) * len(self._shards) + k
                priority[places] = one.priority * units[k]
            left = np.concatenate(again) if again else left[:0]
            if not len(left):
                break
            request = self._request(self._random.random(len(left)))  # from the other shards
        self._draws += 1
        self.sampled += count
        least = min(smallest.get(k, x) * units[k] for k, x in enumerate(request.least.tolist()))
        weight = np.ones(count)
        if self.priority is not None:
            weight = importance_weights(priority, priority.min() if self._by_batch else least, by)
        ticket = self.ticket(serial)
        return Sample(rows, index, weight.astype(np.float32), priority / scale, ticket)

    def _first_slot(self, k: int) -> int:
        return sum(one.capacity for one in self._shards[:k])

    # --- requests --------------------------------------------------------------------------------

    @property
    def _totals(self) -> Array:
        return np.array([one.report.total for one in self._shards])

    def _request_batch(self, count: int) -> BatchRequest:
        return self._request((self._random.random(count) + np.arange(count)) / count)

    def _request_next(self, count: int) -> None:
        """Request the next batch, if the buffer draws ahead."""
        if self._draws_ahead:
            with suppress(NothingToDraw):
                self._ahead = self._request_batch(count)

    def _take_next(self, count: int) -> BatchRequest | None:
        """Return the requested batch; None if there is none of this size."""
        request, self._ahead = self._ahead, None
        if request is not None and request.count != count:
            self._receive(request)
            return None
        return request

    def _request(self, shares: Array) -> BatchRequest:
        """Send draws and the updates since the last request. The shards draw first.

        Args:
            shares: fractions of the sum of all priorities, one per draw.

        Raises:
            NothingToDraw: the buffer is empty, or all priorities are zero; nothing is sent.
        """
        self._settle()
        totals = self._totals
        chosen, targets = np.zeros(0, np.int64), shares
        if len(shares):
            if not totals.any():
                raise NothingToDraw(
                    "the buffer is empty, or all priorities are zero.", hint="insert rows first."
                )
            chosen, targets = divide_shares(totals, shares)
        updates = self._take_updates()
        parts = []
        for k in sorted({*chosen.tolist(), *updates}):
            one, places = self._shards[k], np.flatnonzero(chosen == k)
            serial, errors = updates.get(k, (NO_ROWS, NO_ROWS))
            wait = one.handle.draw(targets[places], float(totals[k]), serial, errors)
            parts.append(ShardRequest(k, one, one.call(), places, len(serial), wait))
        least = np.array([one.report.least for one in self._shards])
        return BatchRequest(len(shares), totals, least, tuple(parts))

    def _take_updates(self) -> dict[int, tuple[Array, Array]]:
        """Return the local serial numbers and the errors of the updates that are not sent yet, by shard."""
        updates, self._updates = self._updates, []
        found: dict[int, tuple[Array, Array]] = {}
        if updates:
            serial, errors = (np.concatenate(x) for x in zip(*updates, strict=True))
            serial, shard = np.divmod(serial, len(self._shards))
            for k in np.unique(shard).tolist():
                mine = shard == k
                local = serial[mine] - self._shards[k].start
                there = local >= 0  # the other rows belonged to a shard that has died
                self.dropped += len(there) - int(there.sum())
                found[k] = local[there], errors[mine][there]
        return found

    def _receive(self, request: BatchRequest) -> list[ShardDraw | None]:
        """Wait for all answers; None for a shard that has died."""
        found: list[ShardDraw | None] = []
        for one in request.parts:
            try:
                drawn = one.wait()
                one.to.receive(one.call, drawn.after)
                self.dropped += drawn.after.dropped
                self._greatest = max(self._greatest, drawn.after.greatest)
                found.append(drawn)
            except ShardLost as error:
                self._replace(one.shard, one.to, error)
                self.dropped += one.updates
                found.append(None)
        return found

    def _send_updates(self) -> int:
        """Wait for all updates, and return the number of skipped rows."""
        before = self.dropped
        self._receive(self._request(np.zeros(0)))
        return self.dropped - before

    def ticket(self, serial: Array) -> Ticket:
        """Return the ticket of rows that are in the buffer."""
        epochs = (Epoch(self._name, 0),)
        return Ticket(self._name, np.array(indices("serial numbers", serial)), epochs)

    def update(self, ticket: Ticket, errors: Any) -> int:
        """Set the priorities of sampled rows from their TD errors, as `trl.Replay.update`.

        Overwritten rows, and rows lost with their shard, are skipped and counted in `dropped`. If the buffer
        draws ahead, they are counted later.

        Raises:
            OptionError: the ticket belongs to another buffer, or the buffer samples uniformly.
            ShapeError: an error is NaN or infinite; nothing changes.
        """
        if self.priority is None:
            raise OptionError(
                "the buffer has no priorities: it samples uniformly.",
                hint="Replay(…, priority=trl.replay.Proportional()).",
            )
        if not isinstance(ticket, Ticket) or ticket.buffer != self._name:
            raise OptionError(
                "the ticket does not belong to this buffer.",
                hint="pass sample(…).ticket of this buffer.",
            )
        given = convert_array("the errors", errors, np.dtype(np.float64)).reshape(-1)
        if len(given) != len(ticket):
            raise ShapeError(
                f"{len(given)} errors do not match the {len(ticket)} rows of the ticket.",
                hint="pass one error per sampled row.",
            )
        self.priority.from_errors(given)  # raises before anything has changed
        self._updates.append((ticket.serial, given))
        return 0 if self._draws_ahead else self._send_updates()

    # --- saving ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Array]:
        """Return all shards as arrays by name. A shard that dies meanwhile is replaced by an empty one."""
        self._take_next(0)
        self._send_updates()
        found: dict[str, Array] = {}
        for k in range(len(self._shards)):
            found |= {f"shard {k} {n}": x for n, x in self._state_of(k).items()}
        about = {
            "name": self._name,
            "starts": [one.start for one in self._shards],
            "lost": [one.lost for one in self._shards],
            "inserted": self.inserted,
            "sampled": self.sampled,
            "dropped": self.dropped,
            "draws": self._draws,
            "greatest": self._greatest.hex(),
            "random": self._random.bit_generator.state,
        }
        return {**found, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)}

    def _state_of(self, k: int) -> dict[str, Array]:
        one = self._shards[k]
        try:
            return one.handle.state()()
        except ShardLost as error:
            self._replace(k, one, error)
        try:
            return self._shards[k].handle.state()()
        except ShardLost as error:
            raise ExecutionError(
                f"shard {k} cannot be saved: it died twice, the last time because {error}",
                hint="check the memory of the machines that hold the shards.",
            ) from error

    def restore(self, state: Mapping[str, Array]) -> None:
        """Load the arrays returned by `state`. Tickets of the saved buffer are valid here.

        Raises:
            ExecutionError: the state is damaged, or has other shards.
        """
        try:
            about: Any = json.loads(np.asarray(state["about"], np.uint8).tobytes())
            starts = [int(n) for n in about["starts"]]
            if len(starts) != len(self._shards):
                raise ValueError(f"it has {len(starts)} shards, not {len(self._shards)}")
            lost = [int(n) for n in about.get("lost", starts)]  # earlier versions do not save it
            for k, (one, start, gone) in enumerate(zip(self._shards, starts, lost, strict=True)):
                prefix = f"shard {k} "
                mine = {n.removeprefix(prefix): x for n, x in state.items() if n.startswith(prefix)}
                one.receive(one.call(), one.handle.load_state(mine)())
                one.inserted, one.start, one.lost = one.report.inserted, start, gone
            self._ahead, self._updates = None, []
            self._random.bit_generator.state = about["random"]
            self._greatest, self._name = float.fromhex(about["greatest"]), str(about["name"])
            self.inserted, self.sampled = int(about["inserted"]), int(about["sampled"])
            self.dropped, self._draws = int(about["dropped"]), int(about["draws"])
        except (KeyError, TypeError, ValueError, ShardLost) as error:
            raise ExecutionError(
                f"the shards cannot be restored: {error}.", hint="start a new run."
            ) from error

    def __repr__(self) -> str:
        return (
            f"ShardedReplay({len(self):,} of {self.capacity:,} rows in {len(self._shards)} shards)"
        )
