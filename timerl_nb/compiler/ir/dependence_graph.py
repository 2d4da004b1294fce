"""The polyhedral dependence graph, an immutable value.

Nodes are operations; one node represents all points of its domain. Edges are the operations' reads. Every
cycle passes through a merge (TimeRL §5.1). `graph_rewriting.Edit` makes new graphs;
operations unchanged by a pass retain their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, TypeVar, cast

from timerl_nb.base.display_registry import Inspectable
from timerl_nb.base.errors import VerificationError
from timerl_nb.base.graphviz_text import CONTROL, FUSED, PLAIN, SINK, SOURCE, Dot
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.analysis.requested_orders import Order
from timerl_nb.compiler.ir.graph_text import about, op_json, op_lines
from timerl_nb.compiler.ir.names import Names
from timerl_nb.compiler.ir.operation_attributes import NO_ATTRS
from timerl_nb.compiler.ir.operation_kinds import SINKS
from timerl_nb.compiler.ir.operations import DataflowAttrs, Op, Output, Read, is_own
from timerl_nb.compiler.ir.shapes import Shape, TensorType, size, subst_shape
from timerl_nb.compiler.ir.type_rules import TypeRuleError
from timerl_nb.compiler.isl.sets_and_relations import Relation, Set
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Index, Lin, Slice, index_text, sym

_Found = TypeVar("_Found")


class Pdg(Inspectable):
    """Operations by id, over the program's dimensions."""

    def __init__(self, dims: Dims, ops: Mapping[int, Op], orders: Iterable[Order] = ()) -> None:
        self.dims = dims
        self.ops: Mapping[int, Op] = MappingProxyType(dict(ops))
        self.orders: tuple[Order, ...] = tuple(dict.fromkeys(orders))
        self._analyses: dict[Hashable, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Pdg, (self.dims, dict(self.ops), self.orders)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops.values())

    def __len__(self) -> int:
        return len(self.ops)

    def __getitem__(self, op_id: int) -> Op:
        return self.ops[op_id]

    @cached_property
    def names(self) -> Names:
        """The names of operations and tensors."""
        return Names(self.ops)

    # --- edges -------------------------------------------------------------------------------

    @cached_property
    def readers(self) -> Mapping[int, tuple[tuple[int, int], ...]]:
        """The readers of each operation, as pairs of operation id and operand slot."""
        found: dict[int, list[tuple[int, int]]] = {op_id: [] for op_id in self.ops}
        for op in self:
            for slot, read in enumerate(op.inputs):
                found[read.source].append((op.id, slot))
        return {op_id: tuple(pairs) for op_id, pairs in found.items()}

    def analysis(self, find: Callable[..., _Found], *about: Hashable) -> _Found:
        """Return `find(graph, *about)`, cached as long as the graph lives."""
        key = find, *about
        if key not in self._analyses:
            self._analyses.setdefault(key, find(self, *about))
        return cast(_Found, self._analyses[key])  # threads share the first result

    @cached_property
    def ordered(self) -> frozenset[int]:
        """The operations in orders; passes neither replace nor copy them."""
        return frozenset(k for order in self.orders for k in (order.before, order.after))

    @cached_property
    def _waits(self) -> Mapping[int, tuple[Read, ...]]:
        found: dict[int, list[Read]] = {}
        for order in self.orders:
            after = self.ops[order.after]
            read = order.to_read(self.dims, self.ops[order.before].outputs[0], after)
            if read not in after.inputs:  # otherwise it is a dependence already
                found.setdefault(after.id, []).append(read)
        return {op_id: tuple(reads) for op_id, reads in found.items()}

    def waits(self, op: Op) -> tuple[Read, ...]:
        """Return the dependences of an operation due to orders, as reads without values."""
        return self._waits.get(op.id, ())

    def output(self, read: Read) -> Output:
        """Return the output behind a read."""
        return self.ops[read.source].outputs[read.out]

    def read_type(self, read: Read) -> TensorType:
        """Return the type of a read's value; axes of slices precede the source's axes."""
        return read_type(self.output(read), read)

    def is_identity(self, read: Read) -> bool:
        """Whether the source is read at the reader's own point."""
        return read.cond is TRUE and is_own(read.index, self.output(read).domain)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The ids in topological order; edges into merges are ignored, since every cycle contains one."""
        done: dict[int, None] = {}
        begun: set[int] = set()
        for start in self.ops:
            stack: list[tuple[int, bool]] = [(start, False)]
            while stack:
                op_id, ready = stack.pop()
                if op_id in done:
                    continue
                op = self.ops[op_id]
                if ready or op.kind == "merge":
                    done[op_id] = None
                    continue
                if op_id in begun:
                    raise VerificationError(
                        f"{op.name} depends on its own value.", origin=op.origin
                    )
                begun.add(op_id)
                stack.append((op_id, True))
                stack += [(r.source, False) for r in reversed(op.inputs) if r.source not in done]
        return tuple(done)

    @property
    def sinks(self) -> tuple[Op, ...]:
        """The roots: outputs, checkpoints and other effects."""
        return tuple(op for op in self if op.kind in SINKS)

    # --- points ------------------------------------------------------------------------------

    def points(self, op: Op) -> Set:
        """Return the points at which the operation is evaluated."""
        return Set.from_condition(self.dims, op.domain, op.where)

    def defined(self, read: Read) -> Set:
        """Return the points at which the source of a read has a value."""
        source, output = self.ops[read.source], self.output(read)
        # the result of an accumulation is defined even without any summand
        where = source.where if output.domain == source.domain else TRUE
        return Set.from_condition(self.dims, output.domain, where)

    def reads(self, op: Op, read: Read) -> Relation:
        """Return the relation from points of the operation to the points that it reads."""
        sink = self.points(op)
        if read.cond is not TRUE:
            sink = sink & Set.from_condition(self.dims, op.domain, read.cond)
        return Relation.reads(sink, read.index, self.defined(read))

    # --- under a dynamic bound -------------------------------------------------------------------

    @cached_property
    def ends(self) -> Mapping[str, Op]:
        """The operations that end dimensions with dynamic bounds, by dimension."""
        return {op.attrs.dim: op for op in self if op.kind == "bound"}

    def crossed(self, read: Read) -> tuple[Dim, ...]:
        """Return the dimensions with another dynamic bound at the point read than at the reader's."""
        return crosses(self.dims, self.output(read).domain, read.index)

    # --- display ---------------------------------------------------------------------------------

    def __str__(self) -> str:
        shown = [f"{d}{_varies(d)}" for d in self.dims]
        lines = [f"pdg over {', '.join(shown)}"]
        for op in self:
            lines += op_lines(self.ops, op, "  ")
        lines += [f"  {self.order_text(order)}" for order in self.orders]
        return "\n".join(lines)

    def searchable_lines(self) -> Iterable[tuple[str, Sequence[str]]]:
        head, *_ = str(self).splitlines()
        yield head, ()
        for op in self:
            body = op.body
            own = op.with_(attrs=NO_ATTRS) if body else op
            lines = op_lines(self.ops, op, "  ")
            for line, inner in zip_longest(lines, (own, *body)):
                yield line, about(inner) if inner is not None else ()
        for order in self.orders:
            yield f"  {self.order_text(order)}", (str(order.origin),)

    def order_text(self, order: Order) -> str:
        """Return an order as text: `%3[b, i, 0:T] before %5 @ (b, i)`."""
        before, after = self.ops[order.before], self.ops[order.after]
        index = order.index(self.dims, before.domain, after.domain)
        at = index_text(index) if index else ""
        return f"%{order.before}{at} before %{order.after} @ ({', '.join(after.domain)})"

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": "pdg",
            "dims": [{"name": d.name, "bound": d.bound, "step": d.step} for d in self.dims],
            "ops": [op_json(op) for op in self],
            "orders": [
                {
                    "before": order.before,
                    "after": order.after,
                    "at": {d: str(entry) for d, entry in order.at},
                    "origin": {"file": order.origin.place, "line": order.origin.line},
                }
                for order in self.orders
            ],
        }

    def to_dot(self) -> str:
        """Return operations in clusters by region, with edges from source to reader labelled by φ and ψ."""
        graph = Dot("pdg")
        regions: dict[tuple[str, ...], list[Op]] = {}
        for op in self:
            regions.setdefault(op.region, []).append(op)
        for region, ops in regions.items():
            if region:
                graph.open_cluster(" / ".join(region))
            for op in ops:
                fill, shape = node_look(op)
                graph.node(
                    str(op.id),
                    node_label(op, self.names[op.id]),
                    fill=fill,
                    shape=shape,
                    element=f"op{op.id}",
                )
            if region:
                graph.close_cluster()
        for op in self:
            for read in op.inputs:
                graph.edge(str(read.source), str(op.id), self.edge_label(read))
        for order in self.orders:
            graph.edge(str(order.before), str(order.after), "before")
        return str(graph)

    def edge_label(self, read: Read) -> str:
        """Return φ and ψ of an edge; "" if the source is read at the reader's own point."""
        parts: list[str] = []
        if not is_own(read.index, self.output(read).domain):
            parts.append(index_text(read.index))
        if read.cond is not TRUE:
            parts.append(f"if {read.cond}")
        return " ".join(parts)


