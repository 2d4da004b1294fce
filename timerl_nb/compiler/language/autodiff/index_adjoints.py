"""Gradients through symbolic indices: sums over the inverse of an access.

If an operation reads x at φ(p), then x at q receives a gradient from every p with φ(p) = q. isl inverts φ. If the
readers of each point form a box, `adjoint` sums over a slice. Otherwise it pads each reader's gradient to the
whole dimensions of the source, which is correct for any access. `through_slices` handles operations that reduce
the slices they read: their gradient is a reduction over the readers, without padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timerl_nb.base.errors import warn
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_text import read_text
from timerl_nb.compiler.ir.graph_verifier import out_of_bounds_error
from timerl_nb.compiler.ir.operation_attributes import DiscountAttrs, ReindexAttrs
from timerl_nb.compiler.ir.operations import Op, Read, own_dims, reached_from
from timerl_nb.compiler.isl.operation_limit import TooMuchWork, at_most
from timerl_nb.compiler.isl.sets_and_relations import Relation, Set, primed_name
from timerl_nb.compiler.language.autodiff.vjp_rules import Node, Tensor, spread
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.inputs.tensor_sources import where, zeros
from timerl_nb.compiler.language.recurrent_tensor import apply, select_where, tensor_of, value_of
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    ZERO,
    Cond,
    Div,
    Entry,
    Lin,
    Mod,
    Slice,
    all_of,
    eq,
    pick,
    span,
    sym,
)
from timerl_nb.compiler.symbolic.substitution import subst

# Points with an effect on the loss, per operation; None if there are none.
Needed = Callable[[], Mapping[int, Set | None]]


@dataclass(frozen=True)
class Inverse:
    """Readers of a source point: a range per dimension of the reader, as functions of the source point.

    Attributes:
        cond: the source points that have readers.
        first: the first reader, per dimension.
        last: the last reader, per dimension.
        exact: whether all points of this box are readers.
        readers: the readers that count; the gradient is zero at others.
    """

    cond: Cond
    first: Mapping[str, Lin]
    last: Mapping[str, Lin]
    exact: bool
    readers: Cond

    @property
    def summed_dims(self) -> Domain:
        """The reader's dimensions along which a point may have several readers."""
        return tuple(d for d, e in self.first.items() if e is not self.last[d])


# Limit of isl operations for one inverse (some seconds); beyond it, gradients are padded.
_INVERSE = 10_000_000
# A relation with more pieces is inverted as a whole.
_MOST_PIECES = 8


def inverses_of(graph: Pdg, op: Op, read: Read, needed: Needed) -> tuple[Inverse, ...]:
    """Invert a read's relation with isl, as a whole or in several pieces.

    In a recurrence only readers with an effect on the loss count: other readers would add dependences, perhaps a
    cycle. Outside of recurrences, an inexact inverse covers whole dimensions, and so does one that isl cannot
    compute within its limit; the latter gives a warning.
    """
    recurrent = _depends(graph, read.source, op.id)
    try:
        with at_most(_INVERSE):
            return tuple(_invert_read(graph, op, read, needed if recurrent else None))
    except TooMuchWork:
        if recurrent:
            raise
        warn(
            f"the reads {read_text(graph.ops, read)} cannot be inverted within the limit on isl's "
            "work: each reader's gradient is padded to whole dimensions, which takes "
            "more memory and time.",
            origin=op.origin,
            hint="read at a simpler index, for example without // and %.",
        )
        return (_anywhere(graph, op, read),)


def _anywhere(graph: Pdg, op: Op, read: Read) -> Inverse:
    ends = {d: graph.dims[d].size - 1 for d in op.domain}
    readers = all_of(op.where, read.cond)
    return Inverse(TRUE, dict.fromkeys(op.domain, ZERO), ends, exact=False, readers=readers)


def _invert_read(graph: Pdg, op: Op, read: Read, needed: Needed | None) -> Iterator[Inverse]:
    """Yield the inverses of a read: bounds of the readers of each source point, for disjoint parts of the source.

    Args:
        graph: the graph.
        op: the reader.
        read: the read to invert.
        needed: for a read in a recurrence, returns the points with an effect on the loss; None for other reads.

    Raises:
        ReadError: no reader reads a defined point.
    """
    source = graph.defined(read)
    relation = graph.reads(op, read).restrict_range(source)
    back, readers = relation.inverse(), all_of(op.where, read.cond)
    if back.is_empty():
        found = graph.reads(op, read).with_least_bounds(1).sample()
        if found is not None:  # a gradient of zero would hide that no reader has a value
            raise out_of_bounds_error(graph, op, read, *found)
        return
    exact = (back.box() - back).is_empty()
    if needed is None:
        if exact:
            yield _ends(graph, op, read, back, readers, exact=True)
        else:
            yield _anywhere(graph, op, read)
        return
    points = needed()[op.id]
    if points is None:
        return
    relation = relation.restrict_domain(points)
    back = relation.inverse()
    if back.is_empty():
        return
    pieces = [back]
    if not (back.box() - back).is_empty():
        conds = [Set.from_condition(graph.dims, op.domain, cond) for cond in _lost_remainders(read)]
        parts = [relation.restrict_domain(of).inverse() for of in conds] or [back]
        pieces = [piece for part in parts for piece in part.disjoint_parts()]
    for piece in pieces if len(pieces) <= _MOST_PIECES else [back]:
        exact = (piece.box() - piece).is_empty()
        of = piece.range().condition(Set.from_condition(graph.dims, op.domain))
        yield _ends(graph, op, read, piece, of, exact=exact)


