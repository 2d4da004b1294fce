"""Outputs of a run: values stacked over their domains, and the values of dynamic bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.ir.analysis.partial_outputs import Coordinates, attach_coordinates
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_attributes import OutputAttrs
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.reference.evaluator import in_order
from timerl_nb.compiler.ir.shapes import NUMPY, concrete
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import TRUE
from timerl_nb.runtime.engine import Engine, load_engine

Outputs = dict[tuple[str, str], Array]  # by (role, name)
Lengths = Mapping[
    str, Mapping[tuple[int, ...], int]
]  # known values of each dynamic bound, by point
At = Callable[..., Any]  # maps a point to the value of an output
_TAKEN_OVER: Final = "the failed iteration has reused their memory"
Within = Callable[[Op, Mapping[str, int]], Mapping[str, int] | None]


@dataclass(frozen=True)
class OwnPart:
    """The part of a program's instances that one of several processes computes.

    Attributes:
        dim: The divided dimension.
        points: The points of this process.
    """

    dim: str
    points: range

    def axis(self, op: Op) -> int | None:
        """Return the divided axis of an output's value at a point; None if there is none, and for parameters."""
        attrs: OutputAttrs = op.attrs
        is_divided = attrs.role == "output" and self.dim in attrs.axes
        return attrs.axes.index(self.dim) if is_divided else None


