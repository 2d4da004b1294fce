"""The replay buffer against a list of rows, and n-step returns against explicit sums."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import timerl_nb as trl
from timerl_nb.replay import Proportional, Replay

FIELDS = {"obs": ((2,), "f32"), "action": ((), "i32"), "reward": ((), "f32")}
WHOLE = {**FIELDS, "next_obs": ((2,), "f32"), "terminated": ((), "bool")}


def rows(first: int, count: int) -> dict[str, Any]:
    n = np.arange(first, first + count)
    return {"obs": np.stack([n, -n], 1).astype("f4"), "action": n, "reward": n / 2}


class AgainstAList(RuleBasedStateMachine):
    """Compares a buffer's contents with a list of all inserted rows."""

    @initialize(capacity=st.integers(1, 9), prioritised=st.booleans())
    def begin(self, capacity: int, prioritised: bool) -> None:
        priority = Proportional(alpha=1.0, eps=0.0) if prioritised else None
        self.buffer = Replay(capacity, FIELDS, priority=priority, fanout=2)
        self.capacity, self.prioritised = capacity, prioritised
        self.errors: list[float] = []
        self.greatest, self.dropped = 1.0, 0
        self.tickets: list[Any] = []

    @property
    def there(self) -> range:
        return range(max(0, len(self.errors) - self.capacity), len(self.errors))

    @rule(count=st.integers(0, 12))
    def insert(self, count: int) -> None:
        assert self.buffer.insert(rows(len(self.errors), count)) == count
        self.errors += [self.greatest] * count

    @rule(errors=st.lists(st.sampled_from([0.0, 0.5, 2.0, 1e6]), min_size=1, max_size=4))
    def insert_with_errors(self, errors: list[float]) -> None:
        self.buffer.insert(rows(len(self.errors), len(errors)), errors)
        self.errors += errors
        if self.prioritised:
            self.greatest = max(self.greatest, *errors)

    @rule(count=st.integers(1, 5), beta=st.sampled_from([0.0, 0.4, 1.0]))
    def sample(self, count: int, beta: float) -> None:
        errors = {n: self.errors[n] for n in self.there}
        if not errors or (self.prioritised and not any(errors.values())):
            with pytest.raises(trl.errors.ExecutionError):
                self.buffer.sample(count)
            return
        drawn = self.buffer.sample(count, beta)
        serial = drawn.ticket.serial
        assert set(serial) <= set(self.there)
        assert (drawn.index == serial % self.capacity).all()
        for name, x in rows(0, len(self.errors)).items():
            assert drawn[name].tolist() == x.astype(drawn[name].dtype)[serial].tolist()
        if self.prioritised:
            p = np.array([errors[n] for n in serial])
            assert (p > 0).all()
            least = min(e for e in errors.values() if e)
            assert drawn.probability == pytest.approx(p / sum(errors.values()))
            assert drawn.weight == pytest.approx((p / least) ** -beta, rel=1e-5)
        else:
            assert drawn.probability == pytest.approx(1 / len(errors))
            assert drawn.weight.tolist() == [1.0] * count
        self.tickets.append(drawn.ticket)

    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        if not self.tickets or not self.prioritised:
            return
        ticket = data.draw(st.sampled_from(self.tickets))
        errors = data.draw(
            st.lists(st.sampled_from([-3.0, 0.0, 7.0]), min_size=len(ticket), max_size=len(ticket))
        )
        gone = self.buffer.update(ticket, errors)
        late = [n for n in ticket.serial if n not in self.there]
        assert gone == len(late)
        self.dropped += gone
        for n, error in zip(ticket.serial, errors, strict=True):
            if n in self.there:
                self.errors[n] = abs(error)
                self.greatest = max(self.greatest, abs(error))

    @rule()
    def save_and_load(self) -> None:
        folder = Path(self.folder)
        self.buffer.save(folder / "buffer")
        after = self.buffer.sample(3) if self.can_sample else None
        priority = Proportional(alpha=1.0, eps=0.0) if self.prioritised else None
        self.buffer = Replay(self.capacity, FIELDS, priority=priority, fanout=2, seed=5)
        self.buffer.load(folder / "buffer")
        if after is not None:
            again = self.buffer.sample(3)
            assert again.ticket.serial.tolist() == after.ticket.serial.tolist()
            assert again["obs"].tobytes() == after["obs"].tobytes()

    @property
    def can_sample(self) -> bool:
        return bool(self.there) and (not self.prioritised or self.buffer.tree.total > 0)

    @invariant()
    def sums_agree(self) -> None:
        assert len(self.buffer) == len(self.there)
        assert self.buffer.inserted == len(self.errors)
        assert self.buffer.dropped == self.dropped
        if self.prioritised:
            assert self.buffer.tree.total == pytest.approx(sum(self.errors[n] for n in self.there))


