"""Data model of a random program, and its two forms.

A `Node` is an expression at a point, with its text in both forms. A `Statement` assigns a tensor.
This module computes no values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Shape = tuple[int, ...]
DTYPES = {"f": "f32", "i": "i32", "b": "bool"}
NUMPY = {"f": "float", "i": "int", "b": "bool"}


@dataclass(frozen=True)
class Where:
    """A condition on a point, in both forms."""

    text: str
    dims: frozenset[str]


@dataclass(frozen=True)
class Node:
    """An expression at a point.

    Attributes:
        code: Text with recurrent tensors.
        plain: Text with tables.
        dims: Dimensions of its domain.
        lead: Lengths of the slice axes before the axes of `shape`, as text.
        reads: The tensors in the expression; `smooth`: those reached by derivatives.
        where: Conditions of its domain.
    """

    code: str
    plain: str
    dims: frozenset[str]
    shape: Shape
    dtype: str
    parts: tuple[Node, ...] = ()
    lead: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()
    smooth: frozenset[str] = frozenset()
    where: frozenset[Where] = frozenset()

    def inner(self) -> Iterator[Node]:
        for part in self.parts:
            yield part
            yield from part.inner()


@dataclass(frozen=True)
class Statement(ABC):
    """A named tensor."""

    name: str
    dims: tuple[str, ...]
    shape: Shape
    dtype: str

    @property
    def reads(self) -> frozenset[str]:
        return frozenset()

    @property
    def smooth(self) -> frozenset[str]:
        return frozenset()

    @property
    def where(self) -> frozenset[Where]:
        return frozenset()

    def nodes(self) -> Iterator[Node]:
        """Return all its expressions."""
        yield from ()

    def declaration(self) -> Iterator[str]:
        yield from ()

    def code(self) -> Iterator[str]:
        yield from ()

    @abstractmethod
    def plain(self) -> Iterator[str]:
        """Return its definition as plain loops."""

    def smaller(self) -> Iterator[Statement]:
        yield from ()

    @property
    def domain(self) -> str:
        return text_of(self.dims)

    @property
    def head(self) -> str:
        return f'"{self.name}", {self.shape}, {sizes_of(self.dims)}'


def text_of(items: Iterable[str]) -> str:
    given = tuple(items)
    return f"({', '.join(given)}{',' if len(given) == 1 else ''})"


def sizes_of(dims: Iterable[str]) -> str:
    return f"lambda: {text_of(d.upper() for d in dims)}"


def array_of(kind: str, seed: int, dims: Iterable[str], shape: Shape) -> str:
    word = {"f": "uniform", "i": "integers", "b": "booleans"}[kind]
    return f"{word}({', '.join([str(seed), *(d.upper() for d in dims), *map(str, shape)])})"


@dataclass(frozen=True)
class Data(Statement):
    seed: int = 0

    def code(self) -> Iterator[str]:
        array = array_of(self.dtype, self.seed, (f"_{d}" for d in self.dims), self.shape)
        yield f"{self.name} = trl.data({array}, domain={self.domain})"

    def plain(self) -> Iterator[str]:
        array = array_of(self.dtype, self.seed, self.dims, self.shape)
        yield f"{self.name} = loops.data({self.head}, {array})"


@dataclass(frozen=True)
class Draw(Statement):
    """Random values; the loops use those of the compiled program."""

    call: str = ""

    def code(self) -> Iterator[str]:
        yield f"{self.name} = trl.random.{self.call}({self.shape}, domain={self.domain})"

    def plain(self) -> Iterator[str]:
        yield f"{self.name} = loops.found({self.head})"


@dataclass(frozen=True)
class Parameter(Statement):
    """A parameter; the loops use its trajectory from the compiled program."""

    seed: int = 0

    def code(self) -> Iterator[str]:
        array = array_of("f", self.seed, (), self.shape)
        yield f'{self.name} = trl.parameter({array}, domain={self.domain}, name="{self.name}")'

    def plain(self) -> Iterator[str]:
        yield f"{self.name} = loops.found({self.head})"


@dataclass(frozen=True)
class Step(Statement):
    """`backward()` and an optimiser step; the statement is the parameter's gradient."""

    loss: str = ""
    parameter: str = ""
    optimizer: str = ""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.loss, self.parameter})

    def code(self) -> Iterator[str]:
        yield f"{self.loss}.backward()"
        if self.optimizer:
            yield f"trl.optim.{self.optimizer.replace('(', f'([{self.parameter}], ')}.step()"
        yield f"{self.name} = {self.parameter}.grad"
        yield f"{self.name}_next = {self.parameter}.next"

    def plain(self) -> Iterator[str]:
        yield f"{self.name} = loops.found({self.head})"
        yield f'{self.name}_next = loops.found("{self.name}_next", {self.head.split(", ", 1)[1]})'


