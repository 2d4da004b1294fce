"""The loop nest as lines that can be coloured, folded, marked, and followed through a turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from timerl_nb.loops.nodes import VERBS, Ast, Execute, If, Loop, Node, Transfer
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.program import Program
from timerl_nb.show.counters import counter_names
from timerl_nb.show.lineage import inside
from timerl_nb.show.pictures import nest_picture
from timerl_nb.show.turn import Turn
from timerl_nb.show.view import Array, View, ints
from timerl_nb.symbolic.arrays import values
from timerl_nb.symbolic.expr import Cond, Lin, Sym

Token = tuple[int, int, str]  # start, end, sort

KEYWORDS: Final = ("for", "in", "range", "if", "else", "while", "once", "free", "offload", "fetch")
_TOKEN = re.compile(
    r"(?P<number>(?<![\w.%])\d+\b)|(?P<name>%?[A-Za-z_0-9][\w.'+%]*(?:\[:\])?)|(?P<sign>[^\s\w%]+)"
)


def tokens(text: str, names: frozenset[str] = frozenset()) -> tuple[Token, ...]:
    """The spans of a line by sort: `keyword`, `name` (of statements and tensors), `counter`,
    `number`, `sign`."""
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        sort = str(match.lastgroup)
        if sort == "name":
            word = match[0]
            is_name = word in names or "%" in word
            sort = "name" if is_name else "keyword" if word in KEYWORDS else "counter"
        found.append((match.start(), match.end(), sort))
    return tuple(found)


@dataclass(frozen=True)
class Line:
    """One line of a loop nest.

    Attributes:
        sort: `loop`, `if`, `else`, `execute`, `free`, `offload` or `fetch`.
        op_ids: the operations that it runs, or whose values it frees or moves.
        parent: the number of the loop or condition that it stands in; -1 outside.
        inside: the statements that run in it.
    """

    number: int
    depth: int
    text: str
    sort: str
    op_ids: tuple[int, ...]
    parent: int
    statement: int | None = None
    lifetime: str | None = None
    tensors: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    inside: tuple[int, ...] = ()
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True)
class LoopView(View):
    """The lines of a program's loop nest, with counters called as the dimension that they stand for.

    JSON: `{"view": "loop", "lines": [{"line", "depth", "text", "sort", "op_ids", "parent",
    "statement", "lifetime", "tensors", "region", "inside", "tokens"}]}`; `text` is without its
    indentation of `depth`, and a token is `[start, end, sort]`.
    """

    lines: tuple[Line, ...]

    @classmethod
    def of(cls, program: Program) -> LoopView:
        plan, ast = program.memory, program.ast
        names = frozenset((*ast.names.values(), *plan.names.values()))
        called = counter_names(ast, plan.pdg)
        found: list[Line] = []
        parents: list[int] = []
        around: list[Node] = []
        for number, (depth, text, node) in enumerate(ast.lines()):
            del parents[depth:], around[depth:]
            parent = parents[-1] if parents else -1
            parents.append(number)
            around.append(node)
            known = {loop.counter: called[id(loop)] for loop in around if isinstance(loop, Loop)}
            shown = _renamed(text, names, known)
            found.append(_line(plan, ast, number, depth, shown, node, parent, names))
        return cls(tuple(found))

    def of_statement(self, op_id: int) -> tuple[Line, ...]:
        """The lines that run a statement."""
        return tuple(line for line in self.lines if line.statement == op_id)

    def values(self) -> dict[str, Any]:
        return {
            "view": "loop",
            "lines": [
                {
                    "line": line.number,
                    "depth": line.depth,
                    "text": line.text,
                    "sort": line.sort,
                    "op_ids": list(line.op_ids),
                    "parent": line.parent,
                    "statement": line.statement,
                    "lifetime": line.lifetime,
                    "tensors": list(line.tensors),
                    "region": list(line.region),
                    "inside": list(line.inside),
                    "tokens": [list(token) for token in line.tokens],
                }
                for line in self.lines
            ],
        }

    def __str__(self) -> str:
        return "\n".join("  " * line.depth + line.text for line in self.lines)

    def to_svg(self) -> str:
        return nest_picture([(line.depth, line.text, line.sort) for line in self.lines])


def _renamed(text: str, names: frozenset[str], called: Mapping[str, str]) -> str:
    """A line with its counters as they are called."""
    parts: list[str] = []
    at = 0
    for start, end, sort in tokens(text, names):
        parts.append(text[at:start])
        word = text[start:end]
        parts.append(called.get(word, word) if sort == "counter" else word)
        at = end
    return "".join([*parts, text[at:]])


def _line(
    plan: MemoryPlan,
    ast: Ast,
    number: int,
    depth: int,
    text: str,
    node: Node,
    parent: int,
    names: frozenset[str],
) -> Line:
    spans = tokens(text, names)
    if isinstance(node, Execute):
        op = plan.pdg[node.op_id]
        made = tuple(name for (op_id, _), name in plan.names.items() if op_id == op.id)
        ids = inside(op)
        return Line(
            number, depth, text, "execute", ids, parent, op.id, None, made, op.region, (), spans
        )
    if isinstance(node, Transfer):
        tensors = plan.lifetimes[node.lifetime].tensors
        ids = tuple(dict.fromkeys(plan.behind(*tensor).id for tensor in tensors))
        named = tuple(plan.names[tensor] for tensor in tensors)
        sort = VERBS[type(node)]
        return Line(
            number, depth, text, sort, ids, parent, None, node.lifetime, named, (), (), spans
        )
    sort = "loop" if isinstance(node, Loop) else "else" if text == "else:" else "if"
    part: Node | None = node
    if isinstance(node, If):
        part = node.other if sort == "else" else node.then
    runs = dict.fromkeys(n.op_id for _, _, n in ast.lines(part) if isinstance(n, Execute))
    return Line(number, depth, text, sort, (), parent, inside=tuple(runs), tokens=spans)


# --- which line runs an instant ------------------------------------------------------------------


def lines_at(turn: Turn, view: LoopView) -> Array:
    """For every instant of a turn, the number of the line that runs it."""
    found = np.full(len(turn), -1, np.int64)
    places = list(_places(turn.program.ast))
    for one in turn.points:
        mine = [place for place in places if place.node.op_id == one.op_id]
        if not mine:
            continue
        point = [turn.own(d, at) for d, at in one.coordinates.items()]
        chosen = np.full(len(one), mine[0].line)
        if len(mine) > 1:
            for place in reversed(mine):
                chosen = np.where(place.runs(point, len(one)), place.line, chosen)
        found[one.time] = chosen
    return ints(found)


@dataclass(frozen=True)
class _Place:
    """A line that runs a statement, the loops around it, and the conditions on the way."""

    line: int
    node: Execute
    loops: tuple[Loop, ...]
    conds: tuple[tuple[Cond, bool], ...]

    def runs(self, point: Sequence[Array], count: int) -> Array:
        """At which of the points the line runs them, as far as its counters follow from a point."""
        counters: dict[str, Any] = {}
        for entry, at in zip(self.node.point, point, strict=True):
            if len(entry.terms) == 1:
                (atom, coef), *_ = entry.terms
                if isinstance(atom, Sym) and coef in (1, -1):
                    counters[atom.name] = (at - entry.const) * coef
        inside = np.ones(count, bool)
        for loop in self.loops:
            if loop.counter in counters:
                at = counters[loop.counter]
                for edge, sign in ((loop.first, 1), (loop.last, -1)):
                    if edge.symbols <= counters.keys():
                        inside &= (at - values(edge, counters)) * sign >= 0
                if loop.step > 1 and loop.first.symbols <= counters.keys():
                    inside &= (at - values(loop.first, counters)) % loop.step == 0
        for entry, at in zip(self.node.point, point, strict=True):
            inside &= _holds(entry, at, counters)
        for cond, wanted in self.conds:
            if cond.symbols <= counters.keys():
                inside &= np.broadcast_to(values(cond, counters), count) == wanted
        return inside


def _holds(entry: Lin, at: Array, counters: dict[str, Any]) -> Array | bool:
    return values(entry, counters) == at if entry.symbols <= counters.keys() else True


def _places(ast: Ast) -> Iterator[_Place]:
    number = 0

    def visit(
        node: Node, loops: tuple[Loop, ...], conds: tuple[tuple[Cond, bool], ...]
    ) -> Iterator[_Place]:
        nonlocal number
        if isinstance(node, Execute):
            yield _Place(number, node, loops, conds)
        if isinstance(node, Execute | Transfer | Loop | If):
            number += 1
        if isinstance(node, Loop):
            yield from visit(node.body, (*loops, node), conds)
        elif isinstance(node, If):
            yield from visit(node.then, loops, (*conds, (node.cond, True)))
            if node.other is not None:
                number += 1  # the line that says else
                yield from visit(node.other, loops, (*conds, (node.cond, False)))
        elif not isinstance(node, Execute | Transfer):
            for part in node.parts:
                yield from visit(part, loops, conds)

    yield from visit(ast.root, (), ())
