"""Graph view-model: a dependence graph folded to fit a page.

A graph as written is folded by source line: one node per line, with the values computed there. A fused graph
is shown by kernel, without merges. A graph of a few dozen operations is shown unfolded. Every cluster can be
opened and folded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal

from timerl_nb.base.errors import DrawingError
from timerl_nb.base.graphviz_text import CONTROL, PLAIN, SINK, SOURCE, Dot
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg, node_label, node_look
from timerl_nb.compiler.ir.operation_kinds import SINKS
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.compiler.memory.byte_sizes import Sizes
from timerl_nb.show.graph.graph_layout import LayoutTimeout, layout_svg
from timerl_nb.show.graph.graph_reads import Flow, flows
from timerl_nb.show.graph.region_hierarchy import KERNEL, LINE, REGION, RETURNED, Cluster, Clusters
from timerl_nb.show.view_model import HIDDEN, Key, View, shown

QUICK = 120  # number of nodes above which the layout is faster and less tidy
VALUES = 12  # values listed in a node
READS = 24  # reads listed at an edge
LONG = 28  # length up to which a kernel's name is not shortened
_OUTLINES = {KERNEL: "bold", LINE: "dashed"}


@dataclass(frozen=True)
class Value:
    """Output of an operation at each point of `domain`; `bytes` is the size at one point under the bounds."""

    name: str
    domain: tuple[str, ...]
    shape: tuple[str, ...]
    dtype: str
    bytes: int | None = None

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(self.shape)}] @ ({', '.join(self.domain)})"


@dataclass(frozen=True)
class Node:
    """Node of a view: an operation, or a folded cluster of that `kind`.

    Attributes:
        key: the id of the node in the picture.
        label: the text in the node.
        cluster: the key of the open cluster around it, or "".
        name: the first line of the label, with the full name of a kernel.
    """

    key: Annotated[str, Key("id")]
    label: str
    kind: str
    op_ids: tuple[int, ...]
    region: tuple[str, ...]
    cluster: str
    place: str
    text: str
    values: tuple[Value, ...]
    name: str
    fill: Annotated[str, HIDDEN] = PLAIN
    outline: Annotated[str, HIDDEN] = "box"
    is_folded: Annotated[bool, Key("folded")] = False

    @shown
    def detail(self) -> str:
        return f"{self.place}: {self.text}" if self.text else self.place


@dataclass(frozen=True)
class OpenCluster:
    """Open cluster; `parent` is the key of the enclosing one."""

    key: Annotated[str, Key("id")]
    label: str
    sort: str
    parent: str
    op_ids: tuple[int, ...]


@dataclass(frozen=True)
class Edge:
    """Reads of one node by another; of kind "order", a required order without a read."""

    id: str
    kind: Literal["read", "order"]
    tail: str
    head: str
    label: str
    flows: Annotated[tuple[Flow, ...], HIDDEN]

    @shown
    def count(self) -> int:
        """The number of different reads."""
        return len(self.flows)

    @shown
    def reads(self) -> tuple[Flow, ...]:
        """The first reads."""
        return self.flows[:READS]


@dataclass(frozen=True, repr=False)
class GraphView(View):
    """Dependence graph as nodes, clusters and labelled edges. Ids are those of the elements in the picture.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> view = trl.show.graph_view(program.pdg)
        >>> len(view.fold().nodes) <= len(view.unfold().nodes)
        True
    """

    view = "graph"

    name: str
    nodes: tuple[Node, ...]
    boxes: Annotated[tuple[OpenCluster, ...], Key("clusters")]
    edges: tuple[Edge, ...]
    folded: frozenset[str] = frozenset()
    _source: _Source | None = field(default=None, compare=False, repr=False)

    def fold(self, *keys: str) -> GraphView:
        """Return the view with these clusters folded to one node each; without keys, with all regions folded."""
        source = self._source_graph()
        every = {k for k, c in source.clusters.clusters.items() if c.sort == REGION}
        return source.view(self.folded | (source.check_clusters(keys) or every))

    def unfold(self, *keys: str) -> GraphView:
        """Return the view with these clusters open; without keys, with all clusters open."""
        source = self._source_graph()
        return source.view(self.folded - (source.check_clusters(keys) or self.folded))

    def toggle(self, key: str) -> GraphView:
        """Return the view with a node opened or an open cluster folded."""
        return self.unfold(key) if key in self.folded else self.fold(key)

    def as_in(self, before: GraphView) -> GraphView:
        """Return the view with the manual changes of another graph's view, as far as the clusters exist here."""
        source, other = self._source_graph(), before._source_graph()
        usual, there = source.clusters.folds(), other.clusters.folds()
        shut = (before.folded - there) & set(source.clusters.clusters)
        return source.view((usual - (there - before.folded)) | shut)

    def _source_graph(self) -> _Source:
        if self._source is None:
            raise DrawingError(
                "this view has no graph to fold.", hint="create the view by `graph_view(pdg)`."
            )
        return self._source

    def to_dot(self) -> str:
        count = len(self.nodes)
        graph = Dot(self.name, level=count <= 12, many=count > QUICK)
        self._write(graph, "")
        for edge in self.edges:
            dashed = edge.kind == "order"
            graph.edge(edge.tail, edge.head, edge.label, element=edge.id, dashed=dashed)
        return str(graph)

    def _write(self, graph: Dot, inside: str) -> None:
        for node in self.nodes:
            if node.cluster == inside:
                graph.node(
                    node.key, node.label, fill=node.fill, shape=node.outline, element=node.key
                )
        for box in self.boxes:
            if box.parent == inside:
                graph.open_cluster(
                    shorten_name(box.label)[:60], style=_OUTLINES.get(box.sort, ""), element=box.key
                )
                self._write(graph, box.key)
                graph.close_cluster()

    def to_svg(self) -> str:
        _, svg = laid_out(self)
        return svg

    def __str__(self) -> str:
        names = {node.key: _first(node.label) for node in self.nodes}
        lines = [f"graph of {format_count(len(self.nodes), 'node')}"]
        for edge in self.edges:
            label = edge.label.replace("\n", "; ")
            arrow = "->" if edge.kind == "read" else "before"
            told = f"  {names[edge.tail]} {arrow} {names[edge.head]}"
            lines.append(told + f"  {label}" * bool(label))
        return "\n".join(lines)


