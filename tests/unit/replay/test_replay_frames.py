"""Buffers with shared frames equal buffers with complete rows."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.replay import Hindsight, Proportional, Replay, Sequences

STACK = 3
FIELDS: dict[str, Any] = {
    "obs": ((STACK, 2, 2), "u8"),
    "next_obs": ((STACK, 2, 2), "u8"),
    "reward": ((), "f32"),
    "terminated": ((), "bool"),
}
FRAMES = {"obs": STACK, "next_obs": STACK}


def played(steps: int, envs: int, seed: int = 0) -> dict[str, Any]:
    """Return stacks of random frames; an episode begins with copies of its first frame."""
    random = np.random.default_rng(seed)
    obs, after = (np.zeros((steps, envs, STACK, 2, 2), "u1") for _ in range(2))
    ends = random.random((steps, envs)) < 0.15
    for env in range(envs):
        stack = [random.integers(256, size=(2, 2))] * STACK
        for t in range(steps):
            obs[t, env] = stack
            stack = [*stack[1:], random.integers(256, size=(2, 2))]
            after[t, env] = stack
            if ends[t, env]:
                stack = [random.integers(256, size=(2, 2))] * STACK
    reward = random.normal(size=(steps, envs)).astype("f4")
    return {"obs": obs, "next_obs": after, "reward": reward, "terminated": ends}


def same(first: Replay, second: Replay) -> None:
    assert len(first) == len(second)
    for name, x in every_row(second).items():
        assert every_row(first)[name].tobytes() == x.tobytes()


def every_row(buffer: Replay) -> dict[str, np.ndarray]:
    return buffer._rows.gather(np.arange(len(buffer)))


def distinct(buffer: Replay, names: tuple[str, ...] = ("obs", "next_obs")) -> int:
    """Return the number of different frames in the buffer's rows."""
    rows = every_row(buffer)
    return len({f.tobytes() for n in names for f in rows[n].reshape(-1, 2, 2)})


@pytest.mark.parametrize("capacity", [1, 2, 7, 40])
@pytest.mark.parametrize("options", [{}, {"n_step": 3}, {"sequence": Sequences(4, 2)}], ids=str)
def test_rows_are_those_of_a_plain_buffer(capacity: int, options: Any) -> None:
    """Around the end of the ring several times."""
    shared, plain = (
        Replay(capacity, FIELDS, frames=f, priority=Proportional(), seed=2, **options)
        for f in (FRAMES, None)
    )
    for k in range(6):
        given = played(9, 2, k)
        assert shared.insert(given) == plain.insert(given)
        if not len(plain):
            continue
        same(shared, plain)
        assert shared._rows._stores[0].count == distinct(shared)
        drawn, other = shared.sample(5), plain.sample(5)
        assert drawn.index.tolist() == other.index.tolist()
        assert drawn["next_obs"].tobytes() == other["next_obs"].tobytes()
        drawn["obs"][...] = 0
        same(shared, plain)
        errors = np.arange(5.0)
        assert shared.update(drawn.ticket, errors) == plain.update(other.ticket, errors)


def test_hindsight_shares_frames() -> None:
    fields = {**FIELDS, "goal": ((1,), "f32"), "achieved": ((1,), "f32")}
    of = Hindsight(lambda a, g: a[:, 0] - g[:, 0], 4)
    shared, plain = (Replay(200, fields, frames=f, hindsight=of) for f in (FRAMES, None))
    given = played(20, 2)
    given |= {n: np.random.default_rng(1).normal(size=(20, 2, 1)) for n in ("goal", "achieved")}
    assert shared.insert(given) == plain.insert(given)
    same(shared, plain)
    assert shared._rows._stores[0].count == distinct(shared) < 2 * 20 * 2