class Returned:
    """Results of one run.

    Args:
        pdg: Dependence graph.
        plan: Memory plan.
        known: Known values of each dynamic bound, by the point of the dimensions that it varies over.
        engine: Library of the values; JAX by default.

    Attributes:
        coordinates: Positions of the values of conditional outputs, by name.
    """

    def __init__(
        self,
        pdg: Pdg,
        plan: MemoryPlan,
        known: Lengths,
        engine: Engine | None = None,
    ) -> None:
        self._engine = load_engine("jax") if engine is None else engine
        self._pdg, self._plan, self._lengths = pdg, plan, known
        self.coordinates: dict[str, Coordinates] = {}

    def outputs(
        self,
        at: Callable[[Op], At],
        names: Sequence[str] | None = None,
        within: Within | None = None,
        lost: dict[str, str] | None = None,
        own: OwnPart | None = None,
    ) -> Outputs:
        """Return the values of the program's outputs by (role, name), stacked over their domains.

        Args:
            at: Maps an output to a function from points to values.
            names: Names of the outputs to return; all by default. Parameters are always returned.
            within: Maps an output to the bounds of its known values, or to None if it is unknown; by
                default, the bounds of the plan.
            lost: Dictionary to fill with lost outputs and the reasons. Without it, a lost output raises
                an error.
            own: Part of this process, if `at` returns only this part of divided outputs. These have the
                role "local".

        Raises:
            ExecutionError: A value is lost, and `lost` is None.
        """
        found: Outputs = {}
        for op in self._pdg.sinks:
            if not isinstance(op.attrs, OutputAttrs):
                continue
            if names is not None and op.attrs.role == "output" and op.attrs.name not in names:
                continue
            bounds = self._plan.bounds if within is None else within(op, self._plan.bounds)
            if bounds is None:
                continue
            part = own if own is not None and own.axis(op) is not None else None
            role = op.attrs.role if part is None else "local"
            try:
                found[role, op.attrs.name] = self._stack_values(op, at(op), bounds, part)
            except (ExecutionError, KeyError, RuntimeError) as error:
                if lost is None:
                    raise
                found_by_jax = not isinstance(error, ExecutionError)
                lost[op.attrs.name] = _TAKEN_OVER if found_by_jax else error.what
        return found

    def _stack_values(
        self, op: Op, at: At, bounds: Mapping[str, int], own: OwnPart | None = None
    ) -> Array:
        """Stack the values of an output over its domain."""
        pdg = self._pdg
        lengths = [pdg.dims[d].count(bounds) for d in op.domain]
        points = list(product(*map(range, lengths)))
        if op.where is not TRUE:
            return self._gather_defined(op, at, points, own)
        if not points or pdg.dims.known(op.domain):
            return in_order(self._pad_to_ceiling(op, at, lengths, own), op)
        values = [self._engine.to_numpy(at(*p)) for p in points]
        return in_order(np.stack(values).reshape((*lengths, *values[0].shape)), op)

    def _gather_defined(
        self, op: Op, at: At, points: Sequence[tuple[int, ...]], own: OwnPart | None
    ) -> Array:
        """Collect the defined values of an output, and record their positions."""
        inside = [p for p in points if self._exists(op, self._env(op, p))]
        none = self._zeros((0,), op, own)
        values = [self._engine.to_numpy(at(*p)) for p in inside]
        made, where = attach_coordinates(np.stack(values) if values else none, inside, op)
        if own is not None:
            where = {d: x + own.points.start if d == own.dim else x for d, x in where.items()}
        self.coordinates[op.attrs.name] = where
        return made

    def _zeros(self, lead: tuple[int, ...], op: Op, own: OwnPart | None) -> Array:
        """Return zeros for an output, or for this process's part of it."""
        kind = self._pdg.read_type(op.inputs[0])
        shape = list(concrete(kind.shape, self._plan.bounds))
        axis = None if own is None else own.axis(op)
        if own is not None and axis is not None:
            shape[axis] = len(own.points)
        return np.zeros((*lead, *shape), NUMPY[kind.dtype])

    def _env(self, op: Op, point: tuple[int, ...]) -> dict[str, int]:
        """Return the values of symbols at a point, including the dynamic bounds there."""
        env = {**self._plan.bounds, **dict(zip(op.domain, point, strict=True))}
        for dim in self._pdg.dims.known(op.domain):
            env[dim.bound] = self.length(dim.bound, tuple(env[d] for d in dim.over or ()))
        return env

    def _exists(self, op: Op, env: Mapping[str, int]) -> bool:
        ends = self._pdg.dims.ending(op.domain)
        return all(env[dim.name] < env[dim.bound] for dim in ends) and bool(evaluate(op.where, env))

    def _pad_to_ceiling(self, op: Op, at: At, lengths: Sequence[int], own: OwnPart | None) -> Array:
        """Stack the values of an output up to the ceilings of dynamic bounds, padded with zeros."""
        kind = self._pdg.read_type(op.inputs[0])
        made = self._zeros(tuple(lengths), op, own)
        for p in product(*map(range, lengths)):
            env = self._env(op, p)
            if self._exists(op, env):
                true = tuple(map(slice, concrete(kind.shape, env)))
                value = self._engine.to_numpy(at(*p))[true]
                made[(*p, *map(slice, value.shape))] = value
        return made

    # --- dynamic bounds --------------------------------------------------------------------------

    def length(self, name: str, point: tuple[int, ...]) -> int:
        """Return a dynamic bound at a point; its ceiling if it is unknown."""
        return self._lengths[name].get(point, self._plan.bounds[name])

    def longest(self, name: str) -> int:
        """Return the maximum of a dynamic bound over all points; its ceiling until all are known."""
        bounds, known = self._plan.bounds, self._lengths[name]
        over = next(dim.over or () for dim in self._pdg.dims.dynamic if dim.bound == name)
        if len(known) < prod(bounds[self._pdg.dims[d].bound] for d in over):
            return bounds[name]
        return max(known.values())

    def lengths(self) -> dict[str, Array]:
        """Return the values of dynamic bounds by name, each stacked over the dimensions it varies over.

        A bound is 0 at points beyond the end of an outer dimension.
        """
        return {dim.bound: self._stacked_lengths(dim) for dim in self._pdg.dims.dynamic}

    def _stacked_lengths(self, dim: Dim) -> Array:
        over, bounds, dims = dim.over or (), self._plan.bounds, self._pdg.dims
        made = np.zeros([bounds[dims[d].bound] for d in over], np.int64)
        for p in product(*map(range, made.shape)):
            at = dict(zip(over, p, strict=True))
            outer = (
                at[d.name] < self.length(d.bound, tuple(at[o] for o in d.over or ()))
                for d in dims.ending(over)
            )
            made[p] = self.length(dim.bound, p) if all(outer) else 0
        return made


def no_lengths(pdg: Pdg) -> dict[str, dict[tuple[int, ...], int]]:
    """Return the known values of the dynamic bounds at the start of a run."""
    return {dim.bound: {} for dim in pdg.dims.dynamic}
