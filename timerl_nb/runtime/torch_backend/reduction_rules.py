"""PyTorch rules for reductions, sliding windows, scans, contractions and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np
import torch

from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.ir.operation_attributes import (
    AxesAttrs,
    ConvAttrs,
    DiscountAttrs,
    DotAttrs,
    ScanAttrs,
    SlidingAttrs,
)
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.reference.evaluation_rules import identity
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.runtime.torch_backend.trace_context_and_masks import (
    NAMES,
    TORCH,
    Tensor,
    TorchScope,
    along,
    mask_padding,
)

COMBINE: Final[Mapping[str, Callable[..., Tensor]]] = {
    "sum": torch.add,
    "prod": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
}
_IN_PLACE: Final[Mapping[str, Callable[..., Tensor]]] = {
    "sum": Tensor.add_,
    "prod": Tensor.mul_,
}
_MOST_UNROLLED: Final = 16  # steps of a scan in the text of a kernel; a longer scan is one call


def accumulate(reduce: str, accumulator: Tensor, value: Tensor, owned: bool) -> Tensor:
    """Add a value to an accumulator, in place if it is owned."""
    if owned and reduce in _IN_PLACE and accumulator.dtype is not torch.uint32:
        return _IN_PLACE[reduce](accumulator, value)
    if accumulator.dtype is torch.uint32:
        wide = [x.view(torch.int32).to(torch.int64) & 0xFFFFFFFF for x in (accumulator, value)]
        made = COMBINE[reduce](*wide).to(torch.int32).view(torch.uint32)
    else:
        made = COMBINE[reduce](accumulator, value)
    return accumulator.copy_(made) if owned else made


def _nothing(op: Op, reduce: str, x: Tensor, dtype: str) -> Any:
    """Return the value of an empty reduction in the type of the operand."""
    kind = NUMPY[dtype] if dtype == "u32" else NUMPY[NAMES[x.dtype]]
    return np.asarray(identity(reduce, kind), kind).item()


def reduction(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    attrs: AxesAttrs = op.attrs
    x = args[0].to(torch.int32) if op.kind in ("sum", "prod") and op.dtype == "i32" else args[0]
    nothing = _nothing(op, op.kind, x, op.dtype)
    x = mask_padding(scope, x, sizes[0], attrs.axes, nothing)
    if not attrs.axes:
        return x
    if not all(x.shape[k] for k in attrs.axes):
        shape = [n for k, n in enumerate(x.shape) if k not in attrs.axes]
        return torch.full(shape, nothing, dtype=x.dtype, device=x.device)
    if op.kind == "sum":
        return x.sum(attrs.axes, dtype=x.dtype)
    if op.kind == "prod":
        for axis in sorted(attrs.axes, reverse=True):
            x = x.prod(axis, dtype=x.dtype)
        return x
    return x.amax(attrs.axes) if op.kind == "max" else x.amin(attrs.axes)


def discounted_sum(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    attrs: DiscountAttrs = op.attrs
    x = mask_padding(scope, args[0], sizes[0], (attrs.axis,), 0)
    n = x.shape[attrs.axis]
    length = scope.length(sizes[0][attrs.axis])
    powers = scope.arange(n)
    if attrs.reverse:
        powers = (n if length is None else length) - 1 - powers
    base = torch.full((), attrs.gamma, dtype=x.dtype, device=x.device)
    weights = along(torch.pow(base, powers.clamp(min=0).to(x.dtype)), attrs.axis, x.ndim)
    # beyond the length, the product of an infinite power and zero would be NaN
    made = mask_padding(scope, weights * x, sizes[0], (attrs.axis,), 0)
    return made.sum(attrs.axis, dtype=made.dtype)


def sliding(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    attrs: SlidingAttrs = op.attrs
    reduce = op.kind.removeprefix("sliding_")
    fill = _nothing(op, reduce, args[0], op.dtype)
    x = mask_padding(scope, args[0], sizes[0], (attrs.axis,), fill)
    n = x.shape[attrs.axis]
    window = n if attrs.window is None else min(n, scope.capacity(attrs.window))
    if not attrs.forward:
        x = x.flip(attrs.axis)
    if n and reduce == "sum" and attrs.window is None:
        factor = torch.full_like(x, attrs.gamma)
        total = _run_scan(factor, x, attrs.axis, reverse=True, restarts=False)
    else:

        def join(near: Tensor, far: Tensor, distance: int) -> Tensor:
            if reduce != "sum":
                return COMBINE[reduce](near, far)
            with np.errstate(over="ignore"):
                power = (np.float64(attrs.gamma) ** distance).astype(NUMPY[NAMES[x.dtype]]).item()
            # with an infinite power, zeros beyond the end must still add zero
            scaled = far * power
            return near + (scaled if np.isfinite(power) else torch.where(far == 0, far, scaled))

        total = _windows(x, attrs.axis, window, fill, join)
    return total if attrs.forward else total.flip(attrs.axis)


def _windows(
    x: Tensor, axis: int, window: int, fill: Any, join: Callable[[Tensor, Tensor, int], Tensor]
) -> Tensor:
    """Join elements k to k + window at each k, by doubling: log2(window) passes over x."""
    n = x.shape[axis]

    def shift(y: Tensor, k: int) -> Tensor:
        shape = [*y.shape[:axis], min(k, n), *y.shape[axis + 1 :]]
        end = torch.full(shape, fill, dtype=y.dtype, device=y.device)
        return torch.cat([y.narrow(axis, min(k, n), n - min(k, n)), end], axis)

    result: Tensor | None = None
    done, block, width = 0, x, 1
    while done < window:
        if window & width:
            result = block if result is None else join(result, shift(block, done), done)
            done += width
        if done < window:
            block = join(block, shift(block, width), width)
            width *= 2
    return torch.full_like(x, fill) if result is None else result


def _letters(*labels: str) -> dict[str, str]:
    """Return a letter for each label, as einsum takes no others."""
    each = dict.fromkeys("".join(labels))
    return {label: chr(ord("a") + k) for k, label in enumerate(each)}


def _contract(left: str, right: str, out: str, x: Tensor, y: Tensor) -> Tensor:
    if x.is_cuda and not x.is_floating_point():
        return contract_integers(left, right, out, x, y)
    if _is_matrix_product(left, right, out):
        if out[0] in right:
            left, right, x, y = right, left, y, x
        x, y = (x if left[0] in out else x.t()), (y if right[1] in out else y.t())
        return torch.mm(x, y)
    of = _letters(left, right, out)
    one, two, three = ("".join(of[k] for k in text) for text in (left, right, out))
    return torch.einsum(f"{one},{two}->{three}", x, y)


def contract_integers(left: str, right: str, out: str, x: Tensor, y: Tensor) -> Tensor:
    """Contract integers by products of `float64`, since PyTorch has no integer products on a GPU.

    Each number is a sum of 16-bit parts, whose products are below 2**32. Sums of up to 2**21 such products are
    exact. Parts beyond the width of the type are dropped, so results wrap around as on a CPU.

    Raises:
        ExecutionError: more than 2**21 products are summed.
    """
    of = dict(zip(left + right, (*x.shape, *y.shape), strict=True))
    summed = prod(of[k] for k in of if k not in out)
    if summed > 1 << 21:
        raise ExecutionError(
            f"a contraction of integers on a GPU sums {summed:,} products, and 2,097,152 is the limit.",
            hint='convert the operands to "f64", or use the device "cpu".',
        )
    count = x.itemsize // 2 or 1
    xs, ys = (
        [((z.to(torch.int64) >> 16 * k) & 0xFFFF).to(torch.float64) for k in range(count)]
        for z in (x, y)
    )
    parts = [
        _contract(left, right, out, xs[i], ys[j]).to(torch.int64) << 16 * (i + j)
        for i in range(count)
        for j in range(count - i)
    ]
    return sum(parts[1:], parts[0]).to(x.dtype)


def _is_matrix_product(left: str, right: str, out: str) -> bool:
    """Whether a contraction of two matrices over one axis is a matrix."""
    summed = set(left) & set(right)
    ranks = {len(left), len(right), len(out), len(set(left)), len(set(right))}
    return ranks == {2} and len(summed) == 1 and not summed & set(out)


def dot(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    attrs: DotAttrs = op.attrs
    kind = _wide(op)
    summed = [k for k, label in enumerate(attrs.left) if label not in attrs.out]
    left = mask_padding(scope, args[0].to(kind), sizes[0], summed, 0)
    summed = [k for k, label in enumerate(attrs.right) if label not in attrs.out]
    right = mask_padding(scope, args[1].to(kind), sizes[1], summed, 0)
    return _contract(attrs.left, attrs.right, attrs.out, left, right)


def _wide(op: Op) -> torch.dtype:
    """Return the type of products: float32 for half precision, int64 for unsigned integers."""
    return {"bf16": torch.float32, "f16": torch.float32, "u32": torch.int64}.get(
        op.dtype, TORCH[op.dtype]
    )


_CONVOLVE: Final = {
    1: torch.nn.functional.conv1d,
    2: torch.nn.functional.conv2d,
    3: torch.nn.functional.conv3d,
}


def conv(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    """Convolve by PyTorch, with axes of the same role merged into one.

    PyTorch has no convolution of integers, or over more than three axes: they are sums over the elements of
    the right operand.
    """
    a: ConvAttrs = op.attrs
    shape, swept, kind = scope.shape(op.shape), [s.label for s in a.sweeps], _wide(op)
    summed = [label for label in a.left if label not in a.out]
    left, right = (x.to(kind) for x in args)
    x = mask_padding(scope, left, sizes[0], [a.left.index(k) for k in (*summed, *swept)], 0)
    w = mask_padding(scope, right, sizes[1], [a.right.index(k) for k in (*summed, *swept)], 0)
    if not prod((*x.shape, *w.shape, *shape)):
        return torch.zeros(shape, dtype=kind, device=x.device)
    of = dict(zip(a.left + a.right, x.shape + w.shape, strict=True)) | dict(
        zip(a.out, shape, strict=True)
    )
    reach = {s.label: (w.shape[a.right.index(s.label)] - 1) * s.dilation for s in a.sweeps}
    for s in a.sweeps:  # spread, pad or cut the left operand to the positions that are read
        axis = a.left.index(s.label)
        before = s.offset + (reach[s.label] if a.mirrored else 0)
        have = (x.shape[axis] - 1) * s.spread + 1
        after = (of[s.label] - 1) * s.stride + reach[s.label] + 1 - have - before
        x = _padded(_spread(x, axis, s.spread), axis, before, after)
    if not kind.is_floating_point or len(swept) not in _CONVOLVE:
        return _convolve_by_elements(a, x, w, of, reach)
    groups = [k for k in a.out if k in a.left and k in a.right and k not in swept]
    mine = [k for k in a.out if k not in a.right]
    theirs = [k for k in a.out if k not in a.left]

    def merge_axes(y: Tensor, labels: str, *parts: list[str]) -> Tensor:
        y = y.permute([labels.index(k) for part in (*parts, swept) for k in part])
        return y.reshape(
            *(prod(of[k] for k in part) for part in parts), *y.shape[y.ndim - len(swept) :]
        )

    x = merge_axes(x, a.left, mine, [*groups, *summed])
    w = merge_axes(w, a.right, [*groups, *theirs], summed)
    if a.mirrored:
        w = w.flip(tuple(range(2, w.ndim)))
    made = _CONVOLVE[len(swept)](
        x,
        w,
        stride=[s.stride for s in a.sweeps],
        dilation=[s.dilation for s in a.sweeps],
        groups=prod(of[k] for k in groups),
    )
    labels = [*mine, *groups, *theirs, *swept]
    made = made.reshape([of[k] for k in labels])
    return made.permute([labels.index(k) for k in a.out])


def _spread(x: Tensor, axis: int, by: int) -> Tensor:
    """Insert `by - 1` zeros between the elements of an axis."""
    if by == 1:
        return x
    wide = torch.stack([x, *[torch.zeros_like(x)] * (by - 1)], axis + 1).flatten(axis, axis + 1)
    return wide.narrow(axis, 0, (x.shape[axis] - 1) * by + 1)


def _padded(x: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Add zeros at both ends of an axis; negative numbers remove elements."""
    return torch.constant_pad_nd(x, [0, 0] * (x.ndim - 1 - axis) + [before, after])


