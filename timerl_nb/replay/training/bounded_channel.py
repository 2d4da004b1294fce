"""A bounded queue between threads that can be closed, which whoever waits at it learns at once."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Closed(Exception):
    """The channel is closed: who waits at it is to end."""


class Channel(Generic[T]):
    """Things in the order in which they were put.

    Args:
        most: so many wait at once; who puts more waits. None for any number.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most, self._held = most, deque[T]()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, one: T) -> None:
        """Add one, when there is room.

        Raises:
            Closed: it is, or was closed meanwhile.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not self._is_full)
            if self._is_closed:
                raise Closed
            self._held.append(one)
            self._changed.notify_all()

    def take(self) -> T:
        """The first, when there is one.

        Raises:
            Closed: it is, or was closed meanwhile.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._held)
            if self._is_closed:
                raise Closed
            return self._take_first()

    def available(self, most: int) -> list[T]:
        """What waits now, so many at most; perhaps nothing."""
        with self._changed:
            return [self._take_first() for _ in range(min(most, len(self._held)))]

    def close(self) -> None:
        """Let nobody wait any more; what was put is gone."""
        with self._changed:
            self._is_closed = True
            self._held.clear()
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def _is_full(self) -> bool:
        return self._most is not None and len(self._held) >= self._most

    def _take_first(self) -> T:
        found = self._held.popleft()
        self._changed.notify_all()
        return found
