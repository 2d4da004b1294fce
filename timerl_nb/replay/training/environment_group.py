"""Some environments that act together, block by block, whichever thread steps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.collecting.collector import Collector
from timerl_nb.replay.storage.buffer_writer import Actor

_APART = 0x9E3779B97F4A7C15  # between seeds of groups, and of their lives


@dataclass(frozen=True)
class ActedSteps:
    """What a group has acted at once.

    Attributes:
        group: its number.
        entries: of the buffer, by field; fewer than steps where returns are of several.
        steps: of environments.
        returns: of the episodes that ended.
        version: of the weights that it acted by.
        seconds: that it took.
    """

    group: int
    entries: dict[str, Array]
    steps: int
    returns: Array
    version: int
    seconds: float


@dataclass(frozen=True)
class Death:
    """A group's environments have failed: the block is lost whole."""

    group: int
    error: BaseException


class Group:
    """Environments, and the returns of several steps that are not whole yet.

    One thread at a time steps it.

    Args:
        number: among all groups.
        opened: makes environments of a seed.
        writer: makes what acts into entries.
        seed: of the run.
        life: how often it has begun anew.
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
        """The next steps of all its environments, by some weights."""
        begun = perf_counter()
        if self._envs is None or self._rows is None:
            seed = (self._seed + _APART * (1 + self.number + 1000 * self.life)) % 2**63
            self._envs, self._rows = self._opened(seed), self._writer()
        batch = self._envs.next(params).numpy()
        self._rows.stage(batch)
        entries, returns = self._rows.take_staged(), np.asarray(batch.episodes.returns)
        return ActedSteps(
            self.number, entries, batch.count, returns, version, perf_counter() - begun
        )

    def begin_anew(self) -> None:
        """End the environments; the next block is of others, as drawn by another seed."""
        self.close()
        self.life += 1

    def close(self) -> None:
        envs, self._envs, self._rows = self._envs, None, None
        if envs is not None:
            envs.close()
