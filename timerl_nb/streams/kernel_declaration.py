"""Kernel declarations: the memory of a kernel's reads and writes, and the decorator `trl.kernel`. Source: ACS
§IV-A, Figs. 16 and 17.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, fields
from os import register_at_fork
from threading import get_ident
from types import CodeType, FrameType, MethodType
from typing import Any, Final, Generic, ParamSpec, TypeVar

from timerl_nb.base.errors import CallError, ExecutionError, Origin, place_text
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.streams.memory_segments import ANY, Segment, segments_of

THREADS: Final = 256  # threads per block; in recordings each thread computes one element

_new: Final[Any] = object.__new__

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Kernel:
    """One kernel launch with its declared memory.

    Attributes:
        name: the name of the function.
        reads, writes: the memory that it may read, and may change.
        run: executes the kernel; None if it can only be simulated.
        blocks: the number of thread blocks (CTAs) on a GPU.
        operations: the floating-point operations of all blocks.
        nbytes: the bytes read and written.
        registers: the registers per thread.
        keep: objects that must stay alive until the kernel has run.
        line: the user's line of the launch.
        op_ids: the operations of a recorded program that it computes.

    Example:
        >>> @trl.kernel(reads=lambda a, out: a, writes=lambda a, out: out)
        ... def double(a, out):
        ...     np.multiply(a, 2.0, out=out)
        >>> one = double.kernel(np.ones(4), np.zeros(4))
        >>> one.name, len(one.reads), len(one.writes)
        ('double', 1, 1)
    """

    name: str
    reads: tuple[Segment, ...]
    writes: tuple[Segment, ...]
    run: Callable[[], object] | None = field(default=None, repr=False, compare=False)
    blocks: int = 1
    operations: float = 0.0
    nbytes: float = 0.0
    registers: int = 32
    keep: tuple[object, ...] = field(default=(), repr=False, compare=False)
    line: str = ""
    op_ids: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} at {self.line}" if self.line else self.name

    @property
    def description(self) -> tuple[str, str, tuple[int, ...]]:
        """The name, line and operations, for reports."""
        return self.name, self.line, self.op_ids

    def to_json(self) -> dict[str, Any]:
        """Return all attributes that can be compared, as JSON values."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if f.compare}
        for part in ("reads", "writes"):
            said[part] = [[s.buffer, s.start, s.stop] for s in said[part]]
        return {**said, "op_ids": list(self.op_ids)}


