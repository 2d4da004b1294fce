"""Recognition of recurrences along a dimension, independent of their notation.

A cycle is a recurrence if one merge (the head) is on all of its paths, each path leads from the head at one
point to the head at the previous or next point, and the operations between are linear in the head, element
by element: y[t] = a[t] * y[t - 1] + b[t], with a = 0 at the start. The other form is y[t] = max(y[t - 1],
b[t]), or min. `LINEAR` and `EXTREMA` define the decomposition of each operation kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit, compose
from timerl_nb.compiler.ir.operation_attributes import NO_ATTRS, ConstArray, ConstAttrs, ShapeAttrs
from timerl_nb.compiler.ir.operations import Op, Read, is_sliced
from timerl_nb.compiler.ir.reference.evaluation_rules import identity
from timerl_nb.compiler.ir.shapes import NUMPY, Shape, is_float, same_shape
from timerl_nb.compiler.isl.sets_and_relations import Relation, primed_name
from timerl_nb.compiler.passes.vectorization.batching_rules import Refused
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import components
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import Cond, all_of, eq, sym

Factor = float | Read
NONE: Final = 0.0  # the factor of values independent of the head


@dataclass(frozen=True)
class AffineTerm:
    """A value as factor * (the head, one point earlier or later) + rest, at the reader's own point.

    `rest` None has no effect: zero, or the least value for a maximum.
    """

    factor: Factor
    rest: Read | None = None


@dataclass(frozen=True)
class Recurrence:
    """A recognised recurrence; each branch of its head has a condition and an affine term."""

    dim: Dim
    head: Op
    members: frozenset[int]
    reverse: bool  # whether each point needs the next one
    extremum: str | None  # "max" or "min"; None for a linear recurrence
    restarts: bool  # whether a condition inside restarts it
    branches: tuple[tuple[Cond, AffineTerm], ...]


def recognise(edit: Edit, pdg: Pdg, dim: Dim, members: frozenset[int]) -> Recurrence:
    """Return the recurrence of a cycle; the operations for its terms are added to the edit.

    Raises:
        Refused: the cycle is not a recurrence; the message has the reason.
    """
    head, order = _head(pdg, dim, members)
    reverse = _direction(pdg, dim, head, members, order)
    found = {pdg[k].kind for k in order} & {"max2", "min2"}
    if len(found) > 1:
        raise Refused("it contains both maxima and minima")
    extremum = found.pop().removesuffix("2") if found else None
    decomposition = _Decomposition(edit, dim, head, members, extremum)
    for op_id in order:
        decomposition.take(pdg[op_id])
    branches = tuple(decomposition.branches(head))
    return Recurrence(dim, head, members, reverse, extremum, decomposition.restarts, branches)


def _head(pdg: Pdg, dim: Dim, members: frozenset[int]) -> tuple[Op, list[int]]:
    """Return the merge on all paths of a cycle, and the other operations in topological order."""
    for op_id in members:
        op = pdg[op_id]
        if len(op.outputs) != 1 or any(o.reduce is not None for o in op.outputs):
            raise Refused(f"it contains {op.name} ({op.kind})")
    domains = {pdg[k].domain for k in members}
    if len(domains) > 1:
        raise Refused(
            f"its operations vary over {' and '.join(map(_domain_text, sorted(domains)))}"
        )
    (domain,) = domains
    if dim.name not in domain:
        raise Refused(f"it does not vary over {dim.name}")
    merges = [k for k in sorted(members) if pdg[k].kind == "merge"]
    # Merges with readers outside the cycle come first, since they are the result of the recurrence.
    merges.sort(key=lambda k: all(reader in members for reader, _ in pdg.readers[k]))
    for head in merges:
        edges = {
            k: [r.source for r in pdg[k].inputs if r.source in members and r.source != head]
            for k in members - {head}
        }
        found = components(edges)
        if all(len(group) == 1 and group[0] not in edges[group[0]] for group in found):
            return pdg[head], [group[0] for group in found]
    raise Refused("several values depend on each other")


def _domain_text(domain: Sequence[str]) -> str:
    return f"({', '.join(domain)})"


def _direction(pdg: Pdg, dim: Dim, head: Op, members: frozenset[int], order: Sequence[int]) -> bool:
    """Whether each point needs the next one, rather than the previous one."""
    own = tuple(sym(d) for d in head.domain)
    points = pdg.points(head)
    reached: dict[int, Relation] = {head.id: Relation.reads(points, own, points)}
    total: Relation | None = None
    for op_id in (head.id, *reversed(order)):
        op = pdg[op_id]
        for read in op.inputs:
            if read.source not in members:
                continue
            if is_sliced(read):
                raise Refused(f"{op.name} reads a slice of it")
            there = reached[op_id].then(pdg.reads(op, read))
            if read.source == head.id:
                total = there if total is None else total | there
            else:
                before = reached.get(read.source)
                reached[read.source] = there if before is None else before | there
    assert total is not None
    for step in (-1, 1):
        moved = all_of(
            *(eq(sym(primed_name(d)), sym(d) + (step if d == dim.name else 0)) for d in head.domain)
        )
        if (total - Relation.from_condition(pdg.dims, head.domain, head.domain, moved)).is_empty():
            return step > 0
    raise Refused(f"it depends on points other than the previous or next along {dim.name}")


# --- decomposition ------------------------------------------------------------------------------


@dataclass
class _Decomposition:
    """The affine terms of a cycle's operations, in order."""

    edit: Edit
    dim: Dim
    head: Op
    members: frozenset[int]
    extremum: str | None
    parts: dict[int, AffineTerm] = field(default_factory=dict[int, AffineTerm])
    restarts: bool = False

    def take(self, op: Op) -> None:
        """Decompose an operation; its operands are decomposed already."""
        rules = LINEAR if self.extremum is None else EXTREMA
        rule = rules.get(op.kind)
        if rule is None:
            what = "linear in it, element by element" if self.extremum is None else "an extremum"
            raise Refused(f"{op.name} ({op.kind}) is not {what}")
        if not same_shape(op.shape, self.head.shape) or op.dtype != self.head.dtype:
            raise Refused(f"{op.name} is {op.type}, not {self.head.type}")
        self.parts[op.id] = rule(self, op, [self.decompose(read) for read in op.inputs])

    def decompose(self, read: Read) -> AffineTerm:
        """Return the affine term of a read, from the reader's point."""
        if read.source == self.head.id:
            return AffineTerm(1.0)
        if read.source not in self.members:
            return AffineTerm(NONE, read)
        part = self.parts[read.source]
        domain = self.edit.ops[read.source].outputs[read.out].domain

        def read_from_reader(x: Read) -> Read:
            composed = compose(read, domain, x)
            assert composed is not None  # points can always be composed
            return composed

        factor = read_from_reader(part.factor) if isinstance(part.factor, Read) else part.factor
        return AffineTerm(factor, None if part.rest is None else read_from_reader(part.rest))

    def branches(self, merge: Op) -> list[tuple[Cond, AffineTerm]]:
        """Return the affine terms of a merge's branches."""
        found = [(read.cond, self.decompose(read)) for read in merge.inputs]
        moving = self.edit.dims.ordered(s for cond, _ in found for s in cond.symbols)
        if set(moving) - {self.dim.name}:
            raise Refused(f"its branches are chosen by {' and '.join(moving)}")
        return found

    # --- arithmetic with constant folding --------------------------------------------------------

    def op(self, kind: str, *xs: Factor, like: Op) -> Read:
        reads = [x if isinstance(x, Read) else constant(self.edit, x, like) for x in xs]
        return self.edit.read_same_point(self.edit.add(kind, reads, like=like))

    def as_constant(self, x: Factor) -> Factor:
        """Return a factor as a number if it is a scalar constant."""
        if isinstance(x, Read):
            source = self.edit.ops[x.source]
            if source.kind == "const" and not source.shape:
                value = float(
                    str(source.attrs.value.array)
                )  # the shortest decimal with the same rounding
                return value if _is_exact(value, source) else x
        return x

    def times(self, x: Factor, y: Factor, like: Op) -> Factor:
        x, y = self.as_constant(x), self.as_constant(y)
        if isinstance(x, float) and isinstance(y, float) and _is_exact(x * y, like):
            return x * y
        for one, other in ((x, y), (y, x)):
            if one == 1.0:
                return other
            if one == -1.0:
                return self.op("neg", other, like=like)
        return NONE if NONE in (x, y) else self.op("mul", x, y, like=like)

    def add(self, x: Factor, y: Factor, like: Op) -> Factor:
        if isinstance(x, float) and isinstance(y, float) and _is_exact(x + y, like):
            return x + y
        return y if x == NONE else x if y == NONE else self.op("add", x, y, like=like)

    def minus(self, x: Factor, like: Op) -> Factor:
        return self.times(-1.0, x, like)

    def merge_factors(self, merge: Op, values: Sequence[tuple[Cond, Factor]]) -> Factor:
        """Return a merge of factors, or the number if all are equal."""
        first = values[0][1]
        if isinstance(first, float) and all(x == first for _, x in values):
            return first
        shape = merge.shape
        return merge_of(
            self.edit, [(c, broadcast_factor(self.edit, x, shape, merge)) for c, x in values], merge
        )


