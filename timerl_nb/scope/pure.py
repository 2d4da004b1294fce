"""Lanes and taps in Python: what `_tap.c` does, where that was not built.

A tap passes for what it wraps: `inspect.isbuiltin`, `isinstance`, hash, equality, `repr`, pickle and copies.
"""

from __future__ import annotations

import mmap
import types
from collections.abc import Callable
from threading import local
from time import monotonic_ns
from typing import Any, Final

from timerl_nb.scope.edges import EDGE, NAME_BITS, Kind

_EXIT: Final = int(Kind.CALL_EXIT) << 32

_own: local | None = None  # the lanes of threads in the recording that taps write to


def start(this_lane: Callable[[], None], number: Callable[[int, str], int]) -> None:
    """Taps record from now on.

    Args:
        this_lane: is called where a thread has no lane, and installs one.
        number: what an edge says of a call of a library, by name.
    """
    global _own, _this_lane, _number
    _this_lane, _number = this_lane, number
    _own = local()


def stop() -> None:
    """Taps call through."""
    global _own, _this_lane, _number
    _own, _this_lane, _number = None, _nothing, _nothing


def _nothing(*_: object) -> Any:
    return 0


_this_lane: Callable[[], None] = _nothing
_number: Callable[[int, str], int] = _nothing


class Lane:
    """Appends edges of one thread, which alone writes them.

    Args:
        segments: makes the next one.
    """

    __slots__ = ("_segments", "at", "calls", "end", "inside", "library", "silent", "words")

    def __init__(self, segments: Callable[[], mmap.mmap]) -> None:
        self._segments = segments
        self.words = memoryview(b"")
        self.at = self.end = 0
        self.calls: list[int] = []
        self.library = 0  # on top of the calls
        self.silent = False  # taps call through
        self.inside = False  # of an operation, so that none is guessed

    def install(self) -> None:
        """This is the lane of the thread that asks."""
        if _own is not None:
            _own.lane = self

    def called(self, top: int, ts: int = 0) -> None:
        """A library is called, `top >> NAME_BITS`, now or at a moment `ts` since the last edge."""
        self.put(top, Kind.CALL_ENTER, len(self.calls) + 1, ts)
        self.calls.append(top)
        self.library = top >> NAME_BITS

    def returned(self) -> None:
        """What was called last has returned."""
        if not self.calls:
            return
        self.calls.pop()
        top = self.calls[-1] if self.calls else 0
        self.library = top >> NAME_BITS
        self.put(top, Kind.CALL_EXIT, len(self.calls))

    def put(self, top: int, kind: int, depth: int, ts: int = 0) -> None:
        """Append an edge of now, or of a moment `ts` since the last one."""
        at = self.at
        if at == self.end:
            at = self.more()
        words = self.words
        words[at + 1] = top | kind << 32 | min(depth, 0xFFFF) << 48
        self.at = at + 2
        words[at] = ts or monotonic_ns()  # last: it says that the edge is whole

    def more(self) -> int:
        """Have another segment; where it begins."""
        self.words = memoryview(self._segments()).cast("Q")
        self.at, self.end = 0, len(self.words)
        assert self.end * 8 % EDGE.itemsize == 0
        return 0


class Tap:
    """A function, whose calls are recorded.

    Args:
        taps: it is among, and goes with.
        function: what it passes for.
        name: what it is called in the recording.
        library: whose code it runs; calls from inside of that are not recorded.
        instead: what is called; by default the function, recorded.

    Attributes:
        _guess: is called where no operation is open, if given.
    """

    # `__call__` of each is a function of its own: a method would cost another call
    __slots__ = ("__call__", "__weakref__", "_function", "_guess", "_taps")

    def __init__(
        self,
        taps: Any,
        function: Any,
        name: str,
        library: int,
        instead: Callable[..., Any] | None = None,
    ) -> None:
        self._taps, self._function = taps, function
        self.__call__ = instead or _recorded(self, function, name, int(library))
        self._guess: Callable[..., Any] | None = None

    @property
    def __class__(self) -> Any:
        return type(self._function)

    @property
    def __doc__(self) -> Any:  # pyrefly: ignore[bad-override]
        return self._function.__doc__

    @property
    def __module__(self) -> Any:  # pyrefly: ignore[bad-override]
        return self._function.__module__

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __eq__(self, other: Any) -> bool:
        return self._function == (other._function if type(other) in (Tap, MethodTap) else other)

    def __hash__(self) -> int:
        return hash(self._function)

    def __repr__(self) -> str:
        return repr(self._function)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._function.__reduce_ex__(protocol)

    def __copy__(self) -> Tap:
        return self

    def __deepcopy__(self, memo: Any) -> Tap:
        return self


class MethodTap(Tap):
    """The same of a function that is looked up in a class, and called with an instance."""

    __slots__ = ()

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


def _recorded(
    tap: Tap, function: Callable[..., Any], name: str, library: int
) -> Callable[..., Any]:
    """A function whose calls are written: `Lane.called` and `Lane.returned`, written out, since this is what they cost."""
    of: local | None = None  # the lanes that `top` is for
    top = 0

    def call(*args: Any, **named: Any) -> Any:
        nonlocal of, top
        own = _own
        if own is None:
            return function(*args, **named)
        try:
            lane = own.lane
        except AttributeError:
            _this_lane()
            lane = getattr(own, "lane", None)
            if lane is None:
                return function(*args, **named)
        if not lane.inside and tap._guess is not None:
            return tap._guess(*args, **named)
        if lane.library == library or lane.silent:
            return function(*args, **named)
        if of is not own:
            top, of = _number(library, name), own
        at = lane.at
        if at == lane.end:
            at = lane.more()
        calls, words = lane.calls, lane.words
        calls.append(top)
        lane.library = library
        words[at + 1] = top | len(calls) << 48  # Kind.CALL_ENTER is 0
        lane.at = at + 2
        words[at] = monotonic_ns()
        try:
            return function(*args, **named)
        finally:
            if own is _own:  # the recording has not ended, and this is no child of its process
                at = lane.at
                if at == lane.end:
                    at = lane.more()
                words = lane.words
                calls.pop()
                if calls:
                    upper = calls[-1]
                    lane.library = upper >> NAME_BITS
                    words[at + 1] = upper | len(calls) << 48 | _EXIT
                else:
                    lane.library = 0
                    words[at + 1] = _EXIT
                lane.at = at + 2
                words[at] = monotonic_ns()

    return call
