"""One of our programs as a stream: its statements as the interpreter runs them, with every result an array of its own.

Nothing is taken over or written in place, so that only what reads a result waits for who made it. What runs on the host, and
the resources there, keep their order. The kernels are the interpreter's, compiled once more without donation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.ir.host.host_functions import Host
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.driver.program import Program, a_program
from timerl_nb.runtime.executable import Executable
from timerl_nb.runtime.fused_kernel import Kernel as Compiled
from timerl_nb.runtime.interpreter.interpreter import Run
from timerl_nb.runtime.jax_backend import jax_engine as backend
from timerl_nb.streams.kernel_declaration import Kernel, blocks_of
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.memory_segments import Segment

_HOST: Final = Segment(0, 0, 1)  # what runs on the host, in order


class Cell:
    """The place of a result, which one kernel makes in every run."""

    def __init__(self, segment: Segment, value: Any, row: Callable[[Any, Any], Any]) -> None:
        self.segment, self.value, self._row = segment, value, row

    def __getitem__(self, at: Any) -> Any:
        return self._row(self, at)

    def __bool__(self) -> bool:  # which way the program went as it was recorded
        return bool(self.value)

    def __array__(self, *_: Any, **__: Any) -> Array:
        raise AssertionError("a result has been used in a way that is not recorded")


def values(x: Any) -> Any:
    """What cells hold, in tuples, lists and mappings."""
    if isinstance(x, Cell):
        return x.value
    if isinstance(x, tuple | list):
        return type(x)(map(values, x))
    return {k: values(v) for k, v in x.items()} if isinstance(x, dict) else x


def cells(x: Any) -> list[Cell]:
    if isinstance(x, Cell):
        return [x]
    found = x.values() if isinstance(x, dict) else x if isinstance(x, tuple | list) else ()
    return [cell for one in found for cell in cells(one)]


class _Recorded(Run):
    """A run that writes down what it launches."""

    def __init__(self, executable: Executable, seed: int) -> None:
        self.kernels: list[Kernel] = []
        self._cells: list[Cell] = []
        self._is_over = False
        super().__init__(executable, seed)
        rt: Any = self._support
        rt.copied = lambda x: x  # nothing is taken over
        rt.stack = self._wrap_as_kernel("stack", rt.stack)
        rt.on_host = self._wrap_as_kernel("to host", rt.on_host)
        rt.gather = self._wrap_as_kernel("gather", rt.gather)
        rt.cut = self._wrap_as_kernel("cut", rt.cut)
        for name in ("udf", "effect", "save"):
            setattr(rt, name, self._wrap_host_call(getattr(rt, name)))

    def _kernel(self, kernel: Compiled) -> Callable[..., Any]:
        op, run = kernel.op, backend.compile_kernel(kernel.trace)
        return lambda *args: self._launch(
            self.executable.ast.names[op.id],
            lambda given: backend.wait(run(*given)),
            args,
            op,
            operations=len(kernel.body),
        )

    def _wrap_as_kernel(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """What the program does to results between kernels, as a kernel."""

        def call(*args: Any) -> Any:
            if self._is_over or not cells(args):
                return function(*values(args))
            return self._launch(name, lambda given: backend.wait(function(*given)), args)

        return call

    def _wrap_host_call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What runs on the host, in order: it uses the resources there."""

        def call(op_id: int, *args: Any) -> Any:
            op = self.executable.pdg[op_id]
            name = self.executable.ast.names[op_id]
            return self._launch(
                name, lambda given: function(op_id, *given), args, op, writes=(_HOST,)
            )

        return call

    def _launch(
        self,
        name: str,
        function: Callable[[Any], Any],
        args: tuple[Any, ...],
        op: Op | None = None,
        *,
        operations: int = 0,
        writes: tuple[Segment, ...] = (),
    ) -> Any:
        """Run a kernel, and write it down as it will be run again."""
        made = function(values(args))
        several, reads = isinstance(made, tuple | list), cells(args)
        out = [self._cell(x) for x in (made if several else () if made is None else (made,))]

        def run() -> None:
            again = function(values(args))
            for cell, value in zip(out, again if several else (again,), strict=False):
                cell.value = value

        elements = sum(getattr(cell.value, "size", 1) for cell in out)
        self.kernels.append(
            Kernel(
                name,
                tuple(dict.fromkeys(cell.segment for cell in reads)),
                (*(cell.segment for cell in out), *writes),
                run,
                blocks_of(elements),
                float(operations * elements),
                float(sum(cell.segment.stop for cell in (*reads, *out))),
                line="" if op is None else op.origin.place,
                op_ids=() if op is None else (op.id,),
            )
        )
        return tuple(out) if several else out[0] if out else None

    def _cell(self, value: Any) -> Cell:
        segment = Segment(len(self._cells) + 1, 0, max(1, getattr(value, "nbytes", 1)))
        self._cells.append(Cell(segment, value, self._row))
        return self._cells[-1]

    def _row(self, cell: Cell, at: Any) -> Any:
        if self._is_over:
            return cell.value[at]
        return self._launch("row", lambda given: given[0][at], (cell,))

    def begin_again(self) -> None:
        """Forget all results, and let the resources of the host be new."""
        self._is_over = True
        for cell in self._cells:
            cell.value = None
        plan, old = self.executable.plan, self._support.host
        self._support.host = Host(plan.pdg.dims, plan.bounds, self._seed)
        old.close()

    def results(self) -> dict[str, Array]:
        """The outputs of the kernels' last run, by name."""
        found = self.returned.outputs(lambda op: lambda *point: values(self._output(op)(*point)))
        self.begin_again()
        return {name: value for (_, name), value in found.items()}


def record_program(program: Program, seed: int = 0) -> Stream:
    """What a run of a program launches: it is run once, by its interpreter, and can then be run as a stream.

    `stream.run(...).result` has the outputs, and what was learnt, by name: the interpreter's, to the bit. Which way
    the program went where that depends on values is as it was recorded.

    Args:
        seed: of all random streams.

    Raises:
        OptionError: the program has no end, or swaps.
        ExecutionError: as for `program.execute`.
    """
    executable = a_program(program).executable
    why = "has no end" if executable.pdg.dims.endless is not None else ""
    why = why or ("moves values to the host and back" if executable.plan.swaps.all else "")
    if why:
        raise OptionError(
            f"a program that {why} is no stream.",
            hint="record one with bounds, and with_options(swap=False).",
        )
    run = _Recorded(executable, integer("the seed", seed, least=0))
    run.complete()
    run.begin_again()
    return Stream("program", tuple(run.kernels), run.begin_again, run.results)
