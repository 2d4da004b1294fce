"""Observation of a run, and the operations behind the names of its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Literal

from timerl_nb.base.errors import OptionError
from timerl_nb.base.runtime_events import Recorder
from timerl_nb.compiler.ir.operations import DataflowAttrs
from timerl_nb.compiler.loops.loop_nodes import Execute, subtree_nodes
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.program import Program, a_program
from timerl_nb.execution.control.pause_and_stop import Stopped
from timerl_nb.runtime.run_protocol import RunProtocol

Sort = Literal["kernel", "call", "host"]


def run_observed(
    program: Program,
    seed: int,
    turns: int | None,
    on_call: Recorder | None = None,
    turned: Callable[[RunProtocol, int], None] | None = None,
    *,
    waits: bool = True,
) -> tuple[RunProtocol, float, float]:
    """Run a program for some iterations of its outermost loop, all by default.

    Args:
        program: the program.
        seed: the seed.
        turns: the number of iterations; None for all.
        on_call: called with every event, as for `Program.begin`.
        turned: called after iterations, with their number.
        waits: as for `Program.begin`.

    Returns:
        the run; and the start of its first iteration and the end of its last one, in seconds since its
        creation.

    Raises:
        OptionError: `turns` is not a positive integer.
        BoundsError, BudgetError: as for `Program.start`.
    """
    a_program(program)
    if turns is not None and (isinstance(turns, bool) or not isinstance(turns, int) or turns < 1):
        raise OptionError(
            f"turns={turns!r} is not possible.", hint="pass a positive number, or None for all."
        )
    made = 0

    def progress(count: int = 1) -> None:
        nonlocal made
        made += count
        if turned is not None:
            turned(run, count)
        if turns is not None and made >= turns:
            raise Stopped

    run = program.begin(seed, on_call=on_call, progress=progress, waits=waits)
    begun = perf_counter() - run.began
    try:
        run.complete()
    except Stopped:
        pass
    except BaseException as error:
        run.release(error)
        raise
    run.release()
    return run, begun, perf_counter() - run.began


class Names:
    """Mapping from the names of events to operations."""

    def __init__(self, program: Program | Compilation) -> None:
        pdg, names = program.fused, program.ast.names
        self._ops: Mapping[str, tuple[int, ...]] = {n: pdg[k].op_ids for k, n in names.items()}
        self._kernels = {n for k, n in names.items() if isinstance(pdg[k].attrs, DataflowAttrs)}
        self._calls: dict[str, tuple[int, ...]] = {}
        lowered = program.executable.xla_program
        for call in lowered.calls if lowered is not None else ():
            ran = [n.op_id for n in subtree_nodes(call.node) if isinstance(n, Execute)]
            ops = [op_id for k in dict.fromkeys(ran) for op_id in pdg[k].op_ids]
            self._calls[f"call {call.number}"] = tuple(ops)
        self.tensors: Mapping[str, tuple[int, ...]] = {
            store.name: (op_id,) for (op_id, _), store in program.memory.stores.items()
        }

    def sort(self, name: str) -> Sort:
        if name in self._calls:
            return "call"
        return "kernel" if name in self._kernels else "host"

    def op_ids(self, name: str) -> tuple[int, ...]:
        return self._calls[name] if name in self._calls else self._ops[name]
