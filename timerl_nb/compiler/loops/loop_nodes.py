"""Nodes of the loop nest (TimeRL §6.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

from timerl_nb.base.display_registry import Inspectable
from timerl_nb.base.graphviz_text import CONTROL, FUSED, SINK, SOURCE, Dot
from timerl_nb.compiler.symbolic.dimensions import ENDLESS
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Cmp, Cond, Entry, Index, Lin, sym
from timerl_nb.compiler.symbolic.substitution import subst_cond, subst_entry


@dataclass(frozen=True)
class Guard:
    """A condition on dynamic bounds.

    Attributes:
        cond: the condition.
        lengths: the bounds by name, each with the point of the dimensions over which it varies. None
            instead of a point means the largest value of the bound.
    """

    cond: Cond
    lengths: tuple[tuple[str, tuple[Lin, ...] | None], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the bounds."""
        return tuple(name for name, _ in self.lengths)

    def of(self, symbols: Iterable[str]) -> tuple[tuple[str, tuple[Lin, ...] | None], ...]:
        """Return the bounds among the symbols, with their points."""
        wanted = set(symbols)
        return tuple((name, at) for name, at in self.lengths if name in wanted)

    @property
    def _bound_substitution(self) -> dict[str, Lin]:
        return {name: sym(_length_text(name, at)) for name, at in self.lengths}

    def display_index(self, entry: Entry) -> Entry:
        """Return an index with the bound shown together with its point."""
        return subst_entry(entry, self._bound_substitution)

    def __str__(self) -> str:
        return str(subst_cond(self.cond, self._bound_substitution))


def _length_text(name: str, at: tuple[Lin, ...] | None) -> str:
    if at is None:
        return f"max {name}"
    return f"{name}[{', '.join(map(str, at))}]" if at else name


@dataclass(frozen=True)
class Execute:
    """Execution of operation `op_id` at the point given by expressions of the loop counters.

    Under dynamic bounds, `guard` tests whether the point exists.
    """

    op_id: int
    point: tuple[Lin, ...]
    guard: Guard | None = None


@dataclass(frozen=True)
class Deallocate:
    """Deallocation of the values of one lifetime at a point or at all points of a range."""

    lifetime: str
    point: Index
    guard: Guard | None = None


@dataclass(frozen=True)
class Offload:
    """Copy of a lifetime's swapped values to the host, at a point or a range of points."""

    lifetime: str
    point: Index
    guard: Guard | None = None


@dataclass(frozen=True)
class Fetch:
    """Copy of offloaded values back to the device, at a point or a range of points."""

    lifetime: str
    point: Index
    guard: Guard | None = None