def _convolve_by_elements(
    a: ConvAttrs, x: Tensor, w: Tensor, of: Mapping[str, int], reach: Mapping[str, int]
) -> Tensor:
    """Sum the products with each element of the right operand along the convolved axes."""
    rest = "".join(label for label in a.right if label not in reach)
    made = torch.zeros([of[k] for k in a.out], dtype=x.dtype, device=x.device)
    for at in product(*(range(w.shape[a.right.index(s.label)]) for s in a.sweeps)):
        part, piece = x, w
        for s, k in zip(a.sweeps, at, strict=True):
            first = reach[s.label] - k * s.dilation if a.mirrored else k * s.dilation
            index = first + s.stride * torch.arange(of[s.label], device=x.device)
            part = part.index_select(a.left.index(s.label), index)
        whole: list[Any] = [slice(None)] * w.ndim
        for s, k in zip(a.sweeps, at, strict=True):
            whole[a.right.index(s.label)] = k
        piece = w[tuple(whole)]
        made = made + _contract(a.left, rest, a.out, part, piece)
    return made


def linear_scan(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    attrs: ScanAttrs = op.attrs
    factor, term = (
        mask_padding(scope, x, shape, (attrs.axis,), 0)
        for x, shape in zip(args, sizes, strict=True)
    )
    if attrs.reverse and (length := scope.length(sizes[0][attrs.axis])) is not None:
        # the last valid element starts a reversed scan: padding after it must not contribute
        place = along(scope.arange(factor.shape[attrs.axis]), attrs.axis, factor.ndim)
        factor = torch.where(place == length - 1, torch.zeros_like(factor), factor)
    if not term.numel():
        return term
    shape = torch.broadcast_shapes(factor.shape, term.shape)
    factor, term = factor.expand(shape), term.expand(shape)
    return _run_scan(factor, term, attrs.axis, reverse=attrs.reverse, restarts=attrs.restarts)


def _run_scan(factor: Tensor, term: Tensor, axis: int, *, reverse: bool, restarts: bool) -> Tensor:
    """Evaluate a recurrence in order, in the text of the kernel if it is short."""
    if term.shape[axis] <= _MOST_UNROLLED:
        return scan_in_order(factor, term, axis, reverse, restarts)
    return torch.ops.timerl_nb.linear_scan(factor, term, axis, reverse, restarts)


def scan_in_order(
    factor: Tensor,
    term: Tensor,
    axis: int,
    reverse: bool,
    restarts: bool,
) -> Tensor:
    """Evaluate y[k] = factor[k] * y[k - 1] + term[k], step by step."""
    n = term.shape[axis]
    factors, terms = factor.unbind(axis), term.unbind(axis)
    found: list[Tensor] = [terms[0]] * n
    y: Tensor | None = None
    for k in range(n)[:: -1 if reverse else 1]:
        made = terms[k] if y is None else factors[k] * y + terms[k]
        if restarts and y is not None:
            made = torch.where(factors[k] == 0, terms[k], made)
        found[k] = y = made
    return torch.stack(found, axis)
