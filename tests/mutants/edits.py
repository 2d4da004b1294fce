"""Small text changes that simulate mistakes, and their random selection."""

from __future__ import annotations

import ast
import hashlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tests.mutants.sources import places

FLIPPED: Final = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
FLIPPED_WORDS: Final = {"in": "not in", "not in": "in", "is": "is not", "is not": "is"}
TWINS: Final = {"min": "max", "any": "all", "minimum": "maximum"}
RENAMED: Final = {**TWINS, **{b: a for a, b in TWINS.items()}}
SWAPPED: Final = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.MatMult, ast.LShift, ast.RShift)
COLLECTING: Final = ("append", "add", "extend", "update", "insert", "discard", "remove", "pop")
SYMMETRIC: Final = ("isinstance", "hasattr", "getattr", "cast")
# functions that produce text for people or files
TEXT: Final = re.compile(r"^(_?to_)?_?(json|dot|text|explain\w*|tell|repr\w*)$|^__(str|repr)__$")
SPOKEN: Final = re.compile(r"(Error|Warning|^warn|^Step|^refused|^_tell)$")
SHARE: Final = 0.04  # maximal share of one file
LEAST: Final = 0.03  # minimal share of each group


@dataclass(frozen=True)
class Mutant:
    """One change of a file: bytes `start` to `end` become `new`.

    Attributes:
        place: Function and text of the line.
        begins: The same for the first line of its statement.
        what: Description, numbered if the line has several equal ones.
    """

    file: str
    place: str
    begins: str
    what: str
    line: int
    start: int
    end: int
    new: str

    @property
    def key(self) -> str:
        return f"{self.file} | {self.place} | {self.what}"

    def of(self, text: str) -> str:
        """Return the file's text with the change."""
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def mutants(file: str, text: str) -> list[Mutant]:
    """Return every mutant of a file; some may equal the file (see `is_one`)."""
    source, named, tree = _Source(text), places(text), ast.parse(text)
    statements = sorted(n.lineno for n in ast.walk(tree) if isinstance(n, ast.stmt))
    found: list[Mutant] = []
    alike: Counter[tuple[str, str]] = Counter()
    for node in _within(tree):
        for old, new in source.changes(node):
            start, end = source.span(old)
            place = named[old.lineno]
            what = f"{_short(source.of(old))} becomes {_short(new)}"
            alike[place, what] += 1
            if alike[place, what] > 1:
                what = f"{what} ({alike[place, what]})"
            begins = named[statements[bisect_right(statements, old.lineno) - 1]]
            found.append(Mutant(file, place, begins, what, old.lineno, start, end, new))
    return found


def is_one(mutant: Mutant, text: str) -> bool:
    """Return whether the result is a valid and different program."""
    try:
        return ast.dump(ast.parse(mutant.of(text))) != ast.dump(ast.parse(text))
    except SyntaxError:  # the change may have been inside required parentheses
        return False


def drawn(texts: Mapping[str, str], groups: Mapping[str, str], seed: int) -> Iterator[Mutant]:
    """Return mutants of files in a seeded order, at first one per line.

    The order is stable: a mutant's position depends on its line and the seed. Groups are
    proportional to their number of mutants, with a minimal share per group and a maximal share per
    file.
    """
    queues: dict[str, list[Mutant]] = {group: [] for group in groups.values()}
    for file, text in texts.items():
        queues[groups[file]] += mutants(file, text)
    total = sum(map(len, queues.values()))
    weights = {group: max(len(queue), LEAST * total) for group, queue in queues.items() if queue}
    order = {group: _ranked(queue, seed) for group, queue in queues.items()}
    taken, of_file = Counter[str](), Counter[str]()
    while left := [group for group in weights if order[group]]:
        group = min(left, key=lambda g: (taken[g] + 1) / weights[g])
        most = 1 + SHARE * taken.total()
        within = (k for k, one in enumerate(order[group]) if of_file[one.file] < most)
        one = order[group].pop(next(within, 0))
        if is_one(one, texts[one.file]):
            taken[group] += 1
            of_file[one.file] += 1
            yield one


def _ranked(queue: list[Mutant], seed: int) -> list[Mutant]:
    """Shuffle, with one mutant per line first."""
    chance = {one: hashlib.sha256(f"{seed} {one.key}".encode()).digest() for one in queue}
    seen, turn = Counter[tuple[str, int]](), dict[Mutant, int]()
    for one in sorted(queue, key=chance.__getitem__):
        turn[one] = seen[one.file, one.line]
        seen[one.file, one.line] += 1
    return sorted(queue, key=lambda one: (turn[one], chance[one]))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:40]} … {text[-17:]}"


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes of a tree that affect behaviour."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_text(child):
                yield child
                yield from _within(child)