def graph_view(
    pdg: Pdg, *, folded: Iterable[str] | None = None, bounds: Mapping[str, int] | None = None
) -> GraphView:
    """Return the view of a graph, folded to fit a page.

    Args:
        pdg: the dependence graph, such as `program.pdg` or `program.fused`.
        folded: keys of the clusters to fold; by default as many as necessary.
        bounds: values of the bounds, required for sizes in bytes.

    Raises:
        CallError: the argument is not a graph.
        DrawingError: a key is unknown.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> len(trl.show.graph_view(program.pdg).nodes) == len(list(program.pdg))
        True
    """
    expect_type(pdg, Pdg, "a graph", "program.pdg is one, and program.fused the one that runs.")
    source = _Source(pdg, Clusters.from_graph(pdg), bounds)
    return source.view(source.clusters.folds() if folded is None else source.check_clusters(folded))


def laid_out(view: GraphView) -> tuple[GraphView, str]:
    """Lay out a view, and fold it further if the layout takes too long.

    Args:
        view: the view of a graph.

    Returns:
        The view, possibly folded further, and its SVG picture.

    Raises:
        LayoutTimeout: even the folded graph exceeds the time limit.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> view, svg = trl.show.laid_out(trl.show.graph_view(program.fused))
        >>> svg.startswith("<svg")
        True
    """
    expect_type(view, GraphView, "a view of a graph", "trl.show.graph_view(program.pdg).")
    try:
        return view, layout_svg(view.to_dot())
    except LayoutTimeout:
        less = view.fold()
        if less.folded == view.folded:
            raise
        return laid_out(less)


