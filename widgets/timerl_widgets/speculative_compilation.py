"""Speculative compilation of likely next changes while the kernel is idle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from timerl_nb.show.widget_api import TimeRLError
from timerl_widgets.kernel_activity import runs_a_cell

LIMIT: Final = 4.0  # seconds; no speculation for programs that took longer to compile
QUICK: Final = 1.5  # seconds; above this, no speculation on options in MANY
MANY: Final = (
    "fuse",
    "vectorize",
)  # switching these off multiplies the number of statements or points

T = TypeVar("T")
Change = dict[str, Any]  # options by name
Check = Callable[[object], None]  # called between parts of the work; may interrupt it


class Interrupted(BaseException):
    """Interrupts speculative work for a request. Not an `Exception`, because the compiler's callers may handle
    those.
    """


def rest(seconds: float) -> float:
    """Return the seconds to wait for another click on a program with this compile time."""
    return max(1.0, 3 * seconds)


def guesses(switches: Sequence[Change], seconds: float) -> tuple[Change, ...]:
    """Return the changes to compile speculatively for a program with this compile time, quick ones first."""
    if seconds > LIMIT:
        return ()
    costly = [change for change in switches if change.keys() & set(MANY)]
    few = [change for change in switches if change not in costly]
    return (*few, *costly) if seconds <= QUICK else tuple(few)


class SpeculativeCompiler(Generic[T]):
    """Applies changes one click away from a program before the user requests them.

    Args:
        make: a function that applies a change, calls its second argument after every stage and view, and
            caches the result.
        changes: the changes, likely or quick ones first.
        waits: whether a request is waiting; then the current change is interrupted. Completed parts stay
            cached.
        runs: whether a run is active, which speculation would slow down.
        report_remaining: a function called with the number of remaining changes whenever it differs.
    """

    def __init__(
        self,
        make: Callable[[T, Check], object],
        changes: Sequence[T],
        waits: Callable[[], bool],
        runs: Callable[[], bool],
        report_remaining: Callable[[int], object],
    ) -> None:
        self._make, self._waits, self._runs, self._report_remaining = (
            make,
            waits,
            runs,
            report_remaining,
        )
        self._remaining = list(changes)
        runs_a_cell()  # registers for events from now on

    def __call__(self) -> bool:
        """Apply one change if the kernel is idle, and return whether changes remain."""
        if self._remaining and not runs_a_cell() and not self._runs():

            def check(_: object) -> None:
                if self._waits():
                    raise Interrupted

            try:
                self._make(self._remaining[0], check)
            except Interrupted:
                return True
            except TimeRLError:  # impossible changes are reported only on request
                pass
            del self._remaining[0]
            self._report_remaining(len(self._remaining))
        return bool(self._remaining)
