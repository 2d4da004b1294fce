"""Python implementation of timelines, annotations and wrappers; the fallback for `_tap.c`.

A wrapper behaves like the wrapped function under `inspect.isbuiltin`, `isinstance`, `hash`, `==`,
`repr`, pickle and copy.
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

_DEEPEST: Final = 0xFFFF  # maximum depth of an event
_TOP: Final = (1 << 32) - 1
_EXIT: Final = int(Kind.CALL_EXIT) << 32
_OPERATION: Final = int(Kind.OPERATION_ENTER) << 32
_PHASE: Final = int(Kind.PHASE_ENTER) << 32
_ONE_OPERATION: Final = 1 << 32  # one operation in `Lane.passed`

LEAST: Final = (
    # nanoseconds: shorter waits are not written, and the CPU clock is not read more often
    1_000_000
)
LIBRARIES: Final = 8  # all `Library` values are smaller
ENTERED: Final = LIBRARIES * LIBRARIES - 1  # in `Lane.missed`: an operation was entered

_own: local | None = None  # timelines of the threads in the current recording


def start(
    this_lane: Callable[[], None],
    number: Callable[[int, str], int],
    numbers: Mapping[str, int],
    astray: Callable[[Named], None],
) -> None:
    """Start recording calls, operations and phases.

    Args:
        this_lane: called in a thread without a timeline; installs one.
        number: returns the `top` field of a call, from library and name.
        numbers: numbers of the known names.
        astray: called on the exit of an operation or phase below the top of this thread's stack.
    """
    global _own, _this_lane, _number, _numbers, _astray, _stepped
    _this_lane, _number, _numbers, _astray, _stepped = this_lane, number, numbers, astray, None
    _own = local()


def stop() -> None:
    """Stop recording."""
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
    """Call `told(is_phase)` at the end of each thread's outermost phases and operations."""
    global _stepped
    _stepped = told


def _nothing(*_: object) -> Any:
    return 0


_this_lane: Callable[[], None] = _nothing
_number: Callable[[int, str], int] = _nothing
_numbers: Mapping[str, int] = {}
_astray: Callable[[Named], None] = _nothing
_stepped: Callable[[bool], None] | None = None


# indexing it raises IndexError, like a full segment
_NONE: Final = memoryview(bytearray()).cast("Q")