class _Source:
    """Graph with its hierarchy, the source of views with different folds."""

    def __init__(self, pdg: Pdg, clusters: Clusters, bounds: Mapping[str, int] | None) -> None:
        self.pdg, self.clusters = pdg, clusters
        self._sizes = Sizes(pdg, dict(bounds)) if bounds else None
        self._names = pdg.names
        self._views: dict[frozenset[str], GraphView] = {}

    def check_clusters(self, keys: Iterable[str]) -> frozenset[str]:
        """Check keys of clusters.

        Raises:
            DrawingError: a key is unknown.
        """
        for key in (wanted := frozenset(keys)):
            if key not in self.clusters.clusters:
                raise DrawingError(
                    f"the graph has no cluster {key!r}.",
                    hint="use a key of `view.boxes`, or of a folded node in `view.nodes`.",
                )
        return wanted

    @cached_property
    def _flows(self) -> tuple[Flow, ...]:
        return tuple(flows(self.pdg, self.clusters))

    @cached_property
    def _ops(self) -> Mapping[str, tuple[Op, ...]]:
        """The operations in each cluster, starting with the kernel's own."""
        found: dict[str, list[Op]] = {
            key: [cluster.op] if cluster.op else []
            for key, cluster in self.clusters.clusters.items()
        }
        for key, cluster in self.clusters.clusters.items():
            for outer in self.clusters.enclosing_clusters(key):
                found[outer] += [cluster.op] if cluster.op else []
        for key, leaf in self.clusters.leaves.items():
            for outer in self.clusters.enclosing_clusters(key):
                found[outer].append(leaf.op)
        return {key: tuple(ops) for key, ops in found.items()}

    def view(self, folded: frozenset[str]) -> GraphView:
        if folded not in self._views:
            self._views[folded] = self._make_view(folded)
        return self._views[folded]

    def _make_view(self, folded: frozenset[str]) -> GraphView:
        shown = self.clusters.visible_nodes(folded)
        nodes = [self._node(key) for key in dict.fromkeys(shown.values())]
        boxes = [
            OpenCluster(
                key,
                self._names[c.op.id] if c.op else c.label,
                c.sort,
                c.parent,
                _ids(self._ops[key]),
            )
            for key, c in self.clusters.clusters.items()
            if key not in folded and folded.isdisjoint(self.clusters.enclosing_clusters(key))
        ]
        kernels = any(c.sort == KERNEL for c in self.clusters.clusters.values())
        name = "statements" if kernels else "pdg"
        return GraphView(name, tuple(nodes), tuple(boxes), self._edges(shown), folded, self)

    def _edges(self, shown: Mapping[str, str]) -> tuple[Edge, ...]:
        pairs: dict[tuple[str, str, Literal["read", "order"]], list[Flow]] = {}
        for flow in self._flows:
            tail, head = shown[flow.tail], shown[flow.head]
            if tail != head or (flow.label and (flow.chosen or tail == flow.tail)):
                kind = "order" if flow.orders else "read"
                pairs.setdefault((tail, head, kind), []).append(flow)
        made: list[Edge] = []
        for (tail, head, kind), found in pairs.items():
            reads = tuple({(r.index, r.cond): r for r in found}.values())
            labels = [r.label for r in reads if r.label]
            label = "\n".join([*labels[:3], *["…"] * (len(labels) > 3)])
            made.append(Edge(f"edge{len(made)}", kind, tail, head, label, reads))
        return tuple(made)

    def _node(self, key: str) -> Node:
        cluster = self.clusters.clusters.get(key)
        if cluster is not None:
            return self._cluster_node(cluster)
        leaf = self.clusters.leaves[key]
        op = leaf.op
        fill, outline = node_look(op)
        return Node(
            key,
            node_label(op, self._names[op.id]),
            op.kind,
            (op.id,),
            op.region,
            leaf.cluster,
            op.origin.place,
            op.origin.text,
            self._values(op),
            self._names[op.id],
            fill,
            outline,
        )

    def _cluster_node(self, cluster: Cluster) -> Node:
        ops = self._ops[cluster.key]
        fill, outline = _look(cluster, ops)
        origin = ops[0].origin
        values = self._cluster_values(cluster, ops)
        label = self._label(cluster, ops, values)
        op = cluster.op
        return Node(
            cluster.key,
            label,
            cluster.sort,
            _ids(ops),
            cluster.region,
            cluster.parent,
            origin.place if cluster.sort == LINE else "",
            origin.text if cluster.sort == LINE else "",
            values[:VALUES],
            _first(label) if op is None else _head(self._names[op.id], op),
            fill,
            outline,
            True,
        )

    def _cluster_values(self, cluster: Cluster, ops: Sequence[Op]) -> tuple[Value, ...]:
        """Return the outputs of a cluster: the named ones, else the last one."""
        if cluster.op is not None:
            return self._values(cluster.op)
        named = [op for op in ops if op.label and op.outputs and op.kind != "dataflow"]
        shown = named or [op for op in ops if op.outputs][-1:]
        return tuple(value for op in shown for value in self._values(op)[:1])

    def _values(self, op: Op) -> tuple[Value, ...]:
        return tuple(
            Value(
                name,
                output.domain,
                tuple(map(str, output.type.shape)),
                output.type.dtype,
                self._sizes.type_bytes(op, output.type) if self._sizes else None,
            )
            for name, output in zip(self._names.outputs(op), op.outputs, strict=True)
        )

    def _label(self, cluster: Cluster, ops: Sequence[Op], values: Sequence[Value]) -> str:
        count = f"{len(ops)} operation{'s' * (len(ops) > 1)}"
        if cluster.sort == RETURNED:
            return f"{len(ops)} parameter{'s' * (len(ops) > 1)}\nreturned"
        if cluster.op is not None:
            inside, outputs = len(ops) - 1, len(cluster.op.outputs)
            head = _head(shorten_name(self._names[cluster.op.id]), cluster.op)
            return (
                f"{head}\n{inside} operation{'s' * (inside != 1)}, "
                f"{outputs} output{'s' * (outputs != 1)}"
            )
        text = cluster.label if len(cluster.label) <= 46 else f"{cluster.label[:45]}…"
        made = [f"{value.name}: {value}" for value in values[:3]]
        return "\n".join([text, count, *made, *(["…"] if len(values) > 3 else [])])


def _first(label: str) -> str:
    return label.split("\n", 1)[0]


def _head(name: str, op: Op) -> str:
    return f"{name}({', '.join(op.domain)})"


def shorten_name(name: str) -> str:
    """Shorten the name of a kernel that lists all its outputs to the first output."""
    first, *more = name.split("+")
    if not more or len(name) <= LONG:
        return name
    number = re.search(r"\.\d+$", more[-1])  # distinguishes kernels with equal names
    return f"{first} + {len(more)} more" + (f" {number[0]}" if number else "")


def _look(cluster: Cluster, ops: Sequence[Op]) -> tuple[str, str]:
    """Return the fill colour and the outline of a folded cluster."""
    if cluster.op is not None:
        return node_look(cluster.op)
    if cluster.sort == RETURNED:
        return SINK, "house"
    outline = "folder" if cluster.sort == REGION else "box"
    if cluster.sort == LINE and any(op.kind == "merge" for op in ops):
        return CONTROL, outline
    if cluster.sort == LINE and all(not op.inputs for op in ops):
        return SOURCE, outline
    return (SINK if any(op.kind in SINKS for op in ops) else PLAIN), outline


def _ids(ops: Iterable[Op]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(op.id for op in ops))
