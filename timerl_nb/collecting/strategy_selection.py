"""Selection of a strategy: a race between the applicable ones, with cached results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import Any, Final

from timerl_nb.base.errors import OptionError, TimeRLError, one_of
from timerl_nb.base.interleaved_timing import Candidate, Limits, measure_in_rounds, time_call
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.measurement_cache_key import cost_key
from timerl_nb.collecting.strategy import Counts, Prepared, Source, Strategy
from timerl_nb.collecting.strategy_report import Speed, StrategyReport, StrategyRow
from timerl_nb.runtime.state.disk_cache import CacheEntry, disk_cache, key_of

AUTO: Final = "auto"
ANY: Final = "any"  # like "auto", with any provenance

_ROUNDS: Final = 5
_MOST_ROUNDS: Final = 100
_EACH: Final = 2.0  # seconds of measurement per strategy
_ALL: Final = 10.0  # seconds in total; later strategies are not compiled
_BRIEF: Final = 0.2  # seconds of a shortened batch
_FEW: Final = 3  # minimum number of batches for a spread
_LOST: Final = 3  # a strategy this many times slower than the fastest is dropped
_SEED_OFFSET: Final = (
    0x9E3779B97F4A7C15  # offset between the seeds of measurements and of trajectories
)
# libraries with an influence on speed
_LIBRARIES: Final = ("gymnasium", "envpool", "torch", "gymnax", "brax", "ray")

# Order of trial of the applicable strategies for a task.
Order = Callable[[Task, Sequence[Strategy]], Sequence[Strategy]]


@dataclass(frozen=True)
class SelectedStrategy:
    """Selected strategy of a task.

    Attributes:
        prepared: the prepared strategy.
        expected: cached speed of an earlier process; None if measured now or not at all.
        again: selects again without the cache.
    """

    prepared: Prepared
    _make_report: Callable[[], StrategyReport]
    expected: Speed | None = None
    again: Callable[[], SelectedStrategy] | None = None

    def is_expected(self, speed: float) -> bool:
        """Return whether the speed of a batch (steps per second) agrees with the cached one."""
        known = self.expected
        return known is None or known.least / _LOST <= speed <= known.greatest * _LOST

    @cached_property
    def report(self) -> StrategyReport:
        """Report of all strategies, with the reason for the selection."""
        return self._make_report()


def check(strategies: Sequence[Strategy], task: Task, how: str) -> None:
    """Check that a strategy can be selected.

    Raises:
        OptionError: the strategy does not exist or does not apply, or none applies.
    """
    names = [strategy.name for strategy in strategies]
    if how not in (AUTO, ANY, *names):
        raise OptionError(
            f"the strategy how={how!r} does not exist.",
            hint=one_of(str(how), [AUTO, ANY, *names]),
        )
    why_not: list[str] = []
    for strategy in strategies:
        if how in (AUTO, ANY, strategy.name):
            why = strategy.why_not_at_pace(task)
            if why is None:
                return
            why_not.append(f"{strategy.name}: {why}")
    if how in names:
        raise OptionError(
            f"{how!r} does not apply: {why_not[0].removeprefix(f'{how}: ')}.",
            hint='use how="auto", which selects an applicable strategy.',
        )
    raise OptionError(
        "no collection strategy applies.",
        evidence=why_not,
        hint="change the environment or the policy to meet the conditions of one.",
    )


def choose(
    strategies: Sequence[Strategy],
    task: Task,
    how: str,
    weights: Mapping[str, Any],
    *,
    order: Order = lambda _, strategies: strategies,
    clock: Callable[[], float] = perf_counter,
    anew: bool = False,
) -> SelectedStrategy:
    """Select the requested strategy, or measure the applicable ones and select the fastest.

    Args:
        strategies: all strategies.
        task: the task.
        how: valid name of a strategy, "auto" or "any"; see `check`.
        weights: weights of the policy during the measurement.
        order: order of trial, in case the time limit does not suffice for all.
        clock: clock in seconds.
        anew: True to ignore the cache.
    """
    by_name = {strategy.name: strategy for strategy in strategies}
    if how in by_name:
        report = partial(_report_unmeasured, strategies, task, how, "requested by how")
        return SelectedStrategy(by_name[how].prepared(task), report)
    disk = disk_cache() if task.vector is None else None
    entry = CacheEntry(
        disk, lambda: key_of("collecting", *cost_key(task), how, [*by_name], _versions())
    )
    found = None if anew else _read_report(entry)
    if found is not None:
        speed = found[found.chosen].speed
        again = partial(choose, strategies, task, how, weights, order=order, clock=clock, anew=True)
        return SelectedStrategy(by_name[found.chosen].prepared(task), lambda: found, speed, again)
    rows = _rows(strategies, task)
    able = [strategy for strategy in strategies if rows[strategy.name].why_not is None]
    if how == AUTO:
        one = able[0].provenance
        for strategy in able:
            if strategy.provenance != one:
                text = f'it has another provenance ({strategy.provenance}); how="any" allows it'
                rows[strategy.name] = replace(rows[strategy.name], why_not=text)
        able = [strategy for strategy in able if strategy.provenance == one]
    if len(able) == 1 or task.vector is not None:
        why = "not measured, because a measurement would step the given environments"
        why = "no other strategy applies" if len(able) == 1 else why
        alone = StrategyReport(tuple(rows.values()), able[0].name, why)
        return SelectedStrategy(able[0].prepared(task), lambda: alone)
    race = _Race(task, weights, clock)
    race.run(order(task, able))
    rows |= {strategy.name: race.row(rows[strategy.name]) for strategy in able}
    chosen, why = race.winner
    measured = StrategyReport(tuple(rows.values()), chosen, why)
    entry.write(asdict(replace(measured, remembered=True)))
    return SelectedStrategy(race.runners[chosen].prepared, lambda: measured)


def _rows(strategies: Sequence[Strategy], task: Task) -> dict[str, StrategyRow]:
    return {
        strategy.name: StrategyRow(
            strategy.name, strategy.provenance, why_not=strategy.why_not_at_pace(task)
        )
        for strategy in strategies
    }


def _report_unmeasured(
    strategies: Sequence[Strategy], task: Task, chosen: str, why: str
) -> StrategyReport:
    return StrategyReport(tuple(_rows(strategies, task).values()), chosen, why)


@dataclass(kw_only=True)
class _Runner(Candidate):
    """A strategy under measurement."""

    prepared: Prepared
    source: Source
    counts: Counts
    required_speedup: float  # required speed-up over another strategy

    def shorten(
        self, steps: int, weights: Mapping[str, Any], clock: Callable[[], float], first: float
    ) -> None:
        """Choose the number of steps of a short batch, at most the task's.

        Args:
            steps: steps per batch of the task.
            weights: weights of the policy.
            clock: clock in seconds.
            first: seconds of the first batch of one step.
        """
        source: Any = self.source  # a strategy without compilation
        self.counts = replace(
            self.counts, calls=steps * self.counts.calls, copies=steps * self.counts.copies
        )
        if first > self.limits.each:  # no time for a second step
            self.seconds.append(first)
            self.speeds.append(source.envs / first)
            return
        one = max(time_call(lambda: _collect(source, weights), clock), 1e-9)
        source.set_steps(max(1, min(steps, int(_BRIEF / one))))

    @property
    def speed(self) -> Speed:
        return Speed.from_batches(self.speeds)


def _collect(source: Source, weights: Mapping[str, Any]) -> int:
    """Collect one batch and return its number of steps."""
    batch = source.next(weights)
    source.confirm_received()
    return batch.count


class _Race:
    """Race of strategies: batches in turn, with separate environments."""

    def __init__(self, task: Task, weights: Mapping[str, Any], clock: Callable[[], float]) -> None:
        self._task, self._weights, self._clock = task, weights, clock
        self._limits = Limits(
            rounds=_ROUNDS, most_rounds=_MOST_ROUNDS, each=_EACH, all=_ALL, lost=_LOST, few=_FEW
        )
        self.runners: dict[str, _Runner] = {}
        self._why_not: dict[str, str] = {}

    def run(self, strategies: Sequence[Strategy]) -> None:
        """Run the strategies until one leads clearly or the time is over.

        Raises:
            Exception: the first error, if all strategies failed.
        """
        first: Exception | None = None
        # the time of opening environments counts, compilation does not
        began, starting = self._clock(), 0.0
        with ExitStack() as stack:
            for strategy in strategies:
                if self.runners and self._clock() - began > self._limits.all:
                    self._why_not[strategy.name] = (
                        f"not measured: the time limit of {self._limits.all:.0f} s was reached"
                    )
                    continue
                begun = self._clock()
                try:
                    self._begin(strategy, stack)
                except Exception as error:
                    first = first or error
                    what = error.what if isinstance(error, TimeRLError) else repr(error)
                    self._why_not[strategy.name] = f"it failed: {what}"
                starting += 0.0 if strategy.compiles else self._clock() - begun
            if first is not None and not self.runners:
                raise first
            measure_in_rounds(
                [*self.runners.values()], self._limits, self._clock() - starting, self._clock
            )

    def _begin(self, strategy: Strategy, stack: ExitStack) -> None:
        task = self._task
        prepared = strategy.prepared(task)
        begin = prepared if strategy.compiles else strategy.prepared(replace(task, steps=1))
        source = stack.enter_context(closing(begin(task.seed ^ _SEED_OFFSET)))
        run = partial(_collect, source, self._weights)
        first = time_call(run, self._clock)  # includes compilation or reset
        runner = _Runner(
            run=run,
            limits=self._limits,
            prepared=prepared,
            source=source,
            counts=source.counts,
            required_speedup=strategy.required_speedup,
        )
        if not strategy.compiles:
            runner.shorten(task.steps, self._weights, self._clock, first)
        self.runners[strategy.name] = runner

    @property
    def winner(self) -> tuple[str, str]:
        """Name of the fastest strategy, and the reason."""
        speeds = {name: runner.speed.median for name, runner in self.runners.items()}
        name = max(speeds, key=lambda name: speeds[name] / self.runners[name].required_speedup)
        if len(speeds) == 1:
            return name, "no other strategy was measured"
        second = max(speeds.keys() - {name}, key=lambda name: speeds[name])
        first, other = self.runners[name], self.runners[second]
        ratio = speeds[name] / speeds[second]
        if ratio < 1:
            few = f"but has to be {other.required_speedup:.1f} times as fast"
            return name, f"{second} is {1 / ratio:.2f} times as fast, {few}"
        times = f"{ratio:,.1f} times as fast as {second}"
        if first.is_clearly_faster(other):
            return name, f"clearly fastest, {times}"
        return name, f"fastest by the median, {times}, but the spread of batches is larger"

    def row(self, before: StrategyRow) -> StrategyRow:
        """Return the measured row of a strategy."""
        if before.name in self._why_not:
            return replace(before, why_not=self._why_not[before.name])
        runner = self.runners[before.name]
        return replace(before, speed=runner.speed, **asdict(runner.counts))


def _read_report(entry: CacheEntry) -> StrategyReport | None:
    """Return the cached report of an earlier process, if any."""
    whole = entry.load()
    if whole is None:
        return None
    rows = (StrategyRow(**row) for row in whole.pop("rows"))
    return StrategyReport(
        tuple(replace(r, speed=r.speed and Speed(*r.speed)) for r in rows), **whole
    )


def _versions() -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
