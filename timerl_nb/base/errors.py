"""Errors and warnings of the library.

Every error is a `TimeRLError`. Its message has the problem, the line of your program, evidence such as a
sample point, and a remedy.
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
from concurrent.futures import thread
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

_BETWEEN = tuple(m.__file__ for m in (contextlib, copy, dataclasses, functools, thread, threading))
# these call functions and methods of their arguments
_CALLERS = ("numpy", "jax", "optuna", "ray")
_LIBRARIES = tuple(f"{os.sep}site-packages{os.sep}{name}{os.sep}" for name in _CALLERS)
_WIDGETS = f"{os.sep}timerl_widgets{os.sep}"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_COMMANDS = f"{_PACKAGE}cli{os.sep}"  # commands use the library as users do
# Tensor operations: their results are more telling than their names.
_TENSORS = (f"{_PACKAGE}compiler{os.sep}language{os.sep}", f"{_PACKAGE}random.py")


@dataclass(frozen=True)
class Origin:
    """A line of the user's program, the origin of an operation or an error.

    Attributes:
        file: the path of the file.
        line: the line number; 0 if it is unknown.
        call: the called function, if it makes more than one tensor, such as `backward`.
        gradient_of: for operations of a gradient, the line of the differentiated operation.

    Example:
        >>> trl.errors.Origin("train.py", 12).place
        'train.py:12'
    """

    file: str = "<unknown>"
    line: int = 0
    call: str = field(default="", compare=False)
    gradient_of: Origin | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The source line without indentation; empty if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def place(self) -> str:
        """File name and line: `train.py:12`, or `In[3]:2` for a notebook cell."""
        return place_text(self.file, self.line)

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.text else self.place


@functools.lru_cache(1024)
def place_text(file: str, line: int) -> str:
    """Return file name and line, as `Origin.place`."""
    return f"{_display_name(file)}:{line}" if line else file


def _display_name(file: str) -> str:
    # ipykernel compiles each cell under a temporary file name. IPython knows the cell's number.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        named = shell.compile.format_code_name(file)
        if named is not None:
            return str(named[1])
    return os.path.basename(file)


def user_origin() -> Origin:
    """Return the line of the innermost stack frame outside this package."""
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
    """Return the local variables of the block that ends in the caller, without private names."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back
    found = frame.f_locals if frame is not None else {}
    return {name: value for name, value in found.items() if not name.startswith("_")}


def warn(what: str, *, hint: str = "", origin: Origin | None = None) -> None:
    """Warn, at the user's line, about a legal program that is probably a mistake.

    Args:
        what: the problem.
        hint: the remedy.
        origin: the line; by default the current one.
    """
    text = f"{what}\n  What to do: {hint}" if hint else what
    if origin is not None and origin.line:
        warnings.warn_explicit(text, TimeRLWarning, origin.file, origin.line, registry=_WARNED)
        return
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and _is_ours(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, TimeRLWarning, stacklevel=level)


def is_user_call(depth: int, between: Sequence[str] = ()) -> bool:
    """Return whether the user called a function on the stack, rather than this package.

    Args:
        depth: the number of frames from the caller of this function to the function.
        between: suffixes of the files of wrappers, whose frames are skipped.
    """
    frame = sys._getframe(depth + 2)
    while frame.f_back is not None and frame.f_code.co_filename.endswith(tuple(between)):
        frame = frame.f_back
    return not _is_ours(frame)


_WARNED: dict[Any, Any] = {}  # registry of shown warnings, in the format of the module `warnings`


def _is_ours(frame: FrameType) -> bool:
    code = frame.f_code
    if code.co_filename == "<string>":  # code generated by dataclasses
        return code.co_name == "__init__"
    return _is_our_file(code.co_filename)


@functools.cache  # every operation checks some dozen frames
def _is_our_file(file: str) -> bool:
    between = file in _BETWEEN or any(part in file for part in (*_LIBRARIES, _WIDGETS))
    ours = file.startswith((_PACKAGE, "<frozen ")) and not file.startswith(_COMMANDS)
    return between or ours


class TimeRLWarning(UserWarning):
    """A legal but probably unintended part of a program, or an avoidable cost.

    Silence all warnings by `warnings.filterwarnings("ignore", category=trl.errors.TimeRLWarning)`.

    Example:
        >>> issubclass(trl.errors.TimeRLWarning, UserWarning)
        True
    """


