"""Reverse-mode differentiation through symbolic dimensions (000_9a2364bc51ddf94b.txt §5.1).

For an edge y[p] = f(x[φ(p)]), the gradient of x at q is the sum of f'(∇y[p]) over all p with
φ(p) = q: `VJP` holds the f' of each kind, and `_pull` the sum over the inverse of φ, which isl
computes. Cycles pass through merges, whose gradients are made first and defined last; so a
recurrence's gradient is a recurrence again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from timerl_nb.errors import GradientError
from timerl_nb.frontend.context import Context
from timerl_nb.frontend.indexing import Index
from timerl_nb.frontend.sources import Parameter, where, zeros
from timerl_nb.frontend.tensor import (
    RecurrentTensor,
    apply,
    broadcast_to,
    constant,
    dot,
    register_backward,
    value_of,
)
from timerl_nb.ir.attrs import (
    AtAttrs,
    AxesAttrs,
    AxisAttrs,
    DiscountAttrs,
    DotAttrs,
    PermAttrs,
    PlaceAttrs,
    RangeAttrs,
    SlidingAttrs,
)
from timerl_nb.ir.needed import restricted
from timerl_nb.ir.ops import Op, Read
from timerl_nb.ir.pdg import Pdg, at_own_point
from timerl_nb.ir.shapes import Shape, is_float, same_size
from timerl_nb.symbolic.domain import Domain
from timerl_nb.symbolic.expr import (
    TRUE,
    Cond,
    Entry,
    Lin,
    Slice,
    all_of,
    const,
    ge,
    negate,
    pick,
    span,
    subst,
    sym,
)
from timerl_nb.symbolic.polyhedra import Relation, primed

Tensor = RecurrentTensor


@dataclass(frozen=True)
class Node:
    """An operation being differentiated: its operands and result as tensors at its own point."""

    ctx: Context
    op: Op
    inputs: tuple[Tensor, ...]
    output: Tensor


Rule = Callable[[Node, Tensor], Sequence[Tensor | None]]


# --- the rules -----------------------------------------------------------------------------------


def _fit(g: Tensor, shape: Shape) -> Tensor:
    """Sum a gradient over the axes along which its operand was repeated."""
    if not shape:
        return g.sum()
    axes = [
        k
        for k, (have, want) in enumerate(zip(g.shape, shape, strict=True))
        if want == 1 and not same_size(have, want)
    ]
    return g.sum(axis=axes).reshape(shape) if axes else g


def _unary(derivative: Callable[[Tensor, Tensor], Any]) -> Rule:
    """dy/dx as a function of x and y."""
    return lambda node, g: [g * derivative(node.inputs[0], node.output)]


def _binary(rule: Callable[[Tensor, Tensor, Tensor, Tensor], Sequence[Tensor]]) -> Rule:
    """The operands' gradients as a function of g, x, y and the result, before the repeated axes."""

    def fitted(node: Node, g: Tensor) -> Sequence[Tensor]:
        x, y = node.inputs
        both = rule(g, x, y, node.output)
        return [_fit(part, to.shape) for part, to in zip(both, (x, y), strict=True)]

    return fitted


