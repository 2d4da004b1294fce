"""Vector-Jacobian products: one differentiation rule per kind of operation.

A rule in `VJP` maps the gradient of a result to the gradients of the operands, at the operation's own point. `NO_VJP`
gives the reason for a kind without a rule. Every kind is in exactly one of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from timerl_nb.compiler.ir.operation_attributes import (
    AxesAttrs,
    AxisAttrs,
    ConvAttrs,
    DiscountAttrs,
    DotAttrs,
    GatherAttrs,
    PermAttrs,
    ReindexAttrs,
    ScanAttrs,
    ScatterAttrs,
    SetAttrs,
    SlidingAttrs,
    Sweep,
)
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import Shape, same_size
from timerl_nb.compiler.language.inputs.tensor_sources import where
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import (
    LABELS,
    RecurrentTensor,
    apply,
    broadcast_to,
    constant,
    dot,
    value_of,
)
from timerl_nb.compiler.symbolic.index_expressions import const, lin

Tensor = RecurrentTensor


@dataclass(frozen=True)
class Node:
    """Operation under differentiation, with its operands and result as tensors at its own point."""

    ctx: Context
    op: Op
    inputs: tuple[Tensor, ...]
    output: Tensor


Rule = Callable[[Node, Tensor], Sequence[Tensor | None]]


def _fit(g: Tensor, shape: Shape) -> Tensor:
    """Sum a gradient over the axes along which its operand was broadcast."""
    if not shape:
        return g.sum()
    axes = [
        k
        for k, (have, want) in enumerate(zip(g.shape, shape, strict=True))
        if want == 1 and not same_size(have, want)
    ]
    return g.sum(axis=axes).reshape(shape) if axes else g


def _unary(derivative: Callable[[Tensor, Tensor], Any]) -> Rule:
    """Return the rule for a derivative dy/dx given as a function of x and y."""
    return lambda node, g: [g * derivative(node.inputs[0], node.output)]


def _binary(rule: Callable[[Tensor, Tensor, Tensor, Tensor], Sequence[Tensor]]) -> Rule:
    """Return the rule for gradients given as functions of g, x, y and the result, before broadcasting is undone."""

    def fit_gradients(node: Node, g: Tensor) -> Sequence[Tensor]:
        x, y = node.inputs
        both = rule(g, x, y, node.output)
        return [_fit(part, to.shape) for part, to in zip(both, (x, y), strict=True)]

    return fit_gradients


def _pow(g: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Sequence[Tensor]:
    safe = where(x > 0.0, x, 1.0)
    less = where(y == 0.0, 1.0, y - 1.0)  # 0 * 0 ** -1 is NaN
    return g * y * x**less, where(x > 0.0, g * z * safe.log(), 0.0)


def _pick_larger(g: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Sequence[Tensor]:
    half = where(x == y, 0.5, 1.0)  # equal operands share the gradient
    return where(x == z, g * half, 0.0), where(y == z, g * half, 0.0)


def _where(node: Node, g: Tensor) -> Sequence[Tensor | None]:
    condition, x, y = node.inputs
    return [None, _fit(where(condition, g, 0.0), x.shape), _fit(where(condition, 0.0, g), y.shape)]


def spread(g: Tensor, axes: Sequence[int], shape: Shape) -> Tensor:
    """Restore reduced axes by repetition."""
    kept = tuple(1 if k in axes else s for k, s in enumerate(shape))
    return broadcast_to(g.reshape(kept), shape)


def _sum(node: Node, g: Tensor) -> Sequence[Tensor]:
    attrs: AxesAttrs = node.op.attrs
    return [spread(g, attrs.axes, node.inputs[0].shape)]


def _prod(node: Node, g: Tensor) -> Sequence[Tensor]:
    # The derivative is the product of the other elements: a quotient, except for zeros.
    attrs: AxesAttrs = node.op.attrs
    (x,) = node.inputs
    zero = x == 0.0
    many = spread(zero.sum(axis=list(attrs.axes)), attrs.axes, x.shape)
    whole = spread(where(zero, 1.0, x).prod(axis=list(attrs.axes)), attrs.axes, x.shape)
    alone = where(zero & (many == 1), whole, 0.0)
    others = where(many == 0, whole / where(zero, 1.0, x), alone)
    return [others * spread(g, attrs.axes, x.shape)]


def _max(node: Node, g: Tensor) -> Sequence[Tensor]:
    attrs: AxesAttrs = node.op.attrs
    (x,) = node.inputs
    here = (x == spread(node.output, attrs.axes, x.shape)).cast(x.dtype)
    ties = here.sum(axis=list(attrs.axes))
    return [here * spread(g / ties, attrs.axes, x.shape)]


def _discounted_sum(node: Node, g: Tensor) -> Sequence[Tensor]:
    attrs: DiscountAttrs = node.op.attrs
    (x,) = node.inputs
    size = x.shape[attrs.axis]
    if not isinstance(size, int):
        power = x._positions(attrs.axis, reverse=attrs.reverse).cast(x.dtype)
        return [spread(g, [attrs.axis], x.shape) * attrs.gamma**power]
    weights = attrs.gamma ** np.arange(size)
    weights = weights[::-1] if attrs.reverse else weights
    along = weights.reshape([-1 if k == attrs.axis else 1 for k in range(x.rank)])
    return [spread(g, [attrs.axis], x.shape) * constant(node.ctx, along, x.dtype)]


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
    # Labels that only this operand has, and that are summed, return by repetition.
    known = "".join(x for x in want if x in out or x in labels)
    made = dot(g, other, f"{out},{labels}->{known}")
    if known == want:
        return made
    kept = tuple(s if label in known else 1 for label, s in zip(want, shape, strict=True))
    return broadcast_to(made.reshape(kept), shape)


def _conv(node: Node, g: Tensor) -> Sequence[Tensor]:
    """The positions in input, kernel and output satisfy one linear equation; each gradient solves it for another one."""
    a: ConvAttrs = node.op.attrs
    x, w = node.inputs
    of_x, of_w = list[Sweep](), list[Sweep]()
    for s in a.sweeps:
        size, kernel = x.shape[a.left.index(s.label)], w.shape[a.right.index(s.label)]
        by_g = Sweep(s.label, size, s.spread, -s.offset, s.stride, s.dilation)
        of_x.append(by_g)
        if a.mirrored:  # stride p = dilation k + spread i + offset
            of_w.append(Sweep(s.label, kernel, s.dilation, -s.offset, s.stride, s.spread))
        else:  # spread i = dilation k + stride p - offset
            of_w.append(Sweep(s.label, kernel, s.dilation, s.offset, s.spread, s.stride))
    back = ConvAttrs(a.out, a.right, a.left, tuple(of_x), not a.mirrored)
    first, second = ((g, a.out), (x, a.left)) if a.mirrored else ((x, a.left), (g, a.out))
    onto = ConvAttrs(first[1], second[1], a.right, tuple(of_w))
    return [apply("conv", [g, w], back), apply("conv", [first[0], second[0]], onto)]


def _gather(node: Node, g: Tensor) -> Sequence[Tensor | None]:
    a: GatherAttrs = node.op.attrs
    x, at = node.inputs
    size = x.shape[a.left.index(a.axis)]
    return [apply("scatter_add", [g, at], ScatterAttrs(a.out, a.right, a.left, a.axis, size)), None]


def _scatter(node: Node, g: Tensor) -> Sequence[Tensor | None]:
    a: ScatterAttrs = node.op.attrs
    attrs = GatherAttrs(a.out, a.right, a.left, a.axis)
    return [apply("gather", [g, node.inputs[1]], attrs), None]


def _scatter_set(node: Node, g: Tensor) -> Sequence[Tensor | None]:
    """Replaced elements have no gradient: neither in the first operand nor among overwritten values."""
    a: SetAttrs = node.op.attrs
    x, values, at = node.inputs
    nothing = constant(node.ctx, 0.0).cast(g.dtype)._broadcast_to(values.shape)
    number = at._positions(0) if at.rank else constant(node.ctx, np.int32(0))
    for k in range(1, at.rank):
        number = number * at._length(k) + at._positions(k)
    number = number._broadcast_to(at.shape)
    # The last writer of each position, then the last writer of each element's position.
    labels = "".join(label for label in a.out if label == a.axis or label in a.right)
    shape = tuple(x.shape[a.out.index(label)] for label in labels)
    none = constant(node.ctx, np.int32(-1))._broadcast_to(shape)
    last = apply("scatter_set", [none, number, at], SetAttrs(a.right, a.right, labels, a.axis))
    there = apply("gather", [last, at], GatherAttrs(labels, a.right, a.right, a.axis))
    kept = where(there == number, at.cast("i32"), -1)
    back = GatherAttrs(a.out, a.right, a.left, a.axis)
    return [apply("scatter_set", [g, nothing, at], a), apply("gather", [g, kept], back), None]


def _linear_scan(node: Node, g: Tensor) -> Sequence[Tensor]:
    """For y[k] = a[k] y[k-1] + b[k], the gradient of b is h[k] = a[k+1] h[k+1] + g[k]."""
    attrs: ScanAttrs = node.op.attrs
    later = _shift_along_axis(node.inputs[0], attrs.axis, back=not attrs.reverse)
    h = apply("linear_scan", [later, g], replace(attrs, reverse=not attrs.reverse))
    return [h * _shift_along_axis(node.output, attrs.axis, back=attrs.reverse), h]


def _shift_along_axis(x: Tensor, axis: int, *, back: bool) -> Tensor:
    """Return x[k + 1] (`back`) or x[k - 1] along an axis, with zeros at the end."""
    return apply("reindex", [x], ReindexAttrs.padded(axis, const(-1 if back else 1), x.shape[axis]))


def _running(node: Node, g: Tensor) -> Sequence[Tensor]:
    """The gradient of each running extremum goes to its last occurrence."""
    attrs: SlidingAttrs = node.op.attrs
    assert attrs.window is None  # passes create windows only after differentiation
    (x,) = node.inputs
    size = x.shape[attrs.axis]
    place = x._positions(attrs.axis, reverse=attrs.forward) + 1  # numbered in scan order
    last = apply("sliding_max", [where(x == node.output, place, 0)], attrs)
    at = value_of(node.ctx, lin(size)) - last if attrs.forward else last - 1
    labels = LABELS[: x.rank]
    axis = labels[attrs.axis]
    placed = labels.replace(axis, LABELS[x.rank])
    return [apply("scatter_add", [g, at], ScatterAttrs(placed, placed, labels, axis, size))]


def _atan2(g: Tensor, y: Tensor, x: Tensor, z: Tensor) -> Sequence[Tensor]:
    # Scaled against overflow and underflow of squares; 0 at infinity and at the origin.
    most = abs(x).maximum(abs(y)).detach()
    near = most < np.inf
    size = where((most > 0.0) & near, most, 1.0)
    u, v = where(near, x, 0.0) / size, where(near, y, 0.0) / size
    squares = u * u + v * v
    scaled = g / where(squares > 0.0, squares, 1.0) / size
    return scaled * u, -(scaled * v)


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
        found.append(apply("reindex", [g], ReindexAttrs.from_range(attrs.axis, start, end)))
        start = end
    return found


def _reindex(node: Node, g: Tensor) -> Sequence[Tensor]:
    attrs: ReindexAttrs = node.op.attrs
    part = g.unsqueeze(attrs.axis) if attrs.size is None else g
    return [apply("reindex", [part], attrs.inverse(node.inputs[0].shape[attrs.axis]))]


VJP: Final[Mapping[str, Rule]] = {
    "neg": lambda node, g: [-g],
    "abs": _unary(lambda x, y: x.sign()),
    "exp": _unary(lambda x, y: y),
    "expm1": _unary(lambda x, y: y + 1.0),
    "log1p": lambda node, g: [g / (node.inputs[0] + 1.0)],
    "log": lambda node, g: [g / node.inputs[0]],
    "sqrt": lambda node, g: [g / (node.output * 2.0)],
    "sin": _unary(lambda x, y: x.cos()),
    "cos": _unary(lambda x, y: -x.sin()),
    "tanh": _unary(lambda x, y: 1.0 - y * y),
    "sigmoid": _unary(lambda x, y: y * (1.0 - y)),
    "erf": _unary(lambda x, y: (-(x * x)).exp() * float(2 / np.sqrt(np.pi))),
    "erf_inv": _unary(lambda x, y: (y * y).exp() * float(np.sqrt(np.pi) / 2)),
    "cast": lambda node, g: [g.cast(node.inputs[0].dtype)],
    "copy": lambda node, g: [g],
    "add": _binary(lambda g, x, y, z: (g, g)),
    "sub": _binary(lambda g, x, y, z: (g, -g)),
    "mul": _binary(lambda g, x, y, z: (g * y, g * x)),
    "div": _binary(lambda g, x, y, z: (g / y, -(g * z / y))),
    "atan2": _binary(_atan2),
    "pow": _binary(_pow),
    "max2": _binary(_pick_larger),
    "min2": _binary(_pick_larger),
    "mod": _binary(lambda g, x, y, z: (g, -(g * (x / y).floor()))),
    "where": _where,
    "sum": _sum,
    "prod": _prod,
    "max": _max,
    "min": _max,
    "discounted_sum": _discounted_sum,
    "sliding_sum": _sliding,
    "dot": _dot,
    "conv": _conv,
    "linear_scan": _linear_scan,
    **dict.fromkeys(("sliding_max", "sliding_min"), _running),
    "gather": _gather,
    "scatter_add": _scatter,
    "scatter_set": _scatter_set,
    "reshape": lambda node, g: [g.reshape(node.inputs[0].shape)],
    "transpose": _transpose,
    "expand": lambda node, g: [_fit(g, node.inputs[0].shape)],
    "concat": _concat,
    "reindex": _reindex,
}
NO_VJP: Final[Mapping[str, str]] = {
    "const": "a constant",
    "data": "input data",
    "value": "an index",
    "rng": "random bits",
    "unit": "random numbers",
    "detach": "detached",
    "floor": "piecewise constant",
    "round": "piecewise constant",
    "sign": "piecewise constant",
    "floordiv": "piecewise constant",
    "not": "boolean",
    "eq": "a comparison",
    "ne": "a comparison",
    "lt": "a comparison",
    "le": "a comparison",
    **dict.fromkeys(("and", "or", "xor", "shl", "shr"), "boolean, or bits"),
    "argmax": "an integer choice",
    "orthonormal": "an initial value of parameters",
    "argmin": "an integer choice",
    "argsort": "an integer choice",
    "merge": "differentiated by branch in `gradients`",
    "accumulate": "created by the compiler after differentiation",
    "dataflow": "created by the compiler after differentiation",
    "output": "a sink",
    "bound": "a sink",
    "checkpoint": "a sink",
    "call": "a sink",
    "udf": "a host function",
    "jaxed": "a JAX function without floating-point operands or results",
}