class Lane:
    """Event timeline of one thread; only that thread writes it.

    Args:
        segments: returns the next segment.

    Attributes:
        silent: whether calls and operations are only counted in this block.
        passed: number of unwritten calls and, from bit 32 on, operations since the last event.
        operations, phases: stacks of open annotations. A plain `Named` entry was exited before the
            entries above it.
        tallies: number of outermost operations in the block by name; None without blocks.
        left: number of operations until `turn` ends the block.
        counts: number of calls in a disabled block since the innermost operation changed, by
            `LIBRARIES * left + entered`.
        due: time of the next read of the thread's CPU clock.
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
        # the innermost call as an event encodes it (depth, library, name), and its library
        self.word = self.library = 0
        self.below: list[int] = []  # `word` of the callers of each call of `called`
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
        self._quiet: list[int] = []  # libraries of the callers, in a disabled block

    def install(self) -> None:
        """Make this the timeline of the current thread."""
        if _own is not None:
            _own.lane = self

    def called(self, top: int, ts: int = 0) -> None:
        """Record the start of a call.

        Args:
            top: library (`top >> NAME_BITS`) and name of the call.
            ts: time in nanoseconds, not before the last event; 0 for now.
        """
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
        """Record the end of the innermost call."""
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
        """Append an event, now or at a time `ts` after the last event."""
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
        words[at] = ts  # stored last: a nonzero time marks a complete event

    def sample(self, ts: int, at: int, on: int) -> None:
        """Read the thread's CPU time and write for how long it was blocked in Python code.

        The scheduler statistics are read only after `LEAST` nanoseconds without a processor.

        Args:
            ts: time of the event.
            at: index of the word with that time.
            on: library of the innermost call before the event.
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
        """Return how long (ns) the thread was blocked in Python code since the last event.

        The result is 0 if it is below `LEAST`.

        Shorter waits before the last event count as computation; their sum is below `LEAST`.

        Args:
            ts: current time in nanoseconds.
            cpu: CPU time of the thread at `ts`, in nanoseconds.
            ready: nanoseconds in the run queue so far; they do not count as blocked.
            switches: number of voluntary context switches; -1 if unknown.
        """
        if not self._wall or self.library or self.silent:
            return 0
        return self._blocked_time(ts, cpu, ready, switches, self._before_word(self.at))

    def _blocked_time(self, ts: int, cpu: int, ready: int, switches: int, last: int) -> int:
        if switches >= 0 and switches == self._switches:
            return 0  # no voluntary switch: interrupts or other virtual machines took the time
        since = ts - last
        ran = max(0, cpu - self._cpu - max(0, ts - self._wall - since))
        waited = max(0, ready - self._ready - self._off)
        blocked = since - ran - waited
        return blocked if blocked >= LEAST else 0

    def _before_word(self, at: int) -> int:
        """Return the time of the event before a word.

        Counts of passed calls are skipped: they share the next event's time.
        """
        while at:
            at -= 2
            if self.words[at + 1] >> 32 & 0xFFFF != Kind.PASSED:
                return self.words[at]
        return self._last

    @property
    def edges(self) -> int:
        """Number of written events."""
        return self._before + self.at // 2

    def close(self) -> None:
        """Unmap the segment; the thread writes no more events here."""
        self._before, self._last = self.edges, self._before_word(self.at)
        self.words, self.at = _NONE, 0

    def count(self, which: int) -> None:
        """Count an unwritten call or operation inside of the innermost operation."""
        self.counts[which] = self.counts.get(which, 0) + 1

    def flush(self) -> None:
        """Add the counts of the innermost operation to the sums of its name."""
        sums = self._missed.setdefault(self.operations[-1].name if self.operations else "", {})
        for which, count in self.counts.items():
            sums[which] = sums.get(which, 0) + count
        self.counts.clear()

    def missed(self) -> list[tuple[str, int, int]]:
        """Remove and return the counts of unwritten calls and operations.

        Returns:
            Rows of operation, `ENTERED` or `LIBRARIES * left + entered`, and count.
        """
        self.flush()
        taken, self._missed = self._missed, {}
        return [(name, *pair) for name, sums in taken.items() for pair in sums.items()]

    def tell(self, ts: int = 0) -> None:
        """Write the number of unwritten calls and operations before the next event."""
        passed, self.passed = self.passed, 0
        for which, count in enumerate((passed & _TOP, passed >> 32)):
            if count:
                self.put(count, Kind.PASSED, which, ts)

    def more(self) -> int:
        """Map the next segment and return the index of its first word."""
        self.close()
        self.words = memoryview(self._segments()).cast("Q")
        assert len(self.words) * 8 % EDGE.itemsize == 0
        return 0


