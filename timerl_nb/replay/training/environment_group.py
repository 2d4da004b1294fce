"""Group of environments that one actor thread steps together, rollout by rollout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.collecting.collector import Collector
from timerl_nb.replay.storage.buffer_writer import Actor

_APART = 0x9E3779B97F4A7C15  # distance between the seeds of groups, and of restarts of one group


@dataclass(frozen=True)
class ActedSteps:
    """Result of one rollout of a group's steps.

    Attributes:
        group: the number of the group.
        entries: complete buffer entries by field; with n-step returns fewer than steps.
        steps: the number of environment steps.
        returns: the returns of the episodes that ended.
        version: the version of the weights.
        seconds: the duration of the rollout.
        count: the number of entries.
        incomplete: the number of steps in incomplete entries after the rollout.
    """

    group: int
    entries: Mapping[str, Array]
    steps: int
    returns: Array
    version: int
    seconds: float
    count: int
    incomplete: int = 0


@dataclass(frozen=True)
class Death:
    """Failure of a group's environments; the entries of the rollout are lost."""

    group: int
    error: BaseException


class RestartableGroup(Protocol):
    """Group of environments, in this process or in another one.

    Attributes:
        number: the number of the group.
        life: the number of its restarts.
    """

    number: int
    life: int

    def begin_anew(self) -> None:
        """Let the next rollout create new environments with another seed."""
        ...

    def close(self) -> None: ...


class Group:
    """Environments with their incomplete n-step returns. Only one thread at a time may step a group.

    Args:
        number: the number of the group.
        opened: a function that creates the environments from a seed.
        writer: a function that creates the converter from steps to entries.
        seed: the seed of the run.
        life: the number of restarts of this group.
    """

    def __init__(
        self,
        number: int,
        opened: Callable[[int], Collector],
        writer: Callable[[], Actor],
        seed: int,
        life: int = 0,
    ) -> None:
        self.number, self.life = number, life
        self._opened, self._writer, self._seed = opened, writer, seed
        self._envs: Collector | None = None
        self._rows: Actor | None = None

    def block(self, version: int, params: Any) -> ActedSteps:
        """Run the next rollout with the given weights."""
        begun = perf_counter()
        if self._envs is None or self._rows is None:
            seed = (self._seed + _APART * (1 + self.number + 1000 * self.life)) % 2**63
            self._envs, self._rows = self._opened(seed), self._writer()
        batch = self._envs.next(params).numpy()
        self._rows.stage(batch)
        entries, returns = self._rows.take_staged(), np.asarray(batch.episodes.returns)
        count = len(next(iter(entries.values()), ()))
        seconds, incomplete = perf_counter() - begun, self._rows.incomplete_count
        return ActedSteps(
            self.number, entries, batch.count, returns, version, seconds, count, incomplete
        )

    def begin_anew(self) -> None:
        """Close the environments; the next rollout creates new ones with another seed."""
        self.close()
        self.life += 1

    def close(self) -> None:
        envs, self._envs, self._rows = self._envs, None, None
        if envs is not None:
            envs.close()