def test_a_buffer_is_a_list(tmp_path: Path) -> None:
    AgainstAList.folder = str(tmp_path)
    case = AgainstAList.TestCase
    case.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
    case().runTest()


def by_hand(
    reward: np.ndarray, ends: np.ndarray, n: int, gamma: float
) -> dict[tuple[int, int], tuple[float, int]]:
    """Return the return and last step of every complete entry, by environment and first step."""
    found = {}
    steps, envs = reward.shape
    for e in range(envs):
        for t in range(steps):
            total = 0.0
            for k in range(n):
                if t + k == steps:
                    break
                total += gamma**k * float(reward[t + k, e])
                if ends[t + k, e] or k == n - 1:
                    found[e, t] = total, t + k
                    break
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("at_once", [True, False])
def test_returns_stop_where_episodes_do(n: int, at_once: bool) -> None:
    rng = np.random.default_rng(n)
    steps, envs, gamma = 20, 3, 0.9
    reward = rng.random((steps, envs)).astype("f4")
    terminated, truncated = rng.random((2, steps, envs)) < 0.15
    t, e = np.meshgrid(np.arange(steps), np.arange(envs), indexing="ij")
    given = {
        "obs": np.stack([e, t], 2).astype("f4"),
        "next_obs": np.stack([e, t + 0.5], 2).astype("f4"),
        "action": 10 * t,
        "reward": reward,
        "terminated": terminated,
    }
    buffer = Replay(1000, WHOLE, n_step=n, gamma=gamma)
    more = {} if n == 1 else {"truncated": truncated}
    if at_once:
        buffer.insert({**given, **more})
    else:
        for s in range(steps):
            buffer.insert({k: x[s] for k, x in {**given, **more}.items()})
    expected = by_hand(reward, terminated | truncated, n, gamma)
    assert len(buffer) == len(expected) == len(buffer._rows.first_rows(len(buffer))["obs"])
    for obs, action, total, later, ended, *discount in zip(
        *buffer._rows.first_rows(len(buffer)).values(), strict=True
    ):
        key = int(obs[0]), int(obs[1])
        value, last = expected.pop(key)
        assert total == pytest.approx(value, rel=1e-6)
        assert later.tolist() == [key[0], last + 0.5]
        assert ended == terminated[last, key[0]]
        assert action == 10 * key[1]
        assert discount == ([] if n == 1 else [pytest.approx(gamma ** (last - key[1] + 1))])
    assert not expected


def test_half_done_returns_are_saved(tmp_path: Path) -> None:
    def step(t: int) -> dict[str, Any]:
        obs = np.full((2, 2), t, "f4")
        return {
            "obs": obs,
            "next_obs": obs + 1,
            "action": [t, t],
            "reward": [1.0, 2.0],
            "terminated": [False, t == 4],
        }

    whole, half = (Replay(50, WHOLE, n_step=3, gamma=1.0) for _ in range(2))
    for t in range(4):
        whole.insert(step(t))
    whole.save(tmp_path / "half")
    half.load(tmp_path / "half")
    other = Replay(50, WHOLE, n_step=2, gamma=1.0)
    with pytest.raises(
        trl.errors.ExecutionError, match="(?s)n_step differs.*3 in the file, 2 here"
    ):
        other.load(tmp_path / "half")
    assert not len(other)
    Replay(50, WHOLE, n_step=3, gamma=1.0).save(tmp_path / "empty")
    other = Replay(50, WHOLE, n_step=3, gamma=1.0)
    other.insert(step(0))
    other.load(tmp_path / "empty")  # and drops incomplete entries
    assert [other.insert(step(t)) for t in range(3)] == [0, 0, 2]
    for t in range(4, 9):
        assert whole.insert(step(t)) == half.insert(step(t))
    assert len(whole) == (9 - 2) + 5 + (4 - 2)
    for a, b in zip(
        whole._rows.first_rows(50).values(), half._rows.first_rows(50).values(), strict=True
    ):
        assert a.tobytes() == b.tobytes()
    with pytest.raises(trl.errors.ShapeError, match="of 3 environments follow rows of 2"):
        whole.insert({k: np.concatenate([x, x[:1]]) for k, x in step(9).items()})


