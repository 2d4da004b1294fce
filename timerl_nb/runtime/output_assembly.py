"""What a run returns: outputs stacked over their domains, and the lengths of a dynamic dimension."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import TRUE
from timerl_nb.runtime.jax_backend import jax_engine as backend

Outputs = dict[tuple[str, str], Array]  # by (role, name)
At = Callable[..., Any]  # an output's value, by its point
_TAKEN_OVER: Final = "the turn that failed had taken over their memory"
Within = Callable[[Op, Mapping[str, int]], Mapping[str, int] | None]


class Returned:
    """The results of one run.

    Args:
        known: the lengths of a dynamic dimension, as far as they are known.

    Attributes:
        coordinates: where the values of conditional outputs are, by name.
    """

    def __init__(self, pdg: Pdg, plan: MemoryPlan, known: Mapping[tuple[int, ...], int]) -> None:
        self._pdg, self._plan, self._known = pdg, plan, known
        self.coordinates: dict[str, Coordinates] = {}

    def outputs(
        self,
        at: Callable[[Op], At],
        names: Sequence[str] | None = None,
        within: Within | None = None,
        lost: dict[str, str] | None = None,
    ) -> Outputs:
        """The values of the program's outputs by (role, name), stacked over their domains.

        Args:
            at: by output, what gives its value at a point.
            names: the outputs to return; all by default, and parameters in any case.
            within: by output, the bounds up to which it is there, or None where it is not; those of
                the plan by default.
            lost: where to put the names of those whose values are no more, with why; by default the
                first of them is an error.
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
            try:
                found[op.attrs.role, op.attrs.name] = self._stack_values(op, at(op), bounds)
            except (ExecutionError, KeyError, RuntimeError) as error:
                if lost is None:
                    raise
                found_by_jax = not isinstance(error, ExecutionError)
                lost[op.attrs.name] = _TAKEN_OVER if found_by_jax else error.what
        return found

    def _stack_values(self, op: Op, at: At, bounds: Mapping[str, int]) -> Array:
        """An output's values over its domain."""
        pdg = self._pdg
        lengths = [pdg.dims[d].count(bounds) for d in op.domain]
        points = list(product(*map(range, lengths)))
        if op.where is not TRUE:
            return self._gather_defined(op, at, points)
        if not points or pdg.dims.is_bound_known(op.domain):
            return in_order(self._pad_to_ceiling(op, at, lengths), op)
        values = [backend.to_numpy(at(*p)) for p in points]
        return in_order(np.stack(values).reshape((*lengths, *values[0].shape)), op)

    def _gather_defined(self, op: Op, at: At, points: Sequence[tuple[int, ...]]) -> Array:
        """An output's values where it is defined; `coordinates` says where that is."""
        inside = [p for p in points if self._exists(op, self._env(op, p))]
        kind = self._pdg.read_type(op.inputs[0])
        none = np.zeros((0, *concrete(kind.shape, self._plan.bounds)), NUMPY[kind.dtype])
        values = [backend.to_numpy(at(*p)) for p in inside]
        made, where = attach_coordinates(np.stack(values) if values else none, inside, op)
        self.coordinates[op.attrs.name] = where
        return made

    def _env(self, op: Op, point: tuple[int, ...]) -> dict[str, int]:
        """The symbols at a point of an operation, a dynamic bound with its value there."""
        env = {**self._plan.bounds, **dict(zip(op.domain, point, strict=True))}
        dim = self._pdg.dims.dynamic
        if dim is not None and self._pdg.dims.is_bound_known(op.domain):
            env[dim.bound] = self.length(tuple(env[d] for d in dim.over or ()))
        return env

    def _exists(self, op: Op, env: Mapping[str, int]) -> bool:
        dims = self._pdg.dims
        ended = dims.dynamic is not None and dims.ends(op.domain)
        if ended and dims.dynamic and env[dims.dynamic.name] >= env[dims.dynamic.bound]:
            return False
        return bool(evaluate(op.where, env))

    def _pad_to_ceiling(self, op: Op, at: At, lengths: Sequence[int]) -> Array:
        """An output's values up to the ceiling of a dynamic bound; zeros beyond its length."""
        kind = self._pdg.read_type(op.inputs[0])
        shape = concrete(kind.shape, self._plan.bounds)
        made = np.zeros((*lengths, *shape), NUMPY[kind.dtype])
        for p in product(*map(range, lengths)):
            env = self._env(op, p)
            if self._exists(op, env):
                true = tuple(map(slice, concrete(kind.shape, env)))
                made[(*p, *true)] = backend.to_numpy(at(*p))[true]
        return made

    # --- dynamic bounds --------------------------------------------------------------------------

    def length(self, point: tuple[int, ...]) -> int:
        """A dynamic bound at a point of what it varies over, as far as it is known: its ceiling."""
        dim = self._pdg.dims.dynamic
        assert dim is not None
        return self._known.get(point, self._plan.bounds[dim.bound])

    def longest(self) -> int:
        """The greatest of all dynamic bounds: the ceiling until all are known."""
        dim, bounds = self._pdg.dims.dynamic, self._plan.bounds
        assert dim is not None
        if len(self._known) < prod(bounds[self._pdg.dims[d].bound] for d in dim.over or ()):
            return bounds[dim.bound]
        return max(self._known.values())

    def lengths(self) -> dict[str, Array]:
        """The values of a dynamic bound, by its name, stacked over what it varies over."""
        dim, bounds = self._pdg.dims.dynamic, self._plan.bounds
        if dim is None:
            return {}
        sizes = [bounds[self._pdg.dims[d].bound] for d in dim.over or ()]
        ends = [self.length(p) for p in product(*map(range, sizes))]
        return {dim.bound: np.array(ends, np.int64).reshape(sizes)}
