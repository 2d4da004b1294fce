"""Environments that step asynchronously: `trl.collect(…, ready=k)`."""

from __future__ import annotations

import multiprocessing
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import timerl_nb as trl
from tests import counting, gated, masking
from tests.masking import Masking, permitted
from timerl_nb.collecting import Batch, Collector
from timerl_nb.collecting.strategies import shared_memory_processes
from timerl_nb.collecting.strategies.asynchronous_stepping import Received
from timerl_nb.collecting.strategies.shared_memory_processes import Processes
from timerl_nb.env.action_masks import Masks, Rows
from timerl_nb.env.gymnasium import distinct_seeds

ENVS, STEPS, LENGTH = 5, 4, 3


class Scripted:
    """Environments in this process; a function chooses the order in which their results arrive.

    Args:
        ready: number of environments per result.
        order: returns an order of busy environments.
        restarts_at_once: whether the last step of an episode resets the environment.
    """

    def __init__(
        self, ready: int, order: Callable[[Sequence[int]], Sequence[int]], restarts_at_once: bool
    ) -> None:
        self.restarts_at_once, self.seeds = restarts_at_once, range(ENVS)
        self.envs = [Masking(LENGTH, offset=k) for k in range(ENVS)]
        self.space = self.envs[0].action_space
        self.ready, self.order = ready, order
        self.busy: dict[int, Any] = {}
        self.over = [False] * ENVS
        self.is_closed = False

    def start(self) -> None:
        self.busy = dict.fromkeys(range(ENVS))

    def send(self, ids: Any, action: Any) -> None:
        assert not self.busy.keys() & {*ids.tolist()}, "an environment at work got an action"
        self.busy |= dict(zip(ids.tolist(), action.tolist(), strict=True))

    def receive(self) -> Received:
        ids = [*self.order([*self.busy])][: self.ready]
        rows, last, final = [], [], []
        for k in ids:
            action = self.busy.pop(k)
            env, reward, ended, cut = self.envs[k], 0.0, False, False
            if action is None or self.over[k]:
                obs, more = env.reset()
                self.over[k] = False
            else:
                obs, reward, ended, cut, more = env.step(action)
                if (ended or cut) and self.restarts_at_once:
                    last.append(obs)
                    final.append(more["action_mask"] != 0)
                    obs, more = env.reset()
                else:
                    self.over[k] = ended or cut
            rows.append((obs, reward, ended, cut, more["action_mask"] != 0))
        obs, reward, ended, cut, mask = map(np.array, zip(*rows, strict=True))
        lasts = Rows(np.array(final), np.ones(len(final), bool)) if final else None
        now = Rows(mask, np.ones(len(ids), bool))
        ids = np.array(ids)
        ends = np.array(last) if last else None
        return Received(ids, obs, reward, ended, cut, ends, Masks(now, lasts))

    def at_fault(self, error: Exception) -> tuple[Sequence[int], str]:
        return range(ENVS), str(error)

    def close(self) -> None:
        self.is_closed = True


def shuffled(seed: int) -> Callable[[Sequence[int]], Sequence[int]]:
    """Return a random order in which environment 0 is often the first."""
    draw = np.random.default_rng(seed)
    return lambda busy: sorted(busy, key=lambda k: draw.random() + (k == 0) * -0.7)


def act(params: Any, obs: Any, key: Any, action_mask: Any) -> Any:
    """Return the first permitted action."""
    return jnp.argmax(action_mask), {"seen": obs, "mask": action_mask, "version": params["version"]}


def scripted(
    monkeypatch: pytest.MonkeyPatch,
    ready: int,
    policy: Any = act,
    order: Any = None,
    at_once: bool = True,
    **options: Any,
) -> Collector:
    monkeypatch.setattr(
        Processes,
        "make_asynchronous",
        lambda self, task, seed: Scripted(task.ready, order or shuffled(0), at_once),
    )
    name = f"gym.{masking.NAME}"
    options = {"params": {"version": jnp.int32(0)}} | options
    return trl.collect(
        name, policy, envs=ENVS, steps=STEPS, how="processes", ready=ready, **options
    )


