"""What must run before what: statements and dependences of a fused graph (polyhedral.md §1).

Merges are no statements: a read of a merge is a read of the branches behind it, through composed
relations. Values accumulated over dimensions depend on all points that contribute, and these on
nothing of each other. `near` relations keep of a slice only its upper end, and of a minimum or
maximum only the arguments that move: isl then keeps a window's reader close behind its last value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from timerl_nb.ir.kinds import SINKS
from timerl_nb.ir.ops import Op, Read
from timerl_nb.ir.pdg import Pdg, at_own_point
from timerl_nb.passes.cycles import components
from timerl_nb.symbolic.domain import Dims
from timerl_nb.symbolic.expr import (
    TRUE,
    Cond,
    Extremum,
    Lin,
    Slice,
    all_of,
    any_of,
    eq,
    lt,
    maximum,
    minimum,
    sym,
)
from timerl_nb.symbolic.polyhedra import Relation, Set, primed
from timerl_nb.symbolic.scheduling import Edge


@dataclass(frozen=True)
class Use:
    """One statement's use of one tensor, merges looked through.

    `values` relates the reader's points to the tensor's, `near` is its part for proximity.
    """

    reader: int
    source: int
    out: int
    values: Relation
    near: Relation


class Constraints:
    """The statements of a graph, and the dependences between them."""

    def __init__(self, pdg: Pdg) -> None:
        self.pdg = pdg
        self.ops: dict[str, Op] = {
            statement_name(op): op for op in pdg if op.kind not in ("merge", "output")
        }
        self.statements: dict[str, Set] = {n: pdg.points(op) for n, op in self.ops.items()}
        self._made: dict[tuple[object, ...], tuple[Relation, Relation]] = {}
        # keyed by identity; the operands are kept alive beside the result
        self._composed: dict[tuple[int, int], tuple[Relation, Relation, Relation]] = {}

    @cached_property
    def uses(self) -> list[Use]:
        """Every use of a tensor by a statement."""
        return [
            use for op in self.ops.values() for read in op.inputs for use in self._uses(op, read)
        ]

    @cached_property
    def kept(self) -> dict[tuple[int, int], Set]:
        """The points of each tensor that the run returns."""
        found: dict[tuple[int, int], Set] = {}
        for op in self.pdg.sinks:
            if op.kind == "output":
                for use in self._uses(op, op.inputs[0]):
                    key = (use.source, use.out)
                    points = use.values.range()
                    found[key] = found[key] | points if key in found else points
        return found

    def _uses(self, op: Op, read: Read) -> Iterator[Use]:
        yield from self._through(op, read, *self._pair(op, read))

    def _pair(self, op: Op, read: Read) -> tuple[Relation, Relation]:
        """All that a read reads, and its upper end; each distinct relation is made once."""
        source = self.pdg.defined(read)
        key = (op.domain, op.where, read.cond, read.index, source.domain, source.raw)
        found = self._made.get(key)
        if found is None:
            whole = self.pdg.reads(op, read).within(source)
            sink = self.pdg.points(op) & Set.of(self.pdg.dims, op.domain, read.cond)
            index = tuple(_upper_end(self.pdg.dims, e) for e in read.index)
            found = self._made[key] = (whole, Relation.reads(sink, index, source).within(source))
        return found

    def _joined(self, first: Relation, second: Relation) -> Relation:
        key = (id(first), id(second))
        found = self._composed.get(key)
        if found is None:
            found = self._composed[key] = (first.then(second), first, second)
        return found[0]

    def _through(self, op: Op, read: Read, whole: Relation, near: Relation) -> Iterator[Use]:
        source = self.pdg[read.source]
        if source.kind != "merge":
            if not whole.is_empty():
                yield Use(op.id, source.id, read.out, whole, near)
            return
        for branch in source.inputs:
            behind, close = self._pair(source, branch)
            yield from self._through(
                op, branch, self._joined(whole, behind), self._joined(near, close)
            )

    # --- as edges for isl ------------------------------------------------------------------------

    @cached_property
    def validity(self) -> list[Edge]:
        """Producer -> consumer for every dependence, and the order of sinks."""
        edges = [self._edge(use, use.values) for use in self.uses]
        edges += [e for op in self.ops.values() if op.kind in SINKS for e in self._tokens(op)]
        return [*edges, *(edge for edge, _ in self._orders())]

    @cached_property
    def proximity(self) -> list[Edge]:
        """Producer -> consumer pairs to keep close, and iteration ends to keep together.

        Accumulations are left out: their slot is there anyway, and isl joins two loops only where
        every pair it is to keep close can stay within a constant distance, which a sum over a whole
        dimension cannot.
        """
        near = [
            self._edge(use, use.near)
            for use in self.uses
            if self.pdg[use.source].outputs[use.out].reduce is None
        ]
        ends = [edge for _, edge in self._orders()]
        return [*near, *ends, *self._iteration_ends()]

    def _edge(self, use: Use, values: Relation) -> Edge:
        source, reader = self.pdg[use.source], self.pdg[use.reader]
        pairs = values.inverse()
        if source.outputs[use.out].domain != source.domain:
            pairs = self.contributions(source, use.out).then(pairs)
        return Edge(statement_name(source), statement_name(reader), pairs)

    def contributions(self, op: Op, out: int) -> Relation:
        """The operation's points -> the points of its output that they make or add to."""
        output = op.outputs[out]
        read = at_own_point(op.id, output, out)
        return Relation.reads(self.pdg.points(op), read.index, Set.of(self.pdg.dims, output.domain))

    def _orders(self) -> Iterator[tuple[Edge, Edge]]:
        """The orders that the user asks for: all pairs, and those to keep close."""
        for order in self.pdg.orders:
            before, after = self.pdg[order.before], self.pdg[order.after]
            index = order.index(self.pdg.dims, before.domain, after.domain)
            if before.kind == "merge":
                read = Read(before.id, 0, index)
                for use in self._through(after, read, *self._pair(after, read)):
                    yield self._edge(use, use.values), self._edge(use, use.near)
                continue
            points = self.pdg.points(before)
            ends = tuple(_upper_end(self.pdg.dims, entry) for entry in index)
            whole, near = (
                Relation.reads(self.pdg.points(after), at, points).within(points).inverse()
                for at in (index, ends)
            )
            names = statement_name(before), statement_name(after)
            if not whole.is_empty():
                yield Edge(*names, whole), Edge(*names, near)

    def _tokens(self, op: Op) -> list[Edge]:
        """A sink's points in the lexicographic order of the dimensions that recurrences run along."""
        along = [d for d in op.domain if d in self._sequential_dims]
        if not along:
            return []
        options: list[Cond] = []
        for k, d in enumerate(along):
            same = [eq(sym(primed(e)), sym(e)) for e in along[:k]]
            options.append(all_of(*same, lt(sym(d), sym(primed(d)))))
        rest = [eq(sym(primed(d)), sym(d)) for d in op.domain if d not in along]
        later = all_of(any_of(*options), *rest)
        points = self.pdg.points(op)
        pairs = Relation.of(self.pdg.dims, op.domain, op.domain, later).within(points)
        inside = pairs.inverse().within(points).inverse()
        return [Edge(statement_name(op), statement_name(op), inside)]

    @cached_property
    def _sequential_dims(self) -> frozenset[str]:
        """The dimensions along which some statement needs an earlier or later point."""
        found: set[str] = set()
        for op in self.pdg:
            for read in op.inputs:
                for d, e in zip(self.pdg.output(read).domain, read.index, strict=True):
                    if isinstance(e, Lin) and d in e.symbols and e.as_symbol != d:
                        found.add(d)
        return frozenset(found)

    @cached_property
    def _recurrent(self) -> frozenset[int]:
        """The operations that need themselves at other points, directly or not."""
        edges: dict[int, list[int]] = {op.id: [] for op in self.ops.values()}
        for use in self.uses:
            edges[use.reader].append(use.source)
        cyclic = [c for c in components(edges) if len(c) > 1 or c[0] in edges[c[0]]]
        return frozenset(k for c in cyclic for k in c)

    def _iteration_ends(self) -> Iterator[Edge]:
        """Statistics and sinks stay beside the last update of the same iteration.

        Nobody in the program reads them, so that isl might as well run them after all iterations,
        and hold everything they read until then.
        """
        read = {use.source for use in self.uses if use.source != use.reader}
        ends = [op for op in self.ops.values() if op.id not in read and op.domain]
        updates = [op for op in self.ops.values() if op.id in read and op.id in self._recurrent]
        for end in ends:
            for update in updates:
                if update.domain == end.domain and update.where is TRUE:
                    own = tuple(sym(d) for d in update.domain)
                    same = Relation.reads(self.pdg.points(end), own, self.pdg.points(update))
                    yield Edge(statement_name(update), statement_name(end), same.inverse())


def statement_name(op: Op) -> str:
    """The name under which isl knows an operation."""
    return f"S{op.id}"


def _upper_end(dims: Dims, entry: Lin | Slice) -> Lin:
    return _moving(dims, entry.hi - 1 if isinstance(entry, Slice) else entry)


def _moving(dims: Dims, e: Lin) -> Lin:
    """The expression with the constant arguments of its minimum or maximum dropped."""
    if len(e.terms) == 1 and e.terms[0][1] == 1 and isinstance(e.terms[0][0], Extremum):
        atom = e.terms[0][0]
        moving = [arg for arg in atom.args if dims.ordered(arg.symbols)]
        if moving and len(moving) < len(atom.args):
            return (minimum if atom.which == "min" else maximum)(*moving) + e.const
    return e
