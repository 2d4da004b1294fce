"""Public names of an object, for `dir()` and tab completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def list_public(*names: str) -> Callable[[type[T]], type[T]]:
    """Return a class decorator: `dir()` of an instance lists `names` and the special methods only.

    Other attributes are for the library's own modules.
    """

    def decorate(cls: type[T]) -> type[T]:
        special = [name for name in dir(cls) if name.startswith("__")]
        cls.__dir__ = lambda self: sorted([*special, *names])
        return cls

    return decorate
