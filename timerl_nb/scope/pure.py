"""Lanes, annotations and taps in Python: what `_tap.c` does, where that was not built.

A tap passes for what it wraps: `inspect.isbuiltin`, `isinstance`, hash, equality, `repr`, pickle and copies.
"""

from __future__ import annotations

import functools
import mmap
import types
from collections.abc import Callable, Mapping
from threading import local
from time import monotonic_ns
from typing import Any, ClassVar, Final, NoReturn

from timerl_nb.errors import OptionError
from timerl_nb.scope.edges import EDGE, NAME_BITS, Kind

_DEEPEST: Final = 0xFFFF  # depth that an edge tells
_TOP: Final = (1 << 32) - 1
_EXIT: Final = int(Kind.CALL_EXIT) << 32
_OPERATION: Final = int(Kind.OPERATION_ENTER) << 32
_PHASE: Final = int(Kind.PHASE_ENTER) << 32
_ONE_OPERATION: Final = 1 << 32  # of what has passed

_own: local | None = None  # the lanes of threads in the recording that goes on


def start(
    this_lane: Callable[[], None],
    number: Callable[[int, str], int],
    numbers: Mapping[str, int],
    astray: Callable[[Named], None],
) -> None:
    """Calls, operations and phases are recorded from now on.

    Args:
        this_lane: is called where a thread has no lane, and installs one.
        number: what an edge says of a call of a library, by name.
        numbers: of names that have one.
        astray: is called where something is left that is not on top of its stack in this thread.
    """
    global _own, _this_lane, _number, _numbers, _astray, _stepped
    _this_lane, _number, _numbers, _astray, _stepped = this_lane, number, numbers, astray, None
    _own = local()


def stop() -> None:
    """Nothing is recorded any more."""
    global _own, _this_lane, _number, _numbers, _astray, _stepped
    _own, _this_lane, _number, _numbers, _astray, _stepped = (
        None,
        _nothing,
        _nothing,
        {},
        _nothing,
        None,
    )


def each_step(told: Callable[[bool], None]) -> None:
    """Have a function be told where a thread's outermost phase (true) or operation ends."""
    global _stepped
    _stepped = told


def _nothing(*_: object) -> Any:
    return 0


_this_lane: Callable[[], None] = _nothing
_number: Callable[[int, str], int] = _nothing
_numbers: Mapping[str, int] = {}
_astray: Callable[[Named], None] = _nothing
_stepped: Callable[[bool], None] | None = None


class Lane:
    """Appends edges of one thread, which alone writes them.

    Args:
        segments: makes the next one.

    Attributes:
        silent: calls and operations are not written.
        passed: how many were not, since the last edge; operations from bit 32 on.
        operations, phases: that are open; a plain `Named` among them has been left ahead of what is above it.
        tallies: how many outermost operations the block has had, by name; None where there are no blocks.
        left: operations until a block ends, which `turn` does.
    """

    __slots__ = (
        "_segments",
        "at",
        "below",
        "end",
        "left",
        "library",
        "operations",
        "passed",
        "phases",
        "silent",
        "tallies",
        "turn",
        "word",
        "words",
    )

    def __init__(self, segments: Callable[[], mmap.mmap]) -> None:
        self._segments = segments
        self.words = memoryview(b"")
        self.at = self.end = 0
        # what is on top of the calls, as an edge says it: its depth, library and name; the last but for itself
        self.word = self.library = 0
        self.below: list[int] = []  # the same of what is under each call of `called`
        self.silent = False
        self.passed = 0
        self.operations: list[Named] = []
        self.phases: list[Named] = []
        self.tallies: dict[str, int] | None = None
        self.left = 0
        self.turn: Callable[[], None] = _nothing

    def install(self) -> None:
        """This is the lane of the thread that asks."""
        if _own is not None:
            _own.lane = self

    def called(self, top: int, ts: int = 0) -> None:
        """A library is called, `top >> NAME_BITS`, now or at a moment `ts` since the last edge."""
        self.below.append(self.word)
        depth = (self.word >> 48) + 1
        self.word, self.library = top | depth << 48, top >> NAME_BITS
        self.put(top, Kind.CALL_ENTER, depth, ts)

    def returned(self) -> None:
        """What was called last has returned."""
        if not self.below:
            return
        self.word = word = self.below.pop()
        top = word & _TOP
        self.library = top >> NAME_BITS
        self.put(top, Kind.CALL_EXIT, word >> 48)

    def put(self, top: int, kind: int, depth: int, ts: int = 0) -> None:
        """Append an edge of now, or of a moment `ts` since the last one."""
        if self.passed:
            self.tell(ts)
        at = self.at
        if at == self.end:
            at = self.more()
        words = self.words
        words[at + 1] = top | kind << 32 | min(depth, _DEEPEST) << 48
        self.at = at + 2
        words[at] = ts or monotonic_ns()  # last: it says that the edge is whole

    def tell(self, ts: int = 0) -> None:
        """Write what has passed, ahead of another edge."""
        passed, self.passed = self.passed, 0
        for which, count in enumerate((passed & _TOP, passed >> 32)):
            if count:
                self.put(count, Kind.PASSED, which, ts)

    def more(self) -> int:
        """Have another segment; where it begins."""
        self.words = memoryview(self._segments()).cast("Q")
        self.at, self.end = 0, len(self.words)
        assert self.end * 8 % EDGE.itemsize == 0
        return 0


