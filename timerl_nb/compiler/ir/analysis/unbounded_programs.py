"""Programs over an unbounded dimension: a graph whose outermost dimension has no last point.

Outputs of an iteration are passed to the host at its end, in one call, and not stored. So nothing may
depend on the end of the dimension, read ahead along it, or store the values of all iterations: memory use
does not depend on their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from timerl_nb.base.errors import BoundsError, point_text
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.host.host_functions import CallAttrs
from timerl_nb.compiler.ir.host.iteration_io import IterationOutputs
from timerl_nb.compiler.ir.operation_attributes import NO_ATTRS, OutputAttrs
from timerl_nb.compiler.ir.operation_kinds import SINKS
from timerl_nb.compiler.ir.operations import Op, Read, reached_from
from timerl_nb.compiler.isl.sets_and_relations import Set
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    Cond,
    Entry,
    Lin,
    Slice,
    const,
    ge,
    span,
    sym,
)
from timerl_nb.compiler.symbolic.substitution import subst_entry

_MANY = 1 << 20  # a distance in points that no iteration can read


def without_end(pdg: Pdg, name: str) -> Pdg:
    """Return the graph of a program whose dimension `name` is unbounded.

    Raises:
        BoundsError: a value depends on the end, reads ahead or reads all earlier points; or an output does
            not vary over the dimension.
    """
    dim = pdg.dims[name]
    outputs = [op for op in pdg.sinks if isinstance(op.attrs, OutputAttrs)]
    shown = [op for op in outputs if op.attrs.role == "output"]
    for op in shown:
        if name not in op.domain:
            raise BoundsError(
                f"{dim.bound} is endless, and the output {op.attrs.name!r} exists only at its end.",
                origin=op.origin,
                hint=f"output a tensor over {name}: each iteration returns its own value.",
            )
    gone = {op.id for op in outputs}
    kept = {k: op for k, op in pdg.ops.items() if k not in gone}
    ends = [k for k in kept if kept[k].kind in SINKS]
    needed = reached_from(
        [*ends, *(r.source for op in shown for r in op.inputs)], lambda k: kept[k].sources
    )
    for k in sorted(needed):
        _check(pdg, dim, kept[k])
    for op in shown:
        _check(pdg, dim, op)
    dims, free = pdg.dims.with_endless(name), max(pdg.ops) + 1
    ops = {k: kept[k] for k in kept if k in needed}
    for op_id, where in enumerate(dict.fromkeys(op.where for op in shown), free):
        together = [op for op in shown if op.where is where]
        ops[op_id] = _handing(dims, dim, op_id, where, together)
    orders = [order for order in pdg.orders if {order.before, order.after} <= ops.keys()]
    return Pdg(dims, ops, orders)


def _handing(dims: Dims, dim: Dim, op_id: int, where: Cond, outputs: list[Op]) -> Op:
    """Return the operation that passes outputs to the host."""
    if not set(dims.dims_of_symbols(where.symbols)) <= {dim.name}:
        raise BoundsError(
            f"{dim.bound} is endless, and the output {outputs[0].attrs.name!r} is defined only for {where}.",
            origin=outputs[0].origin,
            hint=f"conditions on outputs may use {dim.name} only: output a tensor that is "
            "defined everywhere, such as trl.where(…, x, 0.0).",
        )
    reads: list[Read] = []
    orders: list[tuple[int, ...]] = []
    for op in outputs:
        read, order = _slice_whole_iteration(dims, dim, op)
        reads.append(read)
        orders.append(order)
    attrs = CallAttrs(
        IterationOutputs(tuple(op.attrs.name for op in outputs), tuple(orders)),
        "hand out",
        (dim.name,),
    )
    return Op(
        op_id,
        "call",
        (dim.name,),
        tuple(reads),
        (),
        attrs,
        where,
        outputs[0].origin,
        (),
        "hand out",
    )


def _slice_whole_iteration(dims: Dims, dim: Dim, op: Op) -> tuple[Read, tuple[int, ...]]:
    """Return a read of an output at all points of an iteration, and the user's order of its leading axes.

    The axes are first the dimensions in the output's order, and then the axes of its own slices.
    """
    (read,) = op.inputs
    index: list[Entry] = []
    axes: list[str | None] = []
    for entry in read.index:
        others = [d for d in dims.dims_of_symbols(entry.symbols) if d != dim.name]
        if not others:
            index.append(entry)
            axes += [None] * isinstance(entry, Slice)
            continue
        (d, *more) = others
        moved = isinstance(entry, Lin) and (entry - sym(d)).is_const
        if more or not moved or d in axes:
            raise BoundsError(
                f"the output {op.attrs.name!r} has the index {entry}, which is not a slice of an iteration.",
                origin=op.origin,
                hint="assign the values to a new tensor first: y = trl.like(…); y[…] = x[…].",
            )
        assert isinstance(entry, Lin)
        first = subst_entry(entry, {d: const(0)})
        last = subst_entry(entry, {d: dims[d].size})
        assert isinstance(first, Lin) and isinstance(last, Lin)
        index.append(span(first, last))
        axes.append(d)
    # the domain consists of the dimensions of the indices
    first_axes = [axes.index(d) for d in op.attrs.dims if d != dim.name]
    own = [k for k, d in enumerate(axes) if d is None]
    return Read(read.source, read.out, tuple(index), read.cond), (*first_axes, *own)


# --- restrictions -------------------------------------------------------------------------------


def _check(pdg: Pdg, dim: Dim, op: Op) -> None:
    """Refuse operations that need an end, or values that grow without one."""
    name, bound = dim.name, dim.bound
    for e in _expressions(op):
        if bound in e.symbols:
            raise BoundsError(
                f"{bound} is endless, and {op.name} depends on it: {e}.",
                origin=op.origin,
                hint=f"remove {bound}: an unbounded run has no last {name}.",
            )
    for read in op.inputs:
        source = pdg[read.source]
        domain = source.outputs[read.out].domain
        if name not in domain:
            if name in source.domain:
                raise BoundsError(
                    f"{bound} is endless, and {op.name} reads {source.name}, a sum over all {name}.",
                    origin=op.origin,
                    hint=f"use a running sum: s[{name} + 1] = s + x.",
                )
            continue
        entry = read.index[domain.index(name)]
        if isinstance(entry, Slice):
            _check_slice(pdg, dim, op, read, entry)
            entry = entry.hi - 1
        # values without the dimension exist from the first iteration on
        now = sym(name) if name in op.domain else const(0)
        ahead = _sample(pdg, op, read.cond, ge(entry, now + 1))
        if ahead is not None:
            raise BoundsError(
                f"{bound} is endless, and {op.name} reads {source.name} ahead, at {entry}"
                f"{' at ' + point_text(ahead) if ahead else ''}.",
                origin=op.origin,
                hint=f"read at {name} or earlier: later values do not exist yet.",
            )


def _check_slice(pdg: Pdg, dim: Dim, op: Op, read: Read, entry: Slice) -> None:
    """Refuse a slice that grows with the iterations."""
    long = _sample(pdg, op, read.cond, ge(entry.length, _MANY))
    if long is not None:
        raise BoundsError(
            f"{dim.bound} is endless, and {op.name} reads {entry}, which grows with every iteration.",
            origin=op.origin,
            hint=f"read a window, x[trl.max({dim.name} - 9, 0):{dim.name} + 1], or use a running value: "
            f"s[{dim.name} + 1] = s + x.",
        )


def _sample(pdg: Pdg, op: Op, *conds: Cond) -> dict[str, int] | None:
    """Return a point of an operation at which all conditions hold, or None."""
    found = pdg.points(op)
    for cond in conds:
        if cond is not TRUE:
            found = found & Set.from_condition(pdg.dims, op.domain, cond)
    return found.sample()


def _expressions(op: Op) -> Iterator[Any]:
    """Yield all index expressions of an operation."""
    yield op.where
    yield from op.attrs.exprs if op.attrs is not NO_ATTRS else ()
    for read in op.inputs:
        yield read.cond
        yield from read.index
    for output in op.outputs:
        yield from (size for size in output.type.shape if isinstance(size, Lin))
