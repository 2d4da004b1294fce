"""PyTorch rules for reading and writing elements at positions of an axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch

from timerl_nb.compiler.ir.operation_attributes import (
    GatherAttrs,
    ReindexAttrs,
    ScatterAttrs,
    SetAttrs,
    SortAttrs,
)
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.reference.evaluation_rules import identity
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Lin
from timerl_nb.runtime.torch_backend.trace_context_and_masks import (
    NAMES,
    Tensor,
    TorchScope,
    along,
    bits,
    mask_padding,
    take,
)


def arg_extremum(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    axis, x = op.attrs.axis, args[0]
    x = x.to(torch.int32) if x.dtype is torch.bool else x
    kind = NUMPY[NAMES[x.dtype]]
    worst = np.asarray(identity(op.kind.removeprefix("arg"), kind), kind).item()
    x = mask_padding(scope, x, sizes[0], (axis,), worst)
    if not x.numel():
        return torch.zeros(scope.shape(op.shape), dtype=torch.int32, device=x.device)
    return x.argmax(axis) if op.kind == "argmax" else x.argmin(axis)


def argsort(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    attrs: SortAttrs = op.attrs
    x, axis = args[0], attrs.axis
    x = x.to(torch.int32) if x.dtype is torch.bool else x
    if attrs.descending:
        x = -x if x.is_floating_point() else ~x  # ~x cannot overflow
    order = torch.argsort(x, dim=axis, stable=True)
    length = scope.length(sizes[0][axis])
    if length is None:
        return order
    late = (order >= length).to(torch.int8)  # padding sorts last
    return order.gather(axis, torch.argsort(late, dim=axis, stable=True))


def _permuted(x: Tensor, have: Sequence[str] | str, want: Sequence[str]) -> Tensor:
    order = [have.index(label) for label in want]
    return x if order == list(range(x.ndim)) else x.permute(order)


def gather(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    a: GatherAttrs = op.attrs
    x, at = args[0], args[1].to(torch.int64)
    k = a.left.index(a.axis)
    length, n = scope.length(sizes[0][k]), x.shape[k]
    if not prod(x.shape) or not prod(at.shape):
        return torch.zeros(scope.shape(op.shape), dtype=x.dtype, device=x.device)
    both = [label for label in a.left if label in a.right]
    mine = [label for label in a.left if label not in a.right and label != a.axis]
    own = [label for label in a.right if label not in a.left]
    at = _permuted(at, a.right, [*both, *own])
    inside = (at >= 0) & (at < (n if length is None else length))
    position = at.clamp(0, n - 1)
    x = _permuted(x, a.left, [*both, a.axis, *mine])
    grid = [along(scope.arange(x.shape[axis]), axis, position.ndim) for axis in range(len(both))]
    found = take(x, [*grid, position])
    inside = inside.reshape(inside.shape + (1,) * len(mine))
    found = torch.where(inside, found, torch.zeros((), dtype=x.dtype, device=x.device))
    return _permuted(found, [*both, *own, *mine], a.out)


def scatter_add(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    a: ScatterAttrs = op.attrs
    x, at = args[0], args[1].to(torch.int64)
    summed = [k for k, label in enumerate(a.left) if label not in a.out]
    x = mask_padding(scope, x, sizes[0], summed, 0)
    size = scope.capacity(a.size)
    both = [label for label in a.right if label in a.out]
    own = [label for label in a.right if label not in a.out]
    rest = [label for label in a.left if label not in a.right]
    x = _permuted(x, a.left, [*both, *own, *rest])
    at = _permuted(at, a.right, [*both, *own])
    position = torch.where((at >= 0) & (at < size), at, torch.full_like(at, size))
    front = x.shape[: len(both)]
    grid = [along(scope.arange(n), axis, position.ndim) for axis, n in enumerate(front)]
    shape = (*front, size + 1, *x.shape[at.ndim :])  # the last element takes all others
    made = torch.zeros(shape, dtype=x.dtype, device=x.device)
    made = torch.index_put(made, (*grid, position), x, accumulate=True)
    return _permuted(made.narrow(len(both), 0, size), [*both, a.axis, *rest], a.out)


def scatter_set(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    """Write values at positions: each element takes the value of the last position that names it, if any."""
    a: SetAttrs = op.attrs
    x, new, at = args[0], args[1], args[2].to(torch.int64)
    new = new.to(x.dtype)
    both = [label for label in a.right if label in a.out]
    own = [label for label in a.right if label not in a.out]
    rest = [label for label in a.left if label not in a.right]
    k = a.out.index(a.axis)
    length, n = scope.length(sizes[0][k]), x.shape[k]
    inside = (at >= 0) & (at < (n if length is None else length))
    for axis, label in enumerate(a.right):  # padded positions write nothing
        end = scope.length(sizes[2][axis]) if label in own else None
        if end is not None:
            inside = inside & along(scope.arange(at.shape[axis]) < end, axis, at.ndim)
    x = _permuted(x, a.out, [*both, a.axis, *rest])
    front, tail = x.shape[: len(both)], x.shape[len(both) + 1 :]
    batch, count = prod(front), prod(at.shape) // max(prod(front), 1)
    if not prod(x.shape) or not count:
        return _permuted(x, [*both, a.axis, *rest], a.out)
    position = torch.where(inside, at, torch.full_like(at, n))
    position = _permuted(position, a.right, [*both, *own]).reshape(batch, count)
    new = _permuted(new, a.left, [*both, *own, *rest]).reshape(batch, count, -1)
    order = scope.arange(count).expand(batch, count)
    last = torch.full((batch, n + 1), -1, dtype=torch.int64, device=x.device)
    last = last.scatter_reduce(1, position, order, "amax")[:, :n, None]
    flat = x.reshape(batch, n, -1)
    taken = new.gather(1, last.clamp(min=0).expand(-1, -1, flat.shape[2]))
    made = torch.where(last >= 0, taken, flat).reshape(*front, n, *tail)
    return _permuted(made, [*both, a.axis, *rest], a.out)


def concat(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    axis = op.attrs.axis
    lengths = [scope.length(shape[axis]) for shape in sizes]
    if all(length is None for length in lengths):
        return torch.cat(list(args), axis)
    made = torch.zeros(scope.shape(op.shape), dtype=args[0].dtype, device=scope.device)
    places, start = scope.arange(made.shape[axis]), 0
    for x, length in zip(args, lengths, strict=True):
        made = _laid(made, x, axis, places - start, length)
        start = start + (x.shape[axis] if length is None else length)
    return made


def _laid(onto: Tensor, x: Tensor, axis: int, at: Tensor, length: Any) -> Tensor:
    """Write elements of `x` over `onto`, for positions of an axis in the valid part of `x`."""
    n = x.shape[axis]
    if n == 0:
        return onto
    inside = along((at >= 0) & (at < (n if length is None else length)), axis, x.ndim)
    return torch.where(inside, x.index_select(axis, at.clamp(0, n - 1)), onto)


def reindex(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    attrs: ReindexAttrs = op.attrs
    x, axis = args[0], attrs.axis
    m = x.shape[axis]
    if attrs.size is None:
        return _one(x, axis, scope.value(attrs.at))
    n = scope.capacity(op.shape[axis])
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
    if not n or not m:
        return torch.zeros(shape, dtype=x.dtype, device=x.device)
    if not attrs.at.symbols.intersection(scope.point):
        grid = dict.fromkeys(attrs.bound_dims, np.arange(n))
        found: Any = np.broadcast_to(values(attrs.at, {**scope.bounds, **grid}), (n,))
        start = int(found[0])
        if start >= 0 and start + n <= m and np.array_equal(found, start + np.arange(n)):
            length = scope.length(sizes[0][axis]) if attrs.beyond == "zero" else None
            if length is None:
                return x.narrow(axis, start, n)
        at = scope.constant(np.array(found, np.int64))
    else:
        steps = scope.arange(n)
        at = scope.value(attrs.at, dict.fromkeys(attrs.bound_dims, steps))
        at = (steps * 0 + at) if not isinstance(at, Tensor) else at.expand(n)
    if attrs.beyond != "zero":
        return x.index_select(axis, at.clamp(0, m - 1))
    length = scope.length(sizes[0][axis])
    return _laid(torch.zeros(shape, dtype=x.dtype, device=x.device), x, axis, at, length)


def _one(x: Tensor, axis: int, at: Any) -> Tensor:
    last = max(x.shape[axis] - 1, 0)
    if isinstance(at, Tensor):
        return x.index_select(axis, at.clamp(0, last).reshape(1)).squeeze(axis)
    return x.select(axis, min(max(at, 0), last))


# --- blocks of rows ------------------------------------------------------------------------------


def with_row(block: Tensor, row: Any, value: Tensor, *, cut: bool) -> Tensor:
    """Write one row of a block in place.

    Args:
        block: The block.
        row: Number of the row.
        value: New value of the row.
        cut: Whether `row` may lie outside of the block; such a row is ignored.
    """
    n = block.shape[0]
    if not isinstance(row, Tensor):
        if 0 <= row < n:
            block[row].copy_(value)
        return block
    at = row.reshape(1)
    if cut:
        at = at.clamp(0, n - 1)
        value = torch.where((row >= 0) & (row < n), value, block.index_select(0, at)[0])
    return bits(block).index_copy_(0, at, bits(value)[None]).view(block.dtype)


def rows(scope: TorchScope, block: Tensor, first: Lin, count: int) -> Tensor:
    """Return `count` rows of a block from row `first`; rows beyond its end have arbitrary values."""
    size = block.shape[0]
    if not first.symbols.intersection(scope.point):
        start = int(evaluate(first, scope.bounds))
        if 0 <= start <= start + count <= size:
            return block.narrow(0, start, count)
    at = (scope.value(first) + scope.arange(count)).clamp(0, max(size - 1, 0))
    return bits(block).index_select(0, at).view(block.dtype)


def end_to_end(parts: Sequence[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    return torch.cat([bits(x) for x in parts]).view(parts[0].dtype)
