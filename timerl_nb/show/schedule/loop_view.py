"""View-model of the loop nest: lines with syntax tokens, operations and instants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.loops.loop_nodes import VERBS, Ast, Execute, If, Loop, Node, Transfer
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.index_expressions import Cond, Sym
from timerl_nb.driver.program import Program, a_program
from timerl_nb.show.schedule.points_of_one_iteration import Turn
from timerl_nb.show.view_model import Key, View, ints

Token = tuple[int, int, str]  # start, end, kind

KEYWORDS: Final = ("for", "in", "range", "if", "else", "while", "once", "free", "offload", "fetch")
_TOKEN = re.compile(
    r"(?P<number>(?<![\w.%])\d+\b)|(?P<name>%?[A-Za-z_0-9][\w.'+%]*(?:\[:\])?)|(?P<sign>[^\s\w%]+)"
)


def tokens(text: str, names: frozenset[str] = frozenset()) -> tuple[Token, ...]:
    """Return the tokens of a line by kind: `keyword`, `name` (of statements and tensors), `counter`, `number`,
    `sign`.
    """
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
        op_ids: the operations that it executes, frees or moves.
        parent: the number of the enclosing loop or condition; -1 for none.
        inside: the statements that run in it.
    """

    number: Annotated[int, Key("line")]
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
    """Lines of a program's loop nest, without indentation.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> print(trl.show.LoopView.from_program(program))
        y()
    """

    view = "loop"

    lines: tuple[Line, ...]

    @classmethod
    def from_program(cls, program: Program) -> LoopView:
        plan, ast = a_program(program).memory, program.ast
        names = frozenset((*ast.names.values(), *plan.names.values()))
        found: list[Line] = []
        parents: list[int] = []
        for number, (depth, text, node) in enumerate(ast.lines()):
            del parents[depth:]
            parent = parents[-1] if parents else -1
            parents.append(number)
            found.append(_line(plan, ast, number, depth, text, node, parent, names))
        return cls(tuple(found))

    @classmethod
    def of_nest(cls, ast: Ast) -> LoopView:
        """Return the lines of a nest without operations and tensors."""
        return cls(
            tuple(
                Line(number, depth, text, _sort(node, text), (), -1)
                for number, (depth, text, node) in enumerate(ast.lines())
            )
        )

    def __str__(self) -> str:
        return "\n".join("  " * line.depth + line.text for line in self.lines)


def _sort(node: Node, text: str) -> str:
    if isinstance(node, Execute):
        return "execute"
    if isinstance(node, Transfer):
        return VERBS[type(node)]
    return "loop" if isinstance(node, Loop) else "else" if text == "else:" else "if"


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
    """Return one line of a loop nest with its operations, tensors and tokens."""
    spans, sort = tokens(text, names), _sort(node, text)
    if isinstance(node, Execute):
        op = plan.pdg[node.op_id]
        made = tuple(name for (op_id, _), name in plan.names.items() if op_id == op.id)
        ids = op.op_ids
        return Line(number, depth, text, sort, ids, parent, op.id, None, made, op.region, (), spans)
    if isinstance(node, Transfer):
        tensors = plan.lifetimes[node.lifetime].tensors
        ids = tuple(dict.fromkeys(plan.computing_operation(*tensor).id for tensor in tensors))
        named = tuple(plan.names[tensor] for tensor in tensors)
        return Line(
            number, depth, text, sort, ids, parent, None, node.lifetime, named, (), (), spans
        )
    part: Node | None = node
    if isinstance(node, If):
        part = node.other if sort == "else" else node.then
    runs = dict.fromkeys(n.op_id for _, _, n in ast.lines(part) if isinstance(n, Execute))
    return Line(number, depth, text, sort, (), parent, inside=tuple(runs), tokens=spans)


# --- which line runs an instant ------------------------------------------------------------------


def lines_at(turn: Turn) -> Array:
    """Return, for every instant of a turn, the number of its line in the nest; -1 without a nest."""
    found = np.full(len(turn), -1, np.int64)
    places = list(_find_statement_lines(turn.ast)) if turn.ast is not None else []
    for one in turn.points:
        mine = [place for place in places if place.node.op_id == one.op_id]
        if not mine:
            continue
        point = [*one.coordinates.values()]
        chosen = np.full(len(one), mine[0].line)
        if len(mine) > 1:
            for place in reversed(mine):
                chosen = np.where(place.runs(point, len(one)), place.line, chosen)
        found[one.time] = chosen
    return ints(found)


@dataclass(frozen=True)
class _StatementLine:
    """Line that executes a statement, with the enclosing loops and conditions."""

    line: int
    node: Execute
    loops: tuple[Loop, ...]
    conds: tuple[tuple[Cond, bool], ...]

    def runs(self, point: Sequence[Array], count: int) -> Array:
        """Return a mask of the points that the line executes, as far as the loop counters follow from a point."""
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
            if entry.symbols <= counters.keys():
                inside &= values(entry, counters) == at
        for cond, wanted in self.conds:
            if cond.symbols <= counters.keys():
                inside &= np.broadcast_to(values(cond, counters), count) == wanted
        return inside


def _find_statement_lines(ast: Ast) -> Iterator[_StatementLine]:
    """Yield the line number of every statement, with the loops and conditions around it."""
    number = 0

    def visit(
        node: Node, loops: tuple[Loop, ...], conds: tuple[tuple[Cond, bool], ...]
    ) -> Iterator[_StatementLine]:
        nonlocal number
        if isinstance(node, Execute):
            yield _StatementLine(number, node, loops, conds)
        if isinstance(node, Execute | Transfer | Loop | If):
            number += 1
        if isinstance(node, Loop):
            yield from visit(node.body, (*loops, node), conds)
        elif isinstance(node, If):
            yield from visit(node.then, loops, (*conds, (node.cond, True)))
            if node.other is not None:
                number += 1  # the `else` line
                yield from visit(node.other, loops, (*conds, (node.cond, False)))
        elif not isinstance(node, Execute | Transfer):
            for part in node.parts:
                yield from visit(part, loops, conds)

    yield from visit(ast.root, (), ())