def _is_exact(value: float, op: Op) -> bool:
    """Whether a number is exact in the operation's element type, for integer types."""
    return is_float(op.dtype) or abs(value) < 2**53


def constant(edit: Edit, value: float, like: Op) -> Read:
    kind = NUMPY[like.dtype]
    if kind.kind in "iu":  # integer factors wrap around, like integer arithmetic
        made = np.asarray(int(value) % 2**64, np.uint64).astype(kind)
    else:
        made = np.asarray(value, kind)
    return edit.read_same_point(edit.add("const", (), ConstAttrs(ConstArray(made)), like=like))


def broadcast_factor(edit: Edit, x: Factor, shape: Shape, like: Op) -> Read:
    """Return a factor as a value of the given shape."""
    read = x if isinstance(x, Read) else constant(edit, x, like)
    source = edit.ops[read.source]
    made, have = edit.read_same_point(source, read.out), source.outputs[read.out].type.shape
    if same_shape(have, shape):
        return read
    if not have:
        have = (1,) * len(shape)
        made = edit.read_same_point(edit.add("reshape", [made], ShapeAttrs(have), like=source))
    if not same_shape(have, shape):
        made = edit.read_same_point(edit.add("expand", [made], ShapeAttrs(shape), like=source))
    return Read(made.source, made.out, read.index, read.cond)


