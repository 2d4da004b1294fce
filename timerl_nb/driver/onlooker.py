"""Whoever looks on while a script compiles programs and is about to run them (`timerl explain`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar

from timerl_nb.errors import Origin, user_origin

Made = TypeVar("Made")


class Onlooker(Protocol):
    """What is told of programs; it may raise, which reaches the script."""

    def compiled(self, program: Any, origin: Origin) -> None:
        """A line compiled a program, or compiled one again under other bounds or options."""

    def begins(self, program: Any, origin: Origin) -> None:
        """A line is about to run a program, or a step of it; nothing of it has happened yet."""


_LOOKS: Final = ContextVar[Onlooker | None]("looks", default=None)


@contextmanager
def looked_on(by: Onlooker) -> Iterator[None]:
    """Let somebody look on at what this context of execution compiles and runs."""
    before = _LOOKS.set(by)
    try:
        yield
    finally:
        _LOOKS.reset(before)


def made_known(program: Made) -> Made:
    """The program, which whoever looks on is told of."""
    looker = _LOOKS.get()
    if looker is not None:
        looker.compiled(program, user_origin())
    return program


def run_begins(program: Any) -> None:
    """Tell whoever looks on that a program is about to run."""
    looker = _LOOKS.get()
    if looker is not None:
        looker.begins(program, user_origin())
