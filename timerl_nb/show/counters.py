"""What the counters of a loop nest are called where it is read: as the dimension that they run along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from timerl_nb.ir.pdg import Pdg
from timerl_nb.loops.nodes import Ast, Execute, Loop, Node, children
from timerl_nb.symbolic.expr import sym


def counter_names(ast: Ast, pdg: Pdg) -> Mapping[int, str]:
    """For each loop, by its `id`, the dimension that its counter stands for, or else the counter.

    It stands for one if everything inside runs along that dimension alone, at the counter or so many
    points before or behind it, and if no loop around it does.
    """
    found: dict[int, str] = {}

    def visit(node: Node, taken: frozenset[str]) -> None:
        if isinstance(node, Loop):
            dim = _dimension(node, pdg)
            found[id(node)] = name = node.counter if dim is None or dim in taken else dim
            taken |= {name}
        for part in children(node):
            visit(part, taken)

    visit(ast.root, frozenset())
    return found


def _dimension(loop: Loop, pdg: Pdg) -> str | None:
    along: set[str] = set()
    for node in _executed(loop.body):
        for dim, at in zip(pdg[node.op_id].domain, node.point, strict=True):
            if loop.counter in at.symbols:
                if not (at - sym(loop.counter)).is_const:
                    return None
                along.add(dim)
    return along.pop() if len(along) == 1 else None


def _executed(node: Node) -> Iterator[Execute]:
    if isinstance(node, Execute):
        yield node
    for part in children(node):
        yield from _executed(part)