def _pow(g: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Sequence[Tensor]:
    safe = where(x > 0.0, x, 1.0)
    return g * y * x ** (y - 1.0), where(x > 0.0, g * z * safe.log(), 0.0)


def _pick_larger(g: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Sequence[Tensor]:
    half = where(x == y, 0.5, 1.0)  # ties share
    return where(x == z, g * half, 0.0), where(y == z, g * half, 0.0)


def _where(node: Node, g: Tensor) -> Sequence[Tensor | None]:
    condition, x, y = node.inputs
    return [None, _fit(where(condition, g, 0.0), x.shape), _fit(where(condition, 0.0, g), y.shape)]


def _spread(g: Tensor, axes: Sequence[int], shape: Shape) -> Tensor:
    """Put back reduced axes."""
    kept = tuple(1 if k in axes else s for k, s in enumerate(shape))
    return broadcast_to(g.reshape(kept), shape)


def _sum(node: Node, g: Tensor) -> Sequence[Tensor]:
    attrs: AxesAttrs = node.op.attrs
    return [_spread(g, attrs.axes, node.inputs[0].shape)]


def _prod(node: Node, g: Tensor) -> Sequence[Tensor]:
    # the product of the others: by division, unless a zero is among them
    attrs: AxesAttrs = node.op.attrs
    (x,) = node.inputs
    zero = x == 0.0
    many = _spread(zero.sum(axis=list(attrs.axes)), attrs.axes, x.shape)
    whole = _spread(where(zero, 1.0, x).prod(axis=list(attrs.axes)), attrs.axes, x.shape)
    alone = where(zero & (many == 1), whole, 0.0)
    others = where(many == 0, whole / where(zero, 1.0, x), alone)
    return [others * _spread(g, attrs.axes, x.shape)]


def _max(node: Node, g: Tensor) -> Sequence[Tensor]:
    attrs: AxesAttrs = node.op.attrs
    (x,) = node.inputs
    here = (x == _spread(node.output, attrs.axes, x.shape)).cast(x.dtype)
    ties = here.sum(axis=list(attrs.axes))
    return [here * _spread(g / ties, attrs.axes, x.shape)]


def _discounted(node: Node, g: Tensor) -> Sequence[Tensor]:
    attrs: DiscountAttrs = node.op.attrs
    (x,) = node.inputs
    size = x.shape[attrs.axis]
    if not isinstance(size, int):
        raise GradientError(
            "this discounted sum runs over a symbolic length that is not a slice it reads itself.",
            hint="apply discounted_sum directly to the slice.",
        )
    weights = attrs.gamma ** np.arange(size)
    weights = weights[::-1] if attrs.reverse else weights
    along = weights.reshape([-1 if k == attrs.axis else 1 for k in range(x.rank)])
    return [_spread(g, [attrs.axis], x.shape) * constant(node.ctx, along, x.dtype)]


def _sliding(node: Node, g: Tensor) -> Sequence[Tensor]:
    a: SlidingAttrs = node.op.attrs
    return [apply("sliding_sum", [g], SlidingAttrs(a.axis, a.gamma, a.window, not a.forward))]


def _dot(node: Node, g: Tensor) -> Sequence[Tensor]:
    a: DotAttrs = node.op.attrs
    x, y = node.inputs
    return [
        _dot_operand(g, y, a.out, a.right, a.left, x.shape),
        _dot_operand(g, x, a.out, a.left, a.right, y.shape),
    ]


def _dot_operand(
    g: Tensor, other: Tensor, out: str, labels: str, want: str, shape: Shape
) -> Tensor:
    # labels of the operand that are summed away alone come back by repetition
    known = "".join(x for x in want if x in out or x in labels)
    made = dot(g, other, f"{out},{labels}->{known}")
    if known == want:
        return made
    kept = tuple(s if label in known else 1 for label, s in zip(want, shape, strict=True))
    return broadcast_to(made.reshape(kept), shape)


def _transpose(node: Node, g: Tensor) -> Sequence[Tensor]:
    attrs: PermAttrs = node.op.attrs
    back = tuple(attrs.perm.index(k) for k in range(len(attrs.perm)))
    return [apply("transpose", [g], PermAttrs(back))]


def _concat(node: Node, g: Tensor) -> Sequence[Tensor]:
    attrs: AxisAttrs = node.op.attrs
    found: list[Tensor] = []
    start = const(0)
    for x in node.inputs:
        end = start + x.shape[attrs.axis]
        found.append(apply("range", [g], RangeAttrs(attrs.axis, start, end)))
        start = end
    return found


def _placed(g: Tensor, axis: int, lo: Lin, x: Tensor) -> Tensor:
    """The gradient of positions of an axis, from `lo` on, as one of all its positions in `x`."""
    return apply("place", [g], PlaceAttrs(axis, lo, x.shape[axis]))


def _range(node: Node, g: Tensor) -> Sequence[Tensor]:
    attrs: RangeAttrs = node.op.attrs
    return [_placed(g, attrs.axis, attrs.lo, node.inputs[0])]


def _at(node: Node, g: Tensor) -> Sequence[Tensor]:
    attrs: AtAttrs = node.op.attrs
    return [_placed(g.unsqueeze(attrs.axis), attrs.axis, attrs.at, node.inputs[0])]


def _place(node: Node, g: Tensor) -> Sequence[Tensor]:
    attrs: PlaceAttrs = node.op.attrs
    end = attrs.lo + node.inputs[0].shape[attrs.axis]
    return [apply("range", [g], RangeAttrs(attrs.axis, attrs.lo, end))]


VJP: Final[Mapping[str, Rule]] = {
    "neg": lambda node, g: [-g],
    "abs": _unary(lambda x, y: x.sign()),
    "exp": _unary(lambda x, y: y),
    "log": lambda node, g: [g / node.inputs[0]],
    "sqrt": lambda node, g: [g / (node.output * 2.0)],
    "sin": _unary(lambda x, y: x.cos()),
    "cos": _unary(lambda x, y: -x.sin()),
    "tanh": _unary(lambda x, y: 1.0 - y * y),
    "sigmoid": _unary(lambda x, y: y * (1.0 - y)),
    "erf_inv": _unary(lambda x, y: (y * y).exp() * float(np.sqrt(np.pi) / 2)),
    "cast": lambda node, g: [g.cast(node.inputs[0].dtype)],
    "copy": lambda node, g: [g],
    "add": _binary(lambda g, x, y, z: (g, g)),
    "sub": _binary(lambda g, x, y, z: (g, -g)),
    "mul": _binary(lambda g, x, y, z: (g * y, g * x)),
    "div": _binary(lambda g, x, y, z: (g / y, -(g * z / y))),
    "pow": _binary(_pow),
    "max2": _binary(_pick_larger),
    "min2": _binary(_pick_larger),
    "mod": _binary(lambda g, x, y, z: (g, -(g * (x / y).floor()))),
    "where": _where,
    "sum": _sum,
    "prod": _prod,
    "max": _max,
    "min": _max,
    "discounted_sum": _discounted,
    "sliding_sum": _sliding,
    "dot": _dot,
    "reshape": lambda node, g: [g.reshape(node.inputs[0].shape)],
    "transpose": _transpose,
    "expand": lambda node, g: [_fit(g, node.inputs[0].shape)],
    "concat": _concat,
    "range": _range,
    "at": _at,
    "place": _place,
    "flip": lambda node, g: [apply("flip", [g], node.op.attrs)],
}
NO_VJP: Final[Mapping[str, str]] = {
    "const": "a constant",
    "data": "given values",
    "value": "an index",
    "rng": "random bits",
    "unit": "random numbers",
    "detach": "detached",
    "floor": "piecewise constant",
    "sign": "piecewise constant",
    "floordiv": "piecewise constant",
    "not": "boolean",
    "eq": "a comparison",
    "ne": "a comparison",
    "lt": "a comparison",
    "le": "a comparison",
    "and": "boolean",
    "or": "boolean",
    "argmax": "an integer choice",
    "merge": "differentiated by branch in `gradients`",
    "accumulate": "made by the compiler, after differentiation",
    "dataflow": "made by the compiler, after differentiation",
    "output": "a sink",
    "checkpoint": "a sink",
    "call": "a sink",
    "udf": "a function that the compiler cannot see into",
}


# --- the pass over the graph ---------------------------------------------------------------------


def backward(loss: Tensor) -> None:
    """Add to each parameter's `grad` the gradient of the sum of `loss` over all its points.

    Raises:
        GradientError: no parameter can be reached, or only through what has no derivative.
    """
    ctx = loss.ctx
    leaves: list[Parameter] = list(ctx.parameters.values())
    with ctx.attempt():
        found = gradients(loss, [RecurrentTensor(ctx, p.read) for p in leaves], optional=True)
    if all(g is None for g in found):
        raise GradientError(
            "backward() reaches no parameter from this loss.",
            hint="check that the loss depends on parameters and was not detached.",
        )
    for leaf, g in zip(leaves, found, strict=True):
        if g is not None:
            leaf.accumulate(g)


def grad(loss: Tensor, of: Tensor | Sequence[Tensor]) -> Any:
    """The gradients of the sum of `loss` over its points, with respect to each tensor in `of`.

    Returns one tensor for one, a list for a list; over the domain of the tensor they belong to.

    Raises:
        GradientError: a tensor cannot be reached, or only through what has no derivative.
    """
    several = [of] if isinstance(of, RecurrentTensor) else list(of)
    with loss.ctx.attempt():
        found = gradients(loss, several, optional=False)
    return found[0] if isinstance(of, RecurrentTensor) else found


def gradients(loss: Tensor, leaves: Sequence[Tensor], *, optional: bool) -> list[Tensor | None]:
    """The gradients with respect to the leaves; None (where `optional`) for what is not reached."""
    if not is_float(loss.dtype):
        raise GradientError(f"only floating-point values have a gradient, not {loss.type}.")
    ctx = loss.ctx
    loss = loss.settled()
    for leaf in leaves:
        if leaf.read != at_own_point(leaf.read.source, leaf.op.outputs[0]):
            raise GradientError(
                f"the gradient of an indexed tensor ({leaf.name}) is not defined.",
                hint="take the gradient with respect to the tensor itself and index that.",
            )
    graph = restricted(ctx.snapshot(), [loss.read.source])
    targets = {leaf.read.source for leaf in leaves}
    active = _active(graph, ctx, loss.read.source, targets)
    total: dict[int, list[Tensor]] = {op_id: [] for op_id in active}
    if loss.read.source in active:
        total[loss.read.source].append(broadcast_to(constant(ctx, 1.0, loss.dtype), loss.shape))

    # A merge's gradient is needed by its branches, perhaps before all its readers are known.
    pending: dict[int, Tensor] = {}
    for op_id in active:
        op = graph[op_id]
        if op.kind == "merge" and (op_id not in targets or op_id not in ctx.parameters):
            ctx.traversed(op_id)
            made = ctx.open_merge(op.type, op.domain, f"d{op.label}" if op.label else "")
            pending[op_id] = RecurrentTensor(ctx, at_own_point(made.id, made.outputs[0]))
            for read in op.inputs:
                if read.source in active:
                    total[read.source].append(_pull(graph, op, read, pending[op_id]))
    for op_id in reversed(graph.order):
        op = graph[op_id]
        if op_id in active and op.kind != "merge":
            parts = total[op_id]
            if parts and op.kind in VJP:
                _differentiate(ctx, graph, op, _added(parts), total)
    for op_id, gradient in pending.items():
        whole = _added(total[op_id]) if total[op_id] else zeros(gradient.shape, gradient.dtype)
        ctx.set_branches(gradient.read.source, [whole.read])

    result: list[Tensor | None] = []
    for leaf in leaves:
        op_id = leaf.read.source
        if op_id in pending:
            result.append(pending[op_id])
        elif total.get(op_id):
            result.append(_over(_added(total[op_id]).settled(), leaf.domain))
        elif optional:
            result.append(None)
        else:
            raise _unreached(graph, ctx, loss, leaf)
    return result


def _over(g: Tensor, domain: Domain) -> Tensor:
    """The gradient as a tensor over the whole domain, also where it is the same everywhere."""
    if g.domain == domain:
        return g
    merge = g.ctx.open_merge(g.type, domain)
    g.ctx.set_branches(merge.id, [g.read])
    return RecurrentTensor(g.ctx, at_own_point(merge.id, merge.outputs[0]))


def _added(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _stops(ctx: Context, op: Op) -> bool:
    """Whether gradients do not flow through the operation into its operands."""
    if op.kind == "merge":
        return op.id in ctx.parameters
    return op.kind not in VJP or not is_float(op.dtype)


def _active(graph: Pdg, ctx: Context, root: int, targets: set[int]) -> dict[int, None]:
    """The operations on a path of floating-point values from the root to a target."""
    reached: dict[int, None] = {}
    stack = [root]
    while stack:
        op_id = stack.pop()
        if op_id in reached or not is_float(graph[op_id].dtype):
            continue
        reached[op_id] = None
        if not _stops(ctx, graph[op_id]):
            stack += [read.source for read in graph[op_id].inputs]
    useful: set[int] = set()
    stack = [t for t in targets if t in reached]
    while stack:
        op_id = stack.pop()
        if op_id in useful:
            continue
        useful.add(op_id)
        for reader, _ in graph.readers[op_id]:
            if reader in reached and not _stops(ctx, graph[reader]):
                stack.append(reader)
    return {op_id: None for op_id in graph.order if op_id in useful}


def _unreached(graph: Pdg, ctx: Context, loss: Tensor, leaf: Tensor) -> GradientError:
    """Say what lies between the loss and a leaf that the gradient does not reach."""
    seen: dict[int, None] = {}
    stack = [loss.read.source]
    while stack:
        op_id = stack.pop()
        if op_id not in seen:
            seen[op_id] = None
            stack += [read.source for read in graph[op_id].inputs]
    if leaf.read.source not in seen:
        return GradientError(f"the loss does not depend on {leaf.name}.")
    blocks = {
        f"{op.name} ({NO_VJP.get(op.kind, 'a parameter')}) at": op.origin
        for op in (graph[k] for k in seen)
        if _stops(ctx, op) and op.inputs and op.id != leaf.read.source
    }
    return GradientError(
        f"the gradient reaches {leaf.name} only through operations without a derivative.",
        others=dict(list(blocks.items())[:4]),
        hint="differentiate another path, or with respect to another tensor.",
    )


def _differentiate(
    ctx: Context, graph: Pdg, op: Op, g: Tensor, total: dict[int, list[Tensor]]
) -> None:
    """Add to each active operand's total what the operation contributes."""
    inputs = tuple(RecurrentTensor(ctx, read) for read in op.inputs)
    node = Node(ctx, op, inputs, RecurrentTensor(ctx, at_own_point(op.id, op.outputs[0])))
    slots = [k for k, read in enumerate(op.inputs) if read.source in total]
    inverse = _inverse(graph, op, op.inputs[0]) if slots and _reduces_its_slices(op) else None
    if inverse is not None:
        total[op.inputs[0].source].append(_through_slices(graph, node, g, inverse))
    elif slots:
        parts = VJP[op.kind](node, g)
        for slot in slots:
            part = parts[slot]
            if part is not None:
                total[op.inputs[slot].source].append(_pull(graph, op, op.inputs[slot], part))


# --- through symbolic indices --------------------------------------------------------------------


@dataclass(frozen=True)
class Inverse:
    """Who reads a source point: per dimension of the reader a range, as expressions of the source.

    `first[d] <= d <= last[d]`, at the source points where `cond` holds; nobody reads the others.
    """

    cond: Cond
    first: Mapping[str, Lin]
    last: Mapping[str, Lin]

    @property
    def many(self) -> Domain:
        """The reader's dimensions over which there may be several readers of one point."""
        return tuple(d for d, e in self.first.items() if e is not self.last[d])


def _inverse(graph: Pdg, op: Op, read: Read) -> Inverse | None:
    """Invert a read's relation with isl; None where the readers of a point form no box."""
    source = graph.defined(read)
    relation = graph.reads(op, read).within(source)
    back = relation.inverse()
    ends = {d: back.bounds(d) for d in op.domain}
    first, last = ({d: e[k] for d, e in ends.items()} for k in (0, 1))
    names = {d: sym(primed(d)) for d in op.domain}
    box = Relation.of(
        graph.dims,
        back.left,
        back.right,
        all_of(*(all_of(ge(names[d], first[d]), ge(last[d], names[d])) for d in op.domain)),
    )
    exact = Relation(graph.dims, back.left, back.right, box.raw.intersect_domain(back.raw.domain()))
    if (exact - back).sample() is not None:
        return None
    return Inverse(back.domain().condition(source), first, last)


def _is_own_point(graph: Pdg, op: Op, read: Read) -> bool:
    return op.where is TRUE and graph.is_identity(read)


def _pull(graph: Pdg, op: Op, read: Read, c: Tensor) -> Tensor:
    """The sum, over the points that read a source point, of their `c` for it.

    `c` is given at the reader's points and has the shape that the read has; the result is over the
    source's domain and has the source's shape.
    """
    if _is_own_point(graph, op, read):
        missing = tuple(d for d in op.domain if d not in graph.output(read).domain)
        return _sum_over(c, missing)
    inverse = _inverse(graph, op, read)
    if inverse is None or _varies(c, read, inverse):
        return _laid_out(graph, op, read, c)
    positions = [
        sym(d) - subst(entry.lo, inverse.first)
        for d, entry in zip(graph.output(read).domain, read.index, strict=True)
        if isinstance(entry, Slice)
    ]
    if not positions and not inverse.many and inverse.cond is not TRUE:
        return _guarded(c.at(dict(inverse.first)), inverse.cond, graph.output(read).domain)
    there, lead = _readers(c, inverse)
    for position in positions:
        there = there.take(Index(c.ctx, pick(inverse.cond, position, 0)), lead)
    return _added_up(there, lead, c, inverse)


def _varies(c: Tensor, read: Read, inverse: Inverse) -> bool:
    """Whether the readers of a point lay it at different places, or in slices of other lengths."""
    sizes = [s for s in c.shape if isinstance(s, Lin)]
    starts = [e.lo for e in read.index if isinstance(e, Slice)]
    return any(e.symbols.intersection(inverse.many) for e in (*sizes, *starts))


def _laid_out(graph: Pdg, op: Op, read: Read, c: Tensor) -> Tensor:
    """The sum over all readers, each laid out along the whole dimensions that it reads of.

    Right for any access, at a price: every reader's part has the size of the dimension, and no
    point's gradient is there before all readers have run.
    """
    ctx, domain = c.ctx, graph.output(read).domain
    if _depends(graph, read.source, op.id):
        raise GradientError(
            f"{graph[read.source].name} is defined through slices of itself that are not reduced "
            "at once: each point's gradient would wait for all.",
            origin=op.origin,
            hint="reduce the slice first (sum, max, discounted_sum), or read its points one by one.",
        )
    own = {
        d
        for d, e in zip(domain, read.index, strict=True)
        if isinstance(e, Lin) and e.as_symbol == d
    }
    lead = 0
    for d, entry in zip(domain, read.index, strict=True):
        if d in own:
            continue
        lo = entry.lo if isinstance(entry, Slice) else entry
        part = c if isinstance(entry, Slice) else c.unsqueeze(lead)
        c = apply("place", [part], PlaceAttrs(lead, lo, ctx.space[d].size))
        lead += 1
    cond = all_of(op.where, read.cond)
    if cond is not TRUE:
        c = _guarded(c, cond, op.domain)
    total = _sum_over(c, [d for d in op.domain if d not in own])
    for d in domain:
        if d not in own:
            total = total.take(Index(ctx, sym(d)))
    return total


def _depends(graph: Pdg, op_id: int, on: int) -> bool:
    seen, stack = set[int](), [op_id]
    while stack:
        k = stack.pop()
        if k == on:
            return True
        if k not in seen:
            seen.add(k)
            stack += [read.source for read in graph[k].inputs]
    return False


def _sum_over(c: Tensor, dims: Sequence[str]) -> Tensor:
    """The sum of `c` over dimensions, also over those that it does not vary over."""
    inside = tuple(d for d in dims if d in c.domain)
    total = c.sum(over=inside) if inside else c
    for d in dims:
        if d not in c.domain:
            total = total * value_of(c.ctx, c.ctx.space[d].size).cast(c.dtype)
    return total


def _readers(c: Tensor, inverse: Inverse) -> tuple[Tensor, int]:
    """`c` at all readers of a source point, and how many leading axes they are laid out along.

    Where nobody reads the point there are none: then all ranges are empty, and all indices 0.
    """
    along = [d for d in c.domain if d in inverse.many]
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
    """The sum over the readers; those that `c` does not tell apart are counted."""
    total = there.sum(axis=tuple(range(lead))) if lead else there
    for d in inverse.many:
        if d not in c.domain:
            count = inverse.last[d] - inverse.first[d] + 1
            total = total * value_of(c.ctx, count).cast(c.dtype)
    if inverse.cond is not TRUE and not lead:
        total = where(value_of(c.ctx, inverse.cond), total, 0.0)
    return total


def _guarded(x: Tensor, cond: Cond, domain: Domain) -> Tensor:
    """`x` where the condition holds, zeros elsewhere."""
    ctx = x.ctx
    merge = ctx.open_merge(x.type, domain)
    zero = zeros(x.shape, x.dtype).read
    ctx.set_branches(
        merge.id,
        [
            Read(x.read.source, x.read.out, x.read.index, cond),
            Read(zero.source, zero.out, zero.index, negate(cond)),
        ],
    )
    return RecurrentTensor(ctx, at_own_point(merge.id, merge.outputs[0]))


def _reduces_its_slices(op: Op) -> bool:
    """Whether the operation reduces every slice that it reads, so that none need be spread out."""
    slices = sum(isinstance(e, Slice) for e in op.inputs[0].index)
    if not slices or len(op.inputs) > 1:
        return False
    if op.kind in ("sum", "max", "min"):
        return set(range(slices)) <= set(op.attrs.axes)
    return op.kind == "discounted_sum" and slices == 1 and op.attrs.axis == 0


def _through_slices(graph: Pdg, node: Node, g: Tensor, inverse: Inverse) -> Tensor:
    """The gradient through a reduction of slices: a reduction over the readers of each point."""
    op, read = node.op, node.op.inputs[0]
    source = RecurrentTensor(node.ctx, at_own_point(read.source, graph.output(read), read.out))
    slices = sum(isinstance(e, Slice) for e in read.index)
    if op.kind == "discounted_sum":
        return _through_discount(graph, node, g, inverse)
    inner = [a - slices for a in op.attrs.axes if a >= slices]  # concrete axes reduced along
    if op.kind == "sum":
        c = _spread(g, inner, source.shape)
        there, lead = _readers(c, inverse)
        return _added_up(there, lead, c, inverse)
    x = node.inputs[0]
    here = x == _spread(node.output, op.attrs.axes, x.shape)
    share = g / here.sum(axis=list(op.attrs.axes)).cast(g.dtype)  # ties share
    share, best = (_spread(c, inner, source.shape) for c in (share, node.output))
    shares, lead = _readers(share, inverse)
    bests, lead_best = _readers(best, inverse)
    if lead != lead_best:
        raise GradientError(f"the gradient of {op.kind} does not vary as its value does.")
    return _added_up(where(source == bests, shares, 0.0), lead, share, inverse)


def _through_discount(graph: Pdg, node: Node, g: Tensor, inverse: Inverse) -> Tensor:
    op, read = node.op, node.op.inputs[0]
    attrs: DiscountAttrs = op.attrs
    (along,) = [
        (sym(d), e)
        for d, e in zip(graph.output(read).domain, read.index, strict=True)
        if isinstance(e, Slice)
    ]
    at, entry = along
    # the weight that reader p gives to the point is gamma to this power; p's symbols have a prime
    reader = {d: sym(primed(d)) for d in op.domain}
    power = subst(entry.hi, reader) - 1 - at if attrs.reverse else at - subst(entry.lo, reader)
    moving = [d for d in inverse.many if primed(d) in power.symbols]
    fixed = {primed(d): e for d, e in inverse.first.items() if d not in inverse.many}
    if not moving:
        there, lead = _readers(g, inverse)
        return _added_up(there, lead, g, inverse) * _power(node, attrs.gamma, subst(power, fixed))
    d = moving[0]
    # what one step of the reader adds to the power
    slope = power - subst(power, {primed(d): reader[d] - 1})
    if len(moving) > 1 or not slope.is_const or abs(slope.const) != 1:
        raise GradientError(
            f"the gradient of a discounted sum over {entry} is not supported.",
            origin=op.origin,
            hint="let the slice move by one with the reader, as in x[t:T] or x[t:trl.min(t+n, T)].",
        )
    if d not in g.domain:
        g = broadcast_along(g, d)
    there, lead = _readers(g, inverse)
    axis = [x for x in g.domain if x in inverse.many].index(d)
    # the reader that gives the least power comes first, or last
    nearest = inverse.first[d] if slope.const > 0 else inverse.last[d]
    attrs = DiscountAttrs(axis, attrs.gamma, reverse=slope.const < 0)
    summed = apply("discounted_sum", [there], attrs)
    total = _added_up(summed, lead - 1, g, inverse)
    return total * _power(node, attrs.gamma, subst(power, {**fixed, primed(d): nearest}))


def broadcast_along(g: Tensor, d: str) -> Tensor:
    """The same values, made to vary over the dimension `d`."""
    zero = value_of(g.ctx, sym(d)).cast(g.dtype) * 0.0
    return g + zero


def _power(node: Node, gamma: float, power: Lin) -> Any:
    if power.is_const:
        return gamma**power.const
    return gamma ** value_of(node.ctx, power).cast("f32")


register_backward(backward)
