"""A kernel: what it reads, what it writes, and how it is run; and functions as kernels (§IV-A, Figs. 16 and 17)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from threading import get_ident
from types import FrameType
from typing import Any, Final, Generic, ParamSpec, TypeVar

from timerl_nb.errors import CallError, ExecutionError, Origin
from timerl_nb.frontend.foreign import asked
from timerl_nb.streams.segments import Segment, segments_of

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
    def said(self) -> tuple[str, str, tuple[int, ...]]:
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


# Where kernels go that a thread calls; a kernel that nobody takes just runs.
_TAKERS: dict[int, Callable[[Kernel], object]] = {}


class taken_by:
    """Within the block, what this thread calls as a kernel is taken by `taker`."""

    def __init__(self, taker: Callable[[Kernel], object]) -> None:
        self._taker = taker

    def __enter__(self) -> None:
        self._before = _TAKERS.get(get_ident())
        _TAKERS[get_ident()] = self._taker

    def __exit__(self, *_: object) -> None:
        del _TAKERS[get_ident()]
        if self._before is not None:
            _TAKERS[get_ident()] = self._before


def is_taken() -> bool:
    """Whether somebody takes the kernels that this thread calls."""
    return get_ident() in _TAKERS


def refuse(inner: Kernel) -> None:
    """Takes the kernels that a kernel calls: those of none are known when it is launched."""
    raise ExecutionError(
        f"the kernel {inner.name!r} is called by a kernel, which did not say what it reads and writes.",
        hint="call its plain function there, kernel.function(...), or call both kernels one after the other.",
    )


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

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R | None:
        take = _TAKERS.get(get_ident())
        if take is not None:
            take(self._kernel(sys._getframe(1), args, kwargs))
            return None
        if _TAKERS:
            raise ExecutionError(
                f"the kernel {self.function.__name__!r} is called on a thread other than the window's.",
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
        reads, writes, blocks = (n(*args, **kwargs) if callable(n) else n for n in self._named)
        return Kernel(
            self.function.__name__,
            segments_of(reads),
            segments_of(writes),
            functools.partial(self.function, *args, **kwargs),
            blocks,
            keep=(reads, writes),
            line=Origin(frame.f_code.co_filename, frame.f_lineno).place,
        )


@asked
def kernel(
    *, reads: Any = (), writes: Any = (), blocks: int | Callable[..., int] = 1
) -> Callable[[Callable[P, R]], KernelFunction[P, R]]:
    """Let a function be a kernel, whose calls a window (`trl.streams.window`) may run out of order.

    ```python
    @trl.kernel(reads=lambda a, b, out: [a, b], writes=lambda a, b, out: [out])
    def gemm(a, b, out):
        np.matmul(a, b, out=out)
    ```

    Args:
        reads, writes: what it may read, and may change: NumPy arrays, PyTorch tensors, `trl.streams.segment(...)` or
            `trl.streams.ANY`, one or several; or a function of the call's arguments that returns them
            (the paper's `get_addresses`).
        blocks: how many blocks of threads it would have on a GPU, or a function of the arguments: for simulations.

    Raises:
        CallError: a name stands where memory has to.
    """
    for part, given in (("reads", reads), ("writes", writes)):
        named = (
            [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else []
        )
        if any(isinstance(one, str) for one in named):
            raise CallError(
                f"{part}={given!r} names arguments, and has to return them.",
                hint=f"{part}=lambda a, b, out: [a, b], with the arguments of the function.",
            )
    return lambda function: KernelFunction(function, reads, writes, blocks)