def read_type(output: Output, read: Read) -> TensorType:
    """Return the type of a read's value, seen from the reader.

    Raises:
        TypeRuleError: a slice contains values of different shapes.
    """
    lead: Shape = tuple(size(e.length) for e in read.index if isinstance(e, Slice))
    inner = output.type.shape
    if any(isinstance(s, Lin) and s.symbols.intersection(output.domain) for s in inner):
        entries = dict(zip(output.domain, read.index, strict=True))
        points = {d: e for d, e in entries.items() if isinstance(e, Lin)}
        for s in inner:
            varying = (
                s.symbols.intersection(output.domain) - set(points) if isinstance(s, Lin) else ()
            )
            if varying:
                raise TypeRuleError(
                    f"a slice along {', '.join(varying)} of values {output.type}, whose shapes differ"
                )
        inner = subst_shape(inner, points)
    return TensorType((*lead, *inner), output.type.dtype)


def at_own_point(source: int, output: Output, out: int = 0) -> Read:
    """Return the read of an output at the reader's own point."""
    return Read(source, out, tuple(sym(name) for name in output.domain))


def crosses(dims: Dims, domain: Domain, index: Index) -> tuple[Dim, ...]:
    """Return the dimensions with another dynamic bound at the point that an index reaches.

    Args:
        dims: the dimensions.
        domain: the domain of the tensor that is read.
        index: the index into it.
    """
    entries = dict(zip(domain, index, strict=True))
    return tuple(
        dim
        for dim in dims.known(domain)
        if not is_own(tuple(entries[d] for d in dim.over or ()), dim.over or ())
    )


def _varies(dim: Dim) -> str:
    """Return the text of a dynamic bound's dependence on other dimensions."""
    return "" if dim.over is None else f" that varies over ({', '.join(dim.over)})"


def node_look(op: Op) -> tuple[str, str]:
    """Return fill colour and shape of an operation's node."""
    if op.kind == "dataflow":
        return FUSED, "box3d"
    if op.kind in SINKS:
        return SINK, "house"
    if op.kind in ("merge", "accumulate"):
        return CONTROL, "diamond"
    return (SOURCE, "ellipse") if not op.inputs else (PLAIN, "box")


def node_label(op: Op, name: str) -> str:
    """Return the label of an operation's node."""
    if isinstance(op.attrs, DataflowAttrs):
        text = format_count(len(op.attrs.body), "operation")
    else:
        kind = "" if name.split(".")[-1] == op.kind else op.kind
        text = " ".join(p for p in (kind, str(op.attrs)) if p)
    lines = [name, text[:40]]
    if op.outputs:
        shown = [str(o.type) for o in op.outputs[:3]] + ["…"] * (len(op.outputs) > 3)
        lines.append(f"{', '.join(shown)} @ ({', '.join(op.domain)})")
    return "\n".join(line for line in lines if line)
