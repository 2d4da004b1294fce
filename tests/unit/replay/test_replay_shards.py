"""A buffer in shards follows the sampling law of one buffer. Shards are plain objects here, without Ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from timerl_nb.base.errors import ExecutionError, OptionError, ShapeError, TimeRLWarning
from timerl_nb.replay import Proportional, Replay, SampleToInsertRatio
from timerl_nb.replay.distributed.replay_shard import (
    LocalShard,
    ReplayShard,
    RowsLost,
    ShardLost,
)
from timerl_nb.replay.distributed.shard_division import divide_shares, shard_capacities
from timerl_nb.replay.distributed.sharded_replay import NothingToDraw, ShardedReplay
from timerl_nb.replay.storage.replay_buffer import construction_of

FIELDS = {"number": ((), "i64"), "obs": ((2,), "f32")}


class Failing(LocalShard):
    """A shard that can die, or lose the rows of an insertion."""

    dies_at = ""
    loses = False

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("add", "draw", "state", "load_state"):
            return found

        def call(*given: Any) -> Callable[[], Any]:
            if self.dies_at == "now" or self.dies_at == name:
                self.dies_at = "now"
                return lambda: raise_(ShardLost("it was killed"))
            if name == "add" and self.loses:
                return lambda: raise_(RowsLost("the node of the actor was removed"))
            return found(*given)

        return call


def raise_(error: Exception) -> Any:
    raise error


def like(capacity: int, **options: Any) -> Replay:
    return Replay(capacity, FIELDS, **{"priority": Proportional(alpha=1.0, eps=0.0), **options})


def sharded(buffer: Replay, count: int, **given: Any) -> tuple[ShardedReplay, dict[int, Failing]]:
    fields, options = construction_of(buffer)
    opened: dict[int, Failing] = {}

    def open_shard(k: int, capacity: int) -> Failing:
        opened[k] = Failing(ReplayShard(capacity, fields, **options))
        return opened[k]

    return ShardedReplay(buffer, count, open_shard, **given), opened


def rows(first: int, count: int) -> dict[str, Any]:
    number = np.arange(first, first + count)
    return {"number": number, "obs": np.stack([number, -number], 1).astype(np.float32)}


def filled(capacity: int, count: int, **options: Any) -> tuple[ShardedReplay, dict[int, Failing]]:
    """Return a full buffer in which row k has the error `errors()[k]`."""
    buffer, opened = sharded(like(capacity, **options), count)
    buffer.insert_entries(rows(0, capacity))
    for shard in opened.values():
        own = shard.shard
        at = own.state()["row number"]
        own._tree.update(np.arange(len(at)), errors(capacity)[at])  # type: ignore[union-attr]
    buffer._settle()
    for k, shard in opened.items():
        buffer._shards[k].report = shard.shard.report()
    return buffer, opened


def errors(capacity: int) -> Any:
    """Return priorities over four decades, 30 % of them zero."""
    random = np.random.default_rng(7)
    return 10.0 ** random.uniform(-2, 2, capacity) * (random.random(capacity) > 0.3)


def chi_squared(counts: Any, chances: Any) -> tuple[float, int]:
    """Return χ² and its degrees of freedom; rare entries form one cell."""
    draws = counts.sum()
    common = chances * draws >= 5
    seen = np.append(counts[common], counts[~common].sum())
    wanted = np.append(chances[common], chances[~common].sum()) * draws
    seen, wanted = seen[wanted > 0], wanted[wanted > 0]
    return float(((seen - wanted) ** 2 / wanted).sum()), len(seen) - 1


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_draws_follow_the_priorities(count: int) -> None:
    """χ² over independent draws: one row per sample, so that the strata do not reduce the variance."""
    capacity = 200
    buffer, _ = filled(capacity, count, seed=count)
    chances = errors(capacity) / errors(capacity).sum()
    totals = buffer._totals
    shares = np.random.default_rng(count).random(40_000)
    chosen, targets = divide_shares(totals, shares)
    numbers = np.concatenate(
        [
            one.handle.draw(targets[chosen == k], totals[k])().rows["number"]
            for k, one in enumerate(buffer._shards)
        ]
    )
    counts = np.bincount(numbers, minlength=capacity)
    assert not counts[chances == 0].any()
    found, freedom = chi_squared(counts, chances)
    # 99.9 % quantile of χ² by Wilson and Hilferty
    limit = freedom * (1 - 2 / (9 * freedom) + 3.09 * np.sqrt(2 / (9 * freedom))) ** 3
    assert found < limit, (found, freedom)
    # the samples of the buffer: stratified, so closer to the expectation
    seen = np.zeros(capacity, np.int64)
    for _ in range(400):
        sample = buffer.sample(100)
        np.add.at(seen, sample["number"], 1)
        np.testing.assert_allclose(sample.probability, chances[sample["number"]], rtol=1e-12)
    assert not seen[chances == 0].any()
    found, freedom = chi_squared(seen, chances)
    assert found < limit, (found, freedom)


@pytest.mark.parametrize("weights", ["buffer", "batch"])
@pytest.mark.parametrize("priority", [Proportional(), None], ids=str)
def test_one_shard_gives_the_bits_of_a_buffer(weights: Any, priority: Any) -> None:
    options: dict[str, Any] = {"weights": weights, "priority": priority, "seed": 5}
    plain, (buffer, _) = like(50, **options), sharded(like(50, **options), 1)
    for k in range(20):
        assert buffer.insert_entries(rows(7 * k, 7)) == plain.insert(rows(7 * k, 7))
        if priority is None and k == 0:
            continue
        one, two = buffer.sample(8, beta=0.6), plain.sample(8, beta=0.6)
        if priority is None:  # drawn by integers, there
            assert (one.weight == two.weight).all() and (one.probability == two.probability).all()
            continue
        for name in ("index", "weight", "probability"):
            assert getattr(one, name).tobytes() == getattr(two, name).tobytes(), name
        assert (one["number"] == two["number"]).all() and (one["obs"] == two["obs"]).all()
        said = np.linspace(0, k, 8)
        assert buffer.update(one.ticket, said) == plain.update(two.ticket, said)
    assert len(buffer) == len(plain) == 50 and buffer.inserted == plain.inserted == 140


@pytest.mark.parametrize("weights", ["buffer", "batch"])
def test_weights_and_probabilities_are_those_of_one_buffer(weights: Any) -> None:
    plain, (buffer, _) = like(64, weights=weights), sharded(like(64, weights=weights), 4)
    for one, insert in ((plain, plain.insert), (buffer, buffer.insert_entries)):
        insert(rows(0, 64))
        seen: set[int] = set()
        while len(seen) < 64:
            sample = one.sample(64)
            seen |= set(sample["number"].tolist())
            one.update(sample.ticket, sample["number"] + 1.0)
        sample = one.sample(32, beta=0.5)
        error = sample["number"] + 1.0
        np.testing.assert_allclose(sample.probability, error / (64 * 65 / 2), rtol=1e-12)
        least = error.min() if weights == "batch" else 1.0
        np.testing.assert_allclose(sample.weight, (error / least) ** -0.5, rtol=1e-6)


def test_tickets_of_overwritten_and_of_lost_rows_are_dropped() -> None:
    buffer, opened = sharded(like(12), 3)
    buffer.insert_entries(rows(0, 12))
    before = buffer.sample(30)
    buffer.insert_entries(rows(12, 4))  # overwrites the four rows of shard 0
    gone = int((before["number"] < 4).sum())
    assert 0 < gone < 30
    assert buffer.update(before.ticket, np.ones(30)) == gone == buffer.dropped
    newer = buffer.sample(30)
    lost = int(((newer["number"] >= 4) & (newer["number"] < 8)).sum())
    opened[1].dies_at = "draw"
    with pytest.warns(TimeRLWarning, match="4 rows were lost with shard 1: it was killed"):
        assert buffer.update(newer.ticket, np.ones(30)) == lost
    assert len(buffer) == 8 and [(one.what, one.rows) for one in buffer.losses] == [("shard 1", 4)]
    # the ticket of a row of the dead shard does not name a row of its successor
    buffer.insert_entries(rows(20, 4))
    assert buffer.update(newer.ticket, np.full(30, 9.0)) == lost
    assert opened[1].shard.tree.priorities.tolist() == [1.0] * 4
    with pytest.raises(OptionError, match="does not belong"):
        buffer.update(sharded(like(12), 3)[0].ticket(np.zeros(1, np.int64)), [1.0])
    with pytest.raises(ShapeError, match="errors do not match"):
        buffer.update(newer.ticket, np.ones(3))
    with pytest.raises(ShapeError, match="nan"):
        buffer.update(newer.ticket, np.full(30, np.nan))


def test_a_shard_that_dies_during_a_draw_is_replaced() -> None:
    buffer, opened = filled(64, 4)
    opened[2].dies_at = "draw"
    with pytest.warns(TimeRLWarning, match="16 rows were lost with shard 2"):
        sample = buffer.sample(40)
    # its 16 rows are never drawn, and the draws are from the remaining ones
    assert len(sample) == 40 and not np.isin(sample["number"], np.arange(32, 48)).any()
    assert (sample["obs"][:, 0] == sample["number"]).all()
    assert buffer.shard_sizes == (16, 16, 0, 16)
    buffer.sample(40)
    for shard in opened.values():
        shard.dies_at = "draw"
    with pytest.warns(TimeRLWarning), pytest.raises(NothingToDraw):
        buffer.sample(40)
    assert sum(one.rows for one in buffer.losses) == 64 and len(buffer) == 0


def test_a_shard_that_never_answers_ends_the_run() -> None:
    buffer, opened = sharded(like(64), 2)
    open_shard = buffer._opened

    def dead(k: int, capacity: int) -> Any:
        made = open_shard(k, capacity)
        made.dies_at = "now"  # type: ignore[attr-defined]
        return made

    buffer._opened = dead
    opened[0].dies_at = "now"
    with (
        pytest.warns(TimeRLWarning, match="lost with shard 0"),
        pytest.raises(ExecutionError, match="shard 0 has died 3 times before its first answer"),
    ):
        for _ in range(6):
            buffer.insert_entries(rows(0, 8))
            buffer._settle()


def test_an_insertion_whose_rows_disappear_is_counted() -> None:
    buffer, opened = sharded(like(64), 2)
    buffer.insert_entries(rows(0, 8))
    opened[1].loses = True
    with pytest.warns(TimeRLWarning, match="8 rows were lost with a rollout for shard 1"):
        buffer.insert_entries(rows(8, 8))
        assert set(buffer.sample(50)["number"]) <= set(range(8))
    assert buffer.shard_sizes == (8, 0)
    opened[1].loses = False
    buffer.insert_entries(rows(16, 8))
    sample = buffer.sample(50)
    assert buffer.update(sample.ticket, np.ones(50)) == 0


def test_shards_without_priority_are_never_drawn() -> None:
    buffer, opened = filled(64, 4)
    opened[0].shard.tree.insert(0, 0.0, 16)
    buffer._shards[0].report = opened[0].shard.report()
    sample = buffer.sample(500)
    assert (sample["number"] >= 16).all() and np.isfinite(sample.weight).all()
    for shard in opened.values():
        shard.shard.tree.insert(0, 0.0, 16)
    with pytest.raises(NothingToDraw):  # known only after the draw
        buffer.sample(5)


def test_a_total_that_changes_before_the_draw_changes_the_probabilities() -> None:
    """The learner's process knows sums of 16 and 16, but the first shard has 32 when it draws."""
    buffer, opened = sharded(like(32, priority=Proportional(alpha=1.0, eps=0.0)), 2)
    for first in (0, 16):
        buffer.insert_entries(rows(first, 16))
    buffer._settle()
    opened[0].shard.tree.insert(0, 2.0, 16)
    sample = buffer.sample(64, beta=1.0)
    # each shard was selected with the probability 1/2, and each row has 1/16 of it
    np.testing.assert_allclose(sample.probability, 1 / 32)
    np.testing.assert_allclose(sample.weight, 1.0)
    later = buffer.sample(64)  # knows the new sum
    heavy = later["number"] < 16
    np.testing.assert_allclose(later.probability, np.where(heavy, 2 / 48, 1 / 48))
    assert 40 <= heavy.sum() <= 46