def _is_text(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr():
            return True
        case ast.FunctionDef(name=name, returns=returns):
            return bool(TEXT.search(name)) or (
                isinstance(returns, ast.Name) and returns.id == "str"
            )
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if SPOKEN.search(name):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=on))):
            return ast.unparse(on).endswith("steps")  # documentation of a pass
    return False


class _Source:
    """Source text with its possible changes."""

    def __init__(self, text: str) -> None:
        self.data = text.encode()
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.data[start:end].decode()

    def changes(self, node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
        """Return nodes, this one or parts, with their replacements."""
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                yield from ((node, new) for new in self._compared(node, [left, *others], ops))
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                yield node, str(value + 1)
                yield node, str(value - 1) if value else "(-1)"
            case ast.BoolOp(values=parts, op=op):
                old, new = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield node, f"({self._between(node, parts, old, new)})"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield node, self._apart(operand)
            case ast.If(test=test) | ast.IfExp(test=test):
                yield from self._guard(test)
            case ast.comprehension(ifs=tests):
                for test in tests:
                    yield from self._guard(test)
            case ast.BinOp():
                yield from ((node, new) for new in self._operated(node))
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attr))) if attr in COLLECTING:
                yield node, "pass"
            case ast.AugAssign() | ast.Break() | ast.Continue():
                yield node, "pass"
            case ast.Call():
                yield from self._called(node)

    def _guard(self, test: ast.expr) -> Iterator[tuple[ast.AST, str]]:
        if not any(isinstance(part, ast.NamedExpr) for part in ast.walk(test)):
            yield test, "True"
            yield test, "False"

    def _compared(
        self, node: ast.Compare, parts: list[ast.expr], ops: list[ast.cmpop]
    ) -> Iterator[str]:
        start, end = self.span(node)
        for left, right in pairwise(parts):
            a, b = self.span(left)[1], self.span(right)[0]
            gap = self.data[a:b].decode()
            found = re.search(r"[<>=!]=|[<>]|\bnot\s+in\b|\bis\s+not\b|\bin\b|\bis\b", gap)
            assert found is not None
            new = {**FLIPPED, **FLIPPED_WORDS}[" ".join(found[0].split())]
            gap = f"{gap[: found.start()]}{new}{gap[found.end() :]}"
            yield f"{self.data[start:a].decode()}{gap}{self.data[b:end].decode()}"

    def _between(self, node: ast.AST, parts: list[ast.expr], old: str, new: str) -> str:
        """Return the node's text with another operator."""
        at, end = self.span(node)
        found = ""
        for left, right in pairwise(parts):
            a, b = self.span(left)[1], self.span(right)[0]
            found += self.data[at:a].decode()
            found += re.sub(rf"\b{old}\b", new, self.data[a:b].decode())
            at = b
        return found + self.data[at:end].decode()

    def _operated(self, node: ast.BinOp) -> Iterator[str]:
        if any(isinstance(x, ast.JoinedStr) for x in (node.left, node.right)):
            return
        match node:
            case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=int())):
                yield self._apart(node.left)
            case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.Sub()):
                yield self._apart(node.left)
        if isinstance(node.op, SWAPPED):
            gap = self.data[self.span(node.left)[1] : self.span(node.right)[0]].decode()
            sign = gap.replace("(", " ").replace(")", " ").strip()
            yield f"({self._apart(node.right)} {sign} {self._apart(node.left)})"

    def _called(self, node: ast.Call) -> Iterator[tuple[ast.AST, str]]:
        name = self.of(node.func)
        head, _, last = name.rpartition(".")
        if last in RENAMED:
            yield node.func, f"{head}.{RENAMED[last]}" if head else RENAMED[last]
        match node:
            case ast.Call(args=[ast.Name(id=a), ast.Name(id=b)], keywords=[]):
                if a != b and last not in SYMMETRIC and last not in RENAMED:
                    yield node, f"{name}({b}, {a})"

    def _apart(self, node: ast.expr) -> str:
        simple = ast.Name | ast.Attribute | ast.Call | ast.Constant | ast.Subscript
        return self.of(node) if isinstance(node, simple) else f"({self.of(node)})"
