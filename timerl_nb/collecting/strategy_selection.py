"""Choosing a way: those that apply run in turn on environments of their own, and what was found is remembered."""

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
from timerl_nb.collecting.strategy import Counts, Prepared, Source, Way
from timerl_nb.collecting.strategy_report import Speed, StrategyRow, Ways
from timerl_nb.runtime.state.disk_cache import CacheEntry, disk_cache, key_of

AUTO: Final = "auto"
ANY: Final = "any"  # as auto, of whatever provenance

_ROUNDS: Final = 5
_MOST_ROUNDS: Final = 100
_EACH: Final = 2.0  # seconds that a way is measured
_ALL: Final = 10.0  # seconds in all; and so many after which no other way is compiled
_BRIEF: Final = 0.2  # seconds of a shortened batch
_FEW: Final = 3  # fewer batches than these have no spread
_LOST: Final = 3  # times as long as the fastest
_APART: Final = 0x9E3779B97F4A7C15  # between the seed of measurements and that of trajectories
_LIBRARIES: Final = ("gymnasium", "envpool", "torch", "gymnax", "brax")  # whose versions matter

# A task, and the ways that apply, in the order in which they are tried.
Order = Callable[[Task, Sequence[Way]], Sequence[Way]]


@dataclass(frozen=True)
class SelectedStrategy:
    """The way that a task goes.

    Attributes:
        prepared: it, ready.
        expected: how fast it was in an earlier process; None where it was measured now, or not at all.
        again: chooses anew, whatever is remembered.
    """

    prepared: Prepared
    _told: Callable[[], Ways]
    expected: Speed | None = None
    again: Callable[[], SelectedStrategy] | None = None

    def is_expected(self, speed: float) -> bool:
        """Whether a batch of this speed, in steps a second, agrees with the remembered figure."""
        known = self.expected
        return known is None or known.least / _LOST <= speed <= known.greatest * _LOST

    @cached_property
    def ways(self) -> Ways:
        """All of them, and why it is this one."""
        return self._told()


def check(ways: Sequence[Way], task: Task, how: str) -> None:
    """Refuse what cannot be chosen.

    Raises:
        OptionError: there is no such way; it does not apply; or none does.
    """
    names = [way.name for way in ways]
    if how not in (AUTO, ANY, *names):
        raise OptionError(f"how={how!r} is no way.", hint=one_of(str(how), [AUTO, ANY, *names]))
    why_not: list[str] = []
    for way in ways:
        if how in (AUTO, ANY, way.name):
            why = way.why_not(task)
            if why is None:
                return
            why_not.append(f"{way.name}: {why}")
    if how in names:
        raise OptionError(f"{how!r} does not apply: {why_not[0].removeprefix(f'{how}: ')}.")
    raise OptionError("no way of collecting applies.", evidence=why_not)


def choose(
    ways: Sequence[Way],
    task: Task,
    how: str,
    weights: Mapping[str, Any],
    *,
    order: Order = lambda _, ways: ways,
    clock: Callable[[], float] = perf_counter,
    anew: bool = False,
) -> SelectedStrategy:
    """The way that is asked for; or the fastest of those of one provenance that apply, measured.

    Args:
        how: `check` has found nothing wrong with it.
        weights: that the policy acts by while ways are measured.
        order: which are tried first, in case that the time does not suffice for all.
        anew: measure whatever is remembered.
    """
    by_name = {way.name: way for way in ways}
    if how in by_name:
        told = partial(_report_unmeasured, ways, task, how, "it was asked for")
        return SelectedStrategy(by_name[how].prepared(task), told)
    disk = disk_cache() if task.vector is None else None
    entry = CacheEntry(
        disk, lambda: key_of("collecting", *cost_key(task), how, [*by_name], _versions())
    )
    found = None if anew else _read_ways(entry)
    if found is not None:
        speed = found[found.chosen].speed
        again = partial(choose, ways, task, how, weights, order=order, clock=clock, anew=True)
        return SelectedStrategy(by_name[found.chosen].prepared(task), lambda: found, speed, again)
    rows = _rows(ways, task)
    able = [way for way in ways if rows[way.name].why_not is None]
    if how == AUTO:
        one = able[0].provenance
        for way in able:
            if way.provenance != one:
                text = f'it is of another provenance, {way.provenance}: how="any" allows it'
                rows[way.name] = replace(rows[way.name], why_not=text)
        able = [way for way in able if way.provenance == one]
    if len(able) == 1 or task.vector is not None:
        why = "nothing was measured, since measuring would step the environments that were given"
        why = "no other one applies" if len(able) == 1 else why
        alone = Ways(tuple(rows.values()), able[0].name, why)
        return SelectedStrategy(able[0].prepared(task), lambda: alone)
    race = _Race(task, weights, clock)
    race.run(order(task, able))
    rows |= {way.name: race.row(rows[way.name]) for way in able}
    chosen, why = race.winner
    measured = Ways(tuple(rows.values()), chosen, why)
    entry.write(asdict(replace(measured, remembered=True)))
    return SelectedStrategy(race.runners[chosen].prepared, lambda: measured)


def _rows(ways: Sequence[Way], task: Task) -> dict[str, StrategyRow]:
    return {
        way.name: StrategyRow(way.name, way.provenance, why_not=way.why_not(task)) for way in ways
    }


