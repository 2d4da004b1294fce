"""Gymnasium on the host: the episodes of Gymnasium's loop, under all options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import timerl_nb as trl
from tests.unit.checks import assert_same
from timerl_nb.base import errors
from timerl_nb.compiler.ir.reference.evaluator import Reference
from timerl_nb.env.gymnasium import _Instances, distinct_seeds

BOUNDS = {"B": 3, "I": 2, "T": 40}
STEPS, SEED = 12, 7


def acting(mode: Any) -> trl.Context:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, _) = ctx.dims
        env = trl.env.make("gym.CartPole-v1", autoreset=mode, max_steps=STEPS)
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        random = trl.random.uniform(domain=(b, i, t)) > 0.7
        a = ((o.take(2) > 0) | random).cast("i32")
        step = env.step(a)
        o[b, i, t + 1] = step.obs
        ctx.output("o", o)
        ctx.output("a", a)
        for name in ("reward", "terminated", "truncated", "alive", "final_obs"):
            ctx.output(name, getattr(step, name))
    return ctx


@pytest.mark.parametrize("mode", [None, "next_step", "same_step"])
def test_episodes_are_those_of_gymnasium(mode: Any) -> None:
    result = acting(mode).compile(BOUNDS).execute(seed=SEED)
    assert result["truncated"].any() and result["alive"].any()
    seeds = np.random.SeedSequence(SEED).generate_state(BOUNDS["B"])
    for b in range(BOUNDS["B"]):
        env = gymnasium.make("CartPole-v1", max_episode_steps=STEPS)
        for i in range(BOUNDS["I"]):
            obs, _ = env.reset(seed=int(seeds[b]) if i == 0 else None)
            over = False
            for t in range(BOUNDS["T"]):
                at = (b, i, t)
                np.testing.assert_array_equal(result["o"][at], obs, err_msg=str(at))
                alive = not over
                reward, ended, cut = 0.0, False, False
                if alive:
                    obs, reward, ended, cut, _ = env.step(int(result["a"][at]))
                    over = ended or cut
                    np.testing.assert_array_equal(result["final_obs"][at], obs)
                elif mode == "next_step":
                    obs, _ = env.reset()
                    over = False
                if mode == "same_step" and over:
                    obs, _ = env.reset()
                    over = False
                found = [result[n][at] for n in ("reward", "terminated", "truncated", "alive")]
                assert found == [reward, ended, cut and not ended, alive], at
        env.close()


@pytest.mark.parametrize(
    "options", [{}, {"vectorize": False}, {"fuse": False}, {"trial": False}], ids=str
)
def test_options_do_not_change_episodes(options: dict[str, Any]) -> None:
    ctx, bounds = acting(None), {**BOUNDS, "T": 15}
    want = Reference(ctx.pdg(), bounds, SEED).outputs()
    program = ctx.compile(bounds, trl.Options(**options))
    result = program.execute(seed=SEED)
    assert_same(want, result, "run")
    assert result.memory.peak == program.memory.peak


def test_continuous_actions() -> None:
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        env = trl.env.make("gym.Pendulum-v1", max_steps=5)
        assert isinstance(env.act_space, trl.env.Box) and env.max_steps == 5
        o = trl.like(env.obs_space, domain=(b, t))
        o[b, 0] = env.reset(domain=(b,))
        o[b, t + 1], r, d = env.step(o.slice(0, 1) * 0.5)
        ctx.output("r", r)
    result = ctx.compile({"B": 2, "T": 5}).execute()
    assert (result["r"] < 0).all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gym.NoSuchThing-v0", {}, "NoSuchThing"),
        ("gym.CartPole-v1", {"wings": 2}, "wings"),
        ("gym.CartPole-v1", {"autoreset": "never"}, "is not a mode"),
    ],
)
def test_wrong_environments(name: str, options: dict[str, Any], message: str) -> None:
    with trl.Context("b"), pytest.raises(errors.EnvError, match=message):
        trl.env.make(name, **options)


def test_no_two_environments_have_one_seed() -> None:
    count = 200_000  # about five of so many 32-bit words coincide
    words = list(map(int, np.random.SeedSequence(SEED).generate_state(count)))
    assert len(set(words)) < count
    seeds = distinct_seeds(SEED, count)
    assert len(set(seeds)) == count and seeds[:1000] == words[:1000]
    assert distinct_seeds(-1, 3) == distinct_seeds(2**64 - 1, 3)


class Levers(gymnasium.Env[np.ndarray, np.ndarray]):
    """Three levers of 2, 3 and 4 positions: the reward is their sum, and so is the observation."""

    observation_space = gymnasium.spaces.Box(0.0, 9.0, (1,), np.float32)
    action_space = gymnasium.spaces.MultiDiscrete([2, 3, 4])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action.astype(np.int64))
        total = float(action.sum())
        return np.array([total], np.float32), total, False, False, {}


def test_several_choices_at_once_are_learnt() -> None:
    gymnasium.register("Levers-v0", Levers)
    with trl.Context("b", "i", "t") as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        env = trl.env.make("gym.Levers-v0")
        dnn = trl.DNNBuilder(domain=(i,)).from_env(env, hidden=[8]).build()
        assert env.act_space == trl.env.MultiDiscrete((2, 3, 4))
        o = trl.like(env.obs_space, domain=(b, i, t))
        o[b, i, 0] = env.reset(domain=(b, i))
        a = dnn.sample(o)
        o[b, i, t + 1], r, _ = env.step(a)
        (-dnn.log_prob(a) * (r - r.mean(over=(b, t)))).mean(over=(b, t)).backward()
        trl.optim.Adam(dnn.params, lr=0.1).step()
        ctx.output("a", a)
        ctx.output("r", r)
        ctx.output("return", r.mean(over=(b, t)))
        ctx.output("entropy", dnn(o).entropy().mean(over=(b, t)))
    result = ctx.compile({B: 8, I: 25, T: 6}).execute(seed=SEED)
    np.testing.assert_array_equal(result["r"], result["a"].sum(-1))
    assert result["a"].shape == (8, 25, 6, 3) and (result["a"].max((0, 1, 2)) == [1, 2, 3]).all()
    np.testing.assert_allclose(result["entropy"][0], np.log(24), rtol=0.01)
    assert result["return"][0] < 4 and result["return"][-1] > 5


def test_all_environments_are_closed_even_where_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []

    def close(env: gymnasium.Wrapper[Any, Any, Any, Any]) -> None:
        closed.append(id(env))
        if len(closed) == 2:  # the first one reports the spaces
            raise OSError("no display")

    monkeypatch.setattr(gymnasium.wrappers.TimeLimit, "close", close)
    program = acting(None).compile({**BOUNDS, "T": 3})
    with pytest.warns(
        errors.TimeRLWarning, match="gym.CartPole-v1.close raised OSError: no display"
    ):
        result = program.execute(seed=SEED)
    assert len(set(closed)) == 1 + BOUNDS["B"] and result["o"].shape == (3, 2, 3, 4)


@pytest.mark.parametrize("executor", ["interpret", "xla"])
@pytest.mark.parametrize("mode", [None, "next_step", "same_step"])
def test_a_run_that_was_cut_off_goes_on_in_the_same_episodes(
    mode: Any, executor: str, tmp_path: Path
) -> None:
    bounds = {"B": 3, "I": 5, "T": 17}
    program = acting(mode).compile(bounds, trl.Options(executor=executor))
    want = program.execute(seed=SEED)
    for turns in (1, 3):
        folder = tmp_path / str(turns)
        with program.start(SEED, checkpoint=folder, every=1, paused=True) as run:
            run.wait()
            run.step(turns)
            run.wait()
        have = program.resume(folder)
        for name, value in want.items():
            np.testing.assert_array_equal(have[name], value)


def test_what_a_state_takes_is_kept_of_runs_that_save_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []

    def close(self: _Instances) -> None:
        kept.append(sum(len(one.actions) for one in self._begun if one))

    monkeypatch.setattr(_Instances, "close", close)
    program = acting(None).compile({"B": 2, "I": 3, "T": 6}, trl.Options(executor="interpret"))
    program.execute(seed=SEED)
    program.execute(seed=SEED, checkpoint=tmp_path, every=1)
    assert kept[0] == 0 < kept[1]


def test_an_environment_that_draws_for_itself_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = acting(None).compile({"B": 2, "I": 4, "T": 6}, trl.Options(executor="interpret"))
    with program.start(SEED, checkpoint=tmp_path, every=1, paused=True) as run:
        run.wait()
        run.step(2)
        run.wait()
    monkeypatch.setattr("timerl_nb.env.gymnasium._set_generator", lambda env, state: False)
    with pytest.warns(
        errors.TimeRLWarning, match="2 of 2 environments of gym.CartPole-v1 could not"
    ):
        program.resume(tmp_path)