class TimeRLError(Exception):
    """Base class of all errors. Catch it to handle every error of the library.

    Attributes:
        what: the problem, in one sentence.
        origin: the line of your program.
        others: further lines, by label.
        evidence: lines of evidence, such as a sample point.
        hint: the remedy.

    Example:
        >>> try:
        ...     trl.Options(fuse="yes")
        ... except trl.errors.TimeRLError as error:
        ...     print(error.what, error.hint)
        fuse='yes' is not possible. fuse is True or False.
    """

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
        # Subclasses may have other constructor arguments, so pickling bypasses the constructor.
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
        # IPython shows this text instead of the traceback.
        return [f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())]


class CallError(TimeRLError, TypeError):
    """An unsupported argument of a function.

    Raised when you call a function or a method. Correct the arguments as the hint shows.

    Example:
        >>> trl.zeros((2,), shape=(3,))
        Traceback (most recent call last):
        ...
        timerl_nb.base.errors.CallError: ...
    """


class MissingNameError(TimeRLError, AttributeError):
    """A missing attribute of a tensor, an index or a module.

    Raised when you use a name from another library. The hint names the equivalent. This error is an
    `AttributeError`, so `hasattr` and `getattr` with a default work.

    Example:
        >>> x = trl.data(np.arange(3.0), domain=t)
        >>> hasattr(x, "detach_")
        False
    """


class IndexExpressionError(TimeRLError):
    """An invalid index expression.

    Raised when you index a tensor with an expression that is not quasi-affine, belongs to another context,
    or is no index. Use sums of dimensions and integers, and products, quotients and remainders with
    integers.

    Example:
        >>> t * i
        Traceback (most recent call last):
        ...
        timerl_nb.base.errors.IndexExpressionError: ...
    """


class DomainError(TimeRLError):
    """A wrong domain: a missing, repeated or unknown dimension.

    Raised when you declare a tensor, or when you compile. Correct `domain=`, or the index of the tensor.

    Example:
        >>> trl.data(np.arange(3.0), domain=(t, t))
        Traceback (most recent call last):
        ...
        timerl_nb.base.errors.DomainError: ...
    """


class ShapeError(TimeRLError):
    """Incompatible shapes or element types.

    Raised when you combine tensors, or pass arrays to a program. Reshape or cast the operands.

    Example:
        >>> trl.data(np.ones((5, 3)), domain=t) + trl.data(np.ones((5, 2)), domain=t)
        Traceback (most recent call last):
        ...
        timerl_nb.base.errors.ShapeError: ...
    """


class BranchError(TimeRLError):
    """An invalid definition of a tensor by branches.

    Raised if branches leave points undefined, overlap, or come after a read. Define every point exactly
    once.

    Example:
        >>> x = trl.tensor((), domain=t)
        >>> x[0] = 0.0
        >>> ctx.output("x", x)
        >>> ctx.compile({"B": 1, "I": 1, "T": 3})
        Traceback (most recent call last):
        ...
        timerl_nb.base.errors.BranchError: ...
    """


class ReadError(TimeRLError):
    """A read of a tensor at a point outside its domain.

    Raised at `compile`, with a sample point. Restrict the index, or add a branch for the missing points.

    Example:
        >>> x = trl.data(np.arange(3.0), domain=t)
        >>> ctx.output("y", x[t + 1])
        >>> ctx.compile({"B": 1, "I": 1, "T": 3})
        Traceback (most recent call last):
        ...
        timerl_nb.base.errors.ReadError: ...
    """


class GradientError(TimeRLError):
    """An unsupported derivative.

    Raised by `backward` and `trl.grad`. Differentiate a scalar loss with respect to floating-point tensors,
    or detach the operation without a derivative.

    Example:
        >>> trl.data(np.arange(3), domain=t).backward()
        Traceback (most recent call last):
        ...
        timerl_nb.base.errors.GradientError: ...
    """


class BoundsError(TimeRLError):
    """A missing, unknown or non-positive bound.

    Raised at `compile`. Pass one positive integer for every dimension of the context.

    Example:
        >>> ctx.output("x", trl.data(np.arange(3.0), domain=t))
        >>> ctx.compile({"B": 1, "I": 1, "T": 0})
        Traceback (most recent call last):
        ...
        timerl_nb.base.errors.BoundsError: ...
    """


class OptionError(TimeRLError, KeyError):
    """An unknown name, or an invalid value of an option.

    Raised for names of options, outputs, stages and operations. The hint lists the valid names. This error
    is a `KeyError`, so `"x" in result` and `result.get("x")` work.

    Example:
        >>> trl.Options(fusion=True)
        Traceback (most recent call last):
        ...
        timerl_nb.base.errors.OptionError: ...
    """


