"""Interface of collection strategies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from timerl_nb.base.errors import ExecutionError
from timerl_nb.collecting.batch import Batch
from timerl_nb.collecting.collection_task import Task

Weights = Mapping[str, Any]  # by name
SEED_OFFSET: Final = 0xD1342543DE82EF95  # offset between seeds of environments after each interrupt

LOST: Final = (
    "the interrupt came during a step of the environments: with the next batch all of them begin "
    "new episodes, and the steps since the last batch are dropped."
)


@dataclass(frozen=True)
class Counts:
    """Counted work of a batch.

    Attributes:
        calls: calls of XLA, or of the environments and the policy.
        launches: kernel launches; None if unknown.
        copies: copied arrays between environments and batch.
    """

    calls: int
    launches: int | None
    copies: int


class Source(Protocol):
    """Open environments of a strategy."""

    def next(self, weights: Weights, version: int = 0) -> Batch:
        """Return the next steps of all environments, after the last returned batch.

        After an interrupt, it continues from there, with the same steps or with the remaining ones.

        Args:
            weights: weights of the policy.
            version: version of the weights, for `Batch.policy_version`.
        """
        ...

    def confirm_received(self) -> None:
        """Confirm that the reader has received the last result of `next`."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether an interrupt came during a step of environments, so that they begin new episodes."""
        ...

    @property
    def speed(self) -> float | None:
        """Steps per second of the last batch, without setup and compilation; None if unknown."""
        ...

    @property
    def counts(self) -> Counts:
        """Counted work of the last batch."""
        ...

    def close(self) -> None: ...


def closed_error() -> ExecutionError:
    """Return the error for a batch of a closed collector."""
    return ExecutionError(
        "the collector is closed.", hint="create a new collector: trl.collect(…)."
    )


def stop(source: Source | None) -> None:
    """End a `next` of another thread soon, if the source supports it; others complete their batch."""
    end = getattr(source, "stop", None)
    if end is not None:
        end()


# A prepared strategy: opens environments with a seed.
Prepared = Callable[[int], Source]


class Strategy(ABC):
    """A collection strategy.

    Attributes:
        name: value of `how`.
        provenance: implementation of environments and random numbers. Strategies of equal
            provenance return the same trajectories.
        what: short description.
        required_speedup: required speed-up over another strategy for automatic selection.
        compiles: whether a batch is a compiled program for a fixed number of steps.
        is_asynchronous: whether environments can step asynchronously; see `Task.ready`.
    """

    name: ClassVar[str]
    provenance: ClassVar[str]
    what: ClassVar[str]
    required_speedup: ClassVar[float] = 1.0
    compiles: ClassVar[bool] = True
    is_asynchronous: ClassVar[bool] = False

    @abstractmethod
    def why_not(self, task: Task) -> str | None:
        """Return the reason why the strategy does not apply; None if it does."""

    def why_not_at_pace(self, task: Task) -> str | None:
        """Return the reason why the strategy does not apply, including that of `Task.ready`."""
        if task.ready is not None and not self.is_asynchronous:
            return "its environments step together, which excludes ready="
        return self.why_not(task)

    @abstractmethod
    def prepared(self, task: Task) -> Prepared:
        """Prepare the strategy for a task, such as by compilation."""
