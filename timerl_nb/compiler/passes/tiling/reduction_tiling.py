"""Tiling of reductions over long axes, together with their operands.

A sum over an axis of length T becomes an accumulation over a new dimension, like gradient accumulation.
Point k of the dimension represents positions bs*k to min(bs*k + bs, T). The operands are tiled along the
same axis, back to its origin: a slice of a symbolic dimension, the operation behind the axis, or a value
needed as a whole and sliced per block. `axis_propagation` follows the axis through
each kind of operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import (
    Edit,
    RewriteStep,
    Rewritten,
    chain,
    identity_rewrite,
)
from timerl_nb.compiler.ir.operation_attributes import (
    AccumulateAttrs,
    ConstAttrs,
    JaxedAttrs,
    ReindexAttrs,
    RngAttrs,
    ShapeAttrs,
    ValueAttrs,
)
from timerl_nb.compiler.ir.operation_kinds import REDUCTIONS, SINKS
from timerl_nb.compiler.ir.operations import Op, Output, Read
from timerl_nb.compiler.ir.shapes import NUMPY, Shape, Size, TensorType, concrete, same_size, size
from timerl_nb.compiler.passes.vectorization.axis_propagation import (
    Axes,
    contracted_axes,
    propagate_axis,
)
from timerl_nb.compiler.passes.vectorization.batching_rules import Refused
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims
from timerl_nb.compiler.symbolic.index_expressions import Entry, Lin, Slice, const, sym
from timerl_nb.compiler.symbolic.substitution import subst, subst_cond

# --- selection of operations ---------------------------------------------------------------------


@dataclass
class Tiling:
    """The operations to tile along axes with the length of one dimension's bound.

    Attributes:
        dim: the dimension.
        roots: the future accumulations, with the axis of each operand.
        axes: the operations tiled with them, with the axis of the result.
        operands: the axis of each operand of these operations.
        why: the reasons against tiling other reductions over such axes.
    """

    dim: Dim
    roots: dict[int, Axes] = field(default_factory=dict[int, Axes])
    axes: dict[int, int] = field(default_factory=dict[int, int])
    operands: dict[int, Axes] = field(default_factory=dict[int, Axes])
    why: dict[int, str] = field(default_factory=dict[int, str])

    def operand_axes(self, op_id: int) -> Axes | None:
        """Return the tiled axis of each operand."""
        return self.roots.get(op_id) or self.operands.get(op_id)


def find_tiling(pdg: Pdg, dim: Dim) -> Tiling:
    """Return the useful tiling along axes with the length of a dimension's bound, for all block sizes."""
    return pdg.analysis(_tiling, dim)


def _tiling(pdg: Pdg, dim: Dim) -> Tiling:
    useless: set[int] = set()
    while True:
        tiling = _draft(pdg, dim, useless)
        idle = {op_id for op_id in tiling.roots if not _helps(pdg, tiling, op_id)}
        if not idle:
            tiling.why |= dict.fromkeys(useless, "its operands are needed whole, or read at points")
            return tiling
        useless |= idle


def _draft(pdg: Pdg, dim: Dim, useless: Iterable[int]) -> Tiling:
    """Tile an operation if all readers need one axis of it; readers are visited before their sources."""
    tiling = Tiling(dim)
    for op_id in reversed(pdg.order):
        op = pdg[op_id]
        if op.kind == "merge" or op.kind in SINKS:
            continue
        axis = _tiled_result_axis(pdg, tiling, op)
        if axis is not None:
            try:
                tiling.operands[op_id] = propagate_axis(op, axis, _shapes(pdg, op))
                tiling.axes[op_id] = axis
                continue
            except Refused as refusal:
                tiling.why[op_id] = str(refusal)
        if op_id not in useless:
            _take_root(pdg, tiling, op)
    return tiling


def _tiled_result_axis(pdg: Pdg, tiling: Tiling, op: Op) -> int | None:
    """Return the axis of an operation's result, if all readers need only a block of it."""
    wanted: set[int | None] = set()
    for reader, slot in pdg.readers[op.id]:
        through = tiling.operand_axes(reader)
        axis = through[slot] if through else None
        lead = _slices(pdg[reader].inputs[slot])
        wanted.add(axis - lead if axis is not None and axis >= lead else None)
    return wanted.pop() if len(wanted) == 1 and len(op.outputs) == 1 else None


def _take_root(pdg: Pdg, tiling: Tiling, op: Op) -> None:
    try:
        for axes in contracted_axes(op):
            if all(
                a is None or _is_long(pdg, op.inputs[k], a, tiling.dim) for k, a in enumerate(axes)
            ):
                if tiling.dim.over is None:
                    tiling.roots[op.id] = axes
                else:
                    tiling.why[op.id] = (
                        f"the number of blocks of {tiling.dim.bound} is unknown before the run"
                    )
                return
            if (other := _another_length(pdg, op, axes, tiling.dim)) is not None:
                tiling.why[op.id] = f"it reduces {other} positions, not all {tiling.dim.bound}"
    except Refused as refusal:
        tiling.why[op.id] = str(refusal)