def _report_unmeasured(ways: Sequence[Way], task: Task, chosen: str, why: str) -> Ways:
    return Ways(tuple(_rows(ways, task).values()), chosen, why)


@dataclass(kw_only=True)
class _Runner(Candidate):
    """A strategy that is being measured."""

    prepared: Prepared
    source: Source
    counts: Counts
    wanted: float  # times as fast as another one

    def shorten(
        self, steps: int, weights: Mapping[str, Any], clock: Callable[[], float], first: float
    ) -> None:
        """Choose the number of steps of a short batch, up to the task's.

        Args:
            steps: of a batch of the task.
            first: seconds of the first batch, of one step.
        """
        source: Any = self.source  # of a strategy without compilation
        self.counts = replace(
            self.counts, calls=steps * self.counts.calls, copies=steps * self.counts.copies
        )
        if first > self.limits.each:  # no time is left for a second step
            self.seconds.append(first)
            self.speeds.append(source.envs / first)
            return
        one = max(time_call(lambda: _collect(source, weights), clock), 1e-9)
        source.of_steps(max(1, min(steps, int(_BRIEF / one))))

    @property
    def speed(self) -> Speed:
        return Speed.from_batches(self.speeds)


def _collect(source: Source, weights: Mapping[str, Any]) -> int:
    """Make one batch; return its steps."""
    batch = source.next(weights)
    source.handed_out()
    return batch.count


class _Race:
    """Ways that make batches in turn, each of environments of its own."""

    def __init__(self, task: Task, weights: Mapping[str, Any], clock: Callable[[], float]) -> None:
        self._task, self._weights, self._clock = task, weights, clock
        self._limits = Limits(
            rounds=_ROUNDS, most_rounds=_MOST_ROUNDS, each=_EACH, all=_ALL, lost=_LOST, few=_FEW
        )
        self.runners: dict[str, _Runner] = {}
        self._why_not: dict[str, str] = {}

    def run(self, ways: Sequence[Way]) -> None:
        """Run them until one leads, or the time is over.

        Raises:
            Exception: what the first of them raised, where all of them failed.
        """
        first: Exception | None = None
        began, starting = self._clock(), 0.0  # start-up counts, compiling does not
        with ExitStack() as stack:
            for way in ways:
                if self.runners and self._clock() - began > self._limits.all:
                    self._why_not[way.name] = (
                        f"it was not tried: the {self._limits.all:.0f} s of choosing were over"
                    )
                    continue
                begun = self._clock()
                try:
                    self._begin(way, stack)
                except Exception as error:
                    first = first or error
                    what = error.what if isinstance(error, TimeRLError) else repr(error)
                    self._why_not[way.name] = f"it failed: {what}"
                starting += 0.0 if way.compiles else self._clock() - begun
            if first is not None and not self.runners:
                raise first
            measure_in_rounds(
                [*self.runners.values()], self._limits, self._clock() - starting, self._clock
            )

    def _begin(self, way: Way, stack: ExitStack) -> None:
        task = self._task
        prepared = way.prepared(task)
        begin = prepared if way.compiles else way.prepared(replace(task, steps=1))
        source = stack.enter_context(closing(begin(task.seed ^ _APART)))
        run = partial(_collect, source, self._weights)
        first = time_call(run, self._clock)  # compiles, or resets
        runner = _Runner(
            run=run,
            limits=self._limits,
            prepared=prepared,
            source=source,
            counts=source.counts,
            wanted=way.wanted,
        )
        if not way.compiles:
            runner.shorten(task.steps, self._weights, self._clock, first)
        self.runners[way.name] = runner

    @property
    def winner(self) -> tuple[str, str]:
        """The fastest, and why."""
        speeds = {name: runner.speed.median for name, runner in self.runners.items()}
        name = max(speeds, key=lambda name: speeds[name] / self.runners[name].wanted)
        if len(speeds) == 1:
            return name, "no other one was measured"
        second = max(speeds.keys() - {name}, key=lambda name: speeds[name])
        first, other = self.runners[name], self.runners[second]
        ratio = speeds[name] / speeds[second]
        if ratio < 1:
            few = f"less than the {other.wanted:.1f} times that are wanted of it"
            return name, f"{second} is {1 / ratio:.2f} times as fast, {few}"
        times = f"{ratio:,.1f} times as fast as {second}"
        if first.is_clearly_faster(other):
            return name, f"it leads, {times}"
        return name, f"by its median it is {times}, which the spread of its batches does not prove"

    def row(self, before: StrategyRow) -> StrategyRow:
        """What was found of a way."""
        if before.name in self._why_not:
            return replace(before, why_not=self._why_not[before.name])
        runner = self.runners[before.name]
        return replace(before, speed=runner.speed, **asdict(runner.counts))


def _read_ways(entry: CacheEntry) -> Ways | None:
    """The strategies measured in an earlier process, if any."""
    whole = entry.load()
    if whole is None:
        return None
    rows = (StrategyRow(**row) for row in whole.pop("rows"))
    return Ways(tuple(replace(r, speed=r.speed and Speed(*r.speed)) for r in rows), **whole)


def _versions() -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
