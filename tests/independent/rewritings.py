"""Equivalent rewritings of a program; the compiler must give equal values.

A rewriting changes the statements, names or options of a program, but no value. Each draw has a
separate stream, so reordered statements draw the same numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from tests.independent.draw import OPTIONS
from tests.independent.programs import (
    DTYPES,
    Data,
    Draw,
    Gradient,
    Let,
    Merge,
    Parameter,
    Program,
    Statement,
    Step,
    array_of,
)

# Reserved words of Python, isl and the compiler, in addition to the dimensions' names.
_TEXT: Final = """
    v x e0 c0 T_ I n seed turn value length rt mod min floor rat exists print sum range kernel_1 v1_0
    b_block t_block part_length S0 b i t u B U step axis lambda_ None_ d0 x_3 all
"""
WORDS: Final = tuple(_TEXT.split())


@dataclass(frozen=True)
class Written(Statement):
    """A statement with given lines, placed after its declaration."""

    lines: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()  # extra tensors, and their domains

    @property
    def reads(self) -> frozenset[str]:
        return self.needs

    def declaration(self) -> Iterator[str]:
        yield from self.declared

    def code(self) -> Iterator[str]:
        yield from self.lines

    def plain(self) -> Iterator[str]:
        yield f"# {self.name}"


@dataclass(frozen=True)
class Rewriting:
    """A rewritten program.

    Attributes:
        kinds: Applied rewritings.
        text: The new program.
        names: New output names by old ones.
        exact: Whether results must be bitwise equal.
        dims: New order of dimensions, if it differs.
    """

    kinds: tuple[str, ...]
    text: str
    names: dict[str, str] = field(default_factory=dict[str, str])
    exact: bool = False
    dims: tuple[str, ...] = ()


@dataclass(frozen=True)
class NamedDraw(Draw):
    """Random values with a stream named after the statement."""

    def code(self) -> Iterator[str]:
        about = f'domain={self.domain}, stream="{self.name}"'
        yield f"{self.name} = trl.random.{self.call}({self.shape}, {about})"


def with_streams(program: Program) -> Program:
    """Return the program with a stream per draw and without a budget.

    A budget that fits one version may be too small for another.
    """

    def changed(s: Statement) -> Statement:
        if not isinstance(s, Draw):
            return s
        return NamedDraw(s.name, s.dims, s.shape, s.dtype, s.call)

    options = {k: v for k, v in program.options.items() if k != "device_memory"}
    return replace(program, statements=tuple(map(changed, program.statements)), options=options)


# --- rewritings
# ------------------------------------------------------------------------------------


def _plain_lets(program: Program, random: Random) -> list[Let]:
    """Return some named expressions that are defined everywhere and have a dimension."""
    found = [s for s in program.statements if isinstance(s, Let) and not s.where and s.dims]
    return random.sample(found, min(len(found), 2))


def _instead(program: Program, changes: dict[str, list[Statement]]) -> Program:
    statements = [one for s in program.statements for one in changes.get(s.name, [s])]
    return replace(program, statements=tuple(statements))


def _defined(let: Let, lines: Callable[[str], list[str]]) -> list[Statement]:
    """Return a branch-defined tensor, equal to a named expression."""
    other = f"{let.name}_once"
    kind = f'trl.tensor({let.shape}, "{DTYPES[let.dtype]}", domain={let.domain})'
    first = Written(
        other, let.dims, let.shape, let.dtype, (f"{other} = ({let.node.code})",), (), let.reads
    )
    declared = (f"{let.name} = {kind}",)
    own = (*lines(other),)
    return [
        first,
        Written(let.name, let.dims, let.shape, let.dtype, own, declared, frozenset({other})),
    ]


def cut(program: Program, random: Random) -> Program:
    """Divide an expression into two branches, at a point of one dimension or by its remainder."""

    def lines(let: Let, other: str) -> list[str]:
        d = random.choice(let.dims)
        k = random.randint(1, max(1, program.bounds[d] - 1))
        pairs = [(f"{d} < {k}", f"{d} >= {k}"), (f"{d} % 2 == 0", f"{d} % 2 == 1")]
        return [f"{let.name}[{where}] = {other}" for where in random.choice(pairs)]

    return _instead(
        program,
        {x.name: _defined(x, lambda o, x=x: lines(x, o)) for x in _plain_lets(program, random)},
    )


def reverse(program: Program, random: Random) -> Program:
    """Compute an expression with a dimension reversed."""

    def lines(let: Let, other: str) -> list[str]:
        d = random.choice(let.dims)
        at = ", ".join(f"{e.upper()} - 1 - {e}" if e == d else e for e in let.dims)
        return [f"{let.name}[{at}] = {other}[{at}]"]

    return _instead(
        program,
        {x.name: _defined(x, lambda o, x=x: lines(x, o)) for x in _plain_lets(program, random)},
    )


def unroll(program: Program, random: Random) -> Program:
    """Write an expression as one branch per point of a dimension."""

    def lines(let: Let, other: str) -> list[str]:
        d = random.choice(let.dims)
        return [f"{let.name}[{d} == {k}] = {other}" for k in range(program.bounds[d])]

    some = [x for x in _plain_lets(program, random) if program.ending not in x.dims][:1]
    return _instead(program, {x.name: _defined(x, lambda o, x=x: lines(x, o)) for x in some})


def split(program: Program, random: Random) -> Program:
    """Compute an expression over one dimension by way of two: rows of two points."""
    leaves = {s.leaf for s in program.statements if isinstance(s, Gradient)}
    for let in _plain_lets(program, random)[:1]:
        d = random.choice(let.dims)
        if program.until or "p" in program.dims:  # a dynamic bound ends the last dimension
            continue
        if let.name in leaves:  # an indexed tensor has no gradient
            continue
        rest = [e for e in let.dims if e != d]
        row = ", ".join(f"trl.min(2 * p + q, {d.upper()} - 1)" if e == d else e for e in let.dims)
        back = ", ".join([*rest, f"{d} // 2", f"{d} % 2"])
        once, rows = f"{let.name}_once", f"{let.name}_rows"
        lines = (
            f"{once} = ({let.node.code})",
            f"{rows} = {once}[{row}]",
            f"{let.name} = {rows}[{back}]",
        )
        others = ((once, let.dims), (rows, (*rest, "p", "q")))
        made = Written(let.name, let.dims, let.shape, let.dtype, lines, (), let.reads, others)
        bounds = {**program.bounds, "p": (program.bounds[d] + 1) // 2, "q": 2}
        program = replace(_instead(program, {let.name: [made]}), bounds=bounds)
        return replace(program, dims=(*program.dims, "p", "q"))
    return program


def dead(program: Program, random: Random) -> Program:
    """Insert dead statements between the others."""
    statements: list[Statement] = []
    for s in program.statements:
        statements.append(s)
        if isinstance(s, Let | Merge) and random.random() < 0.6:
            name = f"{s.name}_unused"
            lines = (f"{name} = ({s.name} == {s.name}).cast('f32') * 2.0",)
            statements.append(Written(name, s.dims, s.shape, "f", lines, (), frozenset({s.name})))
    return replace(program, statements=tuple(statements))


def constants(program: Program, random: Random) -> Program:
    """Replace given data by a constant that every point indexes."""

    def changed(s: Statement) -> Statement:
        if not isinstance(s, Data) or len(s.dims) != 1 or s.dims[0] == program.ending:
            return s
        array = array_of(s.dtype, s.seed, (f"_{d}" for d in s.dims), s.shape)
        text = f"{s.name} = trl.constant({array}).take(trl.value({s.dims[0]}), axis=0)"
        return Written(s.name, s.dims, s.shape, s.dtype, (text,))

    leaves = {s.leaf for s in program.statements if isinstance(s, Gradient)}
    kept = (s if s.name in leaves else changed(s) for s in program.statements)
    return replace(program, statements=tuple(kept))


def order(program: Program, random: Random) -> Program:
    """Reorder the statements, each after its operands; gradients stay last."""
    late = {s.name for s in program.statements if isinstance(s, Gradient | Step | Parameter)}
    for s in program.statements:
        if s.reads & {*late, *(f"{name}_next" for name in late)}:
            late.add(s.name)
    early = [s for s in program.statements if s.name not in late]
    merges = {s.name for s in early if any(s.declaration())}
    names = {s.name for s in early}
    made: list[Statement] = []
    while len(made) < len(early):
        known = {s.name for s in made} | merges
        ready = [s for s in early if s not in made and s.reads & names <= known]
        made.append(random.choice(ready))
    rest = [s for s in program.statements if s.name in late]
    return replace(program, statements=(*made, *rest))


def options(program: Program, random: Random) -> Program:
    """Change compile options."""
    found: dict[str, Any] = {}
    for one in random.sample(OPTIONS, random.choice((1, 2))):
        found |= one
    found.pop("device_memory", None)
    return replace(program, options={**program.options, **found})


KINDS: Final[tuple[Callable[[Program, Random], Program], ...]] = (
    cut,
    reverse,
    unroll,
    split,
    dead,
    constants,
    order,
    options,
)


# --- the order of dimensions ------------------------------------------------------------------------


class _Turned(ast.NodeTransformer):
    """Text of a program under another order of dimensions.

    Index entries follow the new order of their tensor's domain. Slice axes follow it too, so axes
    are swapped back after a read of two slices. Domains get a random order, and their arrays are
    transposed.
    """

    def __init__(self, program: Program, dims: tuple[str, ...], random: Random) -> None:
        self._dims, self._random = dims, random
        self._axes = {s.name: s.dims for s in program.statements}
        self._axes |= {f"{s.name}_next": s.dims for s in program.statements}
        for s in program.statements:
            self._axes |= dict(s.others) if isinstance(s, Written) else {}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name == "trl.Context":
            node.args = [ast.Constant(d) for d in self._dims]
        for word in node.keywords:
            if word.arg in ("domain", "over") and isinstance(word.value, ast.Tuple):
                entries = word.value.elts
                order = self._random.sample(range(len(entries)), len(entries))
                word.value.elts = [entries[k] for k in order]
                if name == "trl.data" and order != sorted(order):
                    given = f"np.moveaxis(0, {order}, {[*range(len(order))]})"
                    moved = ast.parse(given, mode="eval").body
                    assert isinstance(moved, ast.Call)
                    moved.args[0] = node.args[0]
                    node.args[0] = moved
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.value) == "ctx.dims":
            text = ", ".join(f"({d}, {d.upper()})" for d in self._dims)
            node.targets = [ast.parse(f"({text},)", mode="eval").body]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.slice, ast.Tuple):
            return node
        assert isinstance(node.value, ast.Name), ast.unparse(node)
        axes, entries = self._axes[node.value.id], node.slice.elts
        assert len(axes) == len(entries), ast.unparse(node)
        order = sorted(range(len(axes)), key=lambda k: self._dims.index(axes[k]))
        node.slice.elts = [entries[k] for k in order]
        cut = [k for k in order if isinstance(entries[k], ast.Slice)]
        assert len(cut) <= 2, ast.unparse(node)
        if cut == sorted(cut):
            return node
        return ast.parse(f"({ast.unparse(node)}).swapaxes(0, 1)", mode="eval").body


def turned(program: Program, random: Random) -> tuple[str, tuple[str, ...]]:
    """Return the text of a program with its dimensions in another order, and this order.

    Draws count points in the order of dimensions, parameters update along it, and a dynamic bound
    ends the last dimension. Such programs are unchanged.
    """
    kept = any(isinstance(s, Draw) or _steps_along_two(s) for s in program.statements)
    dims = program.dims
    if not kept and not program.until:
        dims = tuple(random.sample(dims, len(dims)))
    tree = _Turned(program, dims, random).visit(ast.parse(program.code()))
    return ast.unparse(ast.fix_missing_locations(tree)), dims


def _steps_along_two(s: Statement) -> bool:
    return isinstance(s, Parameter) and len(s.dims) > 1


def axes_of(program: Program, name: str, dims: tuple[str, ...]) -> tuple[int, ...]:
    """Return the new position of each axis of an output over dimensions."""
    own = program.names[name.removesuffix("_next")].dims
    order = sorted(own, key=dims.index)
    return tuple(order.index(d) for d in own)


# --- names ------------------------------------------------------------------------------------------


def bound_of(name: str) -> str:
    return name.upper() if name.upper() != name else f"{name}_bound"


def renamed(program: Program, random: Random, text: str = "") -> tuple[str, dict[str, str]]:
    """Return a program's text with renamed dimensions and outputs, and the new names."""
    dims = random.sample(WORDS, len(program.dims))
    while len({*dims, *map(bound_of, dims)}) < 2 * len(dims):
        dims = random.sample(WORDS, len(program.dims))
    words = random.sample(WORDS, len(WORDS))
    outputs = {name: words[k] if k < len(words) else name for k, name in enumerate(program.outputs)}
    text = text or ast.unparse(ast.parse(program.code()))
    before, after = text.split("trl.Context(", 1)
    given, after = after.split(")", 1)
    assert len(given.split(",")) == len(dims)
    text = f"{before}trl.Context({', '.join(map(repr, dims))}){after}"
    for name, word in outputs.items():
        line = f"ctx.output({name!r}, {name})"
        assert line in text
        text = text.replace(line, f"ctx.output({word!r}, {name})")
    return text, outputs


def rewritten(program: Program, random: Random, *, names: bool) -> Rewriting:
    """Rewrite a program with streams: only by other `names`, or by a few rewritings."""
    if names:
        text, others = renamed(program, random)
        return Rewriting(("names",), text, others, exact=True)
    chosen = sorted(random.sample(KINDS, random.choice((1, 1, 2, 3))), key=KINDS.index)
    other = program
    for kind in chosen:
        other = kind(other, random)
    kinds = tuple(kind.__name__ for kind in chosen)
    text, dims = ast.unparse(ast.parse(other.code())), other.dims
    if random.random() < 0.4:
        text, dims = turned(other, random)
        kinds = (*kinds, "dims")
    names_of = {name: name for name in other.outputs}
    if random.random() < 0.3:
        text, names_of = renamed(other, random, text)
        kinds = (*kinds, "names")
    return Rewriting(kinds, text, names_of, dims=dims)