def test_uniform_shards_draw_every_row_alike() -> None:
    buffer, _ = sharded(like(10, priority=None), 3)  # 4, 3 and 3 rows
    buffer.insert_entries(rows(0, 10))
    sample = buffer.sample(1000)
    assert np.bincount(sample["number"]).tolist() == [100] * 10
    np.testing.assert_allclose(sample.probability, 0.1)
    with pytest.raises(OptionError, match="samples uniformly"):
        buffer.update(sample.ticket, np.ones(1000))


def test_a_block_larger_than_a_shard_is_divided() -> None:
    buffer, _ = sharded(like(10), 3)
    assert buffer.insert_entries(rows(0, 9)) == 9
    assert buffer.shard_sizes == (4, 3, 2)
    assert buffer.insert_entries(rows(100, 25)) == 25
    assert set(buffer.sample(200)["number"]) == set(range(115, 125))
    assert buffer.inserted == 34


def test_draws_ahead_are_those_of_a_buffer_with_later_updates() -> None:
    """A batch is drawn before the updates from the two batches before it, from all rows of the turn before."""
    plain = like(50, seed=5)
    buffer, _ = sharded(like(50, seed=5), 1, draws_ahead=True)
    for one in (plain.insert, buffer.insert_entries):
        one(rows(0, 20))
    later, ahead = plain.sample(8), []
    for k in range(12):
        found = buffer.sample(8)
        for name in ("index", "weight", "probability"):
            assert getattr(found, name).tobytes() == getattr(later, name).tobytes(), name
        assert (found["number"] == later["number"]).all()
        # in the plain buffer: the next draw, then the update from the previous batch, then the insertion
        before, later = later, plain.sample(8)
        for ticket in ahead:
            plain.update(ticket, np.full(8, 1 / (1.0 + k)))
        ahead = [before.ticket]
        for insert in (plain.insert, buffer.insert_entries):
            insert(rows(100 * k, 5))
        assert buffer.update(found.ticket, np.full(8, 1 / (2.0 + k))) == 0
    assert buffer.sampled == plain.sampled - 8 == 96


