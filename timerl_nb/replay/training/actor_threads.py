"""Actor threads: step groups of environments and queue the results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from timerl_nb.replay.training.bounded_channel import Channel, Closed
from timerl_nb.replay.training.environment_group import ActedSteps, Death, Group

Weights = tuple[int, Any]


class ActorPool(Protocol):
    """Actors of a run: threads of this process, or processes of a cluster. The methods are described in `Actors`."""

    def resize(self, count: int) -> None: ...

    def ask(self, number: int, weights: Weights | None = None) -> None: ...

    def take(self) -> ActedSteps | Death: ...

    def available(self, most: int) -> list[ActedSteps | Death]: ...

    def close(self) -> None: ...


class Actors:
    """Pool of actor threads. Each thread repeatedly takes an idle group and runs its next rollout.

    Args:
        groups: all groups of environments.
        latest: a function that returns the newest weights.
        ahead: the maximal number of finished rollouts in the queue.
        again: whether a group runs its next rollout without a request, as long as the queue has room.
        alike: a context manager that applies the JAX settings of the run's thread.
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
        """Set the number of threads; surplus threads end after their current rollout."""
        for _ in range(self.count - count):
            self._idle.put(None)
        self._threads = [one for one in self._threads if one.is_alive()]
        for _ in range(count - self.count):
            thread = threading.Thread(target=self._act, name="timerl actor", daemon=True)
            self._threads.append(thread)
            thread.start()
        self.count = count

    def ask(self, number: int, weights: Weights | None = None) -> None:
        """Request one rollout of a group, with the given weights, or with the newest ones at its start."""
        self._idle.put((self._groups[number], weights))

    def take(self) -> ActedSteps | Death:
        """Wait for the next finished rollout and return it."""
        return self._done.take()

    def available(self, most: int) -> list[ActedSteps | Death]:
        """Return the finished rollouts, at most `most`, without waiting."""
        return self._done.available(most)

    def close(self) -> None:
        """End all threads, then close the environments."""
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
        except BaseException as error:  # the failure of one group does not stop the other groups
            return Death(group.number, error)
