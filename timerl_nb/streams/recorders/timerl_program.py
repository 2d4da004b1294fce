"""Recorder of TimeRL programs: the interpreter's kernels, with a separate array per result.

No buffer is reused or written in place, so the only dependences are from results to their readers. Host
functions and resources keep their order. The kernels are compiled again, without buffer donation.
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
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.streams.kernel_declaration import Kernel, blocks_of
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.memory_segments import Segment

_HOST: Final = Segment(0, 0, 1)  # written by every host function, which keeps them in order


class Cell:
    """Storage of one result; the same kernel writes it in every run."""

    def __init__(self, segment: Segment, value: Any, row: Callable[[Any, Any], Any]) -> None:
        self.segment, self.value, self._row = segment, value, row

    def __getitem__(self, at: Any) -> Any:
        return self._row(self, at)

    def __bool__(self) -> bool:  # branches follow the values of the recording
        return bool(self.value)

    def __array__(self, *_: Any, **__: Any) -> Array:
        raise AssertionError("a result has been used in a way that is not recorded")


def values(x: Any) -> Any:
    """Replace cells by their values, inside tuples, lists and mappings."""
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
    """Run of the interpreter that records the kernels it launches."""

    def __init__(self, executable: Executable, seed: int) -> None:
        self.kernels: list[Kernel] = []
        self._cells: list[Cell] = []
        self._is_over = False
        super().__init__(executable, seed)
        rt: Any = self._support
        rt.copied = lambda x: x  # no donation
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
        """Return a function that records an operation between kernels, such as stacking, as a kernel."""

        def call(*args: Any) -> Any:
            if self._is_over or not cells(args):
                return function(*values(args))
            return self._launch(name, lambda given: backend.wait(function(*given)), args)

        return call

    def _wrap_host_call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that records a host function as a kernel; host functions keep their order."""

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
        """Run a kernel, and record a function that runs it again."""
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
        """Drop all results, and create new host resources."""
        self._is_over = True
        for cell in self._cells:
            cell.value = None
        plan, old = self.executable.plan, self._support.host
        self._support.host = Host(plan.pdg.dims, plan.bounds, self._seed)
        old.close()

    def results(self) -> dict[str, Array]:
        """Return the outputs of the last run by name."""
        found = self.returned.outputs(lambda op: lambda *point: values(self._output(op)(*point)))
        self.begin_again()
        return {name: value for (_, name), value in found.items()}


def record_program(program: Program, seed: int = 0) -> Stream:
    """Record the kernels of a program's run. The interpreter runs the program once; the stream can then run
    again.

    `stream.run(...).result` has the outputs and the trained parameters by name, bitwise equal to those of the
    interpreter. Value-dependent branches follow the recorded run.

    Args:
        program: the program.
        seed: the seed of the run.

    Raises:
        OptionError: the program is unbounded, swaps buffers to the host, or does not run with JAX.
        ExecutionError: as in `program.execute`.
    """
    executable = a_program(program).executable
    why = "is unbounded" if executable.pdg.dims.endless is not None else ""
    why = why or (
        f"runs with {executable.engine.description}" if executable.engine.description else ""
    )
    why = why or ("swaps buffers to the host" if executable.plan.swaps.all else "")
    if why:
        raise OptionError(
            f"the program cannot be recorded: it {why}.",
            hint="give every dimension a bound, and compile with_options(swap=False) and the backend of JAX.",
        )
    run = _Recorded(executable, integer("the seed", seed, least=0))
    run.complete()
    run.begin_again()
    return Stream("program", tuple(run.kernels), run.begin_again, run.results)