def blocks_of(elements: int) -> int:
    """Return the number of blocks that compute this number of elements."""
    return max(1, -(-elements // THREADS))


class Taker:
    """Receiver of the kernels called in a context: in the block of a window, or inside a kernel.

    A context variable holds the innermost receiver, so other tasks of an event loop do not see it. A context
    copied inside the block still holds it after the block; then `take` is None, as in a forked process.

    Attributes:
        take: a function called with each kernel; None after the end of the block.
        thread: the thread that opened the block.
        before: the enclosing receiver.
        frame: the id of a generator's frame that contains the block, or 0.
    """

    __slots__ = "before", "frame", "take", "thread"

    def __init__(self, take: Callable[[Kernel], object], frame: FrameType | None = None) -> None:
        """Create a receiver; `open` activates it.

        Args:
            take: a function called with each kernel.
            frame: the frame of a generator that contains the block: while it is suspended, the receiver gets
                no kernels.
        """
        self.take: Callable[[Kernel], object] | None = take
        self.thread = get_ident()
        self.before = current_taker()
        # The id, not the frame: a reference would keep an unused generator alive, and the block open.
        self.frame = 0 if frame is None else id(frame)

    def open(self) -> None:
        if self.take is not refuse:
            _TAKERS[self] = self.thread
        _TAKER.set(self)

    def close(self) -> None:
        """Stop receiving kernels; repeated calls have no effect."""
        self.take = None
        _TAKERS.pop(self, None)
        if _TAKER.get() is self:
            _TAKER.set(self.before)

    def is_here(self, frame: FrameType | None) -> bool:
        """Return whether code in a frame is inside the block."""
        if self.take is None:
            return False
        if not self.frame:
            return True
        while frame is not None and id(frame) != self.frame:
            frame = frame.f_back
        return frame is not None


_TAKER: ContextVar[Taker | None] = ContextVar("taker", default=None)
_TAKERS: dict[Taker, int] = {}  # receivers of open windows, with their threads


def _forget_takers() -> None:
    """Close the parent's windows in a forked process."""
    for taker in list(_TAKERS):
        taker.close()


register_at_fork(after_in_child=_forget_takers)


def current_taker() -> Taker | None:
    """Return the receiver of kernels called here, or None."""
    taker, frame = _TAKER.get(), sys._getframe(1)
    while taker is not None and not taker.is_here(frame):
        taker = taker.before
    return taker


def is_taken() -> bool:
    """Return whether a receiver gets the kernels that this thread calls here."""
    taker = current_taker()
    return taker is not None and taker.thread == get_ident()


def refuse(inner: Kernel) -> None:
    """Reject a kernel called by a kernel: its accesses were unknown when the outer kernel was launched."""
    raise ExecutionError(
        f"the kernel {inner.name!r} is called by another kernel, so its reads and writes are unknown at the launch.",
        hint="call the plain function there, kernel.function(...), or call both kernels one after the other.",
    )


def refuse_kernels() -> None:
    """Reject calls of kernels in the current context: a worker's thread or a copied context."""
    Taker(refuse).open()


def run_inside(run: Callable[..., R], *args: Any) -> R:
    """Call a function as the body of a kernel, in a copied context. An interruption leaves nothing to restore."""

    def call() -> R:
        refuse_kernels()
        return run(*args)

    return copy_context().run(call)


def failure(kernel: Kernel, error: BaseException, launched: Origin) -> ExecutionError:
    """Return the error for a kernel that has raised; `launched` is the fallback for its line."""
    failed = ExecutionError(
        f"the kernel {kernel.name!r} has raised {type(error).__name__}: {error}",
        origin=Origin(kernel.line) if kernel.line else launched,
        hint="fix the kernel. No other kernel has started since; the buffers hold the results of completed kernels.",
    )
    failed.__cause__ = error
    return failed


class KernelFunction(Generic[P, R]):
    """Function decorated by `trl.kernel`. Inside a window a call submits a kernel; elsewhere it runs the
    function.

    Attributes:
        function: the undecorated function.
    """

    def __init__(self, function: Callable[P, R], reads: Any, writes: Any, blocks: Any) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._named = reads, writes, blocks
        self._name = name_of(function)
        # the code, instruction and line of the last call; one value, since calls come from several threads
        self._last: tuple[CodeType | None, int, str] = None, -1, ""

    def __get__(self, instance: Any, owner: type | None = None) -> KernelFunction[..., R]:
        """Bind a method, like a plain function; `reads` and `writes` get the instance as well."""
        bind = getattr(type(self.function), "__get__", None)
        if bind is None:
            return self
        bound = bind(self.function, instance, owner)
        found: KernelFunction[..., R] = object.__new__(KernelFunction)
        found.__dict__.update(self.__dict__)
        found.function = bound
        if isinstance(bound, MethodType):
            reads, writes, blocks = (
                MethodType(n, bound.__self__) if callable(n) else n for n in self._named
            )
            found._named = reads, writes, blocks
        return found

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R | None:
        taker = _TAKER.get()
        while taker is not None:
            take = taker.take
            if take is not None:
                frame = sys._getframe(1)
                if not taker.frame or taker.is_here(frame):
                    take(self._kernel(frame, args, kwargs))
                    return None
            taker = taker.before
        if _TAKERS and get_ident() not in _TAKERS.values():
            raise ExecutionError(
                f"the kernel {self._name!r} is called on another thread than that of the open window.",
                hint="call kernels on the thread that opened the window, or call the plain function, kernel.function(...).",
            )
        return self.function(*args, **kwargs)

    def kernel(self, *args: P.args, **kwargs: P.kwargs) -> Kernel:
        """Return the kernel of a call without running it."""
        return self._kernel(sys._getframe(1), args, kwargs)

    def _kernel(self, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Kernel:
        """Create the kernel of a call: its memory segments, function and source line."""
        reads, writes, blocks = self._named
        try:
            if callable(reads):
                reads = reads(*args, **kwargs) if kwargs else reads(*args)
            if callable(writes):
                writes = writes(*args, **kwargs) if kwargs else writes(*args)
            if callable(blocks):
                blocks = blocks(*args, **kwargs)
        except TypeError:
            reads, writes, blocks = self._with_defaults(args, kwargs)
        code, instruction, line = self._last
        if code is not frame.f_code or instruction != frame.f_lasti:
            code, instruction = frame.f_code, frame.f_lasti
            line = place_text(code.co_filename, frame.f_lineno)
            self._last = code, instruction, line
        known: dict[int, Segment] = {}
        made = _new(Kernel)
        # A quarter of the time of `Kernel(…)`, which sets every field by `object.__setattr__`. The other
        # fields have defaults, which are attributes of the class.
        set_to = made.__dict__
        set_to["name"] = self._name
        set_to["reads"] = segments_of(reads, False, known)
        set_to["writes"] = segments_of(writes, True, known)
        set_to["run"] = functools.partial(self.function, *args, **kwargs)
        set_to["blocks"] = blocks
        set_to["keep"] = reads, writes
        set_to["line"] = line
        return made

    def _with_defaults(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Call `reads`, `writes` and `blocks` with all arguments, including defaults."""
        try:
            bound = inspect.signature(self.function).bind(*args, **kwargs)
        except ValueError:  # a built-in function without a signature
            return [n(*args, **kwargs) if callable(n) else n for n in self._named]
        bound.apply_defaults()
        return [n(*bound.args, **bound.kwargs) if callable(n) else n for n in self._named]


def name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _check_function(function: Any) -> None:
    """Check that a function can be a kernel.

    Raises:
        CallError: it is not callable, or a call only creates a coroutine or generator and runs nothing.
    """
    if not (callable(function) or isinstance(function, classmethod)):
        raise CallError(
            f"{type(function).__name__} is not a function, so it cannot be a kernel.",
            hint="write @trl.kernel(reads=lambda a, out: a, writes=lambda a, out: out) above a function.",
        )
    if makes := deferred_call_kind(function):
        raise CallError(
            f"{name_of(function)!r} cannot be a kernel: a call only creates a {makes}, and runs nothing.",
            hint="decorate a plain function: its return marks the end of the kernel.",
        )


def deferred_call_kind(function: Any) -> str:
    """Return "coroutine" or similar if a call only creates such an object, "" if it runs the function."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, staticmethod | classmethod):
        function = function.__func__
    call = inspect.getattr_static(type(function), "__call__", None)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
        return "coroutine"
    if inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(call):
        return "asynchronous generator"
    if inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(call):
        return "generator"
    return ""


@explain_call_errors
def kernel(
    function: Any = None,
    /,
    *,
    reads: Any = None,
    writes: Any = None,
    blocks: int | Callable[..., int] = 1,
) -> Callable[[Callable[P, R]], KernelFunction[P, R]]:
    """Decorate a function as a kernel, so that a window can run its calls concurrently and out of order.

    The function may also be a method (`reads` and `writes` then get `self` first), a partial function or
    another callable. Inside a window (`trl.streams.window`) a call returns None; the results are in the
    memory that it writes.

    Args:
        reads, writes: the memory that the kernel may read, and may change: arrays of NumPy, PyTorch or (to
            read) JAX, `trl.streams.segment(...)`, `trl.streams.ANY`, or lists and mappings of these; or a
            function from the call's arguments to such memory, `get_addresses` in the paper. A kernel without
            both may access all memory, and therefore runs alone.
        blocks: the number of thread blocks on a GPU, or a function of the arguments; for
            simulations.

    Returns:
        A decorator.

    Raises:
        CallError: memory is given by a name instead of a function, or the function is a generator or
            coroutine function.

    Example:
        >>> @trl.kernel(reads=lambda a, b, out: [a, b], writes=lambda a, b, out: [out])
        ... def gemm(a, b, out):
        ...     np.matmul(a, b, out=out)
        >>> a, b, out = np.ones((2, 2)), np.ones((2, 2)), np.zeros((2, 2))
        >>> with trl.streams.window() as w:
        ...     gemm(a, b, out)
        >>> out.tolist()
        [[2.0, 2.0], [2.0, 2.0]]
    """
    if function is not None:
        raise CallError(
            "trl.kernel decorates a function without arguments of its own.",
            hint="write @trl.kernel(reads=lambda a, out: a, writes=lambda a, out: out), with the function's parameters.",
        )
    for part, given in (("reads", reads), ("writes", writes)):
        named = (
            [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else []
        )
        if any(isinstance(one, str) for one in named):
            raise CallError(
                f"{part}={given!r} contains a name instead of memory.",
                hint=f"write {part}=lambda a, b, out: [a, b], with the parameters of the function.",
            )
    if reads is None and writes is None:
        writes = ANY

    def decorate(function: Callable[P, R]) -> KernelFunction[P, R]:
        _check_function(function)
        return KernelFunction(
            function, () if reads is None else reads, () if writes is None else writes, blocks
        )

    return decorate
