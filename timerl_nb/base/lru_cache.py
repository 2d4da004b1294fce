"""Cache of results with a weight limit; the least recently used result is removed first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Lru(Generic[Key, Value]):
    """Thread-safe cache with a limit on the total weight of its results.

    The latest result always stays, even above the limit. The cache holds references to its keys, so objects
    can be keys by identity. If two threads compute the same result, both get the one stored first.

    Args:
        most: the largest total weight.
        weigh: returns the weight of a result; by default every result weighs 1.
    """

    def __init__(self, most: int, weigh: Callable[[Value], int] = lambda _: 1) -> None:
        self._most, self._weigh = most, weigh
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()  # Not held during `make`, which may use the cache too.

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the result for a key; `make` computes a missing one."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        made = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = made
                self._weight += self._weigh(made)
            self._values.move_to_end(key)
            value = self._values[key]
            while self._weight > self._most and len(self._values) > 1:
                _, gone = self._values.popitem(last=False)
                self._weight -= self._weigh(gone)
        return value

    def lookup(self, key: Key) -> Value | None:
        """Return the cached result for a key, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)
