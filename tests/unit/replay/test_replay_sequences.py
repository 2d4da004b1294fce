"""Sequences against slices of whole episodes, and hindsight against the law of its new goals."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.replay import Hindsight, Proportional, Replay, Sequences

FIELDS: dict[str, Any] = {
    "obs": ((2,), "f32"),
    "action": ((), "i32"),
    "memory": ((3,), "f16"),
    "terminated": ((), "bool"),
}


def contents(buffer: Replay) -> dict[str, np.ndarray]:
    return {n: x.copy() for n, x in buffer._rows.first_rows(len(buffer)).items()}


def episodes(steps: int, envs: int, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    t, e = np.meshgrid(np.arange(steps), np.arange(envs), indexing="ij")
    return {
        "obs": np.stack([e, t + 1], 2).astype("f4"),
        "action": 100 * e + t + 1,
        "memory": np.stack([t, e, t + e], 2).astype("f2"),
        "terminated": random.random((steps, envs)) < 0.12,
        "truncated": random.random((steps, envs)) < 0.08,
        "valid": random.random((steps, envs)) < 0.9,
    }


def slices(given: dict[str, Any], env: int, of: Sequences) -> list[tuple[list[int], list[bool]]]:
    """Return the steps of each complete sequence of one environment, and whether each step is learnt from."""
    found, episode = [], list[int]()

    def sequences(is_over: bool) -> None:
        for k in range(len(episode)):
            first = k * of.stride
            steps = episode[first : first + of.length]
            has_new = k == 0 or first - of.stride + of.length < len(episode)
            if has_new and (len(steps) == of.length or (is_over and steps)):
                found.append((steps, [k == 0 or j >= of.burn_in for j in range(len(steps))]))

    for t in range(len(given["valid"])):
        if given["valid"][t, env]:
            episode.append(t)
            if given["terminated"][t, env] or given["truncated"][t, env]:
                sequences(is_over=True)
                episode.clear()
    sequences(is_over=False)
    return found


@pytest.mark.parametrize(
    "of",
    [
        Sequences(1),
        Sequences(4, state=("memory",)),
        Sequences(5, 2, 2, ("memory",)),
        Sequences(6, 1, 5),
        Sequences(3, 1),
        Sequences(60, burn_in=10),
    ],
    ids=str,
)
@pytest.mark.parametrize("at_once", [True, False])
def test_sequences_are_slices_of_episodes(of: Sequences, at_once: bool) -> None:
    given, buffer = episodes(50, 3), Replay(500, FIELDS, sequence=of)
    if at_once:
        count = buffer.insert(given)
    else:
        count = sum(buffer.insert({n: x[t] for n, x in given.items()}) for t in range(50))
    assert count == len(buffer)
    found = contents(buffer)
    assert found["memory"].dtype == np.float16 and found["learn"].dtype == bool
    for env in range(3):
        mine = [k for k in range(len(buffer)) if found["obs"][k, 0, 0] == env]
        wanted = slices(given, env, of)
        assert len(mine) == len(wanted)
        for k, (steps, learnt) in zip(mine, wanted, strict=True):
            n, rest = len(steps), of.length - len(steps)
            assert found["mask"][k].tolist() == [True] * n + [False] * rest
            assert found["learn"][k].tolist() == learnt + [False] * rest
            for name in ("obs", "action", "terminated"):
                assert (found[name][k, :n] == given[name][steps, env]).all()
                assert not found[name][k, n:].any()
            if of.state:
                assert (found["memory"][k] == given["memory"][steps[0], env]).all()
            else:
                assert (found["memory"][k, :n] == given["memory"][steps, env]).all()
        if of.period is None:  # every step of a finished episode is learnt from once
            once = [
                s for steps, learnt in wanted for s, yes in zip(steps, learnt, strict=True) if yes
            ]
            assert len(once) == len(set(once))
            last = max(t for t in range(50) if (given["terminated"] | given["truncated"])[t, env])
            assert {t for t in range(last) if given["valid"][t, env]} <= set(once)


def test_incomplete_sequences_and_episodes_are_saved(tmp_path: Path) -> None:
    given = episodes(30, 2)
    near = Hindsight(near_goal, 2)
    for options in ({"sequence": Sequences(5, 2, 1)}, {"hindsight": near}):
        fields = FIELDS if "sequence" in options else GOALS
        rows = given if "sequence" in options else goals(30, 2)
        whole, half = (Replay(9, fields, priority=Proportional(), **options) for _ in range(2))
        whole.insert({n: x[:17] for n, x in rows.items()})
        whole.save(tmp_path / "half")
        half.load(tmp_path / "half")
        clone = copy.copy(half)
        for one in (whole, half, clone):
            one.insert({n: x[17:] for n, x in rows.items()})
        for other in (half, clone):
            for name, x in contents(whole).items():
                assert contents(other)[name].tobytes() == x.tobytes()
        with pytest.raises(trl.errors.ExecutionError, match="does not match this buffer"):
            changed = {"sequence": Sequences(5, 1, 1)} if "sequence" in options else {}
            Replay(9, fields, priority=Proportional(), **changed).load(tmp_path / "half")


def test_each_writer_has_its_own_sequences() -> None:
    buffer = Replay(10, FIELDS, sequence=Sequences(2))
    step = {"obs": np.ones((1, 2)), "action": [1], "memory": np.ones((1, 3)), "terminated": [False]}
    with buffer.actor() as put, buffer.actor() as other:
        put(step)
        other({**step, "action": [5]})
        assert len(buffer) == 0
        put({**step, "action": [2]})
    assert contents(buffer)["action"].tolist() == [[1, 2]]


def test_tickets_and_priorities_are_of_sequences() -> None:
    buffer = Replay(1, FIELDS, priority=Proportional(), sequence=Sequences(2))
    step = {"obs": np.ones((1, 2)), "action": [1], "memory": np.ones((1, 3)), "terminated": [False]}
    for _ in range(2):
        buffer.insert(step)
    drawn = buffer.sample(3)
    drawn["obs"][...] = 9
    assert contents(buffer)["obs"].max() == 1
    for _ in range(2):
        buffer.insert(step)
    assert buffer.update(drawn.ticket, [1.0, 2.0, 3.0]) == 3


@pytest.mark.parametrize(
    ("given", "error", "what"),
    [
        ({"sequence": lambda: Sequences(0)}, "ShapeError", "length of a sequence"),
        ({"sequence": lambda: Sequences(4, burn_in=4)}, "ShapeError", "burn_in"),
        ({"sequence": lambda: Sequences(4, 4, 1)}, "ShapeError", "period"),
        (
            {"sequence": lambda: Sequences(4, state=("memori",))},
            "OptionError",
            "'memori' is not a field",
        ),
        ({"sequence": lambda: 4}, "CallError", "not a trl.replay.Sequences"),
        (
            {"sequence": lambda: Sequences(4), "hindsight": lambda: Hindsight(near_goal)},
            "OptionError",
            "hindsight needs",
        ),
        (
            {"hindsight": lambda: Hindsight(near_goal, strategy="past")},
            "OptionError",
            "strategy='past'",
        ),
        ({"hindsight": lambda: Hindsight(3)}, "OptionError", "reward=3 is not a function"),
    ],
)
def test_unsuitable_options_are_refused(given: Any, error: str, what: str) -> None:
    with pytest.raises(getattr(trl.errors, error), match=what):
        Replay(4, FIELDS, **{n: make() for n, make in given.items()})


def test_a_buffer_combines_steps_in_one_way() -> None:
    with pytest.raises(trl.errors.OptionError, match="combines steps in one way"):
        Replay(4, GOALS, hindsight=Hindsight(near_goal), sequence=Sequences(2))
    with pytest.raises(trl.errors.OptionError, match="'mask' is reserved"):
        Replay(4, {"mask": ((), "f32")}, sequence=Sequences(2))
    buffer = Replay(4, FIELDS, sequence=Sequences(2))
    with pytest.raises(trl.errors.ShapeError, match="rows of 2 environments follow rows of 3"):
        for envs in (3, 2):
            buffer.insert({n: x[0, :envs] for n, x in episodes(1, 3).items()})


# --- hindsight -----------------------------------------------------------------------------------

GOALS: dict[str, Any] = {
    "obs": ((), "i32"),
    "goal": ((1,), "f32"),
    "achieved": ((1,), "f32"),
    "reward": ((), "f32"),
    "terminated": ((), "bool"),
}


def near_goal(achieved: np.ndarray, goal: np.ndarray) -> np.ndarray:
    return -(np.abs(achieved - goal)[:, 0] > 0.5).astype("f4")


def goals(steps: int, envs: int, length: int = 10, first: int = 0) -> dict[str, Any]:
    """Return episodes whose achieved goals are the number of the step, over all episodes."""
    t, e = np.meshgrid(np.arange(steps), np.arange(envs), indexing="ij")
    return {
        "obs": 1000 * e + t + first,
        "goal": np.full((steps, envs, 1), -7.0),
        "achieved": (1000 * e + t + first)[..., None].astype("f4"),
        "reward": np.full((steps, envs), -1.0),
        "terminated": (t + 1) % length == 0,
    }


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_new_goals_follow_their_law(strategy: Any) -> None:
    """Of the episodes 0 … 4 of 5 steps: 400 episodes with 3 new goals per step."""
    count, length = 3, 5
    of = Hindsight(near_goal, count, strategy, terminated=lambda a, g: a[:, 0] == g[:, 0])
    buffer = Replay(10_000, GOALS, hindsight=of, seed=1)
    assert buffer.insert(goals(1000, 2, length)) == 400 * length * (1 + count)
    found = contents(buffer)
    step = found["obs"] % 1000 % length
    is_new = found["goal"][:, 0] != -7
    assert is_new.sum() == 3 * (~is_new).sum()
    assert (found["reward"][~is_new] == -1).all()
    then = found["goal"][is_new, 0] - (
        found["obs"][is_new] - step[is_new]
    )  # relative to the episode
    start = step[is_new]
    assert ((then >= 0) & (then < length)).all()  # of the same episode and environment
    hit = then == start
    assert (found["reward"][is_new] == np.where(hit, 0.0, -1.0)).all()
    assert (found["terminated"][is_new] == hit).all()
    counts = np.zeros((length, length))
    np.add.at(counts, (start, then.astype(int)), 1)
    if strategy == "final":
        wanted = np.zeros((length, length))
        wanted[:, -1] = 1
    elif strategy == "episode":
        wanted = np.full((length, length), 1 / length)
    else:
        wanted = np.triu(1 / (length - np.arange(length))[:, None] * np.ones((length, length)))
    expected = 400 * count * wanted
    assert (counts[wanted == 0] == 0).all()
    chi = ((counts - expected)[wanted > 0] ** 2 / expected[wanted > 0]).sum()
    assert chi < 60  # 20 degrees of freedom at most: p < 1e-5


def test_goals_do_not_depend_on_writers_and_depend_on_the_seed() -> None:
    first, second, other = (
        Replay(500, GOALS, hindsight=Hindsight(near_goal), seed=s) for s in (1, 1, 2)
    )
    rows = goals(20, 2, 10)
    first.insert(rows)
    other.insert(rows)
    writers = [second.actor(), second.actor()]
    for t in range(20):
        for env in (1, 0):
            writers[env]({n: x[t, env : env + 1] for n, x in rows.items()})
    made = [
        {tuple(np.concatenate([x[k].reshape(-1) for x in c.values()])) for k in range(200)}
        for c in map(contents, (first, second, other))
    ]
    assert made[0] == made[1] != made[2]


def test_an_episode_may_exceed_the_capacity() -> None:
    buffer = Replay(3, GOALS, hindsight=Hindsight(near_goal, 1, "final"))
    assert buffer.insert(goals(40, 1, 40)) == 80
    assert len(buffer) == 3 and buffer.inserted == 80
    assert contents(buffer)["goal"][:, 0].tolist() == [39.0] * 3


def test_a_failing_reward_loses_its_episode() -> None:
    buffer = Replay(50, GOALS, hindsight=Hindsight(lambda a, g: np.zeros(3), 1))
    with pytest.raises(trl.errors.ShapeError, match=r"returned the shape \[3\] for 10 rows"):
        buffer.insert(goals(10, 1))
    assert len(buffer) == 0
    with pytest.raises(trl.errors.ShapeError):
        buffer.insert(goals(10, 1))
