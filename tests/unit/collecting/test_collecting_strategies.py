"""Choice of a collecting strategy: fake strategies with fixed speeds and a fake clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import gymnasium
import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import EnvError, MissingNameError, OptionError
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.measurement_cache_key import cost_key
from timerl_nb.collecting.policies.ready_policies import Random
from timerl_nb.collecting.strategies.gymnasium_loop import Loop
from timerl_nb.collecting.strategies.native_vector_environment import Native
from timerl_nb.collecting.strategy import Counts, Strategy
from timerl_nb.collecting.strategy_report import Speed, StrategyReport, StrategyRow
from timerl_nb.collecting.strategy_selection import SelectedStrategy, check, choose
from timerl_nb.runtime.jax_backend.arrays_and_devices import device_count
from timerl_nb.runtime.state.disk_cache import DiskCache

ENV = trl.env.make("CartPole-v1", max_steps=30)


class Clock:
    """Clock that advances on request."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Made(Strategy):
    """Fake strategy: batches of 100 steps with a fixed duration; records its calls."""

    what = "made up"

    def __init__(
        self,
        clock: Clock,
        name: str,
        seconds: Sequence[float],
        *,
        provenance: str = "ours",
        prepares: float = 0.0,
        why_not: str | None = None,
        fails: Exception | None = None,
        required_speedup: float = 1.0,
    ) -> None:
        self.name, self.provenance, self._why_not = name, provenance, why_not
        self._clock, self._seconds, self._prepares = clock, cycle(seconds), prepares
        self._fails, self.required_speedup = fails, required_speedup  # type: ignore[misc]
        self.seeds: list[int] = []
        self.batches = self.closed = self.ready = 0

    def why_not(self, task: Task) -> str | None:
        return self._why_not

    def prepared(self, task: Task) -> Any:
        self._clock.now += self._prepares
        self.ready += 1
        return self

    def __call__(self, seed: int) -> Any:
        self.seeds.append(seed)
        return self

    def next(self, weights: Any) -> Any:
        if self._fails is not None:
            raise self._fails
        self.batches += 1
        # the first one compiles
        self._clock.now += 1.0 if self.batches == 1 else next(self._seconds)
        return SimpleNamespace(count=100)

    def confirm_received(self) -> None:
        pass

    @property
    def counts(self) -> Counts:
        return Counts(7, None, 2)

    def close(self) -> None:
        self.closed += 1


def task(**options: Any) -> Task:
    whole = Task(f"made up {uuid4()}", ENV, None, Random({}, ENV.act_space), 10, 10, 5)
    return replace(whole, **options)


def chosen(
    clock: Clock, *strategies: Made, how: str = "auto", of: Task | None = None
) -> SelectedStrategy:
    check(strategies, of or task(), how)
    return choose(strategies, of or task(), how, {}, clock=clock)


def test_the_fastest_is_taken_and_measured_apart() -> None:
    clock = Clock()
    slow, fast = Made(clock, "slow", [0.2]), Made(clock, "fast", [0.1])
    found = chosen(clock, slow, fast)
    assert found.report.chosen == "fast" and found.prepared is fast
    assert (
        found.report.why == "clearly fastest, 2.0 times as fast as slow"
        and not found.report.remembered
    )
    for strategy in (slow, fast):
        assert strategy.batches == 1 + 5 and strategy.closed == 1 == strategy.ready
        assert strategy.seeds != [5]  # the trajectories' own
    row = found.report["slow"]
    assert row.speed == pytest.approx((500, 500, 500)) and found.report[0] is row
    with pytest.raises(MissingNameError, match="did you mean slow"):
        found.report["slwo"]
    assert replace(row, speed=None) == StrategyRow("slow", "ours", None, 7, None, 2)


def test_what_is_three_times_slower_stops_after_one() -> None:
    clock = Clock()
    strategies = [Made(clock, n, [s]) for n, s in (("a", 0.1), ("b", 0.31), ("c", 0.29))]
    found = chosen(clock, *strategies)
    assert [strategy.batches for strategy in strategies] == [6, 2, 6] and found.report.chosen == "a"


