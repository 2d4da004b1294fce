"""The latest results by key, so that what is asked for again need not be found again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Lru(Generic[Key, Value]):
    """Results of at most some weight in all; the one that was asked for longest ago leaves first.

    The latest stays whatever it weighs. Keys and results are kept alive, so that objects can be keys by
    identity. Threads may share it: of what two make at once the first is kept, and both get that.

    Args:
        most: the weight.
        weigh: the weight of a result, which stays; 1 by default.
    """

    def __init__(self, most: int, weigh: Callable[[Value], int] = lambda _: 1) -> None:
        self._most, self._weigh = most, weigh
        self._held: OrderedDict[Key, Value] = OrderedDict()
        self._weight = 0  # of all of them
        self._lock = threading.Lock()  # not held while a result is made, which may ask for others

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The result for a key, made where it is not known."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        made = make()
        with self._lock:
            if key not in self._held:
                self._held[key] = made
                self._weight += self._weigh(made)
            self._held.move_to_end(key)
            value = self._held[key]
            while self._weight > self._most and len(self._held) > 1:
                _, gone = self._held.popitem(last=False)
                self._weight -= self._weigh(gone)
        return value

    def lookup(self, key: Key) -> Value | None:
        """The result for a key, if there is one."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def __contains__(self, key: Key) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)