def merge_of(edit: Edit, values: Sequence[tuple[Cond, Read]], like: Op) -> Read:
    """Return a merge of values with their conditions."""
    reads = [Read(r.source, r.out, r.index, cond) for cond, r in values]
    return edit.read_same_point(edit.add("merge", reads, NO_ATTRS, like=like))


PartRule = Callable[[_Decomposition, Op, Sequence[AffineTerm]], AffineTerm]


def _same(decomposition: _Decomposition, op: Op, parts: Sequence[AffineTerm]) -> AffineTerm:
    return parts[0]


def _rest(decomposition: _Decomposition, part: AffineTerm) -> Factor:
    return NONE if part.rest is None else part.rest


def _linear(decomposition: _Decomposition, factor: Factor, rest: Factor, like: Op) -> AffineTerm:
    if isinstance(rest, Read) or rest == NONE:
        return AffineTerm(factor, rest if isinstance(rest, Read) else None)
    return AffineTerm(factor, constant(decomposition.edit, rest, like))


def _neg(decomposition: _Decomposition, op: Op, parts: Sequence[AffineTerm]) -> AffineTerm:
    (x,) = parts
    return _linear(
        decomposition,
        decomposition.minus(x.factor, op),
        decomposition.minus(_rest(decomposition, x), op),
        op,
    )


def _add(decomposition: _Decomposition, op: Op, parts: Sequence[AffineTerm]) -> AffineTerm:
    x, y = parts
    rest = decomposition.add(_rest(decomposition, x), _rest(decomposition, y), op)
    return _linear(decomposition, decomposition.add(x.factor, y.factor, op), rest, op)


def _sub(decomposition: _Decomposition, op: Op, parts: Sequence[AffineTerm]) -> AffineTerm:
    x, y = parts
    if x.rest is not None and y.rest is not None:
        rest: Factor = decomposition.op("sub", x.rest, y.rest, like=op)
    else:
        rest = decomposition.add(
            _rest(decomposition, x), decomposition.minus(_rest(decomposition, y), op), op
        )
    return _linear(
        decomposition, decomposition.add(x.factor, decomposition.minus(y.factor, op), op), rest, op
    )


