"""Bounded queue between threads; closing it wakes all waiting threads."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Closed(Exception):
    """A queue operation on a closed channel; the calling thread should end."""


class Channel(Generic[T]):
    """First-in, first-out queue.

    Args:
        most: the capacity; `put` waits while the queue is full. None for no limit.
    """

    def __init__(self, most: int | None = None) -> None:
        self._capacity, self._items = most, deque[T]()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, one: T) -> None:
        """Append an item, after waiting for room.

        Raises:
            Closed: the channel is closed, possibly during the wait.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not self._is_full)
            if self._is_closed:
                raise Closed
            self._items.append(one)
            self._changed.notify_all()

    def take(self) -> T:
        """Remove and return the first item, after waiting for one.

        Raises:
            Closed: the channel is closed, possibly during the wait.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._items)
            if self._is_closed:
                raise Closed
            return self._take_first()

    def available(self, most: int) -> list[T]:
        """Remove and return the items in the queue, at most `most`, without waiting."""
        with self._changed:
            return [self._take_first() for _ in range(min(most, len(self._items)))]

    def close(self) -> None:
        """Close the channel: drop its items, and raise `Closed` in all waiting threads."""
        with self._changed:
            self._is_closed = True
            self._items.clear()
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def _is_full(self) -> bool:
        return self._capacity is not None and len(self._items) >= self._capacity

    def _take_first(self) -> T:
        found = self._items.popleft()
        self._changed.notify_all()
        return found