@pytest.mark.parametrize(("seconds", "taken"), [(0.095, "one"), (0.09, "many")])
def test_more_devices_are_taken_where_they_gain_enough(seconds: float, taken: str) -> None:
    clock = Clock()
    strategies = [Made(clock, "one", [0.1]), Made(clock, "slow", [0.11])]
    found = chosen(clock, *strategies, Made(clock, "many", [seconds], required_speedup=1.1)).report
    assert found.chosen == taken
    less = "many is 1.05 times as fast, but has to be 1.1 times as fast"
    assert found.why == (less if taken == "one" else "clearly fastest, 1.1 times as fast as one")


def test_spread_decides_for_how_long() -> None:
    clock = Clock()
    one, other = Made(clock, "one", [0.13, 0.33]), Made(clock, "other", [0.23, 0.22])
    found = chosen(clock, one, other)
    assert (one.batches, other.batches) == (1 + 10, 1 + 9)  # until 2 s are over for both
    assert found.report.why.endswith("but the spread of batches is larger")
    speed = next(row.speed for row in found.report if row.name == "one")
    assert speed is not None and speed.least < speed.median < speed.greatest


def test_two_seconds_each_and_ten_in_all() -> None:
    clock = Clock()
    strategies = [Made(clock, f"{k}", [1.5]) for k in range(3)]
    chosen(clock, *strategies)
    assert [strategy.batches for strategy in strategies] == [3, 3, 3]
    clock = Clock()
    long = Made(clock, "long", [4.0])
    late = [Made(clock, f"{k}", [0.01], prepares=6.0) for k in range(3)]
    found = chosen(clock, long, *late)
    assert [strategy.ready for strategy in late] == [1, 1, 0] and late[1].batches == 101
    assert found.report[3].speed is None and "the time limit of 10 s" in str(
        found.report[3].why_not
    )


def test_provenances_are_not_crossed_unless_asked() -> None:
    clock = Clock()
    ours, theirs = Made(clock, "ours", [0.2]), Made(clock, "far", [0.1], provenance="theirs")
    found = chosen(clock, ours, theirs)
    assert (found.report.chosen, found.report.why) == ("ours", "no other strategy applies")
    assert ours.batches == theirs.ready == 0 and 'how="any"' in str(found.report[1].why_not)
    assert chosen(clock, ours, theirs, how="any").report.chosen == "far"


def test_what_is_asked_for_is_not_measured() -> None:
    clock = Clock()
    one, other = Made(clock, "one", [0.1]), Made(clock, "other", [0.2], why_not="it is not there")
    found = chosen(clock, one, other, how="one")
    assert found.prepared is one and one.batches == 0 and found.report.why == "requested by how"
    with pytest.raises(OptionError, match="'other' does not apply: it is not there"):
        check((one, other), task(), "other")
    with pytest.raises(OptionError, match="how='two' does not exist"):
        check((one, other), task(), "two")
    with pytest.raises(OptionError, match="no collection strategy applies"):
        check((other,), task(), "auto")


def test_environments_that_were_given_are_not_tried_out() -> None:
    clock = Clock()
    strategies = Made(clock, "one", [0.2]), Made(clock, "other", [0.1])
    found = chosen(clock, *strategies, of=task(env=None, vector=object()))
    assert found.report.chosen == "one" and not strategies[0].batches


def test_what_fails_is_not_taken() -> None:
    clock = Clock()
    error = EnvError("the environment is broken.")
    strategies = Made(clock, "one", [0.1], fails=error), Made(clock, "other", [0.2])
    found = chosen(clock, *strategies)
    assert found.report.chosen == "other" and found.report.why == "no other strategy was measured"
    assert (
        found.report[0].why_not == "it failed: the environment is broken."
        and strategies[0].closed == 1
    )
    with pytest.raises(EnvError, match="is broken"):
        chosen(clock, strategies[0], Made(clock, "third", [0.1], fails=ValueError("later")))


