"""A kernel: what it reads, what it writes, and how it is run; and functions as kernels (§IV-A, Figs. 16 and 17)."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, fields
from os import register_at_fork
from threading import get_ident
from types import FrameType, MethodType
from typing import Any, Final, Generic, ParamSpec, TypeVar

from timerl_nb.base.errors import CallError, ExecutionError, Origin
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.streams.memory_segments import ANY, Segment, segments_of

THREADS: Final = 256  # of a block; of what is recorded each makes an element

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Kernel:
    """One launch.

    Attributes:
        reads, writes: the memory that it may read, and may change.
        run: does its work; None where it can only be simulated.
        blocks: of threads, on a GPU (CTAs).
        operations: of floating point, in all blocks.
        nbytes: that are read and written in all.
        registers: of a thread.
        keep: what must live until it has run.
        line: of the user's program that launched it.
        op_ids: of the operations of one of our programs that it computes.
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
        """What a report says of it."""
        return self.name, self.line, self.op_ids

    def to_json(self) -> dict[str, Any]:
        """All of it but how it is run."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if f.compare}
        for part in ("reads", "writes"):
            said[part] = [[s.buffer, s.start, s.stop] for s in said[part]]
        return {**said, "op_ids": list(self.op_ids)}


def blocks_of(elements: int) -> int:
    """How many blocks make so many elements."""
    return max(1, -(-elements // THREADS))


class Taker:
    """Receives the kernels called in a context: in the block of a window, or inside a kernel.

    A context variable holds the innermost one, so other tasks of an event loop do not see it. A context that was copied
    inside the block still holds it afterwards; `take` is None then, as it is in a forked process.

    Attributes:
        take: is called with each kernel; None once the block has ended.
        thread: the one that opened it.
        before: the taker around it.
        frame: the number of a generator's frame that contains the block, or 0.
    """

    __slots__ = "before", "frame", "take", "thread"

    def __init__(self, take: Callable[[Kernel], object], frame: FrameType | None = None) -> None:
        """
        Args:
            frame: a generator's that contains the block: while it is suspended nothing is taken.
        """
        self.take: Callable[[Kernel], object] | None = take
        self.thread = get_ident()
        self.before = current_taker()
        # Not the frame itself: it would keep an unreferenced generator alive, and so the block open.
        self.frame = 0 if frame is None else id(frame)

    def open(self) -> None:
        if self.take is not refuse:
            _TAKERS[self] = self.thread
        _TAKER.set(self)

    def close(self) -> None:
        """Take nothing any more; may be called again."""
        self.take = None
        _TAKERS.pop(self, None)
        if _TAKER.get() is self:
            _TAKER.set(self.before)

    def is_here(self, frame: FrameType | None) -> bool:
        """Whether code in a frame is inside the block."""
        if self.take is None:
            return False
        if not self.frame:
            return True
        while frame is not None and id(frame) != self.frame:
            frame = frame.f_back
        return frame is not None


_TAKER: ContextVar[Taker | None] = ContextVar("taker", default=None)
_TAKERS: dict[Taker, int] = {}  # those of open windows, and the thread of each


def _forget_takers() -> None:
    """In a forked process: windows are the parent's."""
    for taker in list(_TAKERS):
        taker.close()


register_at_fork(after_in_child=_forget_takers)


def current_taker() -> Taker | None:
    """Return the taker of kernels called here, if there is one."""
    taker, frame = _TAKER.get(), sys._getframe(1)
    while taker is not None and not taker.is_here(frame):
        taker = taker.before
    return taker


def is_taken() -> bool:
    """Return whether kernels that this thread calls here are taken."""
    taker = current_taker()
    return taker is not None and taker.thread == get_ident()


def refuse(inner: Kernel) -> None:
    """Refuse a kernel called by a kernel: its accesses were unknown at the outer one's launch."""
    raise ExecutionError(
        f"the kernel {inner.name!r} is called by a kernel, which did not say what it reads and writes.",
        hint="call its plain function there, kernel.function(...), or call both kernels one after the other.",
    )


def refuse_kernels() -> None:
    """Let calls of kernels be refused in the current context: in a worker's thread, or a copied context."""
    Taker(refuse).open()


def run_inside(run: Callable[..., R], *args: Any) -> R:
    """Call a function as the inside of a kernel. Nothing has to be undone, even if it is interrupted."""

    def call() -> R:
        refuse_kernels()
        return run(*args)

    return copy_context().run(call)


