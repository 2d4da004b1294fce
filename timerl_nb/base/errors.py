"""Errors that answer at the user's own line.

Every error a user can get is a `TimeRLError`: it says what is wrong, where (the line of the user's
program), the evidence (a sample point, the shapes, the legal values) and what to do next.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import dataclasses
import functools
import linecache
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

_BETWEEN = tuple(m.__file__ for m in (contextlib, copy, dataclasses, functools, threading))
# whose functions ask arguments for their values
_LIBRARIES = tuple(f"{os.sep}site-packages{os.sep}{name}{os.sep}" for name in ("numpy", "jax"))
_WIDGETS = f"{os.sep}timerl_widgets{os.sep}"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_COMMANDS = f"{_PACKAGE}cli{os.sep}"  # which use the library as users do
# where functions of tensors are: what they make says more than they do
_TENSORS = (f"{_PACKAGE}compiler{os.sep}language{os.sep}", f"{_PACKAGE}random.py")


@dataclass(frozen=True)
class Origin:
    """The line of the user's program that wrote something, and what it called to do so.

    `call` is the name of a function of ours that does more than make a tensor, such as `backward`.
    What belongs to a gradient knows the line `gradient_of` whose gradient it is.
    """

    file: str = "<unknown>"
    line: int = 0
    call: str = field(default="", compare=False)
    gradient_of: Origin | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The source line itself, stripped; empty where the source cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def place(self) -> str:
        """`train.py:12`, or `In[3]:2` for a notebook cell."""
        return f"{_display_name(self.file)}:{self.line}" if self.line else self.file

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.text else self.place


def _display_name(file: str) -> str:
    # ipykernel compiles each cell under a temporary file name; IPython knows the cell's number.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        named = shell.compile.format_code_name(file)
        if named is not None:
            return str(named[1])
    return os.path.basename(file)


def user_origin() -> Origin:
    """The innermost stack frame outside this package."""
    frame: FrameType | None = sys._getframe(1)
    call = ""
    while frame is not None and _is_ours(frame):
        code = frame.f_code
        if code.co_filename.startswith(_TENSORS):
            call = code.co_name if code.co_name == "backward" else call
        elif code.co_filename.startswith(_PACKAGE):
            call = code.co_name
        frame = frame.f_back
    if frame is None:
        return Origin()
    return Origin(frame.f_code.co_filename, frame.f_lineno, "" if call[:1] in "_<" else call)


def user_variables() -> dict[str, Any]:
    """The variables of the block that the caller ends, but for private ones."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back
    found = frame.f_locals if frame is not None else {}
    return {name: value for name, value in found.items() if not name.startswith("_")}


def warn(what: str, *, hint: str = "", origin: Origin | None = None) -> None:
    """Warn at the user's own line of a program that is sound, but probably not what was meant.

    Args:
        origin: the line, where it is not the one that runs.
    """
    text = f"{what}\n  What to do: {hint}" if hint else what
    if origin is not None and origin.line:
        warnings.warn_explicit(text, TimeRLWarning, origin.file, origin.line, registry=_WARNED)
        return
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and _is_ours(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, TimeRLWarning, stacklevel=level)


_WARNED: dict[Any, Any] = {}  # lines that have been warned of, as modules keep theirs


def _is_ours(frame: FrameType) -> bool:
    code = frame.f_code
    if code.co_filename == "<string>":  # what dataclasses write
        return code.co_name == "__init__"
    return _is_our_file(code.co_filename)


@functools.cache  # every operation asks for some dozen frames
def _is_our_file(file: str) -> bool:
    # and what stands between: context managers, cached properties, frozen mix-ins
    between = file in _BETWEEN or any(part in file for part in (*_LIBRARIES, _WIDGETS))
    ours = file.startswith((_PACKAGE, "<frozen ")) and not file.startswith(_COMMANDS)
    return between or ours


class TimeRLWarning(UserWarning):
    """Something that is accepted, and probably not what was meant; or that costs more than it need.

    `warnings.filterwarnings("ignore", category=trl.errors.TimeRLWarning)` silences all of them.
    """


