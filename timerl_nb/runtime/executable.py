"""Executable: kernels of a program, and the XLA programs or the Python code around them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final, Literal

from timerl_nb.base.display_registry import Inspectable
from timerl_nb.base.errors import OptionError
from timerl_nb.base.graphviz_text import FUSED, Dot
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_text import about
from timerl_nb.compiler.ir.operations import DataflowAttrs
from timerl_nb.compiler.loops.iteration_cuts import Cut, Cuts, parts_of
from timerl_nb.compiler.loops.loop_nodes import Ast, Execute, Loop
from timerl_nb.compiler.loops.tileable_loops import Tile
from timerl_nb.compiler.memory.budget.budget_check import too_large
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.runtime.engine import Engine, load_engine
from timerl_nb.runtime.fused_kernel import Kernel
from timerl_nb.runtime.interpreter.generated_source import Source
from timerl_nb.runtime.jax_backend.xla_compilation_cache import use_cache
from timerl_nb.runtime.state.run_progress import RunProgress
from timerl_nb.runtime.xla.execution.precompiled_call_cache import CompiledCalls
from timerl_nb.runtime.xla.hlo.calls_per_run import work_of
from timerl_nb.runtime.xla.hlo.collective_traffic import Communication, communication_of
from timerl_nb.runtime.xla.hlo.hlo_cost_counts import Work
from timerl_nb.runtime.xla.lowering.host_regions import HOSTED
from timerl_nb.runtime.xla.lowering.lowered_program import Lowered, too_little, why_not

_FILE: Final = "<timerl program>"


class Executable(Inspectable):
    """Result of the last compilation stage: a kernel per fused region, and the code that calls them.

    Args:
        pdg: Dependence graph.
        ast: Loop nest.
        plan: Memory plan.
        executor: "interpret" for the interpreter; otherwise XLA runs the nest if it can.
        fuse: Iterations of an outermost loop per call to XLA.
        devices: Number of devices, each with a part of the buffers.
        budget: Limit for the buffers on a device in bytes; None for the limit of the plan.
        compiled: Cache of XLA programs that earlier processes have compiled.
        tiles: Tiled loops.
        tile_kernel: Whether tiles become Pallas kernels, if possible.
        check_nan: Whether the interpreter stops at the first NaN.
        engine: Library that runs the kernels of the interpreter; JAX by default.
    """

    def __init__(
        self,
        pdg: Pdg,
        ast: Ast,
        plan: MemoryPlan,
        executor: str | None = "interpret",
        fuse: int = 1,
        devices: int = 1,
        budget: int | None = None,
        compiled: CompiledCalls | None = None,
        tiles: Sequence[Tile] = (),
        tile_kernel: Literal[False, True, "interpret"] = False,
        *,
        check_nan: bool = False,
        engine: Engine | None = None,
    ) -> None:
        self.engine = load_engine("jax") if engine is None else engine
        self.pdg, self.ast, self.plan, self._budget = pdg, ast, plan, budget
        self._executor, self._fuse, self._devices = executor, fuse, devices
        self._compiled, self.check_nan, self.tiles = compiled, check_nan, tiles
        self._tile_kernel: Literal[False, True, "interpret"] = tile_kernel
        executed = dict.fromkeys(n.op_id for n in ast if isinstance(n, Execute))
        self.kernels = {
            op_id: Kernel(plan, pdg[op_id], self.engine, pointed=check_nan)
            for op_id in executed
            if isinstance(pdg[op_id].attrs, DataflowAttrs)
        }
        self._code: dict[bool, Any] = {}
        use_cache()

    @cached_property
    def xla_program(self) -> Lowered | None:
        """XLA programs of this program; None if the interpreter runs it."""
        if self._interpreter_reason and self._devices > 1:
            raise OptionError(
                f"devices={self._devices} is not possible: the interpreter uses one device, and it runs "
                f"this program because {self._interpreter_reason}.",
                hint="remove devices=, or the option that needs the interpreter.",
            )
        if self._interpreter_reason:
            return None
        if self._lowered_program.processes > 1:
            self._check_host_operations(self._lowered_program)
        return self._lowered_program

    @property
    def processes(self) -> int:
        """Number of processes that run the program together (`trl.distributed`)."""
        return 1 if self.xla_program is None else self.xla_program.processes

    def _check_host_operations(self, lowered: Lowered) -> None:
        """Refuse operations on the host in a program of several processes.

        Raises:
            OptionError: There is such an operation.
        """
        for op_id in dict.fromkeys(n.op_id for n in self.ast if isinstance(n, Execute)):
            if self.pdg[op_id].kind in HOSTED:
                name, why = self.ast.names[op_id], HOSTED[self.pdg[op_id].kind]
                raise OptionError(
                    f"{name} runs on the host ({why}), which is not possible in a program of "
                    f"{lowered.processes} processes: each process has only a part of the arguments.",
                    origin=self.pdg[op_id].origin,
                    hint="compile with devices=1, so that each process runs a program of its own. Or use an "
                    "environment of trl.env or a JAX function (trl.jaxed), which runs on the devices.",
                )

    @cached_property
    def _lowered_program(self) -> Lowered:
        how = self._fuse, self._compiled, self.tiles, self._tile_kernel
        return Lowered(self.ast, self.plan, self.kernels, *how)

    @cached_property
    def _interpreter_reason(self) -> str:
        """Reason why the interpreter runs the program; "" if XLA runs it."""
        if self.engine.name != "jax":
            return f"the option backend is {self.engine.name!r}"
        if self.check_nan:
            return "every kernel's result is checked for NaN"
        if self._executor == "interpret":
            return "the option executor is 'interpret'"
        return why_not(self.plan) or too_little(self._lowered_program) or self.too_large

    @cached_property
    def too_large(self) -> str:
        """Reason why XLA cannot run the program for lack of memory; "" if its buffers fit."""
        if self._executor == "interpret" or self.check_nan or self.engine.name != "jax":
            return ""
        return too_large(self.plan, self._lowered_program.nbytes_each, self._budget)

    @property
    def how(self) -> str:
        """Description of the executor and the reason for its choice, in one line."""
        if self.xla_program is None:
            whole = ", so no loop is tiled" if self.tiles else ""
            if self.engine.name != "jax":
                return f"interpreted by {self.engine.description}{whole}"
            return f"interpreted: {self._interpreter_reason}{whole}"
        shards, count = self.xla_program.shards, len(self.xla_program.calls)
        text = f"{count} XLA program{'s' if count > 1 else ''}"
        hosted = [f"{name} ({why})" for name, why in self.xla_program.host_operations.items()]
        if shards is not None:
            text += f" on {shards.count} devices"
            text += f" of {shards.processes} processes" if shards.processes > 1 else ""
            text += f", divided along {shards.dim.name}"
        text += f" around {', '.join(hosted)}, on the host" if hosted else ""
        if self.plan.swaps.all:
            text += f"{', and' if hosted else ''} around copies to the host and back"
        for tile in self.tiles:
            text += f", {self.ast.line(tile.loop).rstrip(':')} in {tile}{self._as_kernel(tile)}"
        if self._fuse > 1 and not any(call.loop for call in self.xla_program.calls):
            why = (
                "the host runs every turn"
                if self.xla_program.loops
                else "no loop is called turn by turn"
            )
            text += f"; {why}, so fuse_iterations={self._fuse} has no effect"
        return text

    @cached_property
    def launches(self) -> int | None:
        """Number of kernels, library calls and copies of a run in XLA.

        They are counted in the optimised HLO. For an unbounded program, the number is per iteration. None
        if it depends on values (a dynamic bound, different branches) or on the number of iterations per
        call, or if the interpreter runs the program. Waits for XLA to compile.
        """
        return None if self.work is None else self.work.launches

    @cached_property
    def work(self) -> Work | None:
        """Operations and bytes of a run in XLA; None if `launches` is None."""
        return None if self.xla_program is None else work_of(self.xla_program)

    @property
    def communication(self) -> Communication | None:
        """Communication between devices in a run, predicted by the plan and counted in XLA's program.

        None for one device, or if it depends on values of the run. Waits for XLA to compile.
        """
        lowered = self.xla_program
        return None if lowered is None else communication_of(lowered, self.progress().turns)

    def _as_kernel(self, tile: Tile) -> str:
        if self._tile_kernel is False:
            return ""
        why = self._lowered_program.why_no_kernel(tile)
        if why is not None:
            return f" (no kernel: {why})"
        return f" (one kernel{', interpreted' if self._tile_kernel == 'interpret' else ''})"

    def progress(self, *, recorded: bool = False) -> RunProgress:
        """Return the known points after each iteration. `recorded` runs use the interpreter."""
        lowered = None if recorded else self.xla_program
        return RunProgress(
            self.plan.statements, self.ast, None if lowered is None else lowered.loops
        )

    def cuts(self, *, recorded: bool = False) -> Cuts:
        """Return the possible splits of a run. `recorded` runs use the interpreter."""
        lowered = None if recorded else self.xla_program
        return self._own_cuts if lowered is None else lowered.cuts

    @cached_property
    def _own_cuts(self) -> Cuts:
        """Possible splits of the interpreter's runs."""
        outer = [part for part in parts_of(self.ast.root) if isinstance(part, Loop)]
        return Cuts(self.ast, self.plan, outer)

    @cached_property
    def source(self) -> str:
        """Python code for the interpreter."""
        return Source(self.pdg, self.ast, self.plan, self.kernels).text()

    def code(self, *, record: bool) -> Any:
        """Return the compiled Python code; with `record`, it reports every read, write and free."""
        if record not in self._code:
            source = self.source
            if record:
                source = Source(self.pdg, self.ast, self.plan, self.kernels, record=True).text()
            self._code[record] = compile(source, _FILE, "exec")
        return self._code[record]

    def compile_remaining(self, cut: Cut | None, *, record: bool) -> Any:
        """Return the compiled Python code of the part after a cut; None is the end of the nest."""
        rest = self._own_cuts.remaining_nest(cut)
        source = Source(self.pdg, rest, self.plan, self.kernels, record=record).text()
        return compile(source, _FILE, "exec")

    def compiles(self) -> dict[str, int]:
        """Return the number of compilations of each kernel that computes; none if the engine compiles nothing."""
        count, sizes = self.engine.compilations, dict[str, int]()
        for op_id, kernel in self.kernels.items():
            if count is not None and not kernel.passes_on:
                sizes[self.ast.names[op_id]] = count(kernel.run)
        return sizes

    def __str__(self) -> str:
        if self.xla_program is not None:
            return str(self.xla_program)
        texts = [kernel.text for kernel in self.kernels.values()]
        return "\n".join([f"# {self.how}", self.source, *filter(None, texts)])

    def searchable_lines(self) -> Iterable[tuple[str, Sequence[str]]]:
        if self.xla_program is not None:
            yield from self.xla_program.searchable_lines()
            return
        known = {f"_{op.id}": about(op) for op in self.pdg}
        for line in str(self).splitlines():
            called = re.findall(r"\b(?:kernel|output)(_\d+)\b", line)
            yield line, [part for name in called for part in known.get(name, ())]

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": "executable",
            "executor": "interpret" if self.xla_program is None else "xla",
            "why": self.how,
            "regions": [] if self.xla_program is None else self.xla_program.to_json(),
            "kernels": [
                {
                    "op_id": op_id,
                    "name": self.ast.names[op_id],
                    "operations": len(kernel.body),
                    "operands": len(kernel.op.inputs),
                    "outputs": len(kernel.op.outputs),
                    "coordinates": list(kernel.coords),
                }
                for op_id, kernel in self.kernels.items()
            ],
            "source": self.source,
        }

    def to_dot(self) -> str:
        """Graph of the kernels, with the number of operations of each."""
        graph = Dot("executable", rankdir="LR", many=len(self.kernels) > 60)
        for op_id, kernel in self.kernels.items():
            text = f"{format_count(len(kernel.body), 'operation')}, {format_count(len(kernel.op.outputs), 'output')}"
            graph.node(
                str(op_id), f"{self.ast.names[op_id]}\n{text}", fill=FUSED, element=f"op{op_id}"
            )
        for op_id in self.kernels:
            reads = self.plan.statements.of_op(op_id).operands
            behind = (k for operand in reads for k, _ in sorted(operand.tensors))
            for source in dict.fromkeys(k for k in behind if k in self.kernels):
                graph.edge(str(source), str(op_id))
        return str(graph)