@dataclass(frozen=True)
class Gradient(Statement):
    """`trl.grad` of a loss with respect to one tensor, with the tensor's domain and shape."""

    loss: str = ""
    leaf: str = ""
    condition: frozenset[Where] = frozenset()

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.loss, self.leaf})

    @property
    def where(self) -> frozenset[Where]:
        return self.condition

    def code(self) -> Iterator[str]:
        yield f"{self.name} = trl.grad({self.loss}, {self.leaf})"

    def plain(self) -> Iterator[str]:
        yield f"# {self.name}: by finite differences of {self.loss}"


@dataclass(frozen=True)
class Let(Statement):
    node: Node
    given: frozenset[Where] = frozenset()  # conditions in this statement

    @property
    def reads(self) -> frozenset[str]:
        return self.node.reads

    @property
    def smooth(self) -> frozenset[str]:
        return self.node.smooth if self.dtype == "f" else frozenset()

    @property
    def where(self) -> frozenset[Where]:
        return self.node.where | self.given

    def nodes(self) -> Iterator[Node]:
        yield self.node
        yield from self.node.inner()

    def code(self) -> Iterator[str]:
        texts = "".join(f"[{where.text}]" for where in self.given)
        yield f"{self.name} = ({self.node.code}){texts}"

    def plain(self) -> Iterator[str]:
        where = ""
        if self.where:
            joined = " and ".join(f"({w.text})" for w in ordered(self.where))
            where = f", lambda {', '.join(self.dims)}: {joined}"
        yield f"@loops.equation({self.head}{where})"
        yield f"def {self.name}({', '.join(self.dims)}):"
        yield f"    return {self.node.plain}"

    def smaller(self) -> Iterator[Statement]:
        if self.given:
            yield replace(self, given=frozenset())
        for part in self.node.inner():
            same = part.shape == self.shape and part.dtype == self.dtype and not part.lead
            if same and part.dims == self.node.dims and part.where == self.node.where:
                yield replace(self, node=part)


def ordered(conditions: Iterable[Where]) -> list[Where]:
    return sorted(conditions, key=lambda w: w.text)


@dataclass(frozen=True)
class Branch:
    """`x[left] = node`; `left` are index entries, or one condition."""

    left: tuple[str, ...]
    bound: tuple[str, ...]
    node: Node
    where: Where | None = None


@dataclass(frozen=True)
class Merge(Statement):
    branches: tuple[Branch, ...] = ()

    @property
    def reads(self) -> frozenset[str]:
        return frozenset().union(*(b.node.reads for b in self.branches))

    @property
    def smooth(self) -> frozenset[str]:
        if self.dtype != "f":
            return frozenset()
        return frozenset().union(*(b.node.smooth for b in self.branches))

    def nodes(self) -> Iterator[Node]:
        for branch in self.branches:
            yield branch.node
            yield from branch.node.inner()

    def declaration(self) -> Iterator[str]:
        yield f'{self.name} = trl.tensor({self.shape}, "{DTYPES[self.dtype]}", domain={self.domain})'

    def code(self) -> Iterator[str]:
        for branch in self.branches:
            left = branch.where.text if branch.where else ", ".join(branch.left)
            yield f"{self.name}[{left or '...'}] = {branch.node.code}"

    def plain(self) -> Iterator[str]:
        yield f"{self.name} = loops.merge({self.head})"
        for branch in self.branches:
            names = ", ".join(branch.bound)
            conds = ordered(branch.node.where | ({branch.where} if branch.where else set()))
            where = ""
            if conds:
                where = f", lambda {names}: " + " and ".join(f"({w.text})" for w in conds)
            left = text_of(plain_index(e) for e in branch.left)
            yield f"@{self.name}.at(lambda {names}: {left}, {sizes_of(branch.bound)}{where})"
            yield f"def _({names}):"
            yield f"    return {branch.node.plain}"

    def smaller(self) -> Iterator[Statement]:
        for k, branch in enumerate(self.branches):
            for part in branch.node.inner():
                same = part.shape == self.shape and part.dtype == self.dtype and not part.lead
                if same and part.dims <= set(branch.bound) and part.where == branch.node.where:
                    changed = replace(branch, node=part)
                    branches = (*self.branches[:k], changed, *self.branches[k + 1 :])
                    yield replace(self, branches=branches)


