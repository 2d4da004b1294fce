"""Quality of the strategy choice of `trl.collect`: measures all strategies, interleaved, and compares.

A cell counts if the two fastest strategies differ by more than the spread: three quarters of the
batches of one are faster than three quarters of the other's. A choice is right if it is within 5 %
of the fastest strategy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter
from typing import Any, Final

import timerl_nb as trl
from timerl_nb.base.errors import OptionError

NEAR: Final = 1.05
BATCHES: Final = 11
EACH: Final = 1.5  # maximal measuring time of a strategy, in seconds


@dataclass(frozen=True)
class Case:
    """One collecting task; `width` is of both layers of the policy, 0 for random actions."""

    env: str
    envs: int
    steps: int
    width: int = 64

    def collector(self, how: str, ahead: int = 0) -> Any:
        policy: Any = trl.policies.random
        if self.width:
            shape = [self.width] * 2
            policy = trl.DNNBuilder().from_env(trl.env.make(self.env), hidden=shape)
        sizes = {"envs": self.envs, "steps": self.steps, "ahead": ahead}
        return trl.collect(self.env, policy, how=how, **sizes)

    def __str__(self) -> str:
        return f"{self.env}, N {self.envs:,}, K {self.steps:,}, width {self.width}"


CASES: Final = (
    Case("CartPole-v1", 4, 16),
    Case("CartPole-v1", 16, 128),
    Case("CartPole-v1", 64, 100),
    Case("CartPole-v1", 256, 64),
    Case("CartPole-v1", 1024, 32),
    Case("CartPole-v1", 256, 100, 0),
    Case("CartPole-v1", 65_536, 16, 0),
    Case("Pendulum-v1", 16, 100),
    Case("Pendulum-v1", 256, 64),
    Case("MountainCar-v0", 64, 64, 0),
    Case("MountainCarContinuous-v0", 16, 64),
    Case("gym.MountainCar-v0", 8, 64, 0),
    Case("gym.MountainCar-v0", 128, 32, 0),
    Case("gym.Acrobot-v1", 16, 32, 0),
    Case("gym.Pendulum-v1", 2, 100, 0),
    Case("gym.Pendulum-v1", 32, 32, 0),
)


@dataclass(frozen=True)
class Chosen:
    """The choice, and the measured steps per second of each batch, by strategy."""

    case: Case
    chosen: str
    speeds: dict[str, Sequence[float]]

    @property
    def order(self) -> Sequence[str]:
        """Return the strategies, fastest first."""
        return sorted(self.speeds, key=lambda name: -median(self.speeds[name]))

    @property
    def counts(self) -> bool:
        if len(self.speeds) < 2:
            return False
        first, second = (self.speeds[name] for name in self.order[:2])
        return quantiles(first, n=4)[0] > quantiles(second, n=4)[2]

    @property
    def is_right(self) -> bool:
        fastest = median(self.speeds[self.order[0]])
        return median(self.speeds[self.chosen]) * NEAR >= fastest


def chosen(case: Case) -> Chosen:
    """Choose a strategy, then measure all applicable strategies of the same provenance."""
    with closing(case.collector("auto")) as auto:
        strategies = auto.strategies
    by_name = {row.name: row for row in strategies}
    provenance = by_name[strategies.chosen].provenance
    made: dict[str, Any] = {}
    with ExitStack() as stack:
        for name in (row.name for row in strategies if row.provenance == provenance):
            with suppress(OptionError):  # not applicable, as opposed to out of time
                made[name] = stack.enter_context(closing(case.collector(name)))
        speeds: dict[str, list[float]] = {name: [] for name in made}
        spent = dict.fromkeys(made, 0.0)
        for one in made.values():
            one.next()  # compilation or reset
        for _ in range(BATCHES):
            for name, one in made.items():
                if spent[name] < EACH or len(speeds[name]) < 3:
                    began = perf_counter()
                    count = one.next().count
                    took = perf_counter() - began
                    spent[name] += took
                    speeds[name].append(count / took)
    return Chosen(case, strategies.chosen, dict(speeds))


def table(cases: Sequence[Case] = CASES) -> Iterator[str]:
    """Return Markdown rows, and the number of right choices among the cells that count."""
    yield "| | chosen | fastest afterwards, thousand steps/s | then | counts | right |"
    yield "|---|---|---|---|---|---|"
    counted = right = 0
    for case in cases:
        one = chosen(case)
        counted += one.counts
        right += one.counts and one.is_right
        first, *others = (f"{name} {median(one.speeds[name]) / 1e3:,.4g}" for name in one.order)
        marks = ("yes" if one.counts else "no", "yes" if one.is_right else "no")
        yield f"| {case} | {one.chosen} | {first} | {', '.join(others)} | {' | '.join(marks)} |"
    yield f"\n{right} of the {counted} that count are right."