@pytest.mark.parametrize("count", [2, 5])
def test_draws_ahead_follow_the_priorities_of_their_time(count: int) -> None:
    random = np.random.default_rng(count)
    buffer, opened = sharded(like(60, seed=count), count, draws_ahead=True)
    buffer.insert_entries(rows(0, 60))
    for k in range(60):
        sample = buffer.sample(int(16 + k % 3))  # another size discards the batch
        buffer.update(sample.ticket, random.exponential(size=len(sample)))
        buffer.insert_entries(rows(60 + 3 * k, 3))
        assert np.isfinite(sample.weight).all() and (sample.probability > 0).all()
    # with equal sizes, the batch has the priorities of the previous sample's end
    buffer.sample(32)
    known = {
        int(n): float(p)
        for one in opened.values()
        for n, p in zip(one.shard.state()["row number"], one.shard.tree.priorities, strict=False)
    }
    buffer.insert_entries(rows(500, 3))
    sample = buffer.sample(32)
    want = np.array([known[int(n)] for n in sample["number"]]) / sum(known.values())
    np.testing.assert_allclose(sample.probability, want, rtol=1e-12)
    np.testing.assert_allclose(
        sample.weight, (want * sum(known.values()) / min(known.values())) ** -0.4, rtol=1e-5
    )