def no_name(given: object) -> NoReturn:
    """Say that something is no name of an operation or a phase.

    Raises:
        OptionError: always.
    """
    raise OptionError(
        f"{given!r} is no name of an operation or a phase.",
        hint='give it in words: `with trl.scope.operation("inference"):`, or `@trl.scope.operation("inference")`.',
    )


class Named:
    """What is open, or was left: an operation or a phase.

    Raises:
        OptionError: it has no name.
    """

    __slots__ = ("name",)
    is_phase: ClassVar = False

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            no_name(name)
        self.name = name


class Operation(Named):
    """Is written as it is entered and left. `Lane.put` is written out, since this is what it costs."""

    __slots__ = ()

    def __enter__(self) -> Any:
        own = _own
        if own is None:
            return self
        try:
            lane = own.lane
        except AttributeError:
            if (lane := _lane_of(own)) is None:
                return self
        if self.is_phase:
            stack, word = lane.phases, _PHASE
        else:
            stack, word = lane.operations, _OPERATION
            if lane.silent:
                stack.append(self)
                return self
        name = self.name
        top = _numbers.get(name)
        if top is None:
            top = _number(0, name)
            if own is not _own:
                return self
        if lane.passed:
            lane.tell()
        at = lane.at
        if at == lane.end:
            at = lane.more()
        stack.append(self)
        depth, words = len(stack), lane.words
        words[at + 1] = top | word | (depth if depth < _DEEPEST else _DEEPEST) << 48
        lane.at = at + 2
        words[at] = monotonic_ns()
        return self

    def __exit__(self, *_: object) -> None:
        own = _own
        if own is None:
            return
        try:
            lane = own.lane
        except AttributeError:
            if (lane := _lane_of(own)) is None:
                return
        is_phase = self.is_phase
        stack = lane.phases if is_phase else lane.operations
        if not stack or stack[-1] is not self:
            _astray(self)
            return
        while True:  # with it goes what is below, and was left ahead of it
            stack.pop()
            if lane.silent and not is_phase:
                lane.passed += _ONE_OPERATION
            else:
                if lane.passed:
                    lane.tell()
                at = lane.at
                if at == lane.end:
                    at = lane.more()
                words, word = lane.words, (_PHASE if is_phase else _OPERATION) | _EXIT
                if stack:
                    name = stack[-1].name
                    depth = len(stack)
                    word |= _numbers.get(name) or _number(0, name)
                    word |= (depth if depth < _DEEPEST else _DEEPEST) << 48
                words[at + 1] = word
                lane.at = at + 2
                words[at] = monotonic_ns()
            if not stack:
                break
            if type(stack[-1]) is not Named:
                return
        tallies = lane.tallies
        if tallies is not None and not is_phase:
            tallies[self.name] = tallies.get(self.name, 0) + 1
            lane.left = left = lane.left - 1
            if left <= 0 and not lane.library:
                lane.turn()
        if _stepped is not None:
            _stepped(is_phase)


class Phase(Operation):
    """The same, which is written also where operations are not."""

    __slots__ = ()
    is_phase = True