def plain_index(text: str) -> str:
    return text.replace("trl.", "")


@dataclass(frozen=True)
class Program:
    """Dimensions with bounds, statements, outputs, and compile options."""

    dims: tuple[str, ...]
    bounds: Mapping[str, int]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    until: str = ""  # the condition that ends the last dimension
    seed: int = 0

    @property
    def names(self) -> dict[str, Statement]:
        return {s.name: s for s in self.statements}

    @property
    def ending(self) -> str:
        """Return the dimension with the dynamic bound."""
        return self.dims[-1] if self.until else ""

    def needed(self) -> set[str]:
        """Return the tensors that outputs depend on."""
        names = self.names
        found: set[str] = set()
        pending = [*self.outputs, *([self.until] if self.until else [])]
        while pending:
            name = pending.pop().removesuffix("_next")
            if name not in found and name in names:
                found.add(name)
                pending += names[name].reads
        return found

    def returning(self, names: Iterable[str]) -> Program:
        """Return the program with only these outputs and their operands, plus the run's choices for the loops."""
        asked = replace(self, outputs=tuple(dict.fromkeys(names)))
        needed = asked.needed()
        statements = tuple(s for s in self.statements if s.name in needed)
        chosen: list[str] = []
        for s in statements:
            if isinstance(s, Draw | Parameter | Step):
                chosen += [s.name, f"{s.name}_next"] if isinstance(s, Step) else [s.name]
        outputs = tuple(dict.fromkeys((*asked.outputs, *chosen)))
        return replace(self, statements=statements, outputs=outputs)

    def code(self) -> str:
        """Return the text with recurrent tensors: a stand-alone program."""
        pairs = ", ".join(f"({d}, {d.upper()})" for d in self.dims)
        sizes = "; ".join(f"_{d.upper()} = {self.bounds[d]}" for d in self.dims)
        lines = [
            "import numpy as np",
            "import timerl_nb as trl",
            "from tests.independent.given import booleans, integers, twin, uniform, wave",
            "",
            sizes,
            f"with trl.Context({', '.join(map(repr, self.dims))}) as ctx:",
            f"    {pairs}{',' if len(self.dims) == 1 else ''} = ctx.dims",
        ]
        body: list[str] = []
        for statement in self.statements:
            body += statement.declaration()
        for statement in self.statements:
            body += statement.code()
        body += [f'ctx.output("{name}", {name})' for name in self.outputs]
        lines += [f"    {line}" for line in body]
        bounds = ", ".join(
            f"{d.upper()}: "
            + (
                f"trl.until({self.until}, at_most=_{d.upper()})"
                if d == self.ending
                else f"_{d.upper()}"
            )
            for d in self.dims
        )
        options = ", ".join(f"{k}={v!r}" for k, v in self.options.items())
        lines.append(f"program = ctx.compile({{{bounds}}}, trl.Options({options}))")
        lines.append(f"result = program.execute(seed={self.seed}, progress=False)")
        return "\n".join(lines) + "\n"

    def plain(self, length: int | None = None) -> str:
        """Return the text as loops over dictionaries, for a module with the name `loops`.

        Args:
            length: Overrides the length of the dimension with a dynamic bound.
        """
        lines = ["; ".join(f"{d.upper()} = {self.bounds[d]}" for d in self.dims)]
        for statement in self.statements:
            lines += statement.plain()
        if self.until:
            size = self.ending.upper()
            found = f"first({self.until}, {size})" if length is None else str(length)
            lines.append(f"{size} = {found}")
        return "\n".join(lines) + "\n"