class TimeRLError(Exception):
    """Base of all errors: `what`, `origins` (label and line), `evidence`, `hint`."""

    def __init__(
        self,
        what: str,
        *,
        origin: Origin | None = None,
        others: Mapping[str, Origin] | None = None,
        evidence: str | Iterable[str] = (),
        hint: str = "",
    ) -> None:
        self.what = what
        self.origin = origin if origin is not None else user_origin()
        self.others = dict(others or {})
        self.evidence = (evidence,) if isinstance(evidence, str) else tuple(evidence)
        self.hint = hint
        super().__init__(what)

    def __reduce__(self) -> Any:
        # pickled and copied as what it is: some kinds have arguments of their own
        return copyreg.__newobj__, (type(self), self.what), vars(self)  # pyrefly: ignore[missing-attribute]

    def __str__(self) -> str:
        return self._compose()

    def _compose(self) -> str:
        lines = [self.what, f"  at {self.origin}"]
        lines += [f"  {label} {origin}" for label, origin in self.others.items()]
        lines += [f"  {line}" for line in self.evidence]
        if self.hint:
            lines.append(f"  What to do: {self.hint}")
        return "\n".join(lines)

    def _render_traceback_(self) -> list[str]:
        # IPython shows this in place of the stack of compiler frames.
        return [f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())]


class CallError(TimeRLError, TypeError):
    """A call with arguments that it does not take, or a use that tensors do not allow."""


class MissingNameError(TimeRLError, AttributeError):
    """A name that a tensor, an index or a module does not have; the hint says what does the work.

    Also an `AttributeError`, so that `hasattr` and `getattr` with a default work.
    """


class IndexExpressionError(TimeRLError):
    """An index that is not quasi-affine, of another context, or not an index at all."""


class DomainError(TimeRLError):
    """A symbolic dimension where it cannot be, or missing where it must be."""


class ShapeError(TimeRLError):
    """Shapes or dtypes that do not go together."""


class BranchError(TimeRLError):
    """A tensor defined by branches that leave points out, overlap, or come too late."""


class ReadError(TimeRLError):
    """A read of a tensor where it is not defined."""


class GradientError(TimeRLError):
    """A derivative that does not exist or is not supported."""


class BoundsError(TimeRLError):
    """A bound that is missing, unknown, or not a positive integer."""


class OptionError(TimeRLError, KeyError):
    """An unknown option, or a value that an option does not take.

    Also a `KeyError`, for unknown names in mappings: `"x" in result` and `result.get("x")` work.
    """


class ScheduleError(TimeRLError):
    """A program that no order of execution can satisfy, or one beyond the ceiling on isl's work.

    `circle` has the points that need each other, if some do.
    """

    circle: Any = None


class CeilingError(ScheduleError):
    """A program that isl cannot schedule with the work that it is allowed."""


class BudgetError(TimeRLError):
    """A program that needs more memory at once than there is; `needed` says how much."""

    def __init__(self, what: str, *, needed: int, **parts: Any) -> None:
        super().__init__(what, **parts)
        self.needed = needed


class ExecutionError(TimeRLError):
    """A failure while a program runs."""


class explain_os_errors:  # used as a function
    """Turn an `OSError` of a block into an `ExecutionError` with the system's reason.

    It is no generator, since the frames of `contextlib` would pass for the user's line.

    Args:
        what: a sentence without its end: "the picture p.svg cannot be written".
        hint: the remedy.
        origin: the user's line; by default that of the caller.
    """

    def __init__(self, what: str, *, hint: str, origin: Origin | None = None) -> None:
        self._what, self._hint, self._origin = what, hint, origin

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise ExecutionError(
                f"{self._what}: {error.strerror or error}.", origin=self._origin, hint=self._hint
            ) from None


class MissingPartError(TimeRLError):
    """A part of the project that is not installed, or cannot be imported."""


class EnvError(TimeRLError):
    """An environment that does not exist, or is used in a way it does not allow."""


class DrawingError(TimeRLError):
    """A picture that cannot be drawn."""


class VerificationError(TimeRLError):
    """A graph that breaks an invariant: a fault of the compiler, not of the program."""


def one_of(name: str, legal: Sequence[str]) -> str:
    """The legal values as a hint, the closest to `name` first named."""
    import difflib

    close = difflib.get_close_matches(str(name), legal, n=1)
    start = f"did you mean {close[0]!r}? " if close else ""
    return f"{start}one of {', '.join(map(repr, legal))}"


def point_text(point: Mapping[str, int]) -> str:
    """`i = 0, t = 9`."""
    return ", ".join(f"{name} = {value}" for name, value in point.items())