def _lost_remainders(read: Read) -> list[Cond]:
    """Partition the readers by the remainder of a division that the index does not contain.

    At `L // 2`, two readers share a source point. With L = 3 * a + b they may lie in two rows, and the box around both
    may contain the source point itself. Each part has a smaller box.
    """
    found = set[Div | Mod](atom for entry in read.index for atom in _quotients(entry))
    kept = {(atom.arg, atom.by) for atom in found if isinstance(atom, Mod)}
    lost = {(atom.arg, atom.by) for atom in found if isinstance(atom, Div)} - kept
    if not lost:
        return []
    arg, by = min(lost, key=lambda one: (one[1], str(one[0])))
    return [eq(arg % by, k) for k in range(by)] if by <= _MOST_PIECES // 2 else []


def _quotients(e: Entry) -> Iterator[Div | Mod]:
    for atom, _ in () if isinstance(e, Slice) else e.terms:
        if isinstance(atom, Div | Mod):
            yield atom
            yield from _quotients(atom.arg)


def _ends(graph: Pdg, op: Op, read: Read, back: Relation, readers: Cond, *, exact: bool) -> Inverse:
    source = graph.defined(read)
    ends = {d: back.bounds(d) for d in op.domain}
    first, last = ({d: e[k] for d, e in ends.items()} for k in (0, 1))
    read_at = back.domain()
    cond = read_at.condition(source)
    if cond is not TRUE:  # state the condition relative to all points, not to the defined ones
        cond = read_at.condition(Set.from_condition(graph.dims, source.domain))
    return Inverse(cond, first, last, exact, readers)


def _is_own_point(graph: Pdg, op: Op, read: Read) -> bool:
    domain = graph.output(read).domain
    return graph.is_identity(read) and op.where.symbols.intersection(op.domain) <= set(domain)


def counted_at(c: Tensor, where: Cond) -> Tensor:
    """Extend a partial gradient, zero where undefined, to the points that satisfy `where`."""
    return c if c.subset in (TRUE, where) else c.otherwise(0.0)


def adjoint(graph: Pdg, op: Op, read: Read, c: Tensor, needed: Needed) -> Tensor:
    """Return the gradient of a source: at each point the sum of `c` over its readers.

    The result is defined only where the source is; outside, gradients are zero.

    Args:
        c: the gradient of the read at each reader, in the shape of the read.
        needed: the points of each operation with an effect on the loss; `c` is zero at others.

    Returns:
        the gradient over the source's domain, in the source's shape.
    """
    if _is_own_point(graph, op, read):
        missing = tuple(d for d in op.domain if d not in graph.output(read).domain)
        if op.where not in (TRUE, graph[read.source].where, c.subset):
            c = c.given(op.where)
        return _sum_over(c, missing)
    c = counted_at(c, op.where)
    found = inverses_of(graph, op, read, needed)
    parts = [_adjoint_part(graph, op, read, c, inverse) for inverse in found]
    return _sum_tensors(parts) if parts else zeros(graph.output(read).type.shape, c.dtype)


