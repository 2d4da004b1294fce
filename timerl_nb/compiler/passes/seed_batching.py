"""Parallel runs with several seeds, as one program with a seed dimension.

At point s of the dimension, all values equal those of a single run with a seed greater by s. Random values,
their dependents, and all outputs vary over the dimension; constants and data are shared. This is not a pass
of the pipeline: the compiler starts from the resulting graph
(docs/decisions/046-seeds-as-a-dimension.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit, Rewritten
from timerl_nb.compiler.ir.host.host_functions import CallAttrs, UdfAttrs
from timerl_nb.compiler.ir.host.iteration_io import is_iteration_output
from timerl_nb.compiler.ir.operation_attributes import OutputAttrs
from timerl_nb.compiler.ir.operation_kinds import SINKS
from timerl_nb.compiler.ir.operations import Op, Read, reached_from, read_symbols
from timerl_nb.compiler.passes.dynamic_bound_expansion import DynamicBounds
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims
from timerl_nb.compiler.symbolic.index_expressions import Lin, sym


@dataclass(frozen=True)
class Seeds:
    """Addition of a seed dimension to a graph.

    Attributes:
        dim: the seed dimension.
    """

    dim: Dim
    name: str = "seeds"

    @staticmethod
    def from_dims(dims: Dims) -> Seeds:
        """Return the rewrite with a dimension `seed` and a bound `SEEDS`, or similar names."""
        taken, more = {*dims.names, *dims.bounds}, ""
        while not taken.isdisjoint((f"seed{more}", f"SEEDS{more}")):
            more += "_"
        return Seeds(Dim(f"seed{more}", f"SEEDS{more}", seeds=True))

    def run(self, pdg: Pdg) -> Rewritten:
        """Return the graph with the seed dimension; operations retain their ids.

        Raises:
            BoundsError: the program mixes lengths of a dynamic bound at several points.
        """
        DynamicBounds().run(pdg)  # reports errors of the program before the new dimension exists
        varied = set(
            reached_from(
                _seed_dependent_roots(pdg), lambda k: (reader for reader, _ in pdg.readers[k])
            )
        )
        edit = Edit(pdg)
        edit.dims = Dims((self.dim, *pdg.dims))
        own = self.dim.name, sym(self.dim.name)
        edit.orders = tuple(
            replace(order, at=(own, *order.at)) if order.before in varied else order
            for order in pdg.orders
        )
        for op_id in varied:
            edit.insert(self._add_seed_dim(pdg[op_id], varied))
        return edit.finish()

    def _add_seed_dim(self, op: Op, varied: set[int]) -> Op:
        if is_iteration_output(op):
            return self._handed_out(op, varied)
        name, attrs = self.dim.name, op.attrs

        def add_to_read(one: Read) -> Read:
            return replace(one, index=(sym(name), *one.index)) if one.source in varied else one

        if isinstance(attrs, OutputAttrs):
            attrs = replace(attrs, dims=(name, *attrs.dims))
        elif isinstance(attrs, CallAttrs) or (isinstance(attrs, UdfAttrs) and attrs.resource):
            attrs = replace(attrs, domain=(name, *attrs.domain))
        return op.with_(
            domain=(name, *op.domain),
            inputs=tuple(map(add_to_read, op.inputs)),
            outputs=tuple(replace(output, domain=(name, *output.domain)) for output in op.outputs),
            attrs=attrs,
        )

    def _handed_out(self, op: Op, varied: set[int]) -> Op:
        """Return an iteration's output with all seeds in one call, as the first axis."""
        inputs, orders = list(op.inputs), list(op.attrs.function.orders)
        for k, one in enumerate(op.inputs):
            if one.source in varied:
                inputs[k] = replace(one, index=(self.dim.full_range, *one.index))
                orders[k] = (0, *(axis + 1 for axis in orders[k]))
        function = replace(op.attrs.function, orders=tuple(orders))
        return op.with_(inputs=tuple(inputs), attrs=replace(op.attrs, function=function))


def _seed_dependent_roots(pdg: Pdg) -> Iterator[int]:
    """Yield operations with direct dependence on the seed: draws, resources on the host, and sinks.

    Operations with a dynamic bound belong to them, since each run finds its own bound.
    """
    ends = {pdg.dims[name].bound for name in pdg.ends}
    for op in pdg:
        made = isinstance(op.attrs, UdfAttrs) and op.attrs.resource is not None
        if made or op.kind == "rng" or op.kind in SINKS or not ends.isdisjoint(_symbols(op)):
            yield op.id


def _symbols(op: Op) -> set[str]:
    """Return the symbols in an operation."""
    sizes = (size for output in op.outputs for size in output.type.shape if isinstance(size, Lin))
    found = (op.where, *op.attrs.exprs, *sizes)
    reads = (read_symbols(read) for read in op.inputs)
    return set[str]().union(*(e.symbols for e in found), *reads)
