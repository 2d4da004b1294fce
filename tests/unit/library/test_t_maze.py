"""T-maze: equal to a NumPy twin step by step; the cue, the ends of episodes, and the options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl

CUE, CORRIDOR, JUNCTION = {0: [0, 1, 1], 1: [1, 1, 0]}, [1, 0, 1], [0, 1, 0]


@dataclass
class Twin:
    """A T-maze in plain Python: one episode, which stands still after its end."""

    length: int
    goal: int
    passive: bool
    place: int = 0
    is_over: bool = False

    def observe(self) -> list[int]:
        if self.place == 0:
            return CUE[self.goal]
        return JUNCTION if self.place == self.length else CORRIDOR

    def step(self, action: int) -> tuple[list[int], float, bool]:
        if self.is_over:
            return self.observe(), 0.0, False
        if self.place == self.length and action < 2:
            self.is_over = True
            return self.observe(), 1.0 if action == self.goal else -0.1, True
        move = 1 if self.passive else {2: 1, 3: -1}.get(action, 0)
        before, self.place = self.place, min(max(self.place + move, 0), self.length)
        return self.observe(), 0.0 if self.place != before else -0.1, False


def play(actions: np.ndarray, **options: Any) -> trl.Result:
    """Episodes of given actions, [environments, steps]."""
    with trl.Context("v", "t") as ctx:
        v, t = (d for d, _ in ctx.dims)
        env = trl.env.make("TMaze", **options)
        o = trl.like(env.obs_space, domain=(v, t))
        o[v, 0] = env.reset(domain=(v,))
        step = env.step(trl.data(actions.astype(np.int32), domain=(v, t)))
        o[v, t + 1] = step.obs
        for name, x in {
            "first": o[v, 0],
            "obs": step.obs,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
        }.items():
            ctx.output(name, x)
    return ctx.compile(dict(zip("VT", actions.shape, strict=True))).execute(seed=3)


@pytest.mark.parametrize(("length", "passive"), [(1, False), (3, False), (1, True), (4, True)])
def test_episodes_are_those_of_a_twin(length: int, passive: bool) -> None:
    rng = np.random.default_rng(0)
    weights = None if passive else [0.15, 0.15, 0.5, 0.2]
    actions = rng.choice(2 if passive else 4, (12, 25), p=weights)
    found = play(actions, length=length, passive=passive, max_steps=100)
    goals = set()
    for k, chosen in enumerate(actions):
        goal = next(g for g, cue in CUE.items() if found["first"][k].tolist() == cue)
        twin = Twin(length, goal, passive)
        goals.add(goal)
        for j, action in enumerate(chosen):
            seen, reward, ended = twin.step(int(action))
            assert found["obs"][k, j].tolist() == seen
            assert found["reward"][k, j] == np.float32(reward)
            assert found["terminated"][k, j] == ended
    assert goals == {0, 1}
    assert found["terminated"].sum() >= 9
    assert (found["reward"] == 1.0).any() and (found["reward"] < 0).any()


def test_memory_is_needed_and_suffices() -> None:
    east_then_north = np.full((6, 21), 2)
    east_then_north[:, 20] = 0
    found = play(east_then_north)
    north = (found["first"] == CUE[0]).all(-1)
    assert found["terminated"][:, 20].all() and 0 < north.sum() < 6
    np.testing.assert_allclose(found["reward"].sum(1), np.where(north, 1.0, -0.1), rtol=1e-6)
    assert len(np.unique(found["obs"][:, :20].reshape(6, -1), axis=0)) == 1, "no second cue"


def test_the_default_limit_depends_on_the_length() -> None:
    found = play(np.zeros((1, 12), int), length=1)
    assert found["truncated"][0].tolist() == [k == 9 for k in range(12)]
    assert trl.env.make("TMaze", max_steps=7).max_steps == 7


@pytest.mark.parametrize("length", [0, True, 1.5, "20"])
def test_a_length_is_a_positive_integer(length: Any) -> None:
    with pytest.raises(trl.errors.ShapeError, match="length must be an integer of at least 1"):
        trl.env.make("TMaze", length=length)
