"""Operations of a lowered program that run on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timerl_nb.compiler.ir.host.host_functions import CallAttrs, Host, UdfAttrs
from timerl_nb.compiler.ir.host.iteration_io import is_iteration_output
from timerl_nb.compiler.ir.operation_attributes import CheckpointAttrs
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import Shape, concrete
from timerl_nb.compiler.memory.byte_sizes import moving_symbols
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.symbolic.index_expressions import Lin, sym
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.state.checkpoint_reader import WrittenCheckpoint
from timerl_nb.runtime.state.checkpoint_writer import write_checkpoint
from timerl_nb.runtime.xla.execution.host_control_flow import Length
from timerl_nb.runtime.xla.lowering.host_regions import HostOperation


class HostOps:
    """Runs functions on the host and writes checkpoints, in the order of the loop nest.

    Args:
        plan: Memory plan.
        host: Resources of the run.
        state: Buffers by name.
    """

    def __init__(self, plan: MemoryPlan, host: Host, state: Mapping[str, Any]) -> None:
        self._plan, self._pdg, self._state = plan, plan.pdg, state
        self.host = host
        self._varying: dict[int, Mapping[int, Shape]] = {}
        self.checkpoints: list[WrittenCheckpoint] = []

    def run(
        self, part: HostOperation, at: tuple[int, ...], asked: Sequence[Any], length: Length
    ) -> Sequence[Any]:
        """Run an operation, and return its outputs.

        Args:
            part: The operation.
            at: Counters of the loops around it.
            asked: Operands, padded to their capacity.
            length: Returns a dynamic bound at a point.
        """
        op = self._pdg[part.node.op_id]
        point = dict(zip(op.domain, part.point(*at), strict=True))
        if is_iteration_output(op):
            # a call may return a buffer unchanged, and a later call may overwrite it
            held = {id(x) for x in self._state.values()}
            own = [backend.copied(x) if id(x) in held else x for x in asked]
            self.host.effect(op.attrs, point, own, op.origin)
            return ()
        found = [backend.to_numpy(x) for x in asked]
        for k, shape in self._shapes(op).items():
            found[k] = found[k][tuple(map(slice, concrete(shape, self._env(op, point, length))))]
        if isinstance(op.attrs, UdfAttrs):
            return self.host.call(op.attrs, point, found, op.origin)
        if isinstance(op.attrs, CallAttrs):
            self.host.effect(op.attrs, point, found, op.origin)
        else:
            assert isinstance(op.attrs, CheckpointAttrs)
            named = dict(zip(op.attrs.names, found, strict=True))
            path = write_checkpoint(op.attrs.path, point, named, op.origin)
            self.checkpoints.append(WrittenCheckpoint(path, point, tuple(named)))
        return ()

    def _shapes(self, op: Op) -> Mapping[int, Shape]:
        """Return the shapes of the operands whose lengths vary between points."""
        if op.id not in self._varying:
            moving = moving_symbols(self._pdg, op)
            given = self._plan.statements.of_op(op.id).operands
            shapes = {k: self._pdg.read_type(o.read).shape for k, o in enumerate(given)}
            self._varying[op.id] = {
                k: shape
                for k, shape in shapes.items()
                if any(isinstance(s, Lin) and s.symbols & moving for s in shape)
            }
        return self._varying[op.id]

    def _env(self, op: Op, point: Mapping[str, int], length: Length) -> dict[str, int]:
        """Return the values of symbols at a point, including the dynamic bounds."""
        env = {**self._plan.bounds, **point}
        for dim in self._pdg.dims.known(op.domain):
            env[dim.bound] = length(dim.bound, tuple(map(sym, dim.over or ())), env)
        return env

    def close(self, error: BaseException | None = None) -> None:
        """Close the resources; `error` is the exception that ended the run, if any."""
        self.host.close(error)