def expected(env: int, at_once: bool) -> Iterator[tuple[Any, ...]]:
    """Return observation, reward, terminated, truncated, valid and last observation of each step."""
    episode = 0
    while True:
        for step in range(LENGTH):
            over = step == LENGTH - 1
            ended = over and episode % 2 == 0
            last = (env, episode, LENGTH) if over else None
            yield (env, episode, step), 1.0, ended, over and not ended, True, last
        if not at_once:
            yield (env, episode, LENGTH), None, False, False, False, None
        episode += 1


def check_batches(batches: Sequence[Batch], ready: int, at_once: bool) -> dict[int, int]:
    """Check the columns of batches, and return the number of steps of each environment."""
    plans = {k: expected(k, at_once) for k in range(ENVS)}
    before: dict[int, Any] = {}
    returns, lengths = np.zeros(ENVS), np.zeros(ENVS, int)
    counts = dict.fromkeys(range(ENVS), 0)
    for batch in batches:
        assert batch.env_ids.shape == (ready,) and batch.reward.shape == (STEPS, ready)
        finals = {(t, k): x for t, k, *x in zip(*_final(batch), strict=True)}
        ends: dict[tuple[int, int], tuple[float, int]] = {}
        for column, env in enumerate(batch.env_ids.tolist()):
            if env in before:
                np.testing.assert_array_equal(batch.obs[0, column], before[env])
            for t in range(STEPS):
                obs, reward, ended, cut, valid, last = next(plans[env])
                assert batch.obs[t, column].tolist() == list(obs)
                assert reward is None or batch.reward[t, column] == reward
                assert batch.terminated[t, column] == ended and batch.truncated[t, column] == cut
                assert batch.valid[t, column] == valid
                np.testing.assert_array_equal(batch.action_mask[t, column], permitted(*obs))
                returns[env] += 1.0 * valid
                lengths[env] += valid
                assert ((t, column) in finals) == (last is not None)
                if last is not None:
                    seen, mask = finals[t, column]
                    assert seen.tolist() == list(last) and mask.tolist() == permitted(*last)
                    ends[t, column] = returns[env], lengths[env]
                    returns[env] = lengths[env] = 0
            before[env] = batch.last_obs[column]
            np.testing.assert_array_equal(
                batch.last_action_mask[column], permitted(*before[env].astype(int))
            )
            counts[env] += STEPS
        order = [ends[t, k] for t, k in zip(batch.final.step, batch.final.env, strict=True)]
        assert [*zip(batch.episodes.returns, batch.episodes.lengths, strict=True)] == order
        assert len(ends) == len(batch.final)
    return counts


def _final(batch: Batch) -> tuple[Any, ...]:
    final = batch.final
    return final.step.tolist(), final.env.tolist(), final.obs, final.action_mask


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("ready", [1, 2, 4, ENVS])
def test_columns_are_consecutive_steps_of_one_environment(
    monkeypatch: pytest.MonkeyPatch, ready: int, at_once: bool
) -> None:
    batches = []
    with scripted(monkeypatch, ready, at_once=at_once) as collector:
        for k in range(12):
            batches.append(collector.next(params={"version": jnp.int32(k + 1)}))
    counts = check_batches(batches, ready, at_once)
    if ready < ENVS:
        assert counts[0] > max(counts[k] for k in range(1, ENVS))
    for batch in batches:
        np.testing.assert_array_equal(batch.seen, batch.obs)
        np.testing.assert_array_equal(batch.mask, batch.action_mask)
        np.testing.assert_array_equal(batch.policy_version, batch.version)
        assert (np.diff(batch.policy_version, axis=0) >= 0).all()
    mixed = [len({*b.policy_version.ravel().tolist()}) for b in batches]
    assert (max(mixed) > 1) == (ready < ENVS)


