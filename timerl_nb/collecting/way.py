"""What ways of collecting share: what they are asked, and what they answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from timerl_nb.collecting.batch import Batch
from timerl_nb.collecting.task import Task

Weights = Mapping[str, Any]  # by name


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
        """The next steps of all environments."""
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
    """

    name: ClassVar[str]
    provenance: ClassVar[str]
    what: ClassVar[str]
    wanted: ClassVar[float] = 1.0

    @abstractmethod
    def why_not(self, task: Task) -> str | None:
        """Why it does not apply; None where it does."""

    @abstractmethod
    def prepared(self, task: Task) -> Prepared:
        """What begins sources, such as a compiled program."""