def test_bits_are_kept() -> None:
    """Signed zeros and NaN with a payload are different frames."""
    bits = np.array([0, 1 << 31, 0x7FC00001, 0x7FC00002], "u4").view("f4")
    buffer = Replay(10, {"x": ((1,), "f32"), "y": ((1,), "f32")}, frames={"x": 1, "y": 1})
    buffer.insert({"x": bits[:, None], "y": bits[::-1, None]})
    assert every_row(buffer)["x"].tobytes() == bits.tobytes()
    assert buffer._rows._stores[0].count == 4


def test_frames_with_one_hash_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    from timerl_nb.replay.storage import frame_rows

    monkeypatch.setattr(frame_rows, "hash", lambda content: 5, raising=False)
    shared, plain = (Replay(5, FIELDS, frames=f) for f in (FRAMES, None))
    for k in range(4):
        shared.insert(played(4, 2, k))
        plain.insert(played(4, 2, k))
        same(shared, plain)


def test_frames_are_saved_once_and_loaded(tmp_path: Path) -> None:
    shared, plain = (Replay(30, FIELDS, frames=f, seed=1) for f in (FRAMES, None))
    for one in (shared, plain):
        one.insert(played(20, 2))
    shared.save(tmp_path / "shared")
    assert shared.state()["frame 0"].shape == (distinct(shared), 2, 2)
    other = Replay(30, FIELDS, frames=FRAMES, seed=5)
    other.insert(played(8, 2, 9))
    for _ in range(2):
        other.load(tmp_path / "shared")
        same(other, plain)
        assert other._rows._stores[0].count == distinct(other)
    same(copy.copy(other), plain)
    for one in (plain, shared, other):
        one.insert(played(20, 2, 3))
        same(one, plain)
    assert other.sample(7)["obs"].tobytes() == shared.sample(7)["obs"].tobytes()
    with pytest.raises(trl.errors.ExecutionError, match="does not match"):
        Replay(30, FIELDS).load(tmp_path / "shared")
    state = shared.state()
    state["row obs"] = state["row obs"] + 1000
    before = other.state()
    with pytest.raises(trl.errors.ExecutionError, match="obs refers to a missing frame"):
        other.restore(state)
    assert all(x.tobytes() == before[n].tobytes() for n, x in other.state().items())


def test_frames_may_be_in_files(tmp_path: Path) -> None:
    shared = Replay(30, FIELDS, frames=FRAMES, above=0, folder=tmp_path / "rows")
    plain = Replay(30, FIELDS)
    for k in range(3):
        shared.insert(played(9, 2, k))
        plain.insert(played(9, 2, k))
    same(shared, plain)
    assert len([*(tmp_path / "rows").glob("*.rows")]) > len(FIELDS)


def test_memory_does_not_grow_with_steps() -> None:
    shape = ((4, 20, 20), "u8")
    fields = {"obs": shape, "next_obs": shape, "terminated": ((), "bool")}
    buffer, plain = (Replay(64, fields, frames=f) for f in ({"obs": 4, "next_obs": 4}, None))
    random = np.random.default_rng(0)
    sizes = []
    frames = [random.integers(256, size=(20, 20), dtype=np.uint8) for _ in range(5)]
    for _ in range(300):
        step = np.stack(frames)
        buffer.insert({"obs": step[None, :4], "next_obs": step[None, 1:], "terminated": [False]})
        frames = [*frames[1:], random.integers(256, size=(20, 20), dtype=np.uint8)]
        sizes.append(buffer.nbytes)
    assert sizes[-1] == sizes[99] < 0.19 * plain.nbytes


@pytest.mark.parametrize(
    ("frames", "error", "what"),
    [
        ({"obs": 2}, "ShapeError", "does not have 2 frames"),
        ({"reward": 3}, "ShapeError", "does not have 3 frames"),
        ({"ob": 1}, "OptionError", "names 'ob'"),
        ({"obs": 0}, "ShapeError", "frames of 'obs'"),
        (["obs"], "OptionError", "is not a mapping"),
    ],
)
def test_unsuitable_frames_are_refused(frames: Any, error: str, what: str) -> None:
    with pytest.raises(getattr(trl.errors, error), match=what):
        Replay(4, FIELDS, frames=frames)