def test_an_environment_may_have_several_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = 0

    def order(busy: Sequence[int]) -> Sequence[int]:
        """Environment 0 is always the first, and the others take turns."""
        nonlocal turn
        turn += 1
        return sorted(busy, key=lambda k: (k != 0, (k - turn) % 4))

    with scripted(monkeypatch, 2, order=order) as collector:
        batches = [collector.next() for _ in range(3)]
    assert batches[0].env_ids.tolist() == [0, 0]
    np.testing.assert_array_equal(batches[0].obs[0, 1], batches[0].last_obs[0])
    check_batches(batches, 2, at_once=True)


def test_sequences_of_each_environment_do_not_depend_on_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for seed in range(2):
        steps = defaultdict(list)
        with scripted(monkeypatch, 2, order=shuffled(seed)) as collector:
            batches = [collector.next() for _ in range(15)]
        for batch in batches:
            for column, env in enumerate(batch.env_ids.tolist()):
                steps[env] += zip(batch.obs[:, column].tolist(), batch.action[:, column].tolist())  # noqa: B905
        found.append((steps, [b.env_ids.tolist() for b in batches]))
    assert found[0][1] != found[1][1]
    for env in range(ENVS):
        one, other = found[0][0][env], found[1][0][env]
        least = min(len(one), len(other))
        assert least > 0 and one[:least] == other[:least]


@pytest.mark.parametrize("at_once", [False, True])
def test_states_of_policies_belong_to_environments(
    monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    def recurrent(params: Any, obs: Any, state: Any, key: Any, action_mask: Any) -> Any:
        return jnp.argmax(action_mask), {"age": state["n"]}, {"n": state["n"] + 1}

    options = {"initial_state": {"n": jnp.float32(0)}, "states": "all", "params": {}}
    with scripted(monkeypatch, 2, recurrent, at_once=at_once, **options) as collector:
        for _ in range(10):
            batch = collector.next()
            np.testing.assert_array_equal(batch.age, batch.obs[..., 2])
            np.testing.assert_array_equal(batch.states["n"], batch.obs[..., 2])
            np.testing.assert_array_equal(batch.state["n"], batch.obs[0, :, 2])


def test_batches_in_the_background_and_conversions(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(monkeypatch, 2, ahead=1) as collector:
        batches = [collector.next() for _ in range(6)]
    check_batches(batches, 2, at_once=True)
    found = batches[0].jax()
    assert type(found.env_ids) is type(found.policy_version) is type(found.obs)
    np.testing.assert_array_equal(found.numpy().policy_version, batches[0].policy_version)


def test_an_interrupt_begins_new_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, fails = 0, 7

    def policy(obs: Any, action_mask: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == fails:
            raise KeyboardInterrupt
        return action_mask.argmax(1)

    with scripted(monkeypatch, 2, policy, params=None) as collector:
        with pytest.raises(KeyboardInterrupt) as caught:
            while True:
                collector.next()
        assert "all of them begin new episodes" in caught.value.__notes__[0]
        check_batches([collector.next() for _ in range(5)], 2, at_once=True)


def test_errors_name_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def policy(obs: Any, action_mask: Any) -> Any:
        nonlocal calls
        calls += 1
        made = action_mask.argmax(1)
        made[obs[:, 0] == 3] = 9 * (calls > 8)
        return made

    order = [3, 0, 1, 2, 4].index
    collector = scripted(
        monkeypatch, 2, policy, order=lambda busy: sorted(busy, key=order), params=None
    )
    message = r"action is 9 at step 0 of the batch, in environment 3; the environment accepts 0 to"
    with pytest.raises(trl.errors.ExecutionError, match=message):
        while True:
            collector.next()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ready": 3, "envs": 2}, "ready=3, but there are 2 environments"),
        ({"ready": 1, "episodes": 2}, "excludes batches of episodes"),
        ({"ready": 0}, "ready, the number of trajectories per batch, must be"),
        ({"ready": 1, "how": "loop"}, "its environments step together, which excludes ready="),
        ({"ready": 1, "how": "scan"}, "its environments step together, which excludes ready="),
    ],
)
def test_what_is_refused(options: Any, message: str) -> None:
    with pytest.raises(trl.errors.TimeRLError, match=message):
        trl.collect("gym.CartPole-v1", trl.policies.random, **({"envs": 2} | options))


def test_a_slow_environment_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory_processes, "_PATIENCE", 0.1)
    seeds = distinct_seeds(5, 3)
    slow = tmp_path / str(seeds[1])
    slow.touch()
    env = trl.env.make(f"gym.{gated.NAME}", folder=str(tmp_path))
    counts = dict.fromkeys(range(3), 0)
    with trl.collect(
        env, lambda obs: np.zeros(len(obs), int), envs=3, steps=2, seed=5, ready=1
    ) as collector:
        assert collector.strategies.chosen == "processes"

        def take() -> int:
            batch = collector.next()
            (number,) = batch.env_ids.tolist()
            assert (batch.obs[:, 0, 0] == seeds[number] % 2**16).all()
            assert batch.obs[:, 0, 1].tolist() == [counts[number], counts[number] + 1]
            counts[number] += 2
            return number

        for _ in range(6):
            assert take() != 1
        slow.unlink()
        while take() != 1:
            pass
        slow.touch()  # it does not finish its step, and is killed
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"raises": 2}, r"environment \d \(seed \d+\) failed at step 1 of its .*a wheel came off"),
        ({"dies": 2}, r"environment \d \(seed \d+\) failed at step 1 of its .* with exit code 7"),
    ],
)
def test_failures_of_processes(options: Any, message: str) -> None:
    env = trl.env.make(f"gym.{counting.NAME}", **options)
    collector = trl.collect(
        env, trl.policies.random, envs=3, steps=4, seed=11, how="processes", ready=2
    )
    assert any(seed % 2 for seed in distinct_seeds(11, 3))
    with pytest.raises(trl.errors.EnvError, match=message):
        while True:
            collector.next()
    assert not multiprocessing.active_children()


