"""Threads that step groups of environments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from timerl_nb.replay.training.bounded_channel import Channel, Closed
from timerl_nb.replay.training.environment_group import ActedSteps, Death, Group

Weights = tuple[int, Any]


class Actors:
    """So many threads, each of which takes a group that is idle, and makes its next block.

    Args:
        groups: all there are.
        latest: the newest weights.
        ahead: blocks that wait to be taken, at most.
        again: whether a group acts again when its block is done, as often as there is room; else when it is asked to.
        alike: what makes a thread compute as the run's.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        latest: Callable[[], Weights],
        ahead: int,
        again: bool,
        alike: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._groups, self._latest, self._again, self._alike = groups, latest, again, alike
        self._idle = Channel[tuple[Group, Weights | None] | None]()
        self._done = Channel[ActedSteps | Death](ahead)
        self._threads: list[threading.Thread] = []
        self.count = 0
        if again:
            for group in groups:
                self._idle.put((group, None))

    def resize(self, count: int) -> None:
        """Let so many threads act; those that are too many end when they are done."""
        for _ in range(self.count - count):
            self._idle.put(None)
        self._threads = [one for one in self._threads if one.is_alive()]
        for _ in range(count - self.count):
            thread = threading.Thread(target=self._act, name="timerl actor", daemon=True)
            self._threads.append(thread)
            thread.start()
        self.count = count

    def ask(self, number: int, weights: Weights | None = None) -> None:
        """Let a group act once, by these weights, or by the newest when it does."""
        self._idle.put((self._groups[number], weights))

    def take(self) -> ActedSteps | Death:
        """The next block, when there is one."""
        return self._done.take()

    def available(self, most: int) -> list[ActedSteps | Death]:
        """The blocks that are there, so many at most."""
        return self._done.available(most)

    def close(self) -> None:
        """End all threads, and then the environments."""
        self._idle.close()
        self._done.close()
        for thread in self._threads:
            thread.join()
        for group in self._groups:
            group.close()

    def _act(self) -> None:
        with self._alike():
            try:
                while (asked := self._idle.take()) is not None:
                    group, weights = asked
                    made = self._make_block(group, weights)
                    self._done.put(made)
                    if self._again and isinstance(made, ActedSteps):
                        self._idle.put((group, None))
            except Closed:
                return

    def _make_block(self, group: Group, weights: Weights | None) -> ActedSteps | Death:
        try:
            return group.block(*(self._latest() if weights is None else weights))
        except BaseException as error:  # whatever it is, the others go on
            return Death(group.number, error)
