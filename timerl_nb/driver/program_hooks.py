"""Whoever looks on while a script compiles programs and is about to run them (`timerl explain`), or listens to all runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar

from timerl_nb.base.errors import Origin, user_origin
from timerl_nb.base.runtime_events import Recorder

Made = TypeVar("Made")


class Onlooker(Protocol):
    """What is told of programs; it may raise, which reaches the script."""

    def compiled(self, program: Any, origin: Origin) -> None:
        """A line compiled a program, or compiled one again under other bounds or options."""

    def begins(self, program: Any, origin: Origin) -> None:
        """A line is about to run a program, or a step of it; nothing of it has happened yet."""


class Listener(Recorder, Protocol):
    """What hears the events of a run that nobody else listens to, as launches that are not waited for."""

    def turned(self, count: int = 1) -> None:
        """So many turns of the outermost loop have been made."""


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


def listen(by: Callable[[Any], Listener] | None) -> None:
    """Create a listener from the `Compilation` of each later run in this process; None for none."""
    global _LISTENS
    _LISTENS = by


def listener_of(compiled: Any) -> Listener | None:
    """Return the listener to the events of a run that begins, if there is one."""
    return None if _LISTENS is None else _LISTENS(compiled)


_LISTENS: Callable[[Any], Listener] | None = None