def _mul(decomposition: _Decomposition, op: Op, parts: Sequence[AffineTerm]) -> AffineTerm:
    for x, by in (parts, parts[::-1]):
        if by.factor == NONE and by.rest is not None:
            if x.factor != NONE and decomposition.as_constant(by.rest) == NONE:
                raise Refused("it multiplies its earlier value by 0")
            rest = decomposition.times(_rest(decomposition, x), by.rest, op)
            return _linear(decomposition, decomposition.times(x.factor, by.rest, op), rest, op)
    raise Refused(f"{op.name} is a product of its value with itself")


def _div(decomposition: _Decomposition, op: Op, parts: Sequence[AffineTerm]) -> AffineTerm:
    x, by = parts
    if by.factor != NONE or by.rest is None:
        raise Refused(f"{op.name} divides by its value")
    rest = None if x.rest is None else decomposition.op("div", x.rest, by.rest, like=op)
    return AffineTerm(decomposition.op("div", x.factor, by.rest, like=op), rest)


def _where(decomposition: _Decomposition, op: Op, parts: Sequence[AffineTerm]) -> AffineTerm:
    chosen, x, y = parts
    if chosen.factor != NONE or chosen.rest is None:
        raise Refused(f"the condition of {op.name} depends on its value")
    decomposition.restarts |= NONE in (x.factor, y.factor)
    factor, rest = (
        a if a == b else decomposition.op("where", chosen.rest, a, b, like=op)
        for a, b in ((x.factor, y.factor), (_rest(decomposition, x), _rest(decomposition, y)))
    )
    return _linear(decomposition, factor, rest, op)


def _merge(decomposition: _Decomposition, op: Op, parts: Sequence[AffineTerm]) -> AffineTerm:
    found = decomposition.branches(op)
    decomposition.restarts |= any(p.factor == NONE for _, p in found)
    factor = decomposition.merge_factors(op, [(c, p.factor) for c, p in found])
    return _linear(
        decomposition,
        factor,
        decomposition.merge_factors(op, [(c, _rest(decomposition, p)) for c, p in found]),
        op,
    )


def _extremum(decomposition: _Decomposition, op: Op, parts: Sequence[AffineTerm]) -> AffineTerm:
    known = [p.rest for p in parts if p.rest is not None]
    rest = (
        known[0]
        if len(known) == 1
        else decomposition.op(op.kind, *known, like=op)
        if known
        else None
    )
    return AffineTerm(1.0, rest)


def _extremum_where(
    decomposition: _Decomposition, op: Op, parts: Sequence[AffineTerm]
) -> AffineTerm:
    chosen, x, y = parts
    if chosen.factor != NONE or chosen.rest is None or NONE in (x.factor, y.factor):
        raise Refused(f"{op.name} omits its value, or its condition depends on it")
    if x.rest is None and y.rest is None:
        return AffineTerm(1.0)
    assert decomposition.extremum is not None
    least = identity(decomposition.extremum, NUMPY[op.dtype])
    rests = [least if p.rest is None else p.rest for p in (x, y)]
    return AffineTerm(1.0, decomposition.op("where", chosen.rest, *rests, like=op))


def _extremum_merge(
    decomposition: _Decomposition, op: Op, parts: Sequence[AffineTerm]
) -> AffineTerm:
    found = decomposition.branches(op)
    if any(p.factor == NONE for _, p in found):
        raise Refused(f"{op.name} omits its value")
    assert decomposition.extremum is not None
    least = identity(decomposition.extremum, NUMPY[op.dtype])
    rests: list[tuple[Cond, Factor]] = [(c, least if p.rest is None else p.rest) for c, p in found]
    rest = decomposition.merge_factors(op, rests)
    return AffineTerm(1.0, rest if isinstance(rest, Read) else None)


LINEAR: Final[Mapping[str, PartRule]] = {
    "copy": _same,
    "detach": _same,
    "neg": _neg,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "where": _where,
    "merge": _merge,
}
EXTREMA: Final[Mapping[str, PartRule]] = {
    "copy": _same,
    "detach": _same,
    "max2": _extremum,
    "min2": _extremum,
    "where": _extremum_where,
    "merge": _extremum_merge,
}
