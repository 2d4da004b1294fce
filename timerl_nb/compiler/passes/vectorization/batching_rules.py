"""Batching rules: the replacement of each operation kind if a dimension becomes an array axis.

A rule takes a `Site`: an operation with its operands; some of them already have the dimension as an axis.
It returns the replacement, with the new axis in front. `VECTOR` has each kind's rule, and `NO_VECTOR` the
reasons for kinds without one. An inapplicable rule raises `Refused`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from timerl_nb.compiler.ir.dependence_graph import read_type
from timerl_nb.compiler.ir.graph_rewriting import Edit
from timerl_nb.compiler.ir.host.host_functions import UdfAttrs
from timerl_nb.compiler.ir.host.iteration_io import Given
from timerl_nb.compiler.ir.operation_attributes import (
    NO_ATTRS,
    AxesAttrs,
    AxisAttrs,
    CastAttrs,
    ConstAttrs,
    ConvAttrs,
    DiscountAttrs,
    DotAttrs,
    GatherAttrs,
    JaxedAttrs,
    OutputAttrs,
    PermAttrs,
    ReindexAttrs,
    RngAttrs,
    ScatterAttrs,
    SetAttrs,
    ShapeAttrs,
    SlidingAttrs,
    ValueAttrs,
)
from timerl_nb.compiler.ir.operation_kinds import ELEMENTWISE, REDUCTIONS
from timerl_nb.compiler.ir.operations import Op, Read, is_sliced
from timerl_nb.compiler.ir.shapes import Shape
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    ZERO,
    Lin,
    Slice,
    maximum,
    minimum,
    sym,
)


class Refused(Exception):
    """A rule does not apply; the message has the reason."""


@dataclass(frozen=True)
class MovingSlice:
    """A moving slice along the dimension: `window` points ahead of the index, or back from it."""

    window: int | None
    forward: bool


@dataclass(frozen=True)
class Operand:
    """An operand of a vectorised operation: the read, and the axis of the new dimension.

    `axis` is None for an invariant operand. `moving` describes a slice in the role of the new axis.
    """

    read: Read
    axis: int | None
    moving: MovingSlice | None = None


@dataclass(frozen=True)
class Site:
    """One operation under vectorisation over `dim`."""

    edit: Edit
    dim: Dim
    op: Op
    operands: tuple[Operand, ...]

    def shape(self, k: int) -> Shape:
        read = self.operands[k].read
        return read_type(self.edit.ops[read.source].outputs[read.out], read).shape

    def move_axis_to_front(self, k: int) -> Read:
        """Return operand `k` with the new axis, if it has one, in front."""
        read, axis = self.operands[k].read, self.operands[k].axis
        if not axis:
            return read
        perm = (axis, *(a for a in range(len(self.shape(k))) if a != axis))
        return self.edit.read_same_point(
            self.edit.add("transpose", [read], PermAttrs(perm), like=self.op)
        )

    def move_axes_to_front(self) -> list[Read]:
        return [self.move_axis_to_front(k) for k in range(len(self.operands))]

    def repeat_along_axis(self, k: int) -> Read:
        """Return operand `k` with the new axis in front, repeated along it if it does not vary."""
        if self.operands[k].axis is not None:
            return self.move_axis_to_front(k)
        shape = self.shape(k)
        one = self.edit.add(
            "reshape", [self.operands[k].read], ShapeAttrs((1, *shape)), like=self.op
        )
        whole = ShapeAttrs((self.dim.size, *shape))
        return self.edit.read_same_point(
            self.edit.add("expand", [self.edit.read_same_point(one)], whole, like=self.op)
        )


Made = tuple[str, Sequence[Read], Any]  # kind, operands, attributes
Labelled = DotAttrs | ConvAttrs | GatherAttrs | ScatterAttrs | SetAttrs
Rule = Callable[[Site], Made]


# --- rules --------------------------------------------------------------------------------------


def _elementwise(site: Site) -> Made:
    rank = len(site.op.shape)
    reads: list[Read] = []
    for k, operand in enumerate(site.operands):
        shape = site.shape(k)
        read = site.move_axis_to_front(k)
        if operand.axis is not None and len(shape) == 1 and rank > 0:  # a scalar per point
            shape = (*shape, *(1,) * rank)
            read = site.edit.read_same_point(
                site.edit.add("reshape", [read], ShapeAttrs(shape), like=site.op)
            )
        elif operand.axis is None and shape:
            attrs = ShapeAttrs((1, *shape))
            read = site.edit.read_same_point(site.edit.add("reshape", [read], attrs, like=site.op))
        reads.append(read)
    return site.op.kind, reads, site.op.attrs


def _reduction(site: Site) -> Made:
    moving = site.operands[0].moving
    if moving is not None:
        if site.op.kind == "prod" or site.op.attrs.axes != (0,):
            raise Refused(f"it is a {site.op.kind} over a window that moves with {site.dim.name}")
        attrs = SlidingAttrs(0, 1.0, moving.window, moving.forward)
        if site.op.kind != "sum":
            return f"sliding_{site.op.kind}", [site.operands[0].read], attrs
        made = _slide(site, attrs)
        source = site.operands[0].read
        if site.edit.ops[source.source].outputs[source.out].type.dtype == site.op.dtype:
            return made
        counted = site.edit.add("cast", made[1], CastAttrs(site.op.dtype), like=site.op)
        return made[0], [site.edit.read_same_point(counted)], made[2]
    read, axes = _past(site, site.op.attrs.axes)
    return site.op.kind, [read], AxesAttrs(axes)


def _past(site: Site, axes: tuple[int, ...]) -> tuple[Read, tuple[int, ...]]:
    """Return the operand and the axes to reduce; the new axis precedes the remaining ones."""
    axis = site.operands[0].axis
    assert axis is not None
    if set(range(axis)) <= set(axes):  # all earlier axes are reduced
        return site.operands[0].read, tuple(a if a < axis else a + 1 for a in axes)
    return site.move_axis_to_front(0), tuple(a + 1 for a in axes)


def _slide(site: Site, attrs: SlidingAttrs) -> Made:
    return "sliding_sum", [site.operands[0].read], attrs


def _discounted_sum(site: Site) -> Made:
    attrs: DiscountAttrs = site.op.attrs
    moving = site.operands[0].moving
    if moving is None:
        read, (axis,) = _past(site, (attrs.axis,))
        return site.op.kind, [read], replace(attrs, axis=axis)
    if attrs.axis != 0 or attrs.reverse == moving.forward:
        raise Refused(f"its discount does not count from the current {site.dim.name}")
    return _slide(site, SlidingAttrs(0, attrs.gamma, moving.window, moving.forward))


def _axis(site: Site) -> Made:
    _still(site)
    return (
        site.op.kind,
        site.move_axes_to_front(),
        replace(site.op.attrs, axis=site.op.attrs.axis + 1),
    )


def _in_front(site: Site) -> Made:
    """Its own axes are the last ones, so they do not move."""
    return site.op.kind, site.move_axes_to_front(), site.op.attrs


def _still(site: Site) -> None:
    if any(x.moving for x in site.operands):
        raise Refused(f"it is a {site.op.kind} of a window that moves with {site.dim.name}")


def _contraction(site: Site) -> Made:
    """Add a label for the new axis to every operand with this axis."""
    _still(site)
    new = _new_label(site.op.attrs)
    left, right = (new * (x.axis is not None) for x in site.operands)
    return site.op.kind, site.move_axes_to_front(), _add_label(site.op.attrs, left, right)


def _new_label(attrs: Labelled) -> str:
    used = attrs.left + attrs.right + attrs.out
    return next(x for x in "tuvwxyzabcdefghijklmnopqrs" if x not in used)


def _add_label(attrs: Labelled, left: str, right: str) -> Any:
    out = _new_label(attrs) + attrs.out
    return replace(attrs, left=left + attrs.left, right=right + attrs.right, out=out)


def _scatter(site: Site) -> Made:
    """The values always get the new axis; if only the positions had it, it would be summed."""
    _still(site)
    attrs: ScatterAttrs = site.op.attrs
    new = _new_label(attrs)
    right = new * (site.operands[1].axis is not None)
    return (
        site.op.kind,
        [site.repeat_along_axis(0), site.move_axis_to_front(1)],
        _add_label(attrs, new, right),
    )


def _scatter_set(site: Site) -> Made:
    """The result gets the new axis, and so do its previous value and the new values."""
    _still(site)
    new = _new_label(site.op.attrs)
    right = new * (site.operands[2].axis is not None)
    reads = [site.repeat_along_axis(0), site.repeat_along_axis(1), site.move_axis_to_front(2)]
    return site.op.kind, reads, _add_label(site.op.attrs, new, right)


def _reshape(site: Site) -> Made:
    _still(site)
    return "reshape", site.move_axes_to_front(), ShapeAttrs((site.dim.size, *site.op.attrs.shape))


def _transpose(site: Site) -> Made:
    _still(site)
    return (
        "transpose",
        site.move_axes_to_front(),
        PermAttrs((0, *(k + 1 for k in site.op.attrs.perm))),
    )


def _expand(site: Site) -> Made:
    _still(site)
    shape = (site.dim.size, *site.op.attrs.shape)
    before = site.shape(0)
    if len(before) < len(shape):  # a scalar per point
        ones = (*before, *(1,) * (len(shape) - len(before)))
        made = site.edit.add("reshape", site.move_axes_to_front(), ShapeAttrs(ones), like=site.op)
        return "expand", [site.edit.read_same_point(made)], ShapeAttrs(shape)
    return "expand", site.move_axes_to_front(), ShapeAttrs(shape)


def _concat(site: Site) -> Made:
    _still(site)
    reads = [site.repeat_along_axis(k) for k in range(len(site.operands))]
    return "concat", reads, AxisAttrs(site.op.attrs.axis + 1)


def _scan(site: Site) -> Made:
    _still(site)
    reads = [site.repeat_along_axis(k) for k in range(len(site.operands))]
    return site.op.kind, reads, replace(site.op.attrs, axis=site.op.attrs.axis + 1)


def _reindex(site: Site) -> Made:
    attrs: ReindexAttrs = site.op.attrs
    if site.dim.name not in attrs.at.symbols or site.dim.name in attrs.bound_dims:
        return _axis(site)
    if attrs.size is not None:
        raise Refused(f"its positions move with {site.dim.name}")
    if site.operands[0].axis is not None:
        raise Refused(f"both its position and its operand vary with {site.dim.name}")
    moved = ReindexAttrs(attrs.axis, attrs.at, site.dim.size, "end", site.dim.name)
    taken = site.edit.add("reindex", [site.operands[0].read], moved, like=site.op)
    perm = (attrs.axis, *(a for a in range(len(taken.shape)) if a != attrs.axis))
    return "transpose", [site.edit.read_same_point(taken)], PermAttrs(perm)


def _value(site: Site) -> Made:
    attrs: ValueAttrs = site.op.attrs
    axes, sizes = (site.dim.name, *attrs.axes), (site.dim.size, *attrs.sizes)
    return "value", [], replace(attrs, axes=axes, sizes=sizes)


def _random_or_data(site: Site) -> Made:
    attrs: RngAttrs | ConstAttrs = site.op.attrs
    axes, sizes = (site.dim.name, *attrs.axes), (site.dim.size, *attrs.sizes)
    starts = (ZERO, *attrs.starts) if attrs.starts else ()
    return site.op.kind, [], replace(attrs, axes=axes, sizes=sizes, starts=starts)


def _merge(site: Site) -> Made:
    """Branches get the new axis; an invariant branch is repeated along it."""
    if any(site.dim.name in read.cond.symbols for read in site.op.inputs):
        return _select_branches(site)
    reads: list[Read] = []
    for operand in site.operands:
        read = operand.read
        if is_sliced(read):
            raise Refused("one of its branches is read point by point")
        if operand.axis is None:
            source = site.edit.ops[read.source]
            own = site.edit.read_same_point(source, read.out)
            repeated = Site(site.edit, site.dim, site.op, (Operand(own, None),)).repeat_along_axis(
                0
            )
            entries = dict(zip(source.outputs[read.out].domain, read.index, strict=True))
            if any(entries.get(d, sym(d)) is not sym(d) for d in site.dim.over or ()):
                raise Refused(f"one of its branches has another {site.dim.bound}")
            # an axis of a dynamic length varies over the same dimensions as the length
            index = tuple(entries.get(d, sym(d)) for d in site.edit.ops[repeated.source].domain)
            read = Read(repeated.source, repeated.out, index, read.cond)
        reads.append(read)
    return "merge", reads, site.op.attrs


def _select_branches(site: Site) -> Made:
    """Compute all branches at all positions, and select one per position, by conditions on the dimension.

    Each branch is read at all positions. Unselected positions are clamped into the source's
    domain.
    """
    edit, dim = site.edit, site.dim
    conds = [read.cond for read in site.op.inputs]
    others = edit.dims.ordered(s for c in conds for s in c.symbols - {dim.name})
    if others:
        raise Refused(f"its branches are chosen by {dim.name} and {', '.join(others)}")
    parts: list[Read] = []
    for operand in site.operands:
        source = edit.ops[operand.read.source]
        if source.where is not TRUE:
            raise Refused(f"its branch {source.name} has no value at some points")
        pairs = zip(source.outputs[operand.read.out].domain, operand.read.index, strict=True)
        index = tuple(
            entry if isinstance(entry, Slice) else clamp_position(entry, edit.dims[d])
            for d, entry in pairs
        )
        symbols = frozenset[str]().union(*(entry.symbols for entry in index))
        if not set(edit.dims.dims_of_symbols(symbols)) <= {*site.op.domain, dim.name}:
            raise Refused("its branches would be read with a length unknown to it")
        read = Read(operand.read.source, operand.read.out, index)
        parts.append(Site(edit, dim, site.op, (Operand(read, operand.axis),)).repeat_along_axis(0))
    chosen = parts.pop()
    for cond, part in zip(reversed(conds[:-1]), reversed(parts), strict=True):
        attrs = ValueAttrs(cond, "bool", (dim.name,), (dim.size,))
        here = edit.add("value", [], attrs, like=site.op)
        along = ShapeAttrs((dim.size, *(1,) * len(site.op.shape)))
        here = edit.add("reshape", [edit.read_same_point(here)], along, like=site.op)
        chosen = edit.read_same_point(
            edit.add("where", [edit.read_same_point(here), part, chosen], like=site.op)
        )
    return "copy", [chosen], NO_ATTRS


def clamp_position(at: Lin, dim: Dim) -> Lin:
    """Return a position clamped to the dimension."""
    if at.as_symbol == dim.name or at is dim.size - 1 or at is ZERO:
        return at
    return maximum(0, minimum(at, dim.size - 1))


def _output(site: Site) -> Made:
    if is_sliced(site.operands[0].read):
        raise Refused("its operand is not vectorised")
    attrs: OutputAttrs = site.op.attrs
    return "output", site.move_axes_to_front(), replace(attrs, axes=(site.dim.name, *attrs.axes))


def _udf(site: Site) -> Made:
    attrs: UdfAttrs = site.op.attrs
    resource, dim = attrs.resource, site.dim
    if resource is not None and dim.name not in resource.instances and not dim.seeds:
        raise Refused(f"all {dim.name} share {resource.name}")
    if isinstance(attrs.function, Given) and dim.name == attrs.function.turn:
        raise Refused("its values arrive one iteration at a time")
    if not attrs.batched:
        raise Refused("its function takes one point at a time (batched=False)")
    if any(isinstance(e, Slice) for x in site.operands for e in x.read.index):
        raise Refused("its operand is read point by point")
    reads = [site.repeat_along_axis(k) for k in range(len(site.operands))]
    axes, sizes = (site.dim.name, *attrs.axes), (site.dim.size, *attrs.sizes)
    return "udf", reads, replace(attrs, axes=axes, sizes=sizes)


def _jax_function(site: Site) -> Made:
    """Invariant operands are not repeated; the function receives the varying ones by position."""
    _still(site)
    attrs: JaxedAttrs = site.op.attrs
    has = tuple(x.axis is not None for x in site.operands)
    axes, sizes = (site.dim.name, *attrs.axes), (site.dim.size, *attrs.sizes)
    along = (has, *attrs.along)
    return "jaxed", site.move_axes_to_front(), replace(attrs, axes=axes, sizes=sizes, along=along)


VECTOR: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(sorted(ELEMENTWISE), _elementwise),
    **dict.fromkeys(REDUCTIONS, _reduction),
    "argmax": _axis,
    "argmin": _axis,
    "argsort": _axis,
    "linear_scan": _scan,
    "discounted_sum": _discounted_sum,
    **dict.fromkeys(("sliding_sum", "sliding_max", "sliding_min"), _axis),
    "dot": _contraction,
    "conv": _contraction,
    "orthonormal": _in_front,
    "gather": _contraction,
    "scatter_add": _scatter,
    "scatter_set": _scatter_set,
    "reshape": _reshape,
    "transpose": _transpose,
    "expand": _expand,
    "concat": _concat,
    "reindex": _reindex,
    "value": _value,
    "rng": _random_or_data,
    "data": _random_or_data,
    "merge": _merge,
    "output": _output,
    "udf": _udf,
    "jaxed": _jax_function,
}
NO_VECTOR: Final[Mapping[str, str]] = {
    "const": "a constant varies over no dimension",
    "bound": "the end of a dimension is found point by point",
    "checkpoint": "files are written one point at a time",
    "call": "functions are called for one point at a time",
    "accumulate": "values are accumulated after vectorisation",
    "dataflow": "regions are fused after vectorisation",
}