def _lane_of(own: local) -> Lane | None:
    """That of a thread that has none yet."""
    _this_lane()
    return getattr(own, "lane", None) if own is _own else None


class Tap:
    """A function, whose calls are recorded.

    Args:
        taps: it is among, and goes with.
        function: what it passes for.
        name: what it is called in the recording.
        library: whose code it runs; calls from inside of that are counted, and not recorded.
        guess: the operation that a call is, where no other is open, or what makes it; None for none.
        instead: what is called; by default the function, recorded.
    """

    # `__call__` of each is a function of its own: a method would cost another call
    __slots__ = ("__call__", "__weakref__", "_function", "_taps")

    def __init__(
        self,
        taps: Any,
        function: Any,
        name: str,
        library: int,
        guess: Any = None,
        instead: Callable[..., Any] | None = None,
    ) -> None:
        self._taps, self._function = taps, function
        self.__call__: Any = instead or _recorded(function, name, int(library), guess)

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
        function = self._function
        if type(function) is types.FunctionType:  # which itself does not say its name
            return function.__qualname__
        return function.__reduce_ex__(protocol)

    def __copy__(self) -> Tap:
        return self

    def __deepcopy__(self, memo: Any) -> Tap:
        return self


class MethodTap(Tap):
    """The same of a function that binds to instances.

    Of a function in Python it is another one: Python binds and calls that in a third of the time. Not so where
    `cloudpickle` takes functions apart, for workers of environments: what is taken apart is what is tapped then.
    """

    __slots__ = ()
    __doc__, __module__ = Tap.__doc__, Tap.__module__  # of this class would hide them

    def __new__(cls, taps: Any, function: Any, name: str, library: int, guess: Any = None) -> Any:
        if type(function) is not types.FunctionType or _is_taken_apart(function):
            return object.__new__(cls)
        made = functools.wraps(function)(_recorded(function, name, int(library), guess))
        vars(made).update(_taps=taps, _function=function)
        return made

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


def _is_taken_apart(function: types.FunctionType) -> bool:
    """Whether other processes do not find a function by its name."""
    return function.__module__ == "__main__" or "<locals>" in function.__qualname__


def _recorded(function: Callable[..., Any], name: str, library: int, guess: Any) -> Any:
    """A function whose calls are written: `Lane.called` and `Lane.returned`, written out, since this is what they cost.

    So is `function(*args)` where there are no names, which takes a fifth less.
    """
    of: Any = ()  # the lanes that `outermost` is for; never None
    outermost = 0  # what is on top where nothing is below

    def call(*args: Any, **named: Any) -> Any:
        nonlocal of, outermost
        own: Any = _own
        if own is not of:
            if own is None:
                return function(*args, **named)
            outermost, of = _number(library, name) | 1 << 48, own
        try:
            lane = own.lane
        except AttributeError:
            if (lane := _lane_of(own)) is None:
                return function(*args, **named)
        on = lane.library
        if guess is not None and not lane.operations:
            with guess() if type(guess) is types.FunctionType else guess:
                if on != library and not lane.silent:
                    return call(*args, **named)
                lane.passed += 1
                return function(*args, **named)
        if on == library or lane.silent:
            lane.passed += 1
            return function(*args, **named) if named else function(*args)
        if lane.passed:
            lane.tell()
        at = lane.at
        if at == lane.end:
            at = lane.more()
        if below := lane.word:
            word, leaves = (outermost & _TOP) | (below >> 48) + 1 << 48, below | _EXIT
        else:
            word, leaves = outermost, _EXIT
        words = lane.words
        lane.word, lane.library = word, library
        words[at + 1] = word  # Kind.CALL_ENTER is 0
        lane.at = at + 2
        words[at] = monotonic_ns()
        try:
            return function(*args, **named) if named else function(*args)
        finally:
            if own is _own:  # the recording has not ended, and this is no child of its process
                if lane.passed:
                    lane.tell()
                at = lane.at
                if at == lane.end:
                    at = lane.more()
                words = lane.words
                lane.word, lane.library = below, on
                words[at + 1] = leaves
                lane.at = at + 2
                words[at] = monotonic_ns()

    return call


FUNCTIONS: Final = {_recorded(len, "", 0, None).__code__}  # of taps that are functions
