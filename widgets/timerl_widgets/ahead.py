"""Compiles what could be asked for next, while nothing else is to be done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from timerl_nb.show.widget_api import TimeRLError
from timerl_widgets.kernel import runs_a_cell

LIMIT: Final = 4.0  # seconds; about a program that took longer to compile nothing is guessed,
QUICK: Final = 1.5  # and, of one that took longer than this, not what takes many times as long:
MANY: Final = ("fuse", "vectorize")  # without them there are many statements, or many points

T = TypeVar("T")
Change = dict[str, Any]  # options by name
Check = Callable[[object], None]  # is called between two parts of the work, and may interrupt it


class Interrupted(BaseException):
    """Somebody waits; no `Exception`, since whoever compiles may answer those."""


def rest(seconds: float) -> float:
    """How long to wait for another click on a program that took so many seconds to compile."""
    return max(1.0, 3 * seconds)


def guesses(switches: Sequence[Change], seconds: float) -> tuple[Change, ...]:
    """What to compile ahead of the changes to a program that took so long: what is quick first."""
    if seconds > LIMIT:
        return ()
    costly = [change for change in switches if change.keys() & set(MANY)]
    few = [change for change in switches if change not in costly]
    return (*few, *costly) if seconds <= QUICK else tuple(few)


class Ahead(Generic[T]):
    """The changes that are one click away from a program, made before anybody asks.

    Args:
        make: makes a change, calling what it is given after every stage and view; what it makes is
            kept by it.
        changes: what is likely or quickly done first.
        waits: whether somebody waits for something else, for which a change is left halfway. What
            was found out by then is known when it is taken up again.
        runs: whether a run goes on, which would be slowed down.
        told: is called with how many changes are left, whenever that is another number.
    """

    def __init__(
        self,
        make: Callable[[T, Check], object],
        changes: Sequence[T],
        waits: Callable[[], bool],
        runs: Callable[[], bool],
        told: Callable[[int], object],
    ) -> None:
        self._make, self._waits, self._runs, self._told = make, waits, runs, told
        self._left = list(changes)
        runs_a_cell()  # is heard of from now on

    def __call__(self) -> bool:
        """Make one change, if there is time; whether there are more."""
        if self._left and not runs_a_cell() and not self._runs():

            def check(_: object) -> None:
                if self._waits():
                    raise Interrupted

            try:
                self._make(self._left[0], check)
            except Interrupted:
                return True
            except TimeRLError:  # what is impossible is told to who asks for it
                pass
            del self._left[0]
            self._told(len(self._left))
        return bool(self._left)
