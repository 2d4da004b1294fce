"""Convolutions and pooling over the last axes of a tensor.

Axes are ordered as in PyTorch: batch, channels, space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.ir.operation_attributes import ConvAttrs, Sweep
from timerl_nb.compiler.ir.shapes import Size, is_float, promote, size
from timerl_nb.compiler.language.argument_checks import integer, is_whole
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, apply, constant, operand
from timerl_nb.compiler.symbolic.index_expressions import lin

Tensor = RecurrentTensor
_BATCH, _SPACE = "abcdef", "ijkl"  # einsum letters; g, m and n are groups and channels


@explain_call_errors
def conv(
    x: Any,
    kernel: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve `x` with a kernel (a cross-correlation, as usual in machine learning).

    Args:
        x: shape `(…, channels, *space)`. With stride 1 a spatial axis may have a symbolic length.
        kernel: shape `(outputs, channels // groups, *window)`, with 1 to 4 spatial axes.
        stride, dilation: a positive integer, or one per spatial axis.
        padding: the number of zeros at both ends of a spatial axis: an integer, one per axis, or a pair per
            axis. "valid" means none; "same" gives ceil(length / stride) results.
        groups: the number of groups into which the channels and the outputs are divided.

    Returns:
        shape `(…, outputs, *space')`. Along each spatial axis there are
        (length + padding - dilation * (window - 1) - 1) // stride + 1 results.

    Raises:
        ShapeError: the shapes do not match, or the values are not floating-point.

    Example:
        >>> trl.conv(trl.zeros((4, 84, 84)), trl.zeros((32, 4, 8, 8)), stride=4)
        f32[32,20,20] @ ()
    """
    x, kernel, window = _check_operands(x, kernel)
    rank = len(window)
    strides, dilations = _each(stride, rank, "stride"), _each(dilation, rank, "dilation")
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, window, strict=True)]
    space = x.shape[-rank:]
    sweeps: list[Sweep] = []
    for k, (lo, hi) in enumerate(_paddings(padding, space, reach, strides)):
        results = _results(space[k], lo + hi - reach[k], strides[k], x)
        sweeps.append(Sweep(_SPACE[k], results, strides[k], lo, 1, dilations[k]))
    return _convolve(x, kernel, sweeps, groups, mirrored=False)


