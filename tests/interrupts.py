"""Interrupts at every line of the package in the calling thread.

`lines` records the visited lines of a call below a folder. `interrupted` raises KeyboardInterrupt
at the first visit of one of them. Afterwards the owner of a resource must have closed it, or it
must be usable.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any, TypeAlias

import timerl_nb

Line: TypeAlias = tuple[str, int]
_ROOT = Path(timerl_nb.__file__).parent


class Hangs(AssertionError):
    """A call did not return in time."""


@contextmanager
def traced(parts: tuple[str, ...], visit: Callable[[Line], None]) -> Iterator[None]:
    """Call `visit` before each line below some files or folders of the package."""
    below = tuple(str(_ROOT / part) for part in parts)

    def each(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            visit((frame.f_code.co_filename, frame.f_lineno))
        return each

    def calls(frame: FrameType, event: str, arg: Any) -> Any:
        return each if frame.f_code.co_filename.startswith(below) else None

    before = sys.gettrace()
    sys.settrace(calls)
    try:
        yield
    finally:
        sys.settrace(before)


def lines(call: Callable[[], object], *parts: str) -> list[Line]:
    """Return the visited lines of a call, each once, in the order of first visits."""
    found: dict[Line, None] = {}
    with traced(parts, lambda line: found.setdefault(line)):
        call()
    return list(found)


def interrupted(
    call: Callable[[], object], line: Line, *parts: str, seconds: float = 10
) -> KeyboardInterrupt | None:
    """Interrupt a call at its first visit of a line; return the interrupt if the call raised it.

    A notebook retains the traceback of its last error with all local variables of our functions.
    The returned interrupt does the same. The variables of the caller's functions are released.

    Raises:
        Hangs: The call does not return in time.
    """
    is_due = True

    def visit(at: Line) -> None:
        nonlocal is_due
        if is_due and at == line:
            is_due = False
            sys.settrace(None)
            raise KeyboardInterrupt

    def hang(*_: object) -> None:
        raise Hangs(f"after an interrupt at {Path(line[0]).name}:{line[1]}")

    handler = signal.signal(signal.SIGALRM, hang)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with traced(parts, visit):
            call()
    except KeyboardInterrupt as error:
        for frame, _ in walk_tb(error.__traceback__):
            is_ours = frame.f_code.co_filename.startswith(str(_ROOT))
            if frame is not sys._getframe() and not is_ours:
                frame.clear()
        return error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    return None
