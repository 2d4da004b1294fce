"""Dependence analysis of a fused graph: its statements and the dependences between them.

Merges are not statements: a read of a merge is a read of its branches, through composed relations.
An accumulated value depends on all points of its sum, and these are independent of each other.

Under a dynamic bound all sets extend to its ceiling. If the length affects a point (its reads, its
value or its existence), the point also depends on the operation behind the bound.

The `near` relations contain only the upper end of a slice, and only the moving arguments of a
minimum or maximum. With them isl schedules the reader of a window close to its last value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from timerl_nb.compiler.ir.analysis.dynamic_lengths import exprs
from timerl_nb.compiler.ir.analysis.resolved_reads import Access
from timerl_nb.compiler.ir.dependence_graph import Pdg, at_own_point
from timerl_nb.compiler.ir.operation_kinds import SINKS
from timerl_nb.compiler.ir.operations import Op, Read, Tensor
from timerl_nb.compiler.isl.isl_scheduler import Edge
from timerl_nb.compiler.isl.sets_and_relations import Relation, Set, primed_name, union
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import components
from timerl_nb.compiler.scheduling.statements import Operand, Statements, statement_name
from timerl_nb.compiler.symbolic.dimensions import Dims
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    Cond,
    Extremum,
    Lin,
    Slice,
    all_of,
    any_of,
    eq,
    invent_symbol,
    lt,
    maximum,
    minimum,
    sym,
)
from timerl_nb.compiler.symbolic.substitution import subst, subst_cond

_VALUE: Final = invent_symbol("value")


@dataclass(frozen=True)
class Use:
    """A statement's use of one tensor, directly or through merges.

    Attributes:
        reader: the reading operation.
        source, out: the tensor: an operation and the number of its output.
        values: the reader's points -> the tensor's points.
        near: the part of `values` used for proximity.
        exact: `values` at the actual values of dynamic bounds.
        through: the merges in between, starting from the reader.
    """

    reader: int
    source: int
    out: int
    values: Relation
    near: Relation
    exact: Relation
    through: tuple[int, ...] = ()

    @property
    def tensor(self) -> Tensor:
        return self.source, self.out


class Constraints:
    """The statements of a graph and the dependences between them."""

    def __init__(self, pdg: Pdg) -> None:
        self.pdg = pdg
        self.statements = Statements.from_graph(pdg)
        self.points: dict[str, Set] = {
            s.name: pdg.points(s.op).at_some_length() for s in self.statements
        }
        self._relations: dict[tuple[object, ...], tuple[Relation, Relation]] = {}
        # Keyed by identity; the entry keeps the operands alive.
        self._composed: dict[tuple[int, int], tuple[Relation, Relation, Relation]] = {}

    @cached_property
    def uses(self) -> list[Use]:
        """All uses of tensors by statements."""
        return [
            use
            for s in self.statements
            for operand in s.reads
            for use in self._find_uses(s.op, operand)
        ]

    @cached_property
    def returned_uses(self) -> list[Use]:
        """All uses of tensors by the results of the run."""
        outputs = self.statements.outputs
        return [use for one in outputs for use in self._find_uses(one.op, *one.operands)]

    @cached_property
    def returned_points(self) -> dict[tuple[int, int], Set]:
        """The returned points of each tensor."""
        return points_of(self.returned_uses)

    def _find_uses(self, op: Op, operand: Operand) -> Iterator[Use]:
        found = (self._use(op, access) for access in operand.accesses)
        yield from (use for use in found if use is not None)

    def _pair(self, op: Op, read: Read) -> tuple[Relation, Relation]:
        """Return the points of a read, and their upper end."""
        source = self.pdg.defined(read)
        key = (op.domain, op.where, read.cond, read.index, source.domain, source.raw)
        found = self._relations.get(key)
        if found is None:
            whole = self.pdg.reads(op, read).restrict_range(source)
            sink = self.pdg.points(op) & Set.from_condition(self.pdg.dims, op.domain, read.cond)
            index = tuple(_upper_end(self.pdg.dims, e) for e in read.index)
            found = self._relations[key] = (
                whole,
                Relation.reads(sink, index, source).restrict_range(source),
            )
        return found

    def _compose(self, first: Relation, second: Relation) -> Relation:
        key = (id(first), id(second))
        found = self._composed.get(key)
        if found is None:
            found = self._composed[key] = (first.then(second), first, second)
        return found[0]

    def _use(self, op: Op, access: Access) -> Use | None:
        """Return the use of a tensor, or None: the composition of all reads on the way to it.

        At a read between different dynamic bounds the composition starts again. Then `whole` begins
        at the merge reached there, and `crossed` holds the way to it: for any length, and as an
        exact relation.
        """
        sink, anew = op, True
        whole = near = None
        crossed: tuple[Relation, Relation] | None = None
        for read in access.way:
            behind, close = self._pair(sink, read)
            whole = behind if whole is None or anew else self._compose(whole, behind)
            near = close if near is None else self._compose(near, close)
            sink, anew = self.pdg[read.source], self.pdg.crossed(read)
            if anew:
                there = whole.at_some_length()
                first, upto = crossed or (None, whole)
                crossed = (there if first is None else self._compose(first, there), upto)
                near = near.at_some_length()
        assert whole is not None and near is not None
        if whole.is_empty():
            return None
        values, exact = crossed or (whole.at_some_length(), whole)
        if crossed and not anew:
            values = self._compose(values, whole.at_some_length())
        through = tuple(read.source for read in access.way[:-1])
        return Use(op.id, *access.tensor, values, near, exact, through)

    # --- edges for isl ---------------------------------------------------------------------------

    @cached_property
    def validity(self) -> list[Edge]:
        """Producer -> consumer edges for all dependences and for the order of sinks."""
        edges = [self._edge(use, use.values) for use in self.uses]
        ops = [s.op for s in self.statements]
        edges += [e for op in ops for e in self._decisions(op)]
        edges += [e for op in ops if op.kind in SINKS for e in self._tokens(op)]
        return [*edges, *(edge for edge, _ in self._orders())]

    def _decisions(self, op: Op) -> Iterator[Edge]:
        """Yield dependences of a statement on the points that decide dynamic bounds.

        They cover the existence, reads and values of each point. The last deciding point suffices,
        because the points of a bound run in order: each exists only if the previous one did not end
        the dimension.
        """
        dims = self.pdg.dims
        known = dims.known(op.domain)
        if not known:
            return
        here = all_of(dims.range_condition(op.domain), op.where)
        asked = [Relation.from_condition(dims, op.domain, (), here)]
        asked += self._exact_reads.get(op.id, [])
        for e in exprs(self.pdg, op):
            if dims.mention(e.symbols):
                asked.append(self._value(op, e, here))
        for dim in known:
            bound, over = self.pdg.ends[dim.name], dim.over or ()
            told = union(r.decided_at(dim) for r in asked)
            assert told is not None
            own = Relation.from_condition(
                dims, op.domain, over, all_of(*(eq(sym(primed_name(d)), sym(d)) for d in over))
            )
            pairs = own.pair_targets(told, bound.domain).lexmax().inverse()
            if not pairs.is_empty():
                yield Edge(statement_name(bound), statement_name(op), pairs)

    @cached_property
    def _exact_reads(self) -> dict[int, list[Relation]]:
        """The exact reads of each statement at the actual values of dynamic bounds."""
        found: dict[int, list[Relation]] = {}
        for use in self.uses:
            found.setdefault(use.reader, []).append(use.exact)
        return found

    def _value(self, op: Op, e: Lin | Cond, here: Cond) -> Relation:
        """Return the value of an expression at each point, and along further dimensions in it."""
        along = tuple(d for d in self.pdg.dims.ordered(e.symbols) if d not in op.domain)
        axes = {d: sym(primed_name(d)) for d in along}
        if isinstance(e, Lin):
            value = eq(sym(primed_name(_VALUE)), subst(e, axes))
            return Relation.from_condition(
                self.pdg.dims, op.domain, (*along, _VALUE), all_of(here, value)
            )
        return Relation.from_condition(
            self.pdg.dims, op.domain, along, all_of(here, subst_cond(e, axes))
        )

    @cached_property
    def proximity(self) -> list[Edge]:
        """Producer -> consumer edges that should be short.

        Accumulations are excluded. Their buffer is live anyway, and isl fuses two loops only if
        every proximity pair can stay within a constant distance. A sum over a whole dimension
        cannot.
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
        """Return the operation's points -> the points of its output that they compute or add to."""
        output = op.outputs[out]
        read = at_own_point(op.id, output, out)
        points = self.pdg.points(op).at_some_length()
        return Relation.reads(points, read.index, Set.from_condition(self.pdg.dims, output.domain))

    def _orders(self) -> Iterator[tuple[Edge, Edge]]:
        """Yield the orders required by the user, as validity and proximity edges."""
        for order in self.pdg.orders:
            before, after = self.pdg[order.before], self.pdg[order.after]
            index = order.index(self.pdg.dims, before.domain, after.domain)
            if before.kind == "merge":
                for use in self._find_uses(
                    after, Operand.from_read(self.pdg, Read(before.id, 0, index))
                ):
                    yield self._edge(use, use.values), self._edge(use, use.near)
                continue
            points = self.pdg.points(before)
            ends = tuple(_upper_end(self.pdg.dims, entry) for entry in index)
            whole, near = (
                Relation.reads(self.pdg.points(after), at, points)
                .restrict_range(points)
                .at_some_length()
                .inverse()
                for at in (index, ends)
            )
            names = statement_name(before), statement_name(after)
            if not whole.is_empty():
                yield Edge(*names, whole), Edge(*names, near)

    def _tokens(self, op: Op) -> list[Edge]:
        """Return edges for the lexicographic order of a sink's points.

        Only sequential dimensions are ordered.
        """
        if op.kind == "bound":  # its points depend on each other anyway
            return []
        along = [d for d in op.domain if d in self._sequential_dims]
        if not along:
            return []
        options: list[Cond] = []
        for k, d in enumerate(along):
            same = [eq(sym(primed_name(e)), sym(e)) for e in along[:k]]
            options.append(all_of(*same, lt(sym(d), sym(primed_name(d)))))
        rest = [eq(sym(primed_name(d)), sym(d)) for d in op.domain if d not in along]
        later = all_of(any_of(*options), *rest)
        points = self.points[statement_name(op)]
        pairs = Relation.from_condition(self.pdg.dims, op.domain, op.domain, later).restrict_range(
            points
        )
        inside = pairs.inverse().restrict_range(points).inverse()
        return [Edge(statement_name(op), statement_name(op), inside)]

    @cached_property
    def _sequential_dims(self) -> frozenset[str]:
        """The dimensions along which some read is at another point than the reader's own.

        Along all other dimensions the points of a sink run in ascending order without constraints.
        """
        entries = [pair for order in self.pdg.orders for pair in order.at]
        for op in self.pdg:
            for read in op.inputs:
                entries += zip(self.pdg.output(read).domain, read.index, strict=True)
        moving = (e for d, e in entries if isinstance(e, Slice) or e.as_symbol != d)
        return frozenset(d for e in moving for d in self.pdg.dims.ordered(e.symbols))

    @cached_property
    def _recurrent(self) -> frozenset[int]:
        """The operations that depend on themselves at other points, directly or not."""
        edges: dict[int, list[int]] = {s.id: [] for s in self.statements}
        for use in self.uses:
            edges[use.reader].append(use.source)
        cyclic = [c for c in components(edges) if len(c) > 1 or c[0] in edges[c[0]]]
        return frozenset(k for c in cyclic for k in c)

    def _iteration_ends(self) -> Iterator[Edge]:
        """Yield proximity edges from the updates of an iteration to its statistics and sinks.

        No statement reads these, so isl might run them after all iterations. All their operands
        would be live until then.
        """
        read = {use.source for use in self.uses if use.source != use.reader}
        ops = [s.op for s in self.statements]
        ends = [op for op in ops if op.id not in read and op.domain and op.kind != "bound"]
        updates = [op for op in ops if op.id in read and op.id in self._recurrent]
        for end in ends:
            for update in updates:
                if update.domain == end.domain and update.where is TRUE:
                    own = tuple(sym(d) for d in update.domain)
                    last, of = (self.points[statement_name(op)] for op in (end, update))
                    same = Relation.reads(last, own, of)
                    yield Edge(statement_name(update), statement_name(end), same.inverse())


def points_of(uses: Iterable[Use]) -> dict[tuple[int, int], Set]:
    """Return the used points of each tensor."""
    found: dict[tuple[int, int], Set] = {}
    for use in uses:
        points, key = use.values.range(), use.tensor
        found[key] = found[key] | points if key in found else points
    return found


def _upper_end(dims: Dims, entry: Lin | Slice) -> Lin:
    return _moving(dims, entry.hi - 1 if isinstance(entry, Slice) else entry)


def _moving(dims: Dims, e: Lin) -> Lin:
    """Return the expression without the constant arguments of its minimum or maximum."""
    if len(e.terms) == 1 and e.terms[0][1] == 1 and isinstance(e.terms[0][0], Extremum):
        atom = e.terms[0][0]
        moving = [arg for arg in atom.args if dims.ordered(arg.symbols)]
        if moving and len(moving) < len(atom.args):
            return (minimum if atom.which == "min" else maximum)(*moving) + e.const
    return e
