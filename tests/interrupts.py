"""Interrupts at every line of the package in a call's own thread.

`lines` notes the visited lines of a call below a folder, and `interrupted` raises KeyboardInterrupt as the call first comes to
one of them. A resource's owner has to close it then, or to stay usable.
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
    """A call without end."""


@contextmanager
def traced(parts: tuple[str, ...], visit: Callable[[Line], None]) -> Iterator[None]:
    """Call `visit` with each line below some files or folders of the package, before it runs."""
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
    """The visited lines of a call, each once, in the order of the first visits."""
    found: dict[Line, None] = {}
    with traced(parts, lambda line: found.setdefault(line)):
        call()
    return list(found)


def interrupted(
    call: Callable[[], object], line: Line, *parts: str, seconds: float = 10
) -> KeyboardInterrupt | None:
    """Run a call, and interrupt it as it first comes to a line. Return the interrupt if the call raised it.

    A notebook holds the traceback of its last error, and so the local variables of our functions. The
    returned interrupt holds them, too. The variables of the caller's functions are released.

    Raises:
        Hangs: it has not returned after so many seconds.
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