def _sum_tensors(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _adjoint_part(graph: Pdg, op: Op, read: Read, c: Tensor, inverse: Inverse) -> Tensor:
    """Return the gradient from the readers of one inverse."""
    if not inverse.exact or _varies(c, read, inverse):
        return _sum_padded(graph, op, read, c, inverse)
    positions = [
        sym(d) - subst(entry.lo, inverse.first)
        for d, entry in zip(graph.output(read).domain, read.index, strict=True)
        if isinstance(entry, Slice)
    ]
    if not positions and not inverse.summed_dims and inverse.cond is not TRUE:
        return _or_zero(c.at(dict(inverse.first)), inverse.cond, graph.output(read).domain)
    there, lead = _readers(c, inverse)
    for position in positions:
        there = there.take(Index(c.ctx, pick(inverse.cond, position, 0)), lead)
    return _added_up(there, lead, c, inverse)


def _varies(c: Tensor, read: Read, inverse: Inverse) -> bool:
    """Test whether the readers of a point read it at different positions or in slices of different lengths."""
    sizes = [s for s in c.shape if isinstance(s, Lin)]
    starts = [e.lo for e in read.index if isinstance(e, Slice)]
    return any(e.symbols.intersection(inverse.summed_dims) for e in (*sizes, *starts))


def _sum_padded(graph: Pdg, op: Op, read: Read, c: Tensor, inverse: Inverse) -> Tensor:
    """Sum over the readers, each padded to the whole dimensions of its slices.

    This is correct for any access, but each reader's part has the size of the dimension. One sum over all
    points serves all source points. If the source depends on its own slices, such a sum would wait for all points;
    each point then sums only the box around its readers.
    """
    ctx, domain = c.ctx, graph.output(read).domain
    own = own_dims(read.index, domain)
    lead = 0
    for d, entry in zip(domain, read.index, strict=True):
        if d in own:
            continue
        lo = entry.lo if isinstance(entry, Slice) else entry
        part = c if isinstance(entry, Slice) else c.unsqueeze(lead)
        c = apply("reindex", [part], ReindexAttrs.padded(lead, lo, ctx.space[d].size))
        lead += 1
    if inverse.readers is not TRUE:
        c = _or_zero(c, inverse.readers, op.domain)
    if _depends(graph, read.source, op.id):
        there, axes = _readers(c, inverse)
        total = _added_up(there, axes, c, inverse)
    else:
        total = _sum_over(c, [d for d in op.domain if d not in own])
    for d in domain:
        if d not in own:
            total = total.take(Index(ctx, sym(d)))
    return total


def _depends(graph: Pdg, op_id: int, on: int) -> bool:
    return on in reached_from([op_id], lambda k: graph[k].sources)


def _sum_over(c: Tensor, dims: Sequence[str]) -> Tensor:
    """Sum over dimensions, including those that `c` does not vary over."""
    inside = tuple(d for d in dims if d in c.domain)
    total = c.sum(over=inside) if inside else c
    for d in dims:
        if d not in c.domain:
            total = total * value_of(c.ctx, c.ctx.space[d].size).cast(c.dtype)
    return total


def _readers(c: Tensor, inverse: Inverse) -> tuple[Tensor, int]:
    """Return `c` at all readers of a source point, and the number of leading axes that count readers.

    A point without readers has empty ranges, and 0 for all other indices.
    """
    along = [d for d in c.domain if d in inverse.summed_dims]
    if inverse.cond is not TRUE and not along:
        along = list(c.domain[:1])
    entries: dict[str, Entry] = {}
    for d in c.domain:
        first = inverse.first[d]
        if first is not sym(d):
            first = pick(inverse.cond, first, 0)
        if d in along:
            entries[d] = span(first, pick(inverse.cond, inverse.last[d] + 1, first))
        else:
            entries[d] = first
    return c.at(entries), len(along)


def _added_up(there: Tensor, lead: int, c: Tensor, inverse: Inverse) -> Tensor:
    """Sum over the readers; readers with the same `c` are counted."""
    total = there.sum(axis=tuple(range(lead))) if lead else there
    for d in inverse.summed_dims:
        if d not in c.domain:
            count = inverse.last[d] - inverse.first[d] + 1
            total = total * value_of(c.ctx, count).cast(c.dtype)
    if inverse.cond is not TRUE and not lead:
        total = where(value_of(c.ctx, inverse.cond), total, 0.0)
    return total


def _or_zero(x: Tensor, cond: Cond, domain: Domain) -> Tensor:
    """Return `x` at the points that satisfy the condition, zeros at the others."""
    return select_where(x, cond, domain, zeros(x.shape, x.dtype))


def through_slices(graph: Pdg, node: Node, g: Tensor, needed: Needed) -> Tensor | None:
    """Return the gradient through a reduction of all its slices, as a reduction over the readers.

    Return None if the operation is not such a reduction, or the readers of a point do not form boxes.
    """
    op, read = node.op, node.op.inputs[0]
    slices = sum(isinstance(e, Slice) for e in read.index)
    if not slices or not _reduces(op, slices):
        return None
    found = inverses_of(graph, op, read, needed)
    if not all(inverse.exact for inverse in found):
        return None
    g = counted_at(g, op.where)
    if not found:
        return zeros(graph.output(read).type.shape, g.dtype)
    return _sum_tensors([_reduction_adjoint(graph, node, g, slices, inverse) for inverse in found])


def _reduction_adjoint(graph: Pdg, node: Node, g: Tensor, slices: int, inverse: Inverse) -> Tensor:
    """Return the gradient from the readers of one inverse."""
    op, read = node.op, node.op.inputs[0]
    if op.kind == "discounted_sum":
        return _through_discount(graph, node, g, inverse)
    source = tensor_of(node.ctx, graph[read.source], read.out)
    inner = [a - slices for a in op.attrs.axes if a >= slices]  # reduced axes of the source
    if op.kind == "sum":
        c = spread(g, inner, source.shape)
        there, lead = _readers(c, inverse)
        return _added_up(there, lead, c, inverse)
    x = node.inputs[0]
    here = x == spread(node.output, op.attrs.axes, x.shape)
    share = g / here.sum(axis=list(op.attrs.axes)).cast(g.dtype)  # equal maxima share the gradient
    share, best = (spread(c, inner, source.shape) for c in (share, node.output))
    shares, lead = _readers(share, inverse)
    bests, _ = _readers(_varying(best, share.domain), inverse)
    return _added_up(where(source == bests, shares, 0.0), lead, share, inverse)


def _reduces(op: Op, slices: int) -> bool:
    """Test whether the operation reduces the axes of all slices that it reads."""
    if op.kind in ("sum", "max", "min"):
        return set(range(slices)) <= set(op.attrs.axes)
    return op.kind == "discounted_sum" and slices == 1 and op.attrs.axis == 0


def _through_discount(graph: Pdg, node: Node, g: Tensor, inverse: Inverse) -> Tensor:
    """Return the gradient of a discounted sum over slices.

    If the exponent of the discount changes by one from reader to reader, the gradient is a discounted sum over the
    readers. Otherwise it is a sum with explicit powers.
    """
    op, read = node.op, node.op.inputs[0]
    attrs: DiscountAttrs = op.attrs
    ((at, entry),) = [
        (sym(d), e)
        for d, e in zip(graph.output(read).domain, read.index, strict=True)
        if isinstance(e, Slice)
    ]
    # Reader p weights the point by gamma to this power; the symbols of p are primed.
    reader = {d: sym(primed_name(d)) for d in op.domain}
    power = subst(entry.hi, reader) - 1 - at if attrs.reverse else at - subst(entry.lo, reader)
    moving = [d for d in inverse.summed_dims if primed_name(d) in power.symbols]
    fixed = {primed_name(d): e for d, e in inverse.first.items() if d not in inverse.summed_dims}
    if not moving:
        there, lead = _readers(g, inverse)
        return _added_up(there, lead, g, inverse) * _power(node, subst(power, fixed), inverse)
    d = moving[0]
    # change of the power per step of the reader
    slope = power - subst(power, {primed_name(d): reader[d] - 1})
    g = _varying(g, moving)
    if len(moving) > 1 or not slope.is_const or abs(slope.const) != 1:
        end = entry.hi - 1 if attrs.reverse else entry.lo
        return _discount_weighted_sum(g, at, end, attrs, inverse)
    there, lead = _readers(g, inverse)
    axis = [x for x in g.domain if x in inverse.summed_dims].index(d)
    # The reader with the least power is the first or the last one.
    nearest = inverse.first[d] if slope.const > 0 else inverse.last[d]
    attrs = DiscountAttrs(axis, attrs.gamma, reverse=slope.const < 0)
    summed = apply("discounted_sum", [there], attrs)
    total = _added_up(summed, lead - 1, g, inverse)
    return total * _power(node, subst(power, {**fixed, primed_name(d): nearest}), inverse)


def _discount_weighted_sum(
    g: Tensor, at: Lin, end: Lin, attrs: DiscountAttrs, inverse: Inverse
) -> Tensor:
    """Sum `g` over the readers, discounted by the distance of `at` from the `end` of each reader's slice."""
    ends = _varying(value_of(g.ctx, end), g.domain)
    there, lead = _readers(g, inverse)
    ends, _ = _readers(ends, inverse)
    distance = (ends - value_of(g.ctx, at)) * (1 if attrs.reverse else -1)
    weight = (attrs.gamma ** distance.cast(g.dtype)).reshape(
        (*ends.shape, *(1,) * (there.rank - lead))
    )
    return _added_up(there * weight, lead, g, inverse)


def _varying(x: Tensor, dims: Iterable[str]) -> Tensor:
    """Broadcast values over dimensions."""
    for d in dims:
        if d not in x.domain:
            x = x + value_of(x.ctx, sym(d)).cast(x.dtype) * 0
    return x


def _power(node: Node, power: Lin, inverse: Inverse) -> Any:
    """Return gamma to a power, or to 0 at points without readers: infinity times zero is NaN."""
    gamma, power = node.op.attrs.gamma, pick(inverse.cond, power, 0)
    if power.is_const:
        return gamma**power.const
    return gamma ** value_of(node.ctx, power).cast("f32")
