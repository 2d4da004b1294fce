"""Registry of observers, which receive every program that this process compiles or runs."""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeVar

from timerl_nb.base.errors import Origin, user_origin
from timerl_nb.base.runtime_events import Recorder

Made = TypeVar("Made")


class Listener(Recorder, Protocol):
    """Recorder of a run without another recorder; it receives launches, without waiting for their end."""

    def on_turn(self, count: int = 1) -> None:
        """Handle the end of `count` iterations of the outermost loop."""


class ProgramObserver:
    """Observer of programs. An exception of a method reaches the user's line."""

    def compiled(self, program: Any, origin: Origin) -> None:
        """Handle a program that the line has compiled or recompiled."""

    def begins(self, program: Any, origin: Origin) -> None:
        """Handle a program that the line is about to run or step."""

    def listener(self, compiled: Any) -> Listener | None:
        """Return a listener for a run of a `Compilation`, or None."""
        return None


_OBSERVERS: Final = list[ProgramObserver]()


def add_observer(observer: ProgramObserver) -> None:
    """Add an observer; a second addition has no effect."""
    if observer not in _OBSERVERS:
        _OBSERVERS.append(observer)


def remove_observer(observer: ProgramObserver) -> None:
    """Remove an observer; an absent one is ignored."""
    if observer in _OBSERVERS:
        _OBSERVERS.remove(observer)


def announce_program(program: Made) -> Made:
    """Report a compiled program to the observers, and return it."""
    for observer in tuple(_OBSERVERS):
        observer.compiled(program, user_origin())
    return program


def run_begins(program: Any) -> None:
    """Report to the observers that a program is about to run."""
    for observer in tuple(_OBSERVERS):
        observer.begins(program, user_origin())


def listener_of(compiled: Any) -> Listener | None:
    """Return the listener of the first observer with one."""
    found = (observer.listener(compiled) for observer in tuple(_OBSERVERS))
    return next((one for one in found if one is not None), None)
