"""Several runs of a program side by side, as one program with a dimension that counts seeds.

At its point s all is as in a run of the program alone whose seed is s greater: what depends on chance
varies over it, directly or not, and what is returned or written. The rest, such as constants and
given data, is there once. It is no pass of the pipeline: the program that is compiled is the one it
makes (docs/decisions/046-seeds-as-a-dimension.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit, Rewritten
from timerl_nb.compiler.ir.host.host_functions import CallAttrs, UdfAttrs
from timerl_nb.compiler.ir.host.iteration_io import is_handed_out
from timerl_nb.compiler.ir.operation_attributes import OutputAttrs
from timerl_nb.compiler.ir.operation_kinds import SINKS
from timerl_nb.compiler.ir.operations import Op, Read, reached_from, read_symbols
from timerl_nb.compiler.passes.dynamic_bound_expansion import DynamicBounds
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims
from timerl_nb.compiler.symbolic.index_expressions import Lin, sym


@dataclass(frozen=True)
class Seeds:
    """The graph of runs side by side.

    Attributes:
        dim: counts them.
    """

    dim: Dim
    name: str = "seeds"

    @staticmethod
    def from_dims(dims: Dims) -> Seeds:
        """Over a dimension called `seed`, with the bound `SEEDS`, or something like it."""
        taken, more = {*dims.names, *dims.bounds}, ""
        while not taken.isdisjoint((f"seed{more}", f"SEEDS{more}")):
            more += "_"
        return Seeds(Dim(f"seed{more}", f"SEEDS{more}", seeds=True))

    def run(self, pdg: Pdg) -> Rewritten:
        """The graph, whose operations keep their ids.

        Raises:
            BoundsError: it would mix the lengths that a dynamic bound has at several points.
        """
        DynamicBounds().run(pdg)  # refuses what it does before there is another dimension
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
        if is_handed_out(op):
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
        """What a turn hands out: all seeds' values in one call, of which they are the first axis."""
        inputs, orders = list(op.inputs), list(op.attrs.function.orders)
        for k, one in enumerate(op.inputs):
            if one.source in varied:
                inputs[k] = replace(one, index=(self.dim.full_range, *one.index))
                orders[k] = (0, *(axis + 1 for axis in orders[k]))
        function = replace(op.attrs.function, orders=tuple(orders))
        return op.with_(inputs=tuple(inputs), attrs=replace(op.attrs, function=function))


def _seed_dependent_roots(pdg: Pdg) -> Iterator[int]:
    """What is another for each seed by itself: draws, what is made on the host, and sinks.

    So is all that mentions a dynamic bound, which is found by each run for itself.
    """
    ends = {pdg.dims[pdg.bound.attrs.dim].bound} if pdg.bound else set[str]()
    for op in pdg:
        made = isinstance(op.attrs, UdfAttrs) and op.attrs.resource is not None
        if made or op.kind == "rng" or op.kind in SINKS or not ends.isdisjoint(_symbols(op)):
            yield op.id


def _symbols(op: Op) -> set[str]:
    """The symbols that stand in an operation."""
    sizes = (size for output in op.outputs for size in output.type.shape if isinstance(size, Lin))
    found = (op.where, *op.attrs.exprs, *sizes)
    reads = (read_symbols(read) for read in op.inputs)
    return set[str]().union(*(e.symbols for e in found), *reads)
