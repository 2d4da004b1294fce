"""Registry of program observers, which see every program that this process compiles and runs."""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeVar

from timerl_nb.base.errors import Origin, user_origin
from timerl_nb.base.runtime_events import Recorder

Made = TypeVar("Made")


class Listener(Recorder, Protocol):
    """Recorder of a run that has no other one; it gets launches, and nothing waits for their end."""

    def on_turn(self, count: int = 1) -> None:
        """So many turns of the outermost loop have been made."""


class ProgramObserver:
    """Observer of programs; an exception that a method raises reaches the line of the user."""

    def compiled(self, program: Any, origin: Origin) -> None:
        """A line compiled a program, or compiled one again under other bounds or options."""

    def begins(self, program: Any, origin: Origin) -> None:
        """A line is about to run a program, or a step of it; nothing of it has happened yet."""

    def listener(self, compiled: Any) -> Listener | None:
        """Return the listener to a run of a `Compilation`, if the observer has one."""
        return None


_OBSERVERS: Final = list[ProgramObserver]()


def add_observer(observer: ProgramObserver) -> None:
    """Add an observer, unless it is there."""
    if observer not in _OBSERVERS:
        _OBSERVERS.append(observer)


def remove_observer(observer: ProgramObserver) -> None:
    """Remove an observer, if it is there."""
    if observer in _OBSERVERS:
        _OBSERVERS.remove(observer)


def made_known(program: Made) -> Made:
    """Report a compiled program to the observers, and return it."""
    for observer in tuple(_OBSERVERS):
        observer.compiled(program, user_origin())
    return program


def run_begins(program: Any) -> None:
    """Report to the observers that a program is about to run."""
    for observer in tuple(_OBSERVERS):
        observer.begins(program, user_origin())


def listener_of(compiled: Any) -> Listener | None:
    """Return the first observer's listener to a run that begins."""
    found = (observer.listener(compiled) for observer in tuple(_OBSERVERS))
    return next((one for one in found if one is not None), None)
