"""Lanes, annotations and taps in Python: what `_tap.c` does, where that was not built.

A tap passes for what it wraps: `inspect.isbuiltin`, `isinstance`, hash, equality, `repr`, pickle and copies.
"""

from __future__ import annotations

import functools
import mmap
import types
from collections.abc import Callable, Mapping
from threading import local
from time import monotonic_ns, thread_time_ns
from typing import Any, ClassVar, Final, NoReturn

from timerl_nb.base.errors import OptionError
from timerl_nb.scope.storage.event_format import EDGE, NAME_BITS, Kind

_DEEPEST: Final = 0xFFFF  # depth that an edge tells
_TOP: Final = (1 << 32) - 1
_EXIT: Final = int(Kind.CALL_EXIT) << 32
_OPERATION: Final = int(Kind.OPERATION_ENTER) << 32
_PHASE: Final = int(Kind.PHASE_ENTER) << 32
_ONE_OPERATION: Final = 1 << 32  # of what has passed

LEAST: Final = (
    1_000_000  # ns: shorter waits of a thread are not written, and its clock is read no more often
)
LIBRARIES: Final = 8  # libraries are smaller numbers
ENTERED: Final = LIBRARIES * LIBRARIES - 1  # in `Lane.missed`: an operation was entered

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


_NONE: Final = memoryview(bytearray()).cast("Q")  # an index of it is an IndexError


