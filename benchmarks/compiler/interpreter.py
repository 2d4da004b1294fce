"""Replacement and recording of the interpreter's kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from timerl_nb.compiler.ir.shapes import dtype_name
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.fused_kernel import Kernel
from timerl_nb.runtime.interpreter.interpreter import Run
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend

Function = Callable[..., Any]


@contextmanager
def replaced(
    executable: Executable, make: Callable[[Kernel, Function], Function]
) -> Iterator[None]:
    """Replace the kernels of an executable by other functions."""
    functions = {kernel: kernel.run for kernel in executable.kernels.values()}
    kept = {kernel: dict(kernel.runs) for kernel in functions}  # by their device
    try:
        for kernel, function in functions.items():
            kernel.runs = dict.fromkeys(kernel.runs, make(kernel, function))
        yield
    finally:
        for kernel, runs in kept.items():
            kernel.runs = runs


def whole(executable: Executable) -> Any:
    run = Run(executable, 0)
    run.complete()
    return run.stores


class Recording:
    """Kernel calls of one run as a stand-alone program.

    Kernels consume some operands (donation), so recorded operands cannot be reused. Each operand
    made by an earlier call is taken from the corresponding call of the repetition.
    """

    def __init__(self, executable: Executable) -> None:
        self.count = 0
        self._lines = ["def bare():"]
        self._space: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._made: list[Any] = []  # keep references, so that ids stay unique
        with replaced(executable, self._recorded):
            whole(executable)
        exec("\n".join([*self._lines, f"    return m{self.count - 1}"]), self._space)
        self.bare: Callable[[], Any] = self._space["bare"]

    def _recorded(self, kernel: Kernel, function: Function) -> Function:
        self._space[f"kernel_{kernel.op.id}"] = function

        def call(*args: Any) -> Any:
            given, taken = args[:3], args[3:]
            operands = [*map(self._text, given), *(self._text(x, fresh=True) for x in taken)]
            self._lines.append(f"    m{self.count} = kernel_{kernel.op.id}({', '.join(operands)})")
            made = function(*args)
            for k, x in enumerate(made):
                self._names[id(x)] = f"m{self.count}[{k}]"
                self._made.append(x)
            self.count += 1
            return made

        return call

    def _text(self, x: Any, *, fresh: bool = False) -> str:
        if isinstance(x, tuple | list):
            return f"({''.join(self._text(y, fresh=fresh) + ', ' for y in x)})"
        if x is None or isinstance(x, int) or id(x) in self._names:
            return self._names.get(id(x), repr(x))
        name = f"c{len(self._space)}"
        self._space[name] = backend.fresh(x.shape, dtype_name(x.dtype)) if fresh else x
        return f"{name}()" if fresh else name
