"""Batches of whole episodes (`trl.collect(…, episodes=n)`)."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from tests.counting import NAME, CountingVector, ends, length
from tests.unit.collecting.test_collecting_interrupts import Interrupts
from timerl_nb.base.errors import ExecutionError, OptionError, ShapeError
from timerl_nb.collecting import Batch, Collector
from timerl_nb.collecting.episode_batches import episodes_per_environment


def zeros(obs: Any) -> Any:
    return np.zeros(len(obs), np.int64), {"seen": obs[:, 2]}


def counting(how: str, episodes: int, *, envs: int = 3, steps: int = 4, **more: Any) -> Collector:
    env: Any = f"gym.{NAME}"
    if how == "vector":
        env, how = CountingVector(envs), "native"
    return trl.collect(env, zeros, envs=envs, steps=steps, how=how, episodes=episodes, **more)


def check_counted(b: Batch, first: int) -> list[tuple[int, int]]:
    """Check that each column is a whole episode; return the environment and episode of each."""
    found = []
    for k in range(b.envs):
        offset, episode = (int(x) for x in b.obs[0, k, :2])
        many = length(offset, episode)
        found.append((offset, episode))
        steps = np.arange(b.steps)
        np.testing.assert_array_equal(b.valid[:, k], steps < many)
        np.testing.assert_array_equal(b.obs[:many, k, 2], steps[:many])
        np.testing.assert_array_equal(b.seen[:many, k], steps[:many])
        assert (b.obs[:many, k, :2] == (offset, episode)).all() and not b.obs[many:, k].any()
        np.testing.assert_array_equal(b.reward[:, k], np.where(steps < many, 10 * episode, 0))
        over = np.where(steps == many - 1, 1, 0)[:, None] * ends(episode)
        np.testing.assert_array_equal(b.terminated[:, k], over[:, 0])
        np.testing.assert_array_equal(b.truncated[:, k], over[:, 1] & ~over[:, 0])
        np.testing.assert_array_equal(b.last_obs[k], (offset, episode, many))
    lengths = [length(*one) for one in found]
    np.testing.assert_array_equal(b.valid.sum(0), lengths)
    assert b.count == sum(lengths) and b.steps == max(lengths)
    np.testing.assert_array_equal(np.sort(b.episodes.lengths), np.sort(lengths))
    np.testing.assert_array_equal(b.episodes.lengths, b.final.step + 1)
    np.testing.assert_array_equal(b.final.obs, b.last_obs[b.final.env])
    np.testing.assert_array_equal(b.episodes.returns, b.reward.sum(0)[b.final.env])
    return found


@pytest.mark.parametrize("steps", [1, 4, 9])
@pytest.mark.parametrize("how", ["loop", "vector"])
def test_a_batch_has_the_next_episodes_of_each_environment(how: str, steps: int) -> None:
    """With a reset in the last step of an episode, and with a reset in a separate step."""
    with counting(how, 7, steps=steps) as c:
        latest: dict[int, int] = {}
        for k in range(4):
            found = check_counted(c.next(), k)
            assert len(found) == len(set(found)) == 7
            for offset in {offset for offset, _ in found}:
                mine = [episode for one, episode in found if one == offset]
                assert len(mine) in (2, 3)
                assert mine == [*range(mine[0], mine[0] + len(mine))]  # none is left out
                assert mine[0] > latest.get(offset, -1)
                latest[offset] = mine[-1]
            if not k:
                assert min(episode for _, episode in found) == 0


@pytest.mark.parametrize("how", ["loop", "processes"])
def test_one_environment_and_episodes_of_one_step(how: str) -> None:
    env = trl.env.make(f"gym.{NAME}", once=True)
    with trl.collect(env, zeros, steps=3, how=how, episodes=4) as c:
        for k in range(3):
            b = c.next()
            assert b.obs.shape == (1, 4, 3) and b.valid.all()
            first = 6 * k  # two parts of three steps
            np.testing.assert_array_equal(b.obs[0, :, 1], np.arange(first, first + 4))
            np.testing.assert_array_equal(b.last_obs[:, 2], 1)


def test_strategies_and_backgrounds_agree() -> None:
    policy = trl.DNNBuilder().from_env(trl.env.make("CartPole-v1"), hidden=[4])
    found = []
    for how in ("scan", "step"):
        with trl.collect("CartPole-v1", policy, envs=3, steps=8, how=how, episodes=5) as c:
            found.append([c.next(), c.next()])
            if how == "scan":
                again = c.with_seed(0)
                again._ahead = 1
                with again:
                    found.append([again.next(), again.next()])
    for one in found[1:]:
        for want, have in zip(found[0], one, strict=True):
            for name in ("obs", "action", "reward", "valid", "last_obs", "log_prob"):
                x, y = np.asarray(getattr(have, name)), np.asarray(getattr(want, name))
                np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6, err_msg=name)
    b = found[0][1].jax()
    assert b.obs.shape[1] == 5 and len(b.final) == 5
    lengths = np.asarray(b.valid).sum(0)
    done = np.asarray(b.terminated | b.truncated)
    assert (done.argmax(0) + 1 == lengths).all() and (done.sum(0) == 1).all()


class Lengths(trl.env.Environment):
    """Episodes of 1 or 21 steps with equal probability, drawn by the first observation."""

    obs_space = trl.env.Box(0.0, 30.0, (2,))
    act_space = trl.env.Discrete(2)

    def first_state(self, domain: Any) -> Any:
        return trl.random.uniform((), domain=domain), trl.zeros(())

    def transition(self, state: Any, action: Any) -> Any:
        kind, steps = state
        return (kind, steps + 1), steps + 1, (kind < 0.5) | (steps >= 20)

    def observe(self, state: Any) -> Any:
        return trl.stack([state[0], state[1]])


def test_short_episodes_are_not_preferred() -> None:
    """The mean length is 11. The first 40 ended ones would have a mean of about 6."""
    with trl.collect(
        Lengths(max_steps=50), trl.policies.random, envs=20, steps=5, how="scan", episodes=40
    ) as c:
        lengths = np.concatenate([c.next().episodes.lengths for _ in range(12)])
    assert set(lengths.tolist()) == {1, 21} and len(lengths) == 480
    # the standard deviation of the mean of 480 episodes is 10 / √480 = 0.46
    assert abs(lengths.mean() - 11) < 4 * 0.46


def test_all_steps_have_the_weights_of_the_call() -> None:
    def act(params: Any, obs: Any, key: Any) -> Any:
        return (0 * obs[0]).astype(int) + params["action"]

    first = {"action": np.int32(0)}
    with trl.collect(
        "CartPole-v1", act, envs=2, steps=7, how="scan", episodes=4, params=first
    ) as c:
        for k in range(4):
            b = c.next(params={"action": np.int32(k % 2)})
            assert (np.asarray(b.action)[np.asarray(b.valid)] == k % 2).all()
            assert b.policy_version == k + 1


def test_an_interrupt_loses_no_episode() -> None:
    with counting("loop", 4, envs=2) as whole:
        wanted = [whole.next() for _ in range(3)]
        n, exact, anew = 0, 0, 0
        while True:
            n += 11
            with whole.with_seed(0) as c:
                c.next()
                before = sys.gettrace()
                sys.settrace(Interrupts(n))
                try:
                    c.next()
                except KeyboardInterrupt as error:
                    is_lost = bool(getattr(error, "__notes__", ()))
                else:
                    break
                finally:
                    sys.settrace(before)
                found = [c.next(), c.next()]
                for b in found:
                    check_counted(b, 0)
                if is_lost:
                    anew += 1
                    continue
                for want, have in zip(wanted[1:], found, strict=True):
                    np.testing.assert_array_equal(have.obs, want.obs)
                exact += 1
    assert exact > 3 and anew > 0


def test_numbers_of_episodes_are_as_equal_as_possible() -> None:
    assert episodes_per_environment(7, 3).tolist() == [3, 2, 2]
    assert episodes_per_environment(1, 1).tolist() == [1]


def test_refused_numbers() -> None:
    with pytest.raises(OptionError, match="each of the 3 environments contributes at least one"):
        counting("loop", 2)
    with pytest.raises(ShapeError, match="episodes, the number per batch"):
        counting("loop", 0, envs=1)
    pendulum = trl.env.make("Pendulum-v1")
    pendulum.max_steps = None
    with pytest.raises(OptionError, match="never end"):
        trl.collect(pendulum, trl.policies.random, how="scan", episodes=1)


def test_closing_ends_a_search_for_episodes() -> None:
    """An episode that never ends does not block `close` of batches in the background."""
    env = trl.env.make(f"gym.{NAME}", once=True)
    begun = threading.Event()

    def policy(obs: Any) -> Any:
        begun.set()
        return np.zeros(len(obs), np.int64)

    c = trl.collect(env, policy, envs=1, steps=1, how="loop", episodes=10**9, ahead=1)
    source, errors = c._open(), list[Exception]()

    def request() -> None:
        try:
            source.next({})
        except ExecutionError as error:
            errors.append(error)

    thread = threading.Thread(target=request)
    thread.start()
    assert begun.wait(60)
    c.close()
    thread.join(60)
    assert not thread.is_alive() and "closed" in str(errors[0])
    with pytest.raises(ExecutionError, match="the collector is closed"):
        source.next({})