def test_a_choice_is_remembered(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "timerl_nb.collecting.strategy_selection.disk_cache", lambda: DiskCache(tmp_path)
    )
    clock, of = Clock(), task()

    def again(of: Task, *names: str) -> tuple[StrategyReport, list[Made]]:
        strategies = [Made(clock, name, [0.1 * (k + 1)]) for k, name in enumerate(names)]
        return chosen(clock, *strategies, of=of).report, strategies

    first, _ = again(of, "one", "other")
    known, strategies = again(of, "one", "other")
    assert known.remembered and tuple(known) == tuple(first)
    assert (known.chosen, known.why) == (first.chosen, first.why)
    assert [strategy.batches for strategy in strategies] == [0, 0] and [
        strategy.ready for strategy in strategies
    ] == [1, 0]
    for others in (replace(of, envs=11), replace(of, steps=9), replace(of, name="another")):
        assert not again(others, "one", "other")[0].remembered
    assert not again(of, "one", "third")[0].remembered


def test_what_there_was_time_for_is_remembered(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "timerl_nb.collecting.strategy_selection.disk_cache", lambda: DiskCache(tmp_path)
    )
    clock, of = Clock(), task()
    strategies = [Made(clock, f"{k}", [0.1 + k], prepares=6.0) for k in range(3)]
    first = chosen(clock, *strategies, of=of).report
    assert first[2].speed is None and "not measured" in str(first[2].why_not)
    again = [Made(clock, f"{k}", [0.1 + k]) for k in range(3)]
    known = chosen(clock, *again, of=of)
    assert known.report.remembered and known.report.chosen == "0"
    assert [strategy.batches for strategy in again] == [0, 0, 0] and known.report[
        2
    ].why_not == first[2].why_not
    assert known.expected == first[0].speed and known.again is not None
    assert known.is_expected(1000) and known.is_expected(400)
    assert not known.is_expected(300) and not known.is_expected(3100)
    assert (
        not known.again().report.remembered
        and [strategy.batches > 0 for strategy in again] == [True] * 3
    )


class Counted(gymnasium.Env[Any, Any]):
    """An environment with steps of a fixed duration."""

    work = 0.0

    def __init__(self, work: float = 0.0, many: int = 1) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.args = work, many

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        time.sleep(self.args[0] + Counted.work)
        return np.zeros(2, np.float32), 0.0, False, False, {}


def helped(x: int) -> int:
    return x + 1


def test_what_the_speed_depends_on_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    gymnasium.register("Counted-v0", entry_point=Counted, disable_env_checker=True)

    def key(policy: Any = trl.policies.random, **options: Any) -> tuple[str, ...]:
        env = trl.env.make("gym.Counted-v0", **options)
        return cost_key(trl.collect(env, policy, envs=2, steps=3, how="loop")._task)

    def widths(n: int) -> Any:
        w = np.zeros((2, n), np.float32)
        return lambda obs: (obs @ w).argmax(-1) % 2

    first = key(widths(3))
    assert key(widths(3)) == first and key(widths(4)) != first and key() == key()
    assert key(lambda obs: helped(len(obs))) == key(lambda obs: helped(len(obs)))
    before = key(lambda obs: helped(len(obs)))
    monkeypatch.setitem(globals(), "helped", lambda x: x + 2)
    assert key(lambda obs: helped(len(obs))) != before
    assert len({key(work=0.1), key(work=0.2), key(many=2), key()}) == 4
    plain = key()
    monkeypatch.setattr(Counted, "reset", lambda self, **_: (np.ones(2, np.float32), {}))
    assert key() != plain  # other code under the same name
    plain = key()
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert key() != plain
    plain = key()
    monkeypatch.setattr("timerl_nb.collecting.measurement_cache_key.cores", lambda: 77)
    assert key() != plain
    found = list[tuple[str, ...]]()
    for n in (8, 8, 9):
        other = trl.DNNBuilder().from_env(ENV, hidden=[n])
        found.append(cost_key(trl.collect(ENV, other, envs=2, how="scan")._task))
    assert found[0] == found[1] != found[2]


