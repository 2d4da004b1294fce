"""Limits of drawn per inserted rows, alone, in a buffer and in training runs, and schedules of beta."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.replay import (
    Dqn,
    LinearSchedule,
    Proportional,
    Replay,
    SampleToInsertRatio,
    Training,
)

FIELDS: dict[str, Any] = {"x": ((), "i32")}


def one(count: int = 1) -> dict[str, Any]:
    return {"x": np.zeros(count, "i4")}


def test_both_actions_never_wait() -> None:
    """The ratio stays within the tolerance and one call, for calls of any size."""
    random = np.random.default_rng(0)
    for ratio, error in ((0.5, 0.0), (8.0, 3.0), (0.0, 0.0), (3.0, 100.0)):
        limiter = SampleToInsertRatio(ratio, 5, error)
        inserted = sampled = 0
        for _ in range(300):
            can = limiter.can_insert(inserted, sampled), limiter.can_sample(inserted, sampled)
            assert any(can)
            if can[0] and (not can[1] or random.random() < 0.5):
                inserted += int(random.integers(1, 6))
            else:
                assert inserted >= 5
                sampled += int(random.integers(1, 9))
            excess = ratio * (inserted - 5) - sampled
            assert excess <= error + 5 * ratio
            assert inserted < 5 or excess >= -error - 8


def test_threads_wait_for_each_other() -> None:
    buffer = Replay(50, FIELDS, limiter=SampleToInsertRatio(2.0, 4, 6.0))
    excess: list[float] = []

    def insert() -> None:
        for _ in range(60):
            buffer.insert(one())

    writer = threading.Thread(target=insert)
    writer.start()
    for _ in range(28):
        buffer.sample(4)
        excess.append(2.0 * (buffer.inserted - 4) - buffer.sampled)
    writer.join(60)
    assert buffer.inserted == 60 and buffer.sampled == 112
    assert all(-10 <= x <= 12 for x in excess)


def test_a_wait_without_another_thread_ends(tmp_path: Path) -> None:
    limiter = SampleToInsertRatio(1.0, 2, 2.0, timeout=0.01)
    buffer = Replay(50, FIELDS, limiter=limiter)
    with pytest.raises(trl.errors.ExecutionError, match="sample has waited 0.01 s"):
        buffer.sample(1)
    for _ in range(5):
        buffer.insert(one())
    assert not buffer.can_insert and buffer.can_sample
    for insert in (buffer.insert, buffer.actor()):
        with pytest.raises(trl.errors.ExecutionError, match="after 5 inserted and 0 drawn rows"):
            insert(one())
    assert buffer.insert_entries(one()) == 1
    buffer.sample(7)
    assert buffer.can_insert and not buffer.can_sample
    buffer.save(tmp_path / "buffer")
    other = Replay(50, FIELDS, limiter=limiter)
    other.load(tmp_path / "buffer")
    assert (other.sampled, other.can_sample) == (7, False)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: SampleToInsertRatio(-1, 1, 1), "samples_per_insert must be a number"),
        (lambda: SampleToInsertRatio(1, 0, 1), "min_size_to_sample must be an integer"),
        (lambda: SampleToInsertRatio(1, 1, -1), "error_buffer must be a number"),
        (lambda: SampleToInsertRatio(1, 1, 1, -1), "timeout must be a number"),
        (lambda: LinearSchedule(0.4, 1.0, 0), "batches must be an integer"),
        (lambda: LinearSchedule(-0.4), "first must be a number"),
    ],
)
def test_unsuitable_numbers_are_refused(make: Any, what: str) -> None:
    with pytest.raises(trl.errors.ShapeError, match=what):
        make()


def test_a_program_has_no_limiter() -> None:
    with pytest.raises(trl.errors.OptionError, match="takes no limiter"):
        trl.replay.InProgram(5, FIELDS, limiter=SampleToInsertRatio(1, 1, 1))
    with pytest.raises(trl.errors.CallError, match="is not a limiter"):
        Replay(5, FIELDS, limiter=3)  # type: ignore[arg-type]


# --- schedules -----------------------------------------------------------------------------------


def test_beta_follows_the_number_of_draws(tmp_path: Path) -> None:
    by = LinearSchedule(0.0, 1.0, 4)
    assert [by(k) for k in range(6)] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    asked: list[int] = []

    def schedule(draw: int) -> float:
        asked.append(draw)
        return by(draw)

    buffer, same = (Replay(9, FIELDS, priority=Proportional(), seed=1) for _ in range(2))
    for each in (buffer, same):
        each.insert(one(9), np.arange(1.0, 10.0))
    for k in range(3):
        drawn = buffer.sample(5, schedule)
        assert drawn.weight.tolist() == same.sample(5, k / 4).weight.tolist()
    assert asked == [0, 1, 2]
    buffer.save(tmp_path / "buffer")
    other = Replay(9, FIELDS, priority=Proportional())
    other.load(tmp_path / "buffer")
    list(other.sample_in_parts(4, schedule, chunks=2))
    assert asked == [0, 1, 2, 3]
    for wrong in (lambda _: -1.0, lambda _: float("nan"), "high"):
        with pytest.raises(trl.errors.ShapeError, match="beta must be a number"):
            other.sample(2, wrong)  # type: ignore[arg-type]


# --- training ------------------------------------------------------------------------------------

DQN = Dqn("CartPole-v1", hidden=(4,))


def trained(limiter: Any = None, **given: Any) -> Training:
    buffer = Replay(500, DQN.fields, priority=Proportional(), limiter=limiter)
    small = {
        "batch": 8,
        "envs": 2,
        "steps": 2,
        "groups": 2,
        "learning_starts": 8,
        "how": "scan",
        "seed": 3,
    }
    run = trl.replay.train(DQN, buffer=buffer, **{**small, **given})
    run.result()
    return run


@pytest.mark.parametrize("mode", ["exact", "free"])
@pytest.mark.parametrize("ratio", [0.5, 8.0])
def test_training_keeps_the_ratio(mode: Any, ratio: float) -> None:
    """Without a limiter, a turn draws two rows per inserted row."""
    limiter = SampleToInsertRatio(ratio, 16, 16.0, timeout=0.01)
    run = trained(limiter, mode=mode, turns=60)
    buffer = run._training._buffer
    excess = ratio * (buffer.inserted - 16) - buffer.sampled
    assert -16 - 8 <= excess <= 16 + 8 * ratio
    assert len(run.result()["loss"]) > 3


def test_a_limited_run_with_a_schedule_continues_to_the_same_bits(tmp_path: Path) -> None:
    limiter = SampleToInsertRatio(1.0, 8, 8.0)
    given: dict[str, Any] = {"mode": "exact", "beta": LinearSchedule(0.0, 1.0, 9), "every": 8}
    found = []
    for name, turns in (("whole", [24]), ("half", [8, 24])):
        for count in turns:
            run = trained(limiter, turns=count, folder=tmp_path / name, **given)
        result = run.result()
        found.append({n: x.tobytes() for n, x in {**result, **result.parameters}.items()})
    assert found[0] == found[1]
    with pytest.raises(trl.errors.ExecutionError, match="other arguments"):
        trained(limiter, turns=24, folder=tmp_path / "half", **{**given, "beta": 0.4})