class ScheduleError(TimeRLError):
    """A program without a valid order of execution.

    Raised at `compile` if points depend on each other in a cycle. Remove one of the reads in the message.

    Attributes:
        cycle: the points of the cycle, or None.

    Example:
        >>> x, y = trl.tensor((), domain=t), trl.tensor((), domain=t)
        >>> x[t] = y + 1.0
        >>> y[t] = x + 1.0
        >>> ctx.output("x", x)
        >>> ctx.compile({"B": 1, "I": 1, "T": 3})
        Traceback (most recent call last):
        ...
        timerl_nb.base.errors.ScheduleError: ...
    """

    cycle: Any = None


class CeilingError(ScheduleError):
    """A program beyond the work limit of isl.

    Raised at `compile`. Raise the option `isl_operations`, or simplify the program.

    Example:
        >>> issubclass(trl.errors.CeilingError, trl.errors.ScheduleError)
        True
    """


class BudgetError(TimeRLError):
    """A program that needs more memory than the budget.

    Raised at `compile`, or when XLA has compiled the program. Raise `device_memory` to `needed`, or reduce
    bounds.

    Attributes:
        needed: the required number of bytes.

    Example:
        >>> x = trl.data(np.ones((64, 1024), np.float32), domain=t)
        >>> ctx.output("y", trl.exp(x))
        >>> try:
        ...     ctx.compile({"B": 1, "I": 1, "T": 64}, trl.Options(device_memory="1kB"))
        ... except trl.errors.BudgetError as error:
        ...     print(error.needed > 1000)
        True
    """

    def __init__(self, what: str, *, needed: int, **parts: Any) -> None:
        super().__init__(what, **parts)
        self.needed = needed


class ExecutionError(TimeRLError):
    """A failure of a running program, or of a file that it reads or writes.

    Raised by `execute`, and by functions that save or load. The message has the cause and the remedy.

    Example:
        >>> trl.load("missing.npz")
        Traceback (most recent call last):
        ...
        timerl_nb.base.errors.ExecutionError: ...
    """


class explain_os_errors:  # used as a function
    """Context manager that turns an `OSError` into an `ExecutionError` with the system's reason.

    It is not a generator: the frames of `contextlib` would count as the user's line.

    Args:
        what: a sentence without a full stop, such as "the picture p.svg cannot be written".
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
    """An optional package that is not installed or cannot be imported.

    Raised at the first use of the package. Install it as the hint says.

    Example:
        >>> issubclass(trl.errors.MissingPartError, trl.errors.TimeRLError)
        True
    """


class EnvError(TimeRLError):
    """An unknown environment, or an unsupported use of one.

    Raised by `trl.env.make` and by methods of environments. The hint lists the alternatives.

    Example:
        >>> trl.env.make("NoSuchTask-v0")
        Traceback (most recent call last):
        ...
        timerl_nb.base.errors.EnvError: ...
    """


class DrawingError(TimeRLError):
    """A picture that cannot be drawn.

    Raised by `show` and by notebook displays. Reduce the size of the picture as the hint says.

    Example:
        >>> issubclass(trl.errors.DrawingError, trl.errors.TimeRLError)
        True
    """


class VerificationError(TimeRLError):
    """A graph that violates an invariant after a pass.

    This is a bug of the compiler. Please report it, with the message and your program.

    Example:
        >>> issubclass(trl.errors.VerificationError, trl.errors.TimeRLError)
        True
    """


def one_of(name: str, legal: Sequence[str]) -> str:
    """Return the legal values as a hint, with the closest match to `name` first."""
    import difflib

    if not legal:
        return "there are none."
    close = difflib.get_close_matches(str(name), legal, n=1)
    start = f"did you mean {close[0]!r}? " if close else ""
    return f"{start}one of {', '.join(map(repr, legal))}"


def point_text(point: Mapping[str, int]) -> str:
    """Return a point as text: `i = 0, t = 9`."""
    return ", ".join(f"{name} = {value}" for name, value in point.items())


__all__ = [
    "BoundsError",
    "BranchError",
    "BudgetError",
    "CallError",
    "CeilingError",
    "DomainError",
    "DrawingError",
    "EnvError",
    "ExecutionError",
    "GradientError",
    "IndexExpressionError",
    "MissingNameError",
    "MissingPartError",
    "OptionError",
    "Origin",
    "ReadError",
    "ScheduleError",
    "ShapeError",
    "TimeRLError",
    "TimeRLWarning",
    "VerificationError",
]


def __dir__() -> list[str]:
    """Return the public names, which tab completion lists."""
    return __all__