def test_an_environment_that_became_slower_is_measured_again(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache key is equal, but the first batch reveals it."""
    monkeypatch.setattr(
        "timerl_nb.collecting.strategy_selection.disk_cache", lambda: DiskCache(tmp_path)
    )
    monkeypatch.setattr("timerl_nb.collecting.collector.STRATEGIES", (Loop(), Twice()))
    gymnasium.register("Counted-v1", entry_point=Counted, disable_env_checker=True)

    def collected() -> tuple[StrategyReport, int]:
        with trl.collect("gym.Counted-v1", trl.policies.random, envs=2, steps=5) as c:
            return c.strategies, c.next().count

    monkeypatch.setattr(Counted, "work", 0.0005)
    assert not collected()[0].remembered and collected()[0].remembered
    key = [*tmp_path.iterdir()]
    monkeypatch.setattr(
        "timerl_nb.collecting.measurement_cache_key._environment", lambda task: None
    )
    assert not collected()[0].remembered
    measured = collected()[0]
    speed = measured[measured.chosen].speed
    assert measured.remembered and speed is not None
    # another process may have delayed a measured batch
    monkeypatch.setattr(Counted, "work", max(0.02, 6 / speed.least))
    with trl.collect("gym.Counted-v1", trl.policies.random, envs=2, steps=5) as c:
        assert c.strategies.remembered and c.next().obs.shape == (5, 2, 2)
        assert not c.strategies.remembered and c.strategies["loop"].speed is not None
        assert c.strategies["loop"].speed.median < speed.least
        assert c.next().count == 10
    assert collected()[0].remembered and len([*tmp_path.iterdir()]) == len(key) + 1


class Twice(Loop):
    """The loop strategy under another name."""

    name = "twice"


def test_slow_environments_are_measured_by_few_steps() -> None:
    gymnasium.register("Counted-v2", entry_point=Counted, disable_env_checker=True)
    env = trl.env.make("gym.Counted-v2", work=0.02)
    made = trl.collect(env, trl.policies.random, envs=2, steps=10_000, how="loop")._task
    began = time.perf_counter()
    found = choose((Loop(), Twice()), made, "auto", {}).report
    assert time.perf_counter() - began < 60  # a batch takes 400 s
    row = found["loop"]
    assert row.speed is not None and 10 < row.speed.median <= 50 and row.calls == 20_000


def test_gymnasiums_own_vectors_are_measured_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("timerl_nb.collecting.collector.STRATEGIES", (Native(), Loop()))
    with trl.collect("gym.CartPole-v1", trl.policies.random, envs=1, steps=20) as c:
        assert [row.speed is not None for row in c.strategies] == [True, True]


def test_the_table_prints() -> None:
    rows = (
        StrategyRow("fast", "ours", Speed(2e6, 1e6, 3e6), 1, 64, 0),
        StrategyRow("slow", "ours", Speed(1e3, 1e3, 1e3), 64, None, 0),
        StrategyRow("host", "theirs", why_not="a < b"),
    )
    strategies = StrategyReport(rows, "fast", "it leads, 2,000.0 times as fast as slow")
    assert str(strategies).splitlines() == [
        "  strategy                      steps a second  calls  launches  copies",
        "* fast      2,000,000 (1,000,000 to 3,000,000)      1        64       0",
        "  slow                  1,000 (1,000 to 1,000)     64                 0",
        "  host  a < b",
        "fast: it leads, 2,000.0 times as fast as slow.",
    ]
    html = strategies._repr_html_()
    assert "<b>fast</b>" in html and "a &lt; b" in html and html.count("<tr>") == 4


def test_a_collector_chooses_when_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "timerl_nb.collecting.strategy_selection._ALL", float("inf")
    )  # however long XLA compiles
    options: Any = {"envs": 4, "steps": 6, "seed": 3}
    with trl.collect(ENV, trl.policies.random, **options) as c:
        first = c.next()
        strategies = c.strategies
        several = {"sharded"} if device_count() > 1 else set[str]()
        measured = {row.name for row in strategies if row.speed is not None}
        assert measured == {"scan", "step"} | several
        scan = strategies[0]
        assert (scan.name, scan.calls, scan.copies) == ("scan", 1, 0) and scan.launches
    with trl.collect(ENV, trl.policies.random, how="scan", **options) as d:
        same = d.next()
        assert d.strategies.chosen == "scan" and d.strategies.why == "requested by how"
    np.testing.assert_array_equal(cast(Any, first).obs, cast(Any, same).obs)
