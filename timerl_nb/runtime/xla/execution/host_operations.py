"""The operations of a lowered program that run on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timerl_nb.compiler.ir.host.host_functions import CallAttrs, Host, UdfAttrs
from timerl_nb.compiler.ir.host.iteration_io import is_handed_out
from timerl_nb.compiler.ir.operation_attributes import CheckpointAttrs
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import Shape, concrete
from timerl_nb.compiler.memory.byte_sizes import moving_symbols
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.symbolic.index_expressions import Lin, sym
from timerl_nb.runtime.jax_backend import jax_engine as backend
from timerl_nb.runtime.state.checkpoint_reader import WrittenCheckpoint
from timerl_nb.runtime.state.checkpoint_writer import write_checkpoint
from timerl_nb.runtime.xla.execution.host_control_flow import Length
from timerl_nb.runtime.xla.lowering.host_regions import OnHost


class HostOps:
    """Runs host functions and writes checkpoints, in the order of the nest.

    Args:
        host: the run's resources.
        state: its buffers, by name.
    """

    def __init__(self, plan: MemoryPlan, host: Host, state: Mapping[str, Any]) -> None:
        self._plan, self._pdg, self._state = plan, plan.pdg, state
        self.host = host
        self._varying: dict[int, Mapping[int, Shape]] = {}
        self.kept: list[WrittenCheckpoint] = []

    def run(
        self, part: OnHost, at: tuple[int, ...], asked: Sequence[Any], length: Length
    ) -> Sequence[Any]:
        """Run an operation; returns its outputs.

        Args:
            at: the counters of the loops around it.
            asked: its operands, at their capacity.
            length: a dynamic bound at a point of what it varies over.
        """
        op = self._pdg[part.node.op_id]
        point = dict(zip(op.domain, part.point(*at), strict=True))
        if is_handed_out(op):
            # JAX returns a buffer itself where a call leaves it as it is, and a later call takes it over
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
            self.kept.append(WrittenCheckpoint(path, point, tuple(named)))
        return ()

    def _shapes(self, op: Op) -> Mapping[int, Shape]:
        """The shapes of the operands that are not the same at all points."""
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
        """The symbols at a point, a dynamic bound with its value there."""
        env, dim = {**self._plan.bounds, **point}, self._pdg.dims.dynamic
        if dim is not None and self._pdg.dims.is_bound_known(op.domain):
            env[dim.bound] = length(tuple(map(sym, dim.over or ())), env)
        return env

    def close(self, error: BaseException | None = None) -> None:
        """Close what can be closed of the functions' resources; `error` is what the run failed with."""
        self.host.close(error)