def test_a_shard_that_dies_with_the_next_batch_is_replaced() -> None:
    buffer, opened = sharded(like(64), 4, draws_ahead=True)
    buffer.insert_entries(rows(0, 64))
    sample = buffer.sample(40)
    buffer.update(sample.ticket, np.ones(40))
    opened[2].dies_at = "draw"
    buffer.sample(40)  # requests a batch and updates from the dead shard
    with pytest.warns(TimeRLWarning, match="16 rows were lost with shard 2"):
        later = buffer.sample(40)
    assert not np.isin(later["number"], np.arange(32, 48)).any() and len(later) == 40
    assert buffer.dropped == np.isin(sample["number"], np.arange(32, 48)).sum() > 0
    # a save includes all updates
    buffer.update(later.ticket, np.full(40, 7.0))
    buffer.state()
    greatest = [one.shard.tree.priorities.max() for one in opened.values() if len(one.shard)]
    assert greatest == [7.0] * 3 and buffer._ahead is None


def test_the_answer_to_an_older_call_does_not_replace_a_newer_total() -> None:
    """A turn inserts, then updates, then draws: the insertion is read last, but the update is newer."""
    buffer, opened = sharded(like(32), 2)
    buffer.insert_entries(rows(0, 16))
    sample = buffer.sample(8)
    buffer.insert_entries(rows(16, 8))
    buffer.update(sample.ticket, np.full(8, 50.0))
    buffer._settle()
    totals = [one.shard.tree.total for one in opened.values()]
    assert buffer._totals.tolist() == totals and sum(totals) > 50
    known = buffer.sample(64)
    error = np.where(np.isin(known["number"], sample["number"]), 50.0, 1.0)
    np.testing.assert_allclose(known.probability, error / sum(totals))