def _helps(pdg: Pdg, tiling: Tiling, root: int) -> bool:
    """Whether some operand of a reduction is produced or gathered in blocks because of its tiling."""
    return any(
        axis is not None and (axis < _slices(read) or read.source in tiling.axes)
        for axis, read in zip(tiling.roots[root], pdg[root].inputs, strict=True)
    )


def _is_long(pdg: Pdg, read: Read, axis: int, dim: Dim) -> bool:
    return same_size(pdg.read_type(read).shape[axis], sym(dim.bound))


def _another_length(pdg: Pdg, op: Op, axes: Axes, dim: Dim) -> Size | None:
    """Return the length of a summed axis, if it changes along the dimension or with its bound."""
    sizes = [pdg.read_type(op.inputs[k]).shape[a] for k, a in enumerate(axes) if a is not None]
    varying = [s for s in sizes if not isinstance(s, int) and s.symbols & {dim.name, dim.bound}]
    return next((s for s in varying if not same_size(s, sym(dim.bound))), None)


def _shapes(pdg: Pdg, op: Op) -> list[Shape]:
    return [pdg.read_type(read).shape for read in op.inputs]


def _slices(read: Read) -> int:
    return sum(isinstance(e, Slice) for e in read.index)


def freed(pdg: Pdg, tiling: Tiling, bounds: Mapping[str, int]) -> int:
    """Return the bytes saved by tiling: results no longer stored whole, slices no longer gathered.

    Args:
        pdg: the graph.
        tiling: the tiling.
        bounds: actual bounds, or a guess.
    """
    env = {**dict.fromkeys(pdg.dims.names, 0), **bounds}

    def nbytes(kind: TensorType) -> int:
        return prod(concrete(kind.shape, env)) * NUMPY[kind.dtype].itemsize

    total = sum(nbytes(pdg[op_id].type) for op_id in tiling.axes)
    gathered: set[Read] = set()
    for op_id in (*tiling.roots, *tiling.axes):
        for axis, read in zip(tiling.operand_axes(op_id) or (), pdg[op_id].inputs, strict=True):
            if axis is not None and axis < _slices(read):
                gathered.add(read)
    return total + sum(nbytes(pdg.read_type(read)) for read in gathered)


# --- transformation -----------------------------------------------------------------------------