@explain_call_errors
def conv_transpose(
    x: Any,
    kernel: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Apply the transpose of a convolution, which maps the outputs' gradients to the inputs' gradients.

    Args:
        x: shape `(…, channels, *space)`.
        kernel: shape `(channels, outputs // groups, *window)`.
        stride, padding, dilation, groups: those of the convolution; `padding` is an integer, one per axis, or a
            pair per axis.

    Returns:
        shape `(…, outputs, *space')`. Along each spatial axis there are
        (length - 1) * stride - padding + dilation * (window - 1) + 1 results.

    Raises:
        ShapeError: the shapes do not match, or no results remain.

    Example:
        >>> trl.conv_transpose(trl.zeros((32, 20, 20)), trl.zeros((32, 4, 8, 8)), stride=4)
        f32[4,84,84] @ ()
    """
    x, kernel, window = _check_operands(x, kernel)
    rank = len(window)
    strides, dilations = _each(stride, rank, "stride"), _each(dilation, rank, "dilation")
    sweeps: list[Sweep] = []
    for k, (lo, hi) in enumerate(_paddings(padding, x.shape[-rank:], None, strides)):
        wide = (lin(x.shape[k - rank]) - 1) * strides[k] + dilations[k] * (window[k] - 1) + 1
        results = size(wide - (lo + hi))
        if isinstance(results, int) and results < 1:
            raise ShapeError(
                f"the convolution of {x.type} has no results along spatial axis {k}.",
                hint="use less padding.",
            )
        sweeps.append(Sweep(_SPACE[k], results, 1, -lo, strides[k], dilations[k]))
    return _convolve(x, kernel, sweeps, groups, mirrored=True)


@explain_call_errors
def max_pool(x: Any, window: Any, *, stride: Any = None, padding: Any = 0) -> Tensor:
    """Return the maximum of each window over the last axes.

    Args:
        x: the tensor.
        window: the window's length along the last axis, or a sequence with one length per axis.
        stride: the distance between windows; by default the window's length.
        padding: the number of positions by which windows may extend beyond both ends; less than the window's
            length.

    Raises:
        ShapeError: a window does not fit, or an axis has a symbolic length.

    Example:
        >>> trl.max_pool(trl.zeros((3, 8, 8)), (2, 2))
        f32[3,4,4] @ ()
    """
    return _pool_axes(
        operand(current(), x),
        window,
        stride,
        padding,
        lambda y, axis: y.max(axis=axis),
        inside=True,
    )


@explain_call_errors
def avg_pool(x: Any, window: Any, *, stride: Any = None, padding: Any = 0) -> Tensor:
    """Return the mean of each window over the last axes; positions beyond the ends count as zeros.

    Args:
        x, window, stride, padding: as for `max_pool`.

    Example:
        >>> trl.avg_pool(trl.zeros((3, 8, 8)), (2, 2))
        f32[3,4,4] @ ()
    """
    x = operand(current(), x).floating()
    return _pool_axes(x, window, stride, padding, lambda y, axis: y.mean(axis=axis), inside=False)


def _convolve(
    x: Tensor, kernel: Tensor, sweeps: Sequence[Sweep], groups: int, *, mirrored: bool
) -> Tensor:
    """Convolve the last `len(sweeps)` axes; the axis before them has the channels.

    Args:
        x: the tensor, with any leading axes.
        kernel: (outputs, inputs per group, *sizes); if mirrored, (inputs, outputs per group, *sizes).
        sweeps: the geometry of each axis.
        groups: the number of groups of channels.
        mirrored: whether this is a transposed convolution.

    Raises:
        ShapeError: the numbers of channels do not match.
    """
    at = x.rank - len(sweeps) - 1  # axis of the channels
    channels, first, second = _integers((x.shape[at], *kernel.shape[:2]), "numbers of channels")
    groups = integer("groups", groups, least=1)
    takes, outputs = (first, second) if mirrored else (second * groups, first)
    if channels != takes or first % groups:
        raise ShapeError(
            f"a kernel of {kernel.type} in {groups} group(s) does not match {x.type}.",
            hint=f"the kernel takes {takes} channels; groups must divide both numbers of channels.",
        )
    space = _SPACE[: len(sweeps)]
    batch = _BATCH[:at]
    g = "g" * (groups > 1)
    if g:
        x = x.reshape((*x.shape[:at], groups, channels // groups, *x.shape[at + 1 :]))
        kernel = kernel.reshape((groups, first // groups, *kernel.shape[1:]))
    parts = "mn" if mirrored else "nm"
    labels = (batch + g + "m" + space, g + parts + space, batch + g + "n" + space)
    made = apply("conv", [x, kernel], ConvAttrs(*labels, tuple(sweeps), mirrored))
    if g:
        total = outputs * groups if mirrored else outputs
        made = made.reshape((*made.shape[:at], total, *made.shape[at + 2 :]))
    return made


def _check_operands(x: Any, kernel: Any) -> tuple[Tensor, Tensor, list[int]]:
    """Cast the operands to one floating-point type, and return them with the window's lengths."""
    ctx = current()
    x, kernel = operand(ctx, x), operand(ctx, kernel)
    rank = kernel.rank - 2
    if not 1 <= rank <= len(_SPACE) or not rank < x.rank <= rank + 1 + len(_BATCH):
        raise ShapeError(
            f"a kernel of {kernel.type} does not convolve {x.type}.",
            hint="give x of shape `(…, channels, *space)` and a kernel of two channel axes, then *window.",
        )
    common = promote((x.dtype, kernel.dtype))
    if not is_float(common):
        raise ShapeError(
            f"convolutions take floating-point values, not {x.type}.", hint="write x.floating()."
        )
    window = [s for s in kernel.shape[2:] if isinstance(s, int) and s > 0]
    if len(window) < rank:
        raise ShapeError(
            f"a window's lengths are positive integers, not those of {kernel.type}.",
            hint="give a kernel with integer sizes.",
        )
    return x.cast(common), kernel.cast(common), window


def _integers(sizes: Sequence[Size], what: str) -> list[int]:
    found = [s for s in sizes if isinstance(s, int)]
    if len(found) < len(sizes):
        raise ShapeError(
            f"{what} are integers, not {', '.join(map(str, sizes))}.",
            hint="give axes of integer size.",
        )
    return found


def _each(value: Any, rank: int, what: str, least: int = 1) -> list[int]:
    given = list(value) if isinstance(value, Sequence) else [value] * rank
    whole = all(map(is_whole, given))
    if isinstance(value, str) or len(given) != rank or not whole or min(given) < least:
        raise ShapeError(
            f"{what} must be an integer of at least {least}, or {rank} of them, not {value!r}.",
            hint="give one integer, or one per spatial axis.",
        )
    return [int(v) for v in given]


def _paddings(
    padding: Any, space: Sequence[Size], reach: Sequence[int] | None, strides: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the numbers of zeros before and after each spatial axis."""
    rank = len(space)
    if reach is not None and padding == "valid":
        return [(0, 0)] * rank
    if reach is not None and padding == "same":
        found: list[tuple[int, int]] = []
        for n, r, s in zip(space, reach, strides, strict=True):
            total = r - 1
            if s > 1:
                (length,) = _integers((n,), f"lengths of axes with a stride of {s}")
                total = max((-(-length // s) - 1) * s + r - length, 0)
            found.append((total // 2, total - total // 2))
        return found
    if isinstance(padding, Sequence) and any(isinstance(p, Sequence) for p in padding):
        if len(padding) == rank and not isinstance(padding, str):
            pairs = [_each(p, 2, "padding", 0) for p in padding]
            return [(lo, hi) for lo, hi in pairs]
    return [(p, p) for p in _each(padding, rank, "padding", 0)]


_STRIDE = "use stride 1, or an axis of integer length: sizes must be affine in the bounds."


def _results(n: Size, more: int, stride: int, x: Tensor) -> Size:
    """Return the number of windows; `more` is the padding minus the extent of one window."""
    if not isinstance(n, int):
        if stride > 1:
            raise ShapeError(
                f"a convolution has a stride of {stride} along an axis of length {n}.", hint=_STRIDE
            )
        return size(lin(n) + more + 1)
    if n + more < 0:
        raise ShapeError(
            f"a window of {-more} positions, minus the padding, does not fit into {x.type}.",
            hint="use a smaller window, or padding.",
        )
    return (n + more) // stride + 1


def _pool_axes(
    x: Tensor,
    window: Any,
    stride: Any,
    padding: Any,
    fold: Callable[[Tensor, int], Tensor],
    *,
    inside: bool,
) -> Tensor:
    """Pool one axis after the other.

    Positions beyond an end repeat the last position if `inside`, and count as zeros otherwise.
    """
    rank = len(window) if isinstance(window, Sequence) else 1
    windows = _each(window, rank, "the window")
    strides = windows if stride is None else _each(stride, rank, "stride")
    ends = _each(padding, rank, "padding", 0)
    if x.rank < rank:
        raise ShapeError(
            f"{x.type} has fewer axes than the window, {rank}.",
            hint="give a window of one length per pooled axis.",
        )
    for k, (n, s, pad) in enumerate(zip(windows, strides, ends, strict=True)):
        axis = x.rank - rank + k
        (length,) = _integers((x.shape[axis],), "lengths of pooled axes")
        if pad >= n:
            raise ShapeError(
                f"a padding of {pad} leaves windows of {n} positions empty.",
                hint="use less padding than the window's length.",
            )
        if length + 2 * pad < n:
            raise ShapeError(
                f"a window of {n} positions does not fit into {x.type}.",
                hint="use a smaller window, or padding.",
            )
        if s == n and not pad and length % n == 0:
            parts = x.reshape((*x.shape[:axis], length // n, n, *x.shape[axis + 1 :]))
        else:
            first = s * np.arange((length + 2 * pad - n) // s + 1)
            at = first[:, None] + np.arange(n) - pad
            at = np.clip(at, 0, length - 1) if inside else at
            parts = x.take(constant(x.ctx, at, "i32"), axis)
        x = fold(parts, axis + 1)
    return x


__all__ = ["avg_pool", "conv", "conv_transpose", "max_pool"]