class Lane:
    """Appends edges of one thread, which alone writes them.

    Args:
        segments: makes the next one.

    Attributes:
        silent: calls and operations are counted, and not written.
        passed: how many were not, since the last edge; operations from bit 32 on.
        operations, phases: that are open; a plain `Named` among them has been left ahead of what is above it.
        tallies: how many outermost operations the block has had, by name; None where there are no blocks.
        left: operations until a block ends, which `turn` does.
        counts: calls while silent since the innermost operation changed, by `LIBRARIES * left + entered`.
        due: when the thread's clock is read next.
    """

    __slots__ = (
        "_before",
        "_cpu",
        "_last",
        "_missed",
        "_off",
        "_quiet",
        "_ready",
        "_segments",
        "_switches",
        "_wall",
        "at",
        "below",
        "counts",
        "due",
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
        self.words, self.at = _NONE, 0
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
        self._before = self._last = 0
        self.due = self._wall = self._cpu = self._ready = self._off = self._switches = 0
        self.counts: dict[int, int] = {}
        self._missed: dict[str, dict[int, int]] = {}
        self._quiet: list[int] = []  # libraries under each silent call of `called`

    def install(self) -> None:
        """This is the lane of the thread that asks."""
        if _own is not None:
            _own.lane = self

    def called(self, top: int, ts: int = 0) -> None:
        """A library is called, `top >> NAME_BITS`, now or at a moment `ts` since the last edge."""
        if self.silent:
            library = top >> NAME_BITS
            self.count(LIBRARIES * self.library + library)
            self._quiet.append(self.library)
            self.library = library
            return
        self.below.append(self.word)
        depth = (self.word >> 48) + 1
        self.word, self.library = top | depth << 48, top >> NAME_BITS
        self.put(top, Kind.CALL_ENTER, depth, ts)

    def returned(self) -> None:
        """What was called last has returned."""
        if self._quiet:
            self.library = self._quiet.pop()
            return
        if not self.below:
            return
        word = self.below.pop()
        top = word & _TOP
        self.put(top, Kind.CALL_EXIT, word >> 48)
        self.word, self.library = word, top >> NAME_BITS

    def put(self, top: int, kind: int, depth: int, ts: int = 0) -> None:
        """Append an edge of now, or of a moment `ts` since the last one."""
        ts = ts or monotonic_ns()
        if ts >= self.due:
            self.sample(ts, self.at, self.library)
        if self.passed:
            self.tell(ts)
        at = self.at
        if at == len(self.words):
            at = self.more()
        words = self.words
        words[at + 1] = top | kind << 32 | min(depth, _DEEPEST) << 48
        self.at = at + 2
        words[at] = ts  # last: it says that the edge is whole

    def sample(self, ts: int, at: int, on: int) -> None:
        """Read the thread's clock at an edge, and write for how long the thread was blocked in Python ahead of it.

        The system is asked only after `LEAST` nanoseconds without a processor.

        Args:
            ts: when the edge is written, which is or will be word `at`.
            on: the library on top ahead of it.
        """
        cpu, blocked = thread_time_ns(), 0
        if not self._wall:
            _, self._ready, self._switches = schedule()
        else:
            off = max(0, ts - self._wall - (cpu - self._cpu))
            if self._off + off >= LEAST:
                _, ready, switches = schedule()
                blocked = self._blocked_time(ts, cpu, ready, switches, self._before_word(at))
                self._ready, self._switches, self._off = ready, switches, 0
            else:
                self._off += off
        self._wall, self._cpu, self.due = ts, cpu, ts + LEAST
        if blocked and not on and not self.silent:
            self.put(blocked & _TOP, Kind.BLOCKED, blocked >> 32, ts)

    def blocked(self, ts: int, cpu: int, ready: int, switches: int) -> int:
        """Return for how many of the nanoseconds since its last edge the thread was blocked in Python; 0 below `LEAST`.

        Segments ahead of that edge, since the clock was read, are taken for computing: together they are shorter than `LEAST`.

        Args:
            cpu: the thread's CPU time at `ts`, in nanoseconds.
            ready: nanoseconds in the run queue by then; such a wait is no blocking.
            switches: how often it had given its processor up to wait; -1 where the system does not say.
        """
        if not self._wall or self.library or self.silent:
            return 0
        return self._blocked_time(ts, cpu, ready, switches, self._before_word(self.at))

    def _blocked_time(self, ts: int, cpu: int, ready: int, switches: int, last: int) -> int:
        if switches >= 0 and switches == self._switches:
            return 0  # interrupts and other machines took the rest
        since = ts - last
        ran = max(0, cpu - self._cpu - max(0, ts - self._wall - since))
        waited = max(0, ready - self._ready - self._off)
        blocked = since - ran - waited
        return blocked if blocked >= LEAST else 0

    def _before_word(self, at: int) -> int:
        """The time of the edge before a word. Counts of passed calls have none: they are written with the next edge."""
        while at:
            at -= 2
            if self.words[at + 1] >> 32 & 0xFFFF != Kind.PASSED:
                return self.words[at]
        return self._last

    @property
    def edges(self) -> int:
        """How many were written."""
        return self._before + self.at // 2

    def close(self) -> None:
        """Unmap the segment; this thread writes here no more."""
        self._before, self._last = self.edges, self._before_word(self.at)
        self.words, self.at = _NONE, 0

    def count(self, which: int) -> None:
        """Something of the innermost operation is not written."""
        self.counts[which] = self.counts.get(which, 0) + 1

    def flush(self) -> None:
        """Add the counts of the innermost operation to the sums of its name."""
        sums = self._missed.setdefault(self.operations[-1].name if self.operations else "", {})
        for which, count in self.counts.items():
            sums[which] = sums.get(which, 0) + count
        self.counts.clear()

    def missed(self) -> list[tuple[str, int, int]]:
        """Take the counts of unwritten edges: operation, `ENTERED` or `LIBRARIES * left + entered`, and number."""
        self.flush()
        taken, self._missed = self._missed, {}
        return [(name, *pair) for name, sums in taken.items() for pair in sums.items()]

    def tell(self, ts: int = 0) -> None:
        """Write what has passed, ahead of another edge."""
        passed, self.passed = self.passed, 0
        for which, count in enumerate((passed & _TOP, passed >> 32)):
            if count:
                self.put(count, Kind.PASSED, which, ts)

    def more(self) -> int:
        """Have another segment; where it begins."""
        self.close()
        self.words = memoryview(self._segments()).cast("Q")
        assert len(self.words) * 8 % EDGE.itemsize == 0
        return 0


def schedule(task: str = "/proc/thread-self") -> tuple[int, int, int]:
    """Read a thread's CPU time, its time on the run queue (ns), and its number of voluntary context switches.

    Args:
        task: its folder.

    Returns:
        0, 0 and -1 where the system does not say.
    """
    try:
        with open(f"{task}/schedstat", "rb", buffering=0) as file:
            ran, waited, *_ = map(int, file.read().split())
        with open(f"{task}/status", "rb", buffering=0) as file:
            return (
                ran,
                waited,
                int(file.read().partition(b"\nvoluntary_ctxt_switches:")[2].split()[0]),
            )
    except (OSError, ValueError, IndexError):
        return 0, 0, -1


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
                if lane.counts:
                    lane.flush()
                stack.append(self)
                lane.count(ENTERED)
                return self
        name = self.name
        top = _numbers.get(name)
        if top is None:
            top = _number(0, name)
            if own is not _own:
                return self
        if lane.passed:
            lane.tell()
        stack.append(self)
        depth, at, words = len(stack), lane.at, lane.words
        word |= top | (depth if depth < _DEEPEST else _DEEPEST) << 48
        try:
            words[at + 1] = word
        except IndexError:  # the segment is full
            at, words = lane.more(), lane.words
            words[at + 1] = word
        lane.at = at + 2
        words[at] = now = monotonic_ns()
        if now >= lane.due:
            lane.sample(now, at, lane.library)
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
            if lane.silent and not is_phase:
                lane.flush()
                stack.pop()
                lane.passed += _ONE_OPERATION
            else:
                stack.pop()
                if lane.passed:
                    lane.tell()
                word = (_PHASE if is_phase else _OPERATION) | _EXIT
                if stack:
                    name = stack[-1].name
                    depth = len(stack)
                    word |= _numbers.get(name) or _number(0, name)
                    word |= (depth if depth < _DEEPEST else _DEEPEST) << 48
                at, words = lane.at, lane.words
                try:
                    words[at + 1] = word
                except IndexError:
                    at, words = lane.more(), lane.words
                    words[at + 1] = word
                lane.at = at + 2
                words[at] = now = monotonic_ns()
                if now >= lane.due:
                    lane.sample(now, at, lane.library)
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
        self.__call__: Any = instead or _wrap_function(function, name, int(library), guess)

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
        made = functools.wraps(function)(_wrap_function(function, name, int(library), guess))
        vars(made).update(_taps=taps, _function=function)
        return made

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


def _is_taken_apart(function: types.FunctionType) -> bool:
    """Whether other processes do not find a function by its name."""
    return function.__module__ == "__main__" or "<locals>" in function.__qualname__


def _wrap_function(function: Callable[..., Any], name: str, library: int, guess: Any) -> Any:
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
                if on != library:
                    return call(*args, **named)
                lane.passed += 1
                return function(*args, **named)
        if on == library or lane.silent:
            lane.passed += 1
            if on == library:
                return function(*args, **named) if named else function(*args)
            counts, which = lane.counts, LIBRARIES * on + library  # `Lane.count`, written out
            counts[which] = counts.get(which, 0) + 1
            lane.library = library
            try:
                return function(*args, **named)
            finally:
                if own is _own:
                    lane.library = on
        if lane.passed:
            lane.tell()
        if below := lane.word:
            word, leaves = (outermost & _TOP) | (below >> 48) + 1 << 48, below | _EXIT
        else:
            word, leaves = outermost, _EXIT
        at, words = lane.at, lane.words
        try:
            words[at + 1] = word  # Kind.CALL_ENTER is 0
        except IndexError:  # the segment is full
            at, words = lane.more(), lane.words
            words[at + 1] = word
        lane.at = at + 2
        words[at] = now = monotonic_ns()
        if now >= lane.due:
            lane.sample(now, at, on)
        lane.word, lane.library = word, library
        try:
            return function(*args, **named) if named else function(*args)
        finally:
            if own is _own:  # the recording has not ended, and this is no child of its process
                if lane.passed:
                    lane.tell()
                at, words = lane.at, lane.words
                try:
                    words[at + 1] = leaves
                except IndexError:
                    at, words = lane.more(), lane.words
                    words[at + 1] = leaves
                lane.at = at + 2
                words[at] = now = monotonic_ns()
                lane.word, lane.library = below, on
                if now >= lane.due:
                    lane.sample(now, at, library)

    return call


FUNCTIONS: Final = {_wrap_function(len, "", 0, None).__code__}  # of taps that are functions