class _Tiler:
    def __init__(self, pdg: Pdg, tiling: Tiling, block: int) -> None:
        self.pdg, self.tiling = pdg, tiling
        self.dim = Dim(_fresh_name(pdg.dims, tiling.dim.name), tiling.dim.bound, block)
        self.edit = Edit(pdg)
        self.edit.dims = _insert_dim(pdg.dims, tiling.dim, self.dim)
        self.length = size(self.dim.block.length)

    def predict_type(self, op: Op) -> Op:
        """Return a tiled operation with its new type, known before its operands are rewritten."""
        shape = list(op.shape)
        shape[self.tiling.axes[op.id]] = self.length
        domain = self.edit.dims.ordered({*op.domain, self.dim.name})
        return op.with_(
            domain=domain, outputs=(Output(TensorType(tuple(shape), op.dtype), domain),)
        )

    def narrow_operands(self, op: Op) -> list[Read]:
        """Return the operands of a tiled operation, each narrowed to the block."""
        axes = self.tiling.operand_axes(op.id)
        assert axes is not None
        return [self._narrow_operand(op, k, axis) for k, axis in enumerate(axes)]

    def _narrow_operand(self, op: Op, slot: int, axis: int | None) -> Read:
        read = op.inputs[slot]
        if axis is None:
            return read
        sliced = [k for k, e in enumerate(read.index) if isinstance(e, Slice)]
        if axis < len(sliced):
            index = list(read.index)
            whole = index[sliced[axis]]
            assert isinstance(whole, Slice)
            index[sliced[axis]] = self.dim.part_at_point(whole)
            return replace(read, index=tuple(index))
        if self.tiling.axes.get(read.source) == axis - len(sliced):
            entries: dict[str, Entry] = dict(
                zip(self.pdg.output(read).domain, read.index, strict=True)
            )
            entries[self.dim.name] = self.dim.var
            domain = self.edit.ops[read.source].outputs[read.out].domain
            return replace(read, index=tuple(entries[d] for d in domain))
        block = self.dim.block
        part = ReindexAttrs.from_range(axis, block.lo, block.hi)
        made = self.edit.add("reindex", [read], part, like=op)
        return self.edit.read_same_point(made)

    def attrs(self, op: Op) -> object:
        """Return the attributes of a tiled operation."""
        axis, attrs = self.tiling.axes[op.id], op.attrs
        if isinstance(attrs, ShapeAttrs):
            return ShapeAttrs(self.edit.ops[op.id].shape)
        start = self.dim.block.lo
        if isinstance(attrs, ReindexAttrs) and attrs.size is not None and attrs.axis == axis:
            at = subst(attrs.at, {own: sym(own) + start for own in attrs.bound_dims})
            return replace(attrs, at=at, size=self.length)
        if not isinstance(attrs, RngAttrs | ConstAttrs | ValueAttrs | JaxedAttrs):
            return attrs
        sizes = (*attrs.sizes[:axis], self.length, *attrs.sizes[axis + 1 :])
        if isinstance(attrs, JaxedAttrs):
            return replace(attrs, sizes=sizes)
        if isinstance(attrs, ValueAttrs):
            along = attrs.axes[axis]
            shift = {along: sym(along) + start}
            expr = attrs.expr
            moved = subst(expr, shift) if isinstance(expr, Lin) else subst_cond(expr, shift)
            return replace(attrs, expr=moved, sizes=sizes)
        starts = list(attrs.starts or (const(0),) * len(attrs.axes))
        starts[axis] = starts[axis] + start
        return replace(attrs, sizes=sizes, starts=tuple(starts))

    def accumulate(self, op: Op) -> None:
        """Let a reduction accumulate the results of the blocks."""
        reduce = op.kind if op.kind in REDUCTIONS else "sum"  # contractions are sums
        part = self.edit.add(op.kind, self.narrow_operands(op), op.attrs, like=op)
        self.edit.insert(
            op.with_(
                kind="accumulate",
                domain=self.edit.dims.ordered({*op.domain, self.dim.name}),
                inputs=(self.edit.read_same_point(part),),
                attrs=AccumulateAttrs(reduce, (self.dim.name,)),
                outputs=(Output(op.type, op.domain, reduce, op.label),),
            )
        )
        self.edit.record_replacement(op.id, (part.id,))
        note = f"in blocks of {self.dim.step} over {self.dim.name}"
        self.edit.steps.append(RewriteStep("cut", (op.id,), (part.id, op.id), note))

    def run(self) -> Rewritten:
        for op_id in self.tiling.axes:  # types first
            self.edit.ops[op_id] = self.predict_type(self.edit.ops[op_id])
        for op_id in self.pdg.order:
            op = self.pdg[op_id]
            if op_id in self.tiling.axes:
                reads, attrs = self.narrow_operands(op), self.attrs(op)
                self.edit.insert(self.edit.ops[op_id].with_(inputs=tuple(reads), attrs=attrs))
            elif op_id in self.tiling.roots:
                self.accumulate(op)
        if self.tiling.axes:
            ids = tuple(sorted(self.tiling.axes))
            self.edit.steps.append(RewriteStep(f"blocks of {self.tiling.dim.name}", ids, ids))
        return self.edit.finish()


def _fresh_name(dims: Dims, of: str) -> str:
    name = f"{of}_block"
    while name in dims or name in dims.bounds:
        name += "_"
    return name


def _insert_dim(dims: Dims, after: Dim, new: Dim) -> Dims:
    k = dims.all.index(after) + 1
    return Dims((*dims.all[:k], new, *dims.all[k:]))


def tile_blocks(pdg: Pdg, tiling: Tiling, block: int) -> Rewritten:
    """Return the graph with reductions accumulated over blocks of `block` positions."""
    if not tiling.roots:
        return replace(identity_rewrite(pdg), refused=_untiled_reasons(pdg, tiling))
    made = _Tiler(pdg, tiling, block).run()
    return replace(
        made,
        refused={k: why for k, why in _untiled_reasons(pdg, tiling).items() if k in made.pdg.ops},
    )


def _untiled_reasons(pdg: Pdg, tiling: Tiling) -> dict[int, str]:
    return {k: why for k, why in tiling.why.items() if k not in tiling.roots}


def in_blocks(pdg: Pdg, blocks: Iterable[tuple[Dim, int]]) -> Rewritten:
    """Return the graph tiled with the given block sizes along dimensions."""
    total = identity_rewrite(pdg)
    for dim, block in blocks:
        total = chain(total, tile_blocks(total.pdg, find_tiling(total.pdg, dim), block))
    return total


def freed_by(pdg: Pdg, bounds: Mapping[str, int]) -> dict[Dim, int]:
    """Return the tileable dimensions with the bytes freed by tiling (`freed`), largest first."""
    tilings = [find_tiling(pdg, dim) for dim in pdg.dims]
    found = {tiling.dim: freed(pdg, tiling, bounds) for tiling in tilings if tiling.roots}
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))
