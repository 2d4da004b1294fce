"""Search for native functions without a wrapper: `trl.scope.audit`.

The audit uses the interpreter's own events: `sys.monitoring`, or `sys.setprofile` before Python
3.12, limited to built-in functions and methods. They cost more per call than a wrapper, so audit
a short part of a program.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import types
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

from timerl_nb.base.errors import ExecutionError, OptionError
from timerl_nb.base.text_formatting import align_columns
from timerl_nb.compiler.language.argument_checks import is_number
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.scope.recording import recorder
from timerl_nb.scope.recording.recorder import this_lane
from timerl_nb.scope.storage.event_format import Library
from timerl_nb.scope.wrappers.function_wrappers import is_tap
from timerl_nb.scope.wrappers.library_wrappers import Tapping

_OURS: Final = str(Path(__file__).parents[1])
_IMPORTING: Final = "<frozen importlib"
_PYTHON: Final = "python"  # running code: Python, or a wrapped call
_NOTHING: Final = ""  # running code: an import; not measured
_ROWS: Final = 20


class Enough(BaseException):
    """The time limit of an audit; no `except Exception` of the program catches it."""


@dataclass(frozen=True)
class UnwrappedFunction:
    """A native function without a wrapper.

    Attributes:
        name: name with its module.
        calls: number of calls from Python.
        ns: nanoseconds in the function, without callbacks into Python.
    """

    name: str
    calls: int
    ns: int


@explain_constructor
class audit:
    """Search for native functions without a wrapper, as a context manager.

    A recording reports their time as Python time; `tap` wraps them. Imports, and calls inside of a
    wrapped function, are left out.

    Args:
        seconds: time limit, imports excluded. At the limit, the audit ends the `with` block by an
            exception, and catches it. None for no limit.

    Raises:
        OptionError: `seconds` is not positive.
        ExecutionError: on entry: a recording is open, or another profiler is active.

    Example:
        >>> import zlib
        >>> with trl.scope.audit() as found:
        ...     data = zlib.compress(bytes(1000))
        >>> [row.calls for row in found.rows if row.name == "zlib.compress"]
        [1]
    """

    def __init__(self, seconds: float | None = None) -> None:
        if seconds is not None and not (is_number(seconds) and seconds > 0):
            raise OptionError(
                f"seconds={seconds} is not positive.", hint="pass a positive number, or None."
            )
        self._seconds = seconds
        self._calls, self._spent = Counter[str](), Counter[str]()
        self._own = threading.local()
        self._tapping = Tapping()
        self._folder = ExitStack()
        self._names: dict[int, tuple[Any, str]] = {}

    @property
    def total(self) -> int:
        """Measured nanoseconds of all threads, imports excluded."""
        return sum(self._spent.values())

    @property
    def rows(self) -> tuple[UnwrappedFunction, ...]:
        """Functions without a wrapper, in descending order of time."""
        found = (pair for pair in self._spent.most_common() if pair[0] != _PYTHON)
        return tuple(UnwrappedFunction(name, self._calls[name], ns) for name, ns in found)

    def __str__(self) -> str:
        total, rows = max(self.total, 1), self.rows
        cells = [("unwrapped", "calls", "ms", "share")]
        for row in rows[:_ROWS]:
            cells.append(
                (row.name, f"{row.calls:,}", f"{row.ns / 1e6:,.1f}", f"{row.ns / total:.2%}")
            )
        part = sum(row.ns for row in rows) / total
        head = f"{total / 1e9:,.2f} s, {part:.1%} of it in {len(rows):,} native functions without a wrapper"
        return "\n".join([head, *align_columns(cells, left=(0,))])

    __repr__ = __str__

    def __enter__(self) -> audit:
        if sys.getprofile() is not None or (_MONITORING and _MONITORING.get_tool(_TOOL)):
            raise ExecutionError(
                "another profiler is active.",
                hint="stop it first; only one profiler can be active.",
            )
        with ExitStack() as kept:
            folder = tempfile.TemporaryDirectory(prefix="timerl-scope-")
            recorder.begin(Path(kept.enter_context(folder)))
            self._folder = kept.pop_all()
        self._tapping.install()
        stack = self._own.stack = _Stack()
        stack.limit = inf if self._seconds is None else self._seconds * 1e9
        if _MONITORING:
            _monitor(self)
        else:
            threading.setprofile(self._event)
            sys.setprofile(self._event)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._end()
        self._tapping.remove()
        recorder.end()
        self._folder.close()
        return kind is Enough

    def _end(self) -> None:
        if _MONITORING:
            if _MONITORING.get_tool(_TOOL):
                _MONITORING.set_events(_TOOL, 0)
                _MONITORING.free_tool_id(_TOOL)
        else:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    # --- call stacks -------------------------------------------------------------------------

    def _stack(self) -> _Stack:
        """Return the stack of the current thread."""
        try:
            return self._own.stack
        except AttributeError:
            self._own.stack = _Stack()
            return self._own.stack

    def _event(self, frame: types.FrameType, event: str, what: Any) -> None:
        """Handle an event of `sys.setprofile`."""
        stack = self._spend()
        if event == "call":
            self._enter_frame(stack, frame.f_code)
        elif event == "c_call":
            self._enter_call(stack, what, frame.f_code)
        else:
            stack.pop(is_frame=event == "return")
        stack.since = perf_counter_ns()

    def _spend(self) -> _Stack:
        """Add the time since the last event to the running function, and return the stack."""
        now, stack = perf_counter_ns(), self._stack()
        on_top = stack.tops[-1]
        if on_top:
            self._spent[on_top] += now - stack.since
            stack.spent += now - stack.since
            if stack.spent > stack.limit:
                stack.limit = inf
                self._end()
                raise Enough
        return stack

    def _enter_frame(self, stack: _Stack, code: types.CodeType) -> None:
        """Push a Python frame."""
        imports = not stack.tops[-1] or code.co_filename.startswith(_IMPORTING)
        stack.push(_NOTHING if imports else _PYTHON, is_frame=True)

    def _enter_call(self, stack: _Stack, function: Any, code: types.CodeType) -> None:
        """Push a call of a native function."""
        if not stack.tops[-1]:
            stack.push(_NOTHING, is_frame=False)
        elif (
            _is_tapped()
            or is_tap(getattr(function, "__func__", function))
            or code.co_filename.startswith(_OURS)
        ):
            stack.push(_PYTHON, is_frame=False)
        else:
            name = self._look_up_name(function)
            self._calls[name] += 1
            stack.push(name, is_frame=False)

    def _look_up_name(self, function: Any) -> str:
        known = self._names.get(id(function))
        if known is None or known[0] is not function:
            known = function, _name(function)
            bound = getattr(function, "__self__", None)
            if bound is None or isinstance(
                bound, types.ModuleType
            ):  # bound methods are new objects in each call
                self._names[id(function)] = known
        return known[1]


class _Stack:
    """Call stack of a thread: Python frames, and native calls from them."""

    __slots__ = ("frames", "limit", "since", "spent", "tops")

    def __init__(self) -> None:
        self.tops, self.frames = [_PYTHON], [True]
        self.spent, self.limit = 0, inf  # nanoseconds
        self.since = perf_counter_ns()

    def push(self, top: str, *, is_frame: bool) -> None:
        if not is_frame and not self.frames[-1]:  # the last native call ended without an event
            self.pop(is_frame=False)
        self.tops.append(top)
        self.frames.append(is_frame)

    def pop(self, *, is_frame: bool) -> None:
        """Pop the last frame with its native calls, or the last native call, if any."""
        if is_frame and not self.frames[-1]:
            self.pop(is_frame=False)
        if len(self.tops) > 1 and self.frames[-1] is is_frame:
            self.tops.pop()
            self.frames.pop()


def _is_tapped() -> bool:
    """Return whether this thread runs a wrapped call."""
    lane = this_lane()
    return lane is not None and lane.library != Library.PYTHON


def _name(function: Any) -> str:
    """Return the name of a function, with its module or class."""
    kind = type(function)
    called = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    module = getattr(function, "__module__", None)
    if not isinstance(module, str):
        owner = getattr(function, "__objclass__", None) or type(getattr(function, "__self__", None))
        module = owner.__module__
    return f"{module}.{called}" if isinstance(called, str) else f"{kind.__module__}.{kind.__name__}"


# --- sys.monitoring ----------------------------------------------------------------------------

_MONITORING: Final[Any] = getattr(sys, "monitoring", None)
_TOOL: Final = 2  # sys.monitoring.PROFILER_ID


def _monitor(found: audit) -> None:
    """Register the callbacks of an audit with `sys.monitoring`."""

    def guard_callback(act: Callable[..., None]) -> Callable[..., None]:
        def hears(*event: Any) -> None:
            stack = found._spend()
            act(stack, *event)
            stack.since = perf_counter_ns()

        return hears

    def called(code: types.CodeType, _: int, function: Any, *__: object) -> None:
        if type(getattr(function, "__func__", function)) is not types.FunctionType:
            calls(code, function)  # a Python function has its own frame event

    calls = guard_callback(lambda stack, code, function: found._enter_call(stack, function, code))
    framed = guard_callback(lambda stack, code, *_: found._enter_frame(stack, code))
    left = guard_callback(lambda stack, *_: stack.pop(is_frame=True))
    returned = guard_callback(lambda stack, *_: stack.pop(is_frame=False))
    _MONITORING.use_tool_id(_TOOL, "trl.scope.audit")
    events, which = _MONITORING.events, 0
    for callback, names in {
        framed: ("PY_START", "PY_RESUME", "PY_THROW"),
        left: ("PY_RETURN", "PY_YIELD", "PY_UNWIND"),
        called: ("CALL",),
        returned: ("C_RETURN", "C_RAISE"),
    }.items():
        for name in names:
            event = getattr(events, name)
            _MONITORING.register_callback(_TOOL, event, callback)
            # C_RETURN and C_RAISE are enabled together with CALL
            which |= event if name[:2] != "C_" else 0
    _MONITORING.set_events(_TOOL, which)