def test_a_batch_of_steps_is_inserted() -> None:
    with trl.collect("CartPole-v1", trl.policies.random, envs=4, steps=64, seed=1, how="scan") as c:
        batch = c.next()
    fields = {**WHOLE, "obs": ((4,), "f32"), "next_obs": ((4,), "f32"), "truncated": ((), "bool")}
    buffer = Replay(300, fields)
    assert buffer.insert(batch) == 256
    kept = {k: x.reshape(64, 4, *x.shape[1:]) for k, x in buffer._rows.first_rows(256).items()}
    assert (kept["obs"] == batch.obs).all() and (kept["reward"] == batch.reward).all()
    ends = np.asarray(batch.terminated) | np.asarray(batch.truncated)
    assert 0 < ends.sum() == len(batch.final)
    assert (kept["next_obs"][:-1][~ends[:-1]] == np.asarray(batch.obs)[1:][~ends[:-1]]).all()
    assert (kept["next_obs"][ends] == batch.final.obs).all()
    steps = Replay(300, fields, n_step=3)
    assert steps.insert(batch) == 256 - (2 * 4 - ends[-1].sum() * 2 - (ends[-2] & ~ends[-1]).sum())


def test_weights_of_a_batch_are_measured_within_it() -> None:
    buffer = Replay(8, FIELDS, priority=Proportional(1.0, 0.0), weights="batch")
    buffer.insert(rows(0, 4), [1e-9, 1.0, 2.0, 4.0])
    drawn = buffer.sample(64, beta=1.0)
    p = np.array([1e-9, 1.0, 2.0, 4.0])[drawn.index]
    assert drawn.weight == pytest.approx(p.min() / p)
    assert drawn.weight.max() == 1.0


def test_alpha_of_zero_draws_all_alike() -> None:
    buffer = Replay(8, FIELDS, priority=Proportional(alpha=0.0))
    buffer.insert(rows(0, 4), [0.0, 1.0, 1e3, 1e6])
    assert buffer.tree.priorities[:5].tolist() == [1.0] * 4 + [0.0]


def test_samples_share_memory_with_jax() -> None:
    buffer = Replay(8, FIELDS)
    buffer.insert(rows(0, 8))
    drawn = buffer.sample(4).jax()
    assert type(drawn["obs"]).__module__.startswith("jax") and drawn["obs"].shape == (4, 2)


def test_rows_lie_in_files(tmp_path: Path) -> None:
    images = {"obs": ((8, 8), "u8"), "action": ((), "i32")}
    for folder in (tmp_path / "rows", None):
        buffer = Replay(100, images, above=1000, folder=folder)
        assert isinstance(buffer._rows._arrays["obs"].base, np.memmap)
        buffer.insert({"obs": np.full((130, 8, 8), 7), "action": np.arange(130)})
        drawn = buffer.sample(50)
        assert type(drawn["obs"]) is np.ndarray and (drawn["obs"] == 7).all()
        assert drawn["action"].tolist() == drawn.ticket.serial.tolist()
        assert set(drawn["action"]) <= set(range(30, 130))
    assert {x.name for x in (tmp_path / "rows").iterdir()} == {"0.rows", "1.rows", "rows.lock"}


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"obs": np.zeros((3, 2)), "action": [1, 2, 3]}, "reward is missing"),
        (
            {**rows(0, 3), "obs": np.zeros((3, 4))},
            r"obs has the shape \[3, 4\], the field has \[2\]",
        ),
        ({**rows(0, 3), "action": [0.5, 1, 2]}, "action is float64, the field is int32"),
        ({**rows(0, 3), "action": [1, 2, 2**31]}, "action is int64, the field is int32"),
        ({**rows(0, 3), "reward": [1.0]}, r"counts differ: obs \[3\], action \[3\], reward \[1\]"),
        ({**rows(0, 3), "extra": [1.0] * 3}, "the buffer has no field extra"),
        ([1, 2], "rows are not a mapping of arrays by field: got list"),
    ],
)
def test_what_is_no_row_is_refused(given: Any, what: str) -> None:
    buffer = Replay(8, FIELDS)
    with pytest.raises(trl.errors.ShapeError, match=what):
        buffer.insert(given)
    assert not len(buffer)