@pytest.mark.filterwarnings("ignore:.*precision")  # of the spaces of the other pool
def test_envpool() -> None:
    """Each environment's steps equal those of the pool that steps all together."""
    envpool = pytest.importorskip("envpool")

    def policy(obs: Any) -> Any:
        return (obs[:, 2] > 0).astype(np.int32)

    with trl.collect(
        "envpool.CartPole-v1", policy, envs=ENVS, steps=30, seed=3, ready=2
    ) as collector:
        assert collector.strategies.chosen == "threads"
        batches = [collector.next() for _ in range(20)]
    first = distinct_seeds(3, 1)[0] % (2**31 - ENVS)
    pool = envpool.make_gymnasium("CartPole-v1", num_envs=ENVS, seed=first)
    obs = [pool.reset()[0]]
    results = []
    for _ in range(600):
        after, *more = pool.step(policy(obs[-1]))
        obs.append(after)
        results.append(more[:3])
    at, ends = dict.fromkeys(range(ENVS), 0), 0
    for batch in batches:
        for column, env in enumerate(batch.env_ids.tolist()):
            for t in range(30):
                k = at[env] + t
                np.testing.assert_array_equal(batch.obs[t, column], obs[k][env])
                if batch.valid[t, column]:
                    reward, ended, cut = (x[env] for x in results[k])
                    assert batch.reward[t, column] == reward
                    assert batch.terminated[t, column] == ended
                    assert batch.truncated[t, column] == (cut and not ended)
                else:
                    assert results[k - 1][1][env] or results[k - 1][2][env]
                ends += not batch.valid[t, column]
            at[env] += 30
            np.testing.assert_array_equal(batch.last_obs[column], obs[at[env]][env])
        assert len(batch.final.obs) == (batch.terminated | batch.truncated).sum()
    assert ends > 5
