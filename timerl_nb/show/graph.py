"""Graphs of programs as view-models: folded to what fits a page, ready for layout and for widgets.

A graph as written has hundreds of operations. It is shown folded by the user's source lines: one
node per line, with what the line made. A fused graph is shown by its statements, with merges looked
through. A graph of a few dozen operations is shown as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from timerl_nb.dot import CONTROL, PLAIN, SINK, SOURCE, Dot
from timerl_nb.ir.attrs import OutputAttrs
from timerl_nb.ir.kinds import SINKS
from timerl_nb.ir.ops import DataflowAttrs, Op, Read
from timerl_nb.ir.pdg import Pdg, node_label, node_look
from timerl_nb.ir.rewrite import compose
from timerl_nb.schedule.names import statement_names

FEW = 48  # operations that are shown without folding


@dataclass(frozen=True)
class Node:
    """A node of a view: one operation or several."""

    key: str
    label: str
    op_ids: tuple[int, ...]
    region: tuple[str, ...]
    fill: str = PLAIN
    shape: str = "box"
    detail: str = ""


@dataclass(frozen=True)
class GraphView:
    """Nodes and labelled edges, as plain values."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str, str], ...]

    def to_dot(self) -> str:
        graph = Dot(self.name, level=len(self.nodes) <= 12)
        regions: dict[tuple[str, ...], list[Node]] = {}
        for node in self.nodes:
            regions.setdefault(node.region, []).append(node)
        for region, nodes in regions.items():
            if region:
                graph.open_cluster(" / ".join(region))
            for node in nodes:
                graph.node(node.key, node.label, fill=node.fill, shape=node.shape, element=node.key)
            if region:
                graph.close_cluster()
        for tail, head, label in self.edges:
            graph.edge(tail, head, label)
        return str(graph)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "nodes": [
                {
                    "id": n.key,
                    "label": n.label,
                    "op_ids": list(n.op_ids),
                    "region": list(n.region),
                    "detail": n.detail,
                }
                for n in self.nodes
            ],
            "edges": [{"tail": a, "head": b, "label": c} for a, b, c in self.edges],
        }


def graph_view(pdg: Pdg) -> GraphView:
    """The view of a graph that fits a page."""
    if any(op.kind == "dataflow" for op in pdg):
        return _by_statement(pdg)
    return _by_operation(pdg) if len(pdg) <= FEW else _by_line(pdg)


def _by_operation(pdg: Pdg) -> GraphView:
    nodes = [
        Node(f"op{op.id}", node_label(op), (op.id,), op.region, *node_look(op), str(op.origin))
        for op in pdg
    ]
    edges = [
        (f"op{read.source}", f"op{op.id}", pdg.edge_label(read)) for op in pdg for read in op.inputs
    ]
    return GraphView("pdg", tuple(nodes), tuple(dict.fromkeys(edges)))


def _by_line(pdg: Pdg) -> GraphView:
    lines: dict[tuple[Any, ...], list[Op]] = {}
    for op in pdg:
        lines.setdefault((op.origin.file, op.origin.line, op.region), []).append(op)
    home = {op.id: f"line{k}" for k, ops in enumerate(lines.values()) for op in ops}
    nodes = [_line_node(f"line{k}", ops) for k, ops in enumerate(lines.values())]
    labels: dict[tuple[str, str], dict[str, None]] = {}
    for op in pdg:
        for read in op.inputs:
            tail, head = home[read.source], home[op.id]
            label = pdg.edge_label(read)
            if tail != head or (label and op.kind == "merge"):
                labels.setdefault((tail, head), {})[label] = None
    edges = [(a, b, _joined([x for x in found if x])) for (a, b), found in labels.items()]
    return GraphView("pdg", tuple(nodes), tuple(edges))


def _line_node(key: str, ops: Sequence[Op]) -> Node:
    origin = ops[0].origin
    text = origin.text if len(origin.text) <= 46 else origin.text[:45] + "…"
    named = [op for op in ops if op.label] or [op for op in ops if op.outputs][-1:]
    made = [f"{op.label or '%' + str(op.id)}: {op.outputs[0]}" for op in named if op.outputs]
    shown = [*made[:3], *(["…"] if len(made) > 3 else [])]
    count = f"{len(ops)} operation{'s' * (len(ops) > 1)}"
    fill = SINK if any(op.kind in SINKS for op in ops) else PLAIN
    if any(op.kind == "merge" for op in ops):
        fill = CONTROL
    elif all(not op.inputs for op in ops):
        fill = SOURCE
    return Node(
        key,
        "\n".join([text, count, *shown]),
        tuple(op.id for op in ops),
        ops[0].region,
        fill,
        "box",
        str(origin),
    )


def _joined(labels: Sequence[str]) -> str:
    return "\n".join([*labels[:3], *(["…"] if len(labels) > 3 else [])])


def _by_statement(pdg: Pdg) -> GraphView:
    names = statement_names(pdg)
    returned = [op for op in pdg if _is_parameter(op)]
    shown = [op for op in pdg if op.kind != "merge" and not _is_parameter(op)]
    nodes = [
        Node(
            f"op{op.id}",
            _statement_label(op, names[op.id]),
            _inside(op),
            op.region,
            *node_look(op),
            str(op.origin),
        )
        for op in shown
    ]
    if returned:
        what = f"{len(returned)} parameter{'s' * (len(returned) > 1)}\nreturned"
        ids = tuple(op.id for op in returned)
        nodes.append(Node("parameters", what, ids, (), SINK, "house"))
    labels: dict[tuple[str, str], dict[str, None]] = {}
    for op in [*shown, *returned]:
        for read in op.inputs:
            for real in _behind(pdg, read):
                head = "parameters" if _is_parameter(op) else f"op{op.id}"
                pair = (f"op{real.source}", head)
                labels.setdefault(pair, {})[pdg.edge_label(real)] = None
    edges = [(a, b, _joined([x for x in found if x])) for (a, b), found in labels.items()]
    return GraphView("statements", tuple(nodes), tuple(edges))


def _is_parameter(op: Op) -> bool:
    return isinstance(op.attrs, OutputAttrs) and op.attrs.role == "parameter"


def _statement_label(op: Op, name: str) -> str:
    if not isinstance(op.attrs, DataflowAttrs):
        return node_label(op)
    count = len(op.attrs.body)
    outputs = len(op.outputs)
    return (
        f"{name}({', '.join(op.domain)})\n{count} operation{'s' * (count != 1)}, "
        f"{outputs} output{'s' * (outputs != 1)}"
    )


def _inside(op: Op) -> tuple[int, ...]:
    if isinstance(op.attrs, DataflowAttrs):
        return (op.id, *(inner.id for inner in op.attrs.body))
    return (op.id,)


def _behind(pdg: Pdg, read: Read) -> list[Read]:
    """The reads of statements' outputs that a read is, merges looked through."""
    source = pdg[read.source]
    if source.kind != "merge":
        return [read]
    found: list[Read] = []
    for branch in source.inputs:
        composed = compose(read, source.outputs[0].domain, branch)
        found += _behind(pdg, composed or branch)
    return found
