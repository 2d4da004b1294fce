"""Allocation of threads to acting and training from measured latencies. Source: PEARL §3.3.1, Algorithm 1.

All functions are pure. `training_protocol` applies their results to a run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from timerl_nb.base.errors import OptionError
from timerl_nb.base.text_formatting import format_count, format_milliseconds
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.foreign_names import explain_constructor


@explain_constructor
@dataclass(frozen=True)
class Allocation:
    """Division of the host's threads between acting and training, and of a batch between learner and trainers.

    Attributes:
        actors: the number of actor threads, at least 1.
        trainers: the number of trainer threads, in addition to the learner.
        rows: the number of the batch's rows for all trainers together; the learner takes the rest.
        batch: the number of rows per learning step.

    Raises:
        ShapeError: there is no actor, or a number is negative.
        OptionError: the learner has no rows.

    Example:
        >>> allocation = trl.replay.Allocation(actors=2, trainers=2, rows=32, batch=64)
        >>> allocation.rows_per_trainer
        (16, 16)
        >>> print(allocation)
        2 acting, 2 training 32 rows, the learner 32
    """

    actors: int
    trainers: int
    rows: int
    batch: int

    def __post_init__(self) -> None:
        integer("the number of actors", self.actors, least=1)
        integer("the number of trainers", self.trainers, least=0)
        integer("the trainers' rows", self.rows, least=0)
        if self.rows >= integer("the batch", self.batch, least=1):
            raise OptionError(
                f"the trainers take {self.rows} rows of a batch of {self.batch}, so the learner has none.",
                hint="leave at least one row to the learner.",
            )

    @staticmethod
    def of_threads(threads: int, actors: int, batch: int) -> Allocation:
        """Return an allocation in which `threads` threads learn, each an equal part of the batch."""
        rows = batch * (threads - 1) // threads
        return Allocation(actors, threads - 1 if rows else 0, rows, batch)

    def of_part(self, count: int) -> Allocation:
        """Return the allocation for a part of the batch with `count` rows, divided in the same ratio."""
        return replace(self, rows=self.rows * count // self.batch, batch=count)

    @property
    def rows_per_trainer(self) -> tuple[int, ...]:
        """The number of rows of each trainer, divided as evenly as possible."""
        each, more = divmod(self.rows, self.trainers) if self.trainers else (0, 0)
        return tuple(each + (k < more) for k in range(self.trainers))

    def __str__(self) -> str:
        parts = f"{self.actors} acting, {self.trainers} training {format_count(self.rows, 'row')}"
        return f"{parts}, the learner {self.batch - self.rows}"


@explain_constructor
@dataclass(frozen=True)
class Latencies:
    """Durations of the stages of one iteration in seconds, medians over several iterations.

    Attributes:
        actors: the time in which the actors produce the experience of one iteration.
        learner: the learner's gradient of its own rows.
        trainers: the slowest trainer's gradient; 0 without trainers.
        sync: the time from the end of the learner's gradient until all gradients are added; 0 without
            trainers.

    Example:
        >>> trl.replay.Latencies(actors=0.01, learner=0.03).learner
        0.03
    """

    actors: float
    learner: float
    trainers: float = 0.0
    sync: float = 0.0

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {format_milliseconds(value, '.4g')}" for name, value in vars(self).items()
        )


@dataclass(frozen=True)
class Move:
    """Decision of a policy about an allocation; false if it leaves the allocation unchanged.

    Attributes:
        before, after: the allocations before and after the decision.
        latencies: the measurements.
        why: the reason as text, with numbers.

    Example:
        >>> now = trl.replay.Allocation(actors=4, trainers=0, rows=0, batch=64)
        >>> move = trl.replay.Stepwise().move(now, trl.replay.Latencies(actors=0.01, learner=0.03))
        >>> move.after.actors, move.after.trainers
        (2, 2)
    """

    before: Allocation
    after: Allocation
    latencies: Latencies
    why: str

    def __bool__(self) -> bool:
        """Return whether the allocation changes."""
        return self.before != self.after

    def __str__(self) -> str:
        return f"{self.before} -> {self.after}: {self.why} ({self.latencies})"


def starting(threads: int, acting: float, replaying: float) -> tuple[int, int]:
    """Divide threads between acting and the replay manager before a run has been measured. Source: PEARL §5.1.

    The division balances their rates in rows per second, with at least one thread each.

    Args:
        threads: the number of threads.
        acting, replaying: seconds per row on one thread. `replaying` is 0 if another device manages the
            buffer; then all threads act.

    Returns:
        The number of threads for acting, and for the replay manager.
    """
    count = integer("threads", threads, least=1)
    if replaying <= 0:
        return count, 0
    act = round(count * acting / (acting + replaying))
    act = min(max(act, 1), max(count - 1, 1))
    return act, max(count - act, 1)


def threads_called(name: str) -> int | None:
    """Return the number of learner threads in a device name such as "CPU x2"; None for other names."""
    found = re.fullmatch(r"cpu x([1-9]\d*)", name.lower())
    return int(found[1]) if found else None


@runtime_checkable
class Policy(Protocol):
    """Strategy that reallocates threads during a run."""

    def move(self, now: Allocation, measured: Latencies) -> Move: ...


@explain_constructor
@dataclass(frozen=True)
class Stepwise:
    """Reallocation by Algorithm 1 of PEARL: relieves the slowest stage, one step at a time.

    Source: PEARL §3.3.1.

    Attributes:
        factor: the learner must be slower than the actors by this factor before actors become trainers.

    Example:
        >>> now = trl.replay.Allocation(actors=4, trainers=0, rows=0, batch=64)
        >>> policy = trl.replay.Stepwise()
        >>> bool(policy.move(now, trl.replay.Latencies(actors=0.02, learner=0.03)))
        False
    """

    factor: float = 2.0

    def __post_init__(self) -> None:
        number("factor", self.factor)

    def move(self, now: Allocation, measured: Latencies) -> Move:
        """Return the decision for an allocation.

        If the learner is slowest, by more than `factor` times the actors, half of the actors become trainers
        and the trainers take one more row. If the trainers are slowest, they take one row less. If
        synchronisation is slowest, one trainer becomes an actor. Trainers without rows become actors; at
        least one actor remains.

        Args:
            now: the current allocation.
            measured: the latencies with this allocation.
        """
        times = vars(measured)
        slowest = max(times, key=lambda name: times[name])
        after, why = now, "the stages are balanced"
        if slowest == "learner" and measured.learner > self.factor * measured.actors:
            freed = now.actors // 2
            after = replace(
                now,
                actors=now.actors - freed,
                trainers=now.trainers + freed,
                rows=min(now.rows + 1, now.batch - 1),
            )
            why = f"the learner takes {measured.learner / (measured.actors or 1e-12):.3g} times as long as the actors"
        elif slowest == "trainers":
            after = replace(now, rows=max(now.rows - 1, 0))
            why = "the trainers take longest"
        elif slowest == "sync" and now.trainers:
            after = replace(now, actors=now.actors + 1, trainers=now.trainers - 1)
            why = "adding up the gradients takes longest"
        return Move(now, _sound(after), measured, why)


@explain_constructor
@dataclass(frozen=True)
class BySpeed:
    """Reallocation to the shortest predicted iteration, from the measured rows per second of learner and
    trainers.

    Not part of the PEARL paper.

    Attributes:
        hysteresis: the relative improvement required for a change, from 0 to 1.

    Example:
        >>> now = trl.replay.Allocation(actors=4, trainers=0, rows=0, batch=64)
        >>> move = trl.replay.BySpeed().move(now, trl.replay.Latencies(actors=0.01, learner=0.06))
        >>> move.after.trainers
        2
    """

    hysteresis: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= number("hysteresis", self.hysteresis) < 1:
            raise OptionError(
                f"hysteresis={self.hysteresis!r} is out of range.",
                hint="choose a number from 0 to 1, such as 0.1 for 10 %.",
            )

    def move(self, now: Allocation, measured: Latencies) -> Move:
        """Return the decision for an allocation. Without a measured trainer, a trainer counts as fast as the
        learner.

        Args:
            now: the current allocation.
            measured: the latencies with this allocation.
        """
        batch, threads = now.batch, now.actors + now.trainers
        fast = (batch - now.rows) / max(measured.learner, 1e-12)
        busy = sum(n > 0 for n in now.rows_per_trainer)
        each = now.rows / busy / max(measured.trainers, 1e-12) if busy else fast
        # sync minus the wait for the trainers is the time for adding up the gradients
        waited = max(0.0, measured.trainers - measured.learner)
        adding = max(0.0, measured.sync - waited) / now.trainers if now.trainers else 0.0

        def expected_seconds(one: Allocation) -> float:
            acting = measured.actors * now.actors / one.actors
            training = one.rows / (one.trainers * each) if one.trainers else 0.0
            learning = max((batch - one.rows) / fast, training)
            return max(acting, learning + one.trainers * adding)

        def with_trainers(count: int) -> Allocation:
            rows = round(batch * count * each / (fast + count * each))
            return _sound(Allocation(threads - count, count, min(rows, batch - 1), batch))

        best = min((with_trainers(k) for k in range(threads)), key=expected_seconds)
        here, there = expected_seconds(now), expected_seconds(best)
        gain = 1 - there / here if here > 0 else 0.0
        why = (
            f"{format_milliseconds(here, '.4g')} would become {format_milliseconds(there, '.4g')}: "
            f"the learner trains {fast:,.0f} rows a second, a trainer {each:,.0f}"
        )
        return Move(now, best if gain > self.hysteresis else now, measured, why)


def _sound(one: Allocation) -> Allocation:
    """Return the allocation with trainers and rows set to 0 if one of them is 0."""
    if one.trainers and one.rows:
        return one
    return replace(one, actors=one.actors + one.trainers, trainers=0, rows=0)