def schedule(task: str = "/proc/thread-self") -> tuple[int, int, int]:
    """Return a thread's CPU time (ns), run-queue time (ns) and voluntary context switches.

    Args:
        task: folder of the thread in `/proc`.

    Returns:
        (0, 0, -1) if the system does not provide them.
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
    """Report an invalid name of an operation or phase.

    Raises:
        OptionError: always.
    """
    raise OptionError(
        f"{given!r} is not a name of an operation or phase.",
        hint='pass a string: `with trl.scope.operation("inference"):`, or `@trl.scope.operation("inference")`.',
    )


class Named:
    """Name of an operation or phase.

    Raises:
        OptionError: the name is not a string.
    """

    __slots__ = ("name",)
    is_phase: ClassVar = False

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            no_name(name)
        self.name = name


class Operation(Named):
    """Operation: writes events on entry and exit. For speed, the code of `Lane.put` is inlined."""

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
        while True:  # also pop the entries below with an earlier exit out of order
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
    """Phase: like an operation, but also written in disabled blocks."""

    __slots__ = ()
    is_phase = True


def _lane_of(own: local) -> Lane | None:
    """Create and return the timeline of the current thread."""
    _this_lane()
    return getattr(own, "lane", None) if own is _own else None


class Tap:
    """Wrapper of a function; records its calls.

    Args:
        taps: set of wrappers for removal.
        function: wrapped function.
        name: name of the calls in the recording.
        library: category of the calls. Nested calls of the same category are only counted.
        guess: operation to open around a call if none is open, or a function returning one; None
            for none.
        instead: function to call in place of the wrapped one, unrecorded.
    """

    # a per-instance `__call__` saves one function call
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
        if type(function) is types.FunctionType:  # its own `__reduce_ex__` does not return the name
            return function.__qualname__
        return function.__reduce_ex__(protocol)

    def __copy__(self) -> Tap:
        return self

    def __deepcopy__(self, memo: Any) -> Tap:
        return self


class MethodTap(Tap):
    """Wrapper of a function with binding to instances.

    For a Python function, the wrapper is a Python function, too: Python binds and calls it three
    times faster than an object. Functions without an importable name are the exception:
    `cloudpickle` serializes them by value, for example for environment workers, and must serialize
    the wrapped function.
    """

    __slots__ = ()
    # class attributes would hide the properties of `Tap`
    __doc__, __module__ = Tap.__doc__, Tap.__module__

    def __new__(cls, taps: Any, function: Any, name: str, library: int, guess: Any = None) -> Any:
        if type(function) is not types.FunctionType or _is_taken_apart(function):
            return object.__new__(cls)
        made = functools.wraps(function)(_wrap_function(function, name, int(library), guess))
        vars(made).update(_taps=taps, _function=function)
        return made

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


def _is_taken_apart(function: types.FunctionType) -> bool:
    """Return whether other processes cannot import a function by its name."""
    return function.__module__ == "__main__" or "<locals>" in function.__qualname__


def _wrap_function(function: Callable[..., Any], name: str, library: int, guess: Any) -> Any:
    """Return a function around another one; it records its calls.

    For speed, the code of `Lane.called` and `Lane.returned` is inlined, calls without keyword
    arguments have a separate branch (20 % faster), and nothing is assigned as a tuple (1 %).
    """
    of: Any = ()  # `_own` at the time when `outermost` was computed; never None
    outermost = 0  # encoding of a call without a caller

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
            counts, which = lane.counts, LIBRARIES * on + library  # `Lane.count`, inlined
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
            word = outermost
            leaves = _EXIT
        at = lane.at
        words = lane.words
        try:
            words[at + 1] = word  # Kind.CALL_ENTER is 0
        except IndexError:  # the segment is full
            at, words = lane.more(), lane.words
            words[at + 1] = word
        lane.at = at + 2
        words[at] = now = monotonic_ns()
        if now >= lane.due:
            lane.sample(now, at, on)
        lane.word = word
        lane.library = library
        try:
            return function(*args, **named) if named else function(*args)
        finally:
            if own is _own:  # otherwise the recording has ended, or this is a forked child
                if lane.passed:
                    lane.tell()
                at = lane.at
                words = lane.words
                try:
                    words[at + 1] = leaves
                except IndexError:
                    at, words = lane.more(), lane.words
                    words[at + 1] = leaves
                lane.at = at + 2
                words[at] = now = monotonic_ns()
                lane.word = below
                lane.library = on
                if now >= lane.due:
                    lane.sample(now, at, library)

    return call


# code objects of the wrappers of Python functions
FUNCTIONS: Final = {_wrap_function(len, "", 0, None).__code__}