def test_rows_lost_before_and_during_an_update_are_counted_once() -> None:
    buffer, opened = sharded(like(8), 2)
    buffer.insert_entries(rows(0, 8))
    older = buffer.sample(10)
    opened[1].dies_at = "now"
    with pytest.warns(TimeRLWarning, match="4 rows were lost with shard 1"):
        buffer.sample(4)
    buffer.insert_entries(rows(8, 4))
    newer = buffer.sample(10)
    serial = np.concatenate([older.ticket.serial, newer.ticket.serial])
    opened[1].dies_at = "draw"
    gone = sum(int((one["number"] >= 4).sum()) for one in (older, newer))
    with pytest.warns(TimeRLWarning, match="4 rows were lost with shard 1"):
        assert buffer.update(buffer.ticket(serial), np.ones(20)) == gone == buffer.dropped


@pytest.mark.parametrize(("capacity", "count"), [(10, 3), (29, 5), (37, 4), (18, 10)])
def test_rows_are_overwritten_only_in_a_full_buffer(capacity: int, count: int) -> None:
    random, first = np.random.default_rng(count), 0
    buffer, opened = sharded(like(capacity), count)
    while first < 4 * capacity:
        many = int(random.integers(1, 9))
        buffer.insert_entries(rows(first, many))
        first += many
        assert len(buffer) == min(first, capacity)
        found = np.concatenate([one.shard.state()["row number"] for one in opened.values()])
        # the age of a row is exact up to some blocks
        assert len(found) == len(buffer) and found.min() >= first - capacity - 8 * count
    # a successor of a dead shard fills before the other shards lose a row
    opened[0].dies_at = "now"
    with pytest.warns(TimeRLWarning, match="lost with shard 0"):
        buffer.update(buffer.ticket(np.zeros(1, np.int64)), [1.0])
    assert len(buffer) == capacity - shard_capacities(capacity, count)[0]
    while len(buffer) < capacity:
        before = len(buffer)
        buffer.insert_entries(rows(first, 1))
        first += 1
        assert len(buffer) == before + 1


def test_a_saved_buffer_continues_with_the_same_bits() -> None:
    buffer, _ = filled(64, 4)
    ticket = buffer.sample(8).ticket
    state = buffer.state()
    other, _ = sharded(like(64), 4)
    other.restore(state)
    assert other.update(ticket, np.ones(8)) == buffer.update(ticket, np.ones(8)) == 0
    for _ in range(3):
        one, two = buffer.sample(16), other.sample(16)
        assert one.index.tobytes() == two.index.tobytes()
        assert one.weight.tobytes() == two.weight.tobytes()
        buffer.insert_entries(rows(0, 5))
        other.insert_entries(rows(0, 5))
    with pytest.raises(ExecutionError, match="4 shards, not 2"):
        sharded(like(64), 2)[0].restore(state)
    with pytest.raises(ExecutionError, match="cannot be restored"):
        sharded(like(64), 4)[0].restore({})


def test_parts_of_a_sample_are_the_sample() -> None:
    (one, _), (two, _) = filled(64, 4), filled(64, 4)
    whole, parts = one.sample(10), [*two.sample_in_parts(10, chunks=3)]
    assert [len(part) for part in parts] == [3, 3, 4]
    assert np.concatenate([part["number"] for part in parts]).tolist() == whole["number"].tolist()
    serial = np.concatenate([part.ticket.serial for part in parts])
    assert two.update(two.ticket(serial), np.ones(10)) == 0


def test_a_limiter_bounds_the_sharded_buffer() -> None:
    limiter = SampleToInsertRatio(samples_per_insert=1, min_size_to_sample=8, error_buffer=8)
    buffer, _ = sharded(like(64, limiter=limiter), 2)
    assert buffer.can_insert and not buffer.can_sample
    buffer.insert_entries(rows(0, 20))
    assert not buffer.can_insert and buffer.can_sample
    buffer.sample(30)
    assert buffer.can_insert and not buffer.can_sample


def test_wrong_numbers_of_shards_are_refused() -> None:
    assert shard_capacities(10, 3) == [4, 3, 3]
    for wrong in (0, -1, 2.5, None, "x", True):
        with pytest.raises((OptionError, ShapeError), match="number of shards"):
            shard_capacities(10, wrong)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="capacity of 10 rows cannot be divided among 11 shards"):
        shard_capacities(10, 11)
    used = like(10)
    used.insert(rows(0, 2))
    with pytest.raises(OptionError, match="2 rows, which cannot be moved"):
        sharded(used, 2)
