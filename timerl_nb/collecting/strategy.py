"""What ways of collecting share: what they are asked, and what they answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from timerl_nb.collecting.batch import Batch
from timerl_nb.collecting.collection_task import Task

Weights = Mapping[str, Any]  # by name
APART: Final = 0xD1342543DE82EF95  # between the seeds of environments and of later ones

LOST: Final = (
    "the environments were within a step, which cannot be completed: with the next batch all of them begin "
    "new episodes, and the steps since the last batch are dropped."
)


@dataclass(frozen=True)
class Counts:
    """What a batch takes, counted.

    Attributes:
        calls: to XLA, or to the environments and the policy.
        launches: kernels that these launch; None where nobody counts them.
        copies: arrays that are copied between the environments and what is collected.
    """

    calls: int
    launches: int | None
    copies: int


class Source(Protocol):
    """Environments in progress."""

    def next(self, weights: Weights) -> Batch:
        """The steps of all environments after the last returned batch.

        After an interrupt it goes on from there: with the steps made since, or with the same ones anew.
        """
        ...

    def handed_out(self) -> None:
        """Note that the reader has received the last result of `next`."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether an interrupt came within a step of environments, which begin anew."""
        ...

    @property
    def speed(self) -> float | None:
        """Steps a second of the last batch, without setup and compilation; None if not measured."""
        ...

    @property
    def counts(self) -> Counts:
        """Those of the last batch."""
        ...

    def close(self) -> None: ...


# A way that is ready: environments of that seed begin.
Prepared = Callable[[int], Source]


class Way(ABC):
    """How steps are collected.

    Attributes:
        name: by which it is asked for.
        provenance: whose dynamics and chance it has: ways of one give the same trajectories.
        what: in a few words.
        wanted: how many times as fast as another one it has to be, to be chosen by itself.
        compiles: whether a batch is a program of so many steps; else its sources take any number of them.
    """

    name: ClassVar[str]
    provenance: ClassVar[str]
    what: ClassVar[str]
    wanted: ClassVar[float] = 1.0
    compiles: ClassVar[bool] = True

    @abstractmethod
    def why_not(self, task: Task) -> str | None:
        """Why it does not apply; None where it does."""

    @abstractmethod
    def prepared(self, task: Task) -> Prepared:
        """What begins sources, such as a compiled program."""