def failure(kernel: Kernel, error: BaseException, launched: Origin) -> ExecutionError:
    """What says that a kernel has raised; `launched` is the line where no other is known."""
    failed = ExecutionError(
        f"the kernel {kernel.name!r} has raised {type(error).__name__}: {error}",
        origin=Origin(kernel.line) if kernel.line else launched,
        hint="no kernel has been started since; what the others wrote is in their buffers.",
    )
    failed.__cause__ = error
    return failed


class KernelFunction(Generic[P, R]):
    """A function whose calls are kernels: within a window they are submitted, elsewhere they just run.

    Attributes:
        function: the plain function.
    """

    def __init__(self, function: Callable[P, R], reads: Any, writes: Any, blocks: Any) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._named = reads, writes, blocks
        self._name = name_of(function)

    def __get__(self, instance: Any, owner: type | None = None) -> KernelFunction[..., R]:
        """Bind a method, as functions do; `reads` and `writes` get the instance, too."""
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
                f"the kernel {self._name!r} is called on a thread other than the window's.",
                hint="call kernels on the thread that opened the window, or the plain function: kernel.function(...).",
            )
        return self.function(*args, **kwargs)

    def kernel(self, *args: P.args, **kwargs: P.kwargs) -> Kernel:
        """The call as a value, which has not run."""
        return self._kernel(sys._getframe(1), args, kwargs)

    def _kernel(self, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Kernel:
        reads: Any
        writes: Any
        blocks: Any
        try:
            reads, writes, blocks = (n(*args, **kwargs) if callable(n) else n for n in self._named)
        except TypeError:
            reads, writes, blocks = self._with_defaults(args, kwargs)
        return Kernel(
            self._name,
            segments_of(reads),
            segments_of(writes, written=True),
            functools.partial(self.function, *args, **kwargs),
            blocks,
            keep=(reads, writes),
            line=Origin(frame.f_code.co_filename, frame.f_lineno).place,
        )

    def _with_defaults(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Call `reads`, `writes` and `blocks` with all arguments, defaults included."""
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
    """
    Raises:
        CallError: it cannot be called, or a call only makes a coroutine or a generator, of which nothing runs.
    """
    if not (callable(function) or isinstance(function, classmethod)):
        raise CallError(
            f"{type(function).__name__} is no function that can be a kernel.",
            hint="@trl.kernel(reads=lambda a, out: a, writes=lambda a, out: out), above a function.",
        )
    if makes := deferred_call_kind(function):
        raise CallError(
            f"{name_of(function)!r} cannot be a kernel: a call of it makes a {makes}, and runs nothing.",
            hint="let the kernel be a plain function, which ends when its work has been done.",
        )


def deferred_call_kind(function: Any) -> str:
    """Return "coroutine" or the like if a call only makes such an object, "" if it runs."""
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
    """Make a function a kernel, whose calls a window (`trl.streams.window`) may run out of order.

    ```python
    @trl.kernel(reads=lambda a, b, out: [a, b], writes=lambda a, b, out: [out])
    def gemm(a, b, out):
        np.matmul(a, b, out=out)
    ```

    The function may be a method (`reads` and `writes` get `self` first), a partial function, or any other object that can be
    called. Within a window a call returns None: results are the memory it writes.

    Args:
        reads, writes: memory that it may read, and may change: arrays of NumPy, PyTorch or (to read) JAX,
            `trl.streams.segment(...)`, `trl.streams.ANY`, or lists and mappings of these; or a function of the
            call's arguments that returns them (the paper's `get_addresses`). With neither a kernel may
            access all memory, and so runs alone.
        blocks: the number of thread blocks on a GPU, or a function of the arguments that returns it: for simulations.

    Raises:
        CallError: a name is given in place of memory; or a call of the function only makes a coroutine or a generator.
    """
    if function is not None:
        raise CallError(
            "trl.kernel is called before it decorates a function.",
            hint="@trl.kernel(reads=lambda a, out: a, writes=lambda a, out: out), with the function's arguments.",
        )
    for part, given in (("reads", reads), ("writes", writes)):
        named = (
            [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else []
        )
        if any(isinstance(one, str) for one in named):
            raise CallError(
                f"{part}={given!r} names arguments, and has to return them.",
                hint=f"{part}=lambda a, b, out: [a, b], with the arguments of the function.",
            )
    if reads is None and writes is None:
        writes = ANY

    def decorate(function: Callable[P, R]) -> KernelFunction[P, R]:
        _check_function(function)
        return KernelFunction(
            function, () if reads is None else reads, () if writes is None else writes, blocks
        )

    return decorate