@dataclass(frozen=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Loop:
    """`counter` from `first` to `last`, both included, by `step`; `depth` is the schedule's dimension.

    Iterations without `turns` do nothing, since a dynamic dimension has ended before. It is true up to some
    iteration, or, with `late`, from some iteration on.
    """

    depth: int
    counter: str
    first: Lin
    last: Lin
    step: int
    body: Node
    turns: Guard | None = None
    late: bool = False

    @property
    def begins(self) -> Lin:
        """For a late loop, the first iteration plus the length of the dimension: T + counter >= c."""
        assert self.late and self.turns is not None and isinstance(self.turns.cond, Cmp)
        (name,) = self.turns.names
        return sym(name) + sym(self.counter) - self.turns.cond.arg


@dataclass(frozen=True)
class If:
    cond: Cond
    then: Node
    other: Node | None = None


Transfer = Deallocate | Offload | Fetch  # instructions that move memory without computing
Node = Execute | Transfer | Sequence | Loop | If
_N = TypeVar("_N", bound=Node | Guard)
VERBS: Final[Mapping[type[Transfer], str]] = {
    Deallocate: "free",
    Offload: "offload",
    Fetch: "fetch",
}


class Ast(Inspectable):
    """A loop nest, with the names of executed operations and moved values."""

    def __init__(
        self,
        root: Node,
        names: Mapping[int, str],
        values: Mapping[str, str],
        moved: Mapping[str, str] = MappingProxyType({}),
        about: Mapping[int, Seq[str]] | None = None,
        guarded: Seq[str] = (),
        shown: Mapping[int, Node | Guard] = MappingProxyType({}),
    ) -> None:
        self.root = root
        self._shown = shown  # by `id`: nodes with display names of counters
        self.guarded = tuple(guarded)  # names of statements around which isl could not split loops
        self._about = dict(about or {})  # operation id -> search keys
        self.names = dict(names)  # operation id -> name
        self.values = dict(values)  # lifetime -> names of its tensors
        self.moved = dict(moved)  # lifetime -> names of its swapped tensors

    def with_root(
        self, root: Node, shown: Mapping[int, Node | Guard] = MappingProxyType({})
    ) -> Ast:
        """Return the tree with another root, with display forms of new nodes."""
        known = {**self._shown, **shown}
        return Ast(root, self.names, self.values, self.moved, self._about, self.guarded, known)

    def __iter__(self) -> Iterator[Node]:
        """Yield all nodes, each before its children."""
        stack: list[Node] = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack += reversed(children(node))

    def lines(self, part: Node | None = None) -> list[tuple[int, str, Node]]:
        """Return the nest, or a part of it, as (depth, text, node) per line."""
        found: list[tuple[int, str, Node]] = []
        self._lines(part or self.root, 0, found)
        return found

    def _lines(self, node: Node, depth: int, found: list[tuple[int, str, Node]]) -> None:
        if isinstance(node, Sequence):
            for part in node.parts:
                self._lines(part, depth, found)
            return
        found.append((depth, self.line(node), node))
        if isinstance(node, Loop):
            self._lines(node.body, depth + 1, found)
        elif isinstance(node, If):
            self._lines(node.then, depth + 1, found)
            if node.other is not None:
                found.append((depth, "else:", node))
                self._lines(node.other, depth + 1, found)

    def display_node(self, node: _N) -> _N:
        """Return a node or guard with counters named like dimensions."""
        found: Any = self._shown.get(id(node), node)
        return found

    def line(self, node: Node) -> str:
        """Return the line of one node."""
        node = self.display_node(node)
        if isinstance(node, Loop):
            step = f", {node.step}" if node.step != 1 else ""
            turns = f"for {node.counter} in range({node.first}, {node.last + 1}{step})"
            if node.last.is_const and node.last.const + 1 == ENDLESS:
                turns = f"for {node.counter} in count({node.first}{step})"
            return turns + (
                f" {'once' if node.late else 'while'} {node.turns}:" if node.turns else ":"
            )
        if isinstance(node, If):
            return f"if {node.cond}:"
        if isinstance(node, Sequence):
            return ""
        index = node.point if node.guard is None else map(node.guard.display_index, node.point)
        at = ", ".join(map(str, index))
        guard = f"  if {node.guard}" if node.guard and node.guard.cond is not TRUE else ""
        if isinstance(node, Execute):
            return f"{self.names[node.op_id]}({at}){guard}"
        of = self.values if isinstance(node, Deallocate) else self.moved
        names = of[node.lifetime].split(", ")
        more = f" and {len(names) - 3} more" if len(names) > 4 else ""
        return f"{VERBS[type(node)]} {', '.join(names[: 3 if more else 4])}{more} @ ({at}){guard}"

    def __str__(self) -> str:
        return "\n".join("  " * depth + text for depth, text, _ in self.lines())

    def searchable_lines(self) -> Iterable[tuple[str, Seq[str]]]:
        return self.searchable_lines_in(self.root)

    def searchable_lines_in(self, part: Node) -> Iterable[tuple[str, Seq[str]]]:
        """Yield the lines of a part of the nest, each with its search keys."""
        for depth, text, node in self.lines(part):
            known = self._about.get(node.op_id, ()) if isinstance(node, Execute) else ()
            yield "  " * depth + text, known

    def to_json(self) -> dict[str, Any]:
        return {"stage": "ast", "root": self._json(self.root)}

    def _json(self, node: Node) -> dict[str, Any]:
        node = self.display_node(node)
        if isinstance(node, Execute):
            return {
                "node": "execute",
                "op_id": node.op_id,
                "name": self.names[node.op_id],
                "point": [str(e) for e in node.point],
            } | ({"if": str(node.guard)} if node.guard else {})
        if isinstance(node, Transfer):
            return {
                "node": type(node).__name__.lower(),
                "lifetime": node.lifetime,
                "point": [str(e) for e in node.point],
            } | ({"if": str(node.guard)} if node.guard else {})
        if isinstance(node, Loop):
            return {
                "node": "loop",
                "counter": node.counter,
                "first": str(node.first),
                "last": str(node.last),
                "step": node.step,
                "body": self._json(node.body),
            } | ({"once" if node.late else "while": str(node.turns)} if node.turns else {})
        if isinstance(node, If):
            found = {"node": "if", "cond": str(node.cond), "then": self._json(node.then)}
            return found | ({"else": self._json(node.other)} if node.other else {})
        return {"node": "sequence", "parts": [self._json(part) for part in node.parts]}

    def to_dot(self) -> str:
        """Return the nest as a tree."""
        graph = Dot("ast", rankdir="LR")
        looks = {Loop: SOURCE, If: CONTROL, Execute: FUSED, **dict.fromkeys(VERBS, SINK)}
        stack = [(self.root, "root")]
        count = 0
        graph.node("root", "program")
        while stack:
            node, parent = stack.pop()
            key = parent
            if not isinstance(node, Sequence):
                count += 1
                key = f"n{count}"
                graph.node(key, self.line(node), fill=looks[type(node)])
                graph.edge(parent, key)
            stack += [(part, key) for part in reversed(children(node))]
        return str(graph)


def children(node: Node) -> list[Node]:
    """Return the children of a node, in order."""
    if isinstance(node, Sequence):
        return list(node.parts)
    if isinstance(node, Loop):
        return [node.body]
    if isinstance(node, If):
        return [node.then] + ([node.other] if node.other is not None else [])
    return []


def subtree_nodes(node: Node) -> list[Node]:
    """Return a node and all its descendants."""
    return [node, *(n for part in children(node) for n in subtree_nodes(part))]


def is_repeated(node: Node, fuse: int = 1) -> bool:
    """Whether an outermost loop is called one iteration, or a few iterations, at a time.

    Such a loop has a known number of iterations. An iteration without inner loops is too short for a
    separate call.

    Args:
        node: the outermost node.
        fuse: the number of iterations per call.
    """
    if not isinstance(node, Loop) or node.turns is not None:
        return False
    known = node.first.is_const and node.last.is_const and node.last.const > node.first.const
    return known and (
        fuse > 1 or any(isinstance(inner, Loop) for inner in subtree_nodes(node.body))
    )