def test_what_is_no_update_is_refused() -> None:
    buffer, other = (Replay(8, FIELDS, priority=Proportional(alpha=1.0)) for _ in range(2))
    for one in (buffer, other):
        one.insert(rows(0, 8))
    ticket, before = buffer.sample(4).ticket, buffer.tree.priorities.copy()
    with pytest.raises(trl.errors.OptionError, match="the ticket does not belong to this buffer"):
        other.update(ticket, [1.0] * 4)
    with pytest.raises(trl.errors.ShapeError, match="3 errors do not match the 4 rows"):
        buffer.update(ticket, [1.0] * 3)
    for value in (np.nan, np.inf):
        with pytest.raises(trl.errors.ShapeError, match=f"the error at index 2 is {value}"):
            buffer.update(ticket, [1.0, 1.0, value, 1.0])
    with pytest.raises(trl.errors.ShapeError, match="at index 0, is out of range"):
        buffer.update(ticket, [1e308] * 4)
    with pytest.raises(trl.errors.ShapeError, match="at index 0, is out of range"):
        buffer.insert(rows(8, 1), errors=[1e308])
    assert buffer.tree.priorities.tolist() == before.tolist()
    buffer.insert(rows(8, 1))  # with the priority of the maximal error so far
    assert buffer.tree.priorities.tolist() == before.tolist()
    with pytest.raises(trl.errors.OptionError, match="no priorities"):
        Replay(8, FIELDS).update(ticket, [1.0] * 4)


def test_foreign_and_damaged_files_are_refused(tmp_path: Path) -> None:
    buffer = Replay(8, FIELDS)
    buffer.insert(rows(0, 3))
    buffer.save(tmp_path / "one")
    with pytest.raises(
        trl.errors.ExecutionError, match="(?s)capacity differs.*8 in the file, 9 here"
    ):
        Replay(9, FIELDS).load(tmp_path / "one")
    with pytest.raises(trl.errors.ExecutionError, match="(?s)alpha, eps differ.*None in the file"):
        Replay(8, FIELDS, priority=Proportional()).load(tmp_path / "one")
    content = bytearray((tmp_path / "one").read_bytes())
    content[-3] ^= 1
    (tmp_path / "one").write_bytes(content)
    with pytest.raises(trl.errors.ExecutionError, match="'row .*' does not match its checksum"):
        buffer.load(tmp_path / "one")
    assert len(buffer) == 3


def test_threads_take_turns() -> None:
    buffer = Replay(500, FIELDS, priority=Proportional())

    def act(k: int) -> None:
        for _ in range(50):
            buffer.insert(rows(1000 * k, 3))

    threads = [threading.Thread(target=act, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    while not len(buffer):
        pass
    for _ in range(50):
        drawn = buffer.sample(8)
        buffer.update(drawn.ticket, np.ones(8))
        assert (drawn["obs"][:, 0] == drawn["action"]).all()
    for thread in threads:
        thread.join()
    assert buffer.inserted == 600 and len(buffer) == 500


def test_arguments_are_checked() -> None:
    for wrong in ({"obs": (4, "f32")}, {"obs": "f32"}, [], {}):
        with pytest.raises(trl.errors.OptionError):
            Replay(8, wrong)
    with pytest.raises(
        trl.errors.OptionError, match="need the missing fields next_obs, terminated"
    ):
        Replay(8, FIELDS, n_step=3)
    with pytest.raises(trl.errors.OptionError, match="buffer"):
        Replay(8, FIELDS, weights="all")
    with pytest.raises(trl.errors.OptionError, match="alpha=-1"):
        Proportional(alpha=-1)
    with pytest.raises(trl.errors.ExecutionError, match="empty"):
        Replay(8, FIELDS).sample(1)
    with pytest.raises(trl.errors.ShapeError, match="gamma must be a number from 0 to 1, not 2"):
        Replay(8, FIELDS, gamma=2)
    buffer = Replay(8, FIELDS, priority=Proportional())
    buffer.insert(rows(0, 4))
    for beta in (-1, np.nan, np.inf, "all"):
        with pytest.raises(trl.errors.ShapeError, match="beta must be a number"):
            buffer.sample(1, beta=beta)
