"""Which threads act and which train a part of the batch, as they were measured (003_bc3f8b946743a61e, §3.3.1, Algorithm 1).

Pure functions of an allocation and of what was measured with it; `protocol` carries out what they say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from timerl_nb.base.errors import OptionError
from timerl_nb.base.text_formatting import format_count, format_milliseconds
from timerl_nb.compiler.language.argument_checks import integer, number


@dataclass(frozen=True)
class Allocation:
    """Threads of the host, and how a batch is divided.

    Attributes:
        actors: threads that act; one at least.
        trainers: threads that train beside the learner.
        rows: of the batch that these take together; the learner takes the others.
        batch: rows of a step of learning.

    Raises:
        ShapeError: nobody acts.
        OptionError: nothing is left to the learner.
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
                f"trainers take {self.rows} rows of {self.batch}, and leave the learner none.",
                hint="the learner takes one at least.",
            )

    @staticmethod
    def of_threads(threads: int, actors: int, batch: int) -> Allocation:
        """So many threads that learn, each an even part of a batch; and actors beside them."""
        rows = batch * (threads - 1) // threads
        return Allocation(actors, threads - 1 if rows else 0, rows, batch)

    def of_part(self, count: int) -> Allocation:
        """The same threads, and so many rows of the batch, divided alike."""
        return replace(self, rows=self.rows * count // self.batch, batch=count)

    @property
    def rows_per_trainer(self) -> tuple[int, ...]:
        """Rows of each trainer, as even as can be."""
        each, more = divmod(self.rows, self.trainers) if self.trainers else (0, 0)
        return tuple(each + (k < more) for k in range(self.trainers))

    def __str__(self) -> str:
        parts = f"{self.actors} acting, {self.trainers} training {format_count(self.rows, 'row')}"
        return f"{parts}, the learner {self.batch - self.rows}"


@dataclass(frozen=True)
class Latencies:
    """Seconds of an iteration, medians of some.

    Attributes:
        actors: in which the actors bring its experience.
        learner: of its own rows.
        trainers: of theirs, of the slowest; 0 where there are none.
        sync: from the end of the learner's rows until the gradients of all are one; 0 where there are no trainers.
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
    """What a policy says of an allocation; one that it leaves alone as well.

    Attributes:
        why: in words, with the numbers.
    """

    before: Allocation
    after: Allocation
    latencies: Latencies
    why: str

    def __bool__(self) -> bool:
        """Whether anything is to change."""
        return self.before != self.after

    def __str__(self) -> str:
        return f"{self.before} -> {self.after}: {self.why} ({self.latencies})"


def starting(threads: int, acting: float, replaying: float) -> tuple[int, int]:
    """How many of some threads act, and how many work the replay manager, before a run has been measured (§5.1).

    In the ratio of what a row takes them, so that as many come as are handled; one of each at least.

    Args:
        acting, replaying: seconds of a row on one thread; `replaying` is 0 where another device does it, and all act.
    """
    count = integer("threads", threads, least=1)
    if replaying <= 0:
        return count, 0
    act = round(count * acting / (acting + replaying))
    act = min(max(act, 1), max(count - 1, 1))
    return act, max(count - act, 1)


def threads_called(name: str) -> int | None:
    """How many threads learn on a device of a name such as "CPU x2"; None where it says no such thing."""
    found = re.fullmatch(r"cpu x([1-9]\d*)", name.lower())
    return int(found[1]) if found else None


@runtime_checkable
class Policy(Protocol):
    """How threads are allocated."""

    def move(self, now: Allocation, measured: Latencies) -> Move: ...


@dataclass(frozen=True)
class Stepwise:
    """Algorithm 1: by what is slowest, one step at a time.

    Attributes:
        factor: by which the learner must be slower than the actors for half of these to train.
    """

    factor: float = 2.0

    def __post_init__(self) -> None:
        number("factor", self.factor)

    def move(self, now: Allocation, measured: Latencies) -> Move:
        """The learner slowest, by more than `factor` times the actors: half of the actors train, and one row more
        is theirs. Training slowest: one row less. Synchronising slowest: one trainer acts again.

        Nobody trains without rows, nor has rows without training; one always acts.
        """
        times = vars(measured)
        slowest = max(times, key=lambda name: times[name])
        after, why = now, "nothing is out of balance"
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
            why = "training beside the learner takes longest"
        elif slowest == "sync" and now.trainers:
            after = replace(now, actors=now.actors + 1, trainers=now.trainers - 1)
            why = "bringing gradients together takes longest"
        return Move(now, _sound(after), measured, why)


@dataclass(frozen=True)
class BySpeed:
    """The allocation by which an iteration is expected to be shortest, by the rows that each trains in a second.

    Ours, not the paper's.

    Attributes:
        hysteresis: by what part an iteration must become shorter for threads to move.
    """

    hysteresis: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= number("hysteresis", self.hysteresis) < 1:
            raise OptionError(f"hysteresis={self.hysteresis!r} is none.", hint="0.1 is a tenth.")

    def move(self, now: Allocation, measured: Latencies) -> Move:
        """As long as nobody has trained, a trainer is taken to be as fast as the learner."""
        batch, threads = now.batch, now.actors + now.trainers
        fast = (batch - now.rows) / max(measured.learner, 1e-12)
        busy = sum(n > 0 for n in now.rows_per_trainer)
        each = now.rows / busy / max(measured.trainers, 1e-12) if busy else fast
        # what waiting for the trainers does not explain is what adding gradients up takes
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
    """The same, in which nobody trains nothing."""
    if one.trainers and one.rows:
        return one
    return replace(one, actors=one.actors + one.trainers, trainers=0, rows=0)
