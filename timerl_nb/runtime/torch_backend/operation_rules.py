"""Translation of operations to PyTorch, a rule per kind, as in `jax_backend.operation_rules`.

Rules are functional: they write into no operand. Unsigned 32-bit integers, which PyTorch hardly supports, are
computed as 64-bit integers, or moved as signed ones. Element types are always explicit, as PyTorch's default
type may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from timerl_nb.compiler.ir.operation_attributes import ConstAttrs, ValueAttrs
from timerl_nb.compiler.ir.operation_kinds import LAYOUT
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import HALF, Size, promote
from timerl_nb.compiler.symbolic.index_expressions import sym
from timerl_nb.runtime.jax_backend import operation_rules as jax_rules
from timerl_nb.runtime.torch_backend import gather_scatter_rules as positions
from timerl_nb.runtime.torch_backend import reduction_rules as sums
from timerl_nb.runtime.torch_backend.random_rules import draw
from timerl_nb.runtime.torch_backend.trace_context_and_masks import (
    NAMES,
    TORCH,
    Tensor,
    TorchScope,
    grid_of,
    take,
)
from timerl_nb.runtime.torch_backend.untraced_operators import evaluate_jax_function

Rule = Callable[[TorchScope, Op, Sequence[Tensor], Any], Tensor]


def _plain(f: Callable[..., Tensor]) -> Rule:
    """Return a rule with access to the operands only."""
    return lambda scope, op, args, sizes: f(*args)


def _floating(f: Callable[..., Tensor]) -> Rule:
    """Return a rule for operands that are first converted to the type of the result."""

    def rule(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
        kind = torch.float32 if op.dtype in HALF else TORCH[op.dtype]
        return f(*(x.to(kind) for x in args))

    return rule


def _const(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    attrs: ConstAttrs = op.attrs
    array = scope.constant(attrs.value.array)
    if array.dtype == torch.uint32:
        array = array.view(torch.int32)
    if not attrs.dims:
        return array
    grid = grid_of(scope, attrs.axes, attrs.sizes, attrs.starts)
    index: list[Any] = []
    for axis, d in enumerate(attrs.dims):
        at = grid[d] if d in grid else scope.value(sym(d))
        last = max(array.shape[axis] - 1, 0)  # values beyond a varying length are masked later
        index.append(
            at.clamp(0, last) if isinstance(at, Tensor) else scope.number(min(max(at, 0), last))
        )
    if not array.numel():
        return array.new_zeros(scope.shape(op.shape))
    return take(array, index)


def _value(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    attrs: ValueAttrs = op.attrs
    made = scope.value(attrs.expr, grid_of(scope, attrs.axes, attrs.sizes))
    shape, kind = scope.shape(attrs.sizes), TORCH[attrs.dtype]
    if isinstance(made, Tensor):
        return made.to(kind).expand(shape)
    return torch.full(shape, made, dtype=kind, device=scope.device)


def _unit(drawn: Tensor) -> Tensor:
    return ((drawn.view(torch.int32) >> 9 & 0x7FFFFF).to(torch.float32) + 0.5) * 2.0**-23


def _sign(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), x, x.sign()) if x.is_floating_point() else x.sign()


def _floordiv(x: Tensor, y: Tensor) -> Tensor:
    """Divide; an integer divided by 0 is 0, and the least integer by -1 is itself: both would be traps."""
    if x.is_floating_point():
        return torch.floor_divide(x, y)
    if not x.dtype.is_signed:  # its largest number equals -1
        made = torch.floor_divide(x, torch.where(y == 0, torch.ones_like(y), y))
    else:
        safe = torch.where((y == 0) | (y == -1), torch.ones_like(y), y)
        made = torch.where(y == -1, -x, torch.floor_divide(x, safe))
    return torch.where(y == 0, torch.zeros_like(made), made)


def _mod(x: Tensor, y: Tensor) -> Tensor:
    if x.is_floating_point():
        return torch.remainder(x, y)
    trap = (y == 0) | (y == -1) if x.dtype.is_signed else y == 0
    return torch.remainder(x, torch.where(trap, torch.ones_like(y), y))


def _shift(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a shift by any number of positions; numbers beyond the width shift all bits out."""

    def shift(x: Tensor, y: Tensor) -> Tensor:
        width = torch.iinfo(x.dtype).bits
        inside = (y >= 0) & (y < width)
        if f is torch.bitwise_right_shift and x.dtype.is_signed:
            return f(x, torch.where(inside, y, torch.full_like(y, width - 1)))
        made = f(x, torch.where(inside, y, torch.zeros_like(y)))
        return torch.where(inside, made, torch.zeros_like(made))

    return shift


def _cast(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    """Integers wrap around. Floating-point numbers are clipped to the range of an integer type; NaN becomes 0."""
    (x,), kind = args, TORCH[op.dtype]
    if not x.is_floating_point() or kind.is_floating_point or kind is torch.bool:
        return x.to(kind) if kind is not torch.uint32 else x.to(torch.int64)
    ends = torch.iinfo(kind)
    wide = x.to(torch.float64).nan_to_num(nan=0.0)
    inside = (wide > float(ends.min)) & (wide < float(ends.max))
    whole = torch.where(inside, wide, torch.zeros_like(wide)).to(torch.int64)
    beyond = torch.where(wide > 0, ends.max, torch.full_like(whole, ends.min))
    return torch.where(inside, whole, beyond)


def _orthonormal(x: Tensor) -> Tensor:
    """Orthonormalise column by column, as the rule of JAX does."""
    columns: list[Tensor] = []
    for k in range(x.shape[-1]):
        v = x[..., k : k + 1]
        for _ in range(2 if columns else 0):
            q = torch.cat(columns, -1)
            v = v - q @ (q.mT @ v)
        columns.append(v / torch.linalg.vector_norm(v, dim=-2, keepdim=True))
    return torch.cat(columns, -1) if columns else x


def _expand(scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Any) -> Tensor:
    return args[0].expand(scope.shape(op.shape))


RULES: Final[Mapping[str, Rule]] = {
    "const": _const,
    "data": _const,
    "value": _value,
    "rng": draw,
    "neg": _plain(torch.neg),
    "abs": _plain(torch.abs),
    "sign": _plain(_sign),
    "exp": _floating(torch.exp),
    "expm1": _floating(torch.expm1),
    "log": _floating(torch.log),
    "log1p": _floating(torch.log1p),
    "sqrt": _floating(torch.sqrt),
    "sin": _floating(torch.sin),
    "cos": _floating(torch.cos),
    "tanh": _floating(torch.tanh),
    "sigmoid": _floating(torch.sigmoid),
    "erf": _floating(torch.erf),
    "erf_inv": _floating(torch.erfinv),
    "floor": _floating(torch.floor),
    "round": _floating(torch.round),
    "not": _plain(torch.bitwise_not),
    "cast": _cast,
    "unit": _plain(_unit),
    "copy": _plain(lambda x: x),
    "detach": _plain(lambda x: x),
    "add": _plain(torch.add),
    "sub": _plain(torch.sub),
    "mul": _plain(torch.mul),
    "div": _floating(torch.div),
    "atan2": _floating(torch.atan2),
    "pow": _plain(torch.pow),
    "max2": _plain(torch.maximum),
    "min2": _plain(torch.minimum),
    "floordiv": _plain(_floordiv),
    "mod": _plain(_mod),
    "eq": _plain(torch.eq),
    "ne": _plain(torch.ne),
    "lt": _plain(torch.lt),
    "le": _plain(torch.le),
    "and": _plain(torch.bitwise_and),
    "or": _plain(torch.bitwise_or),
    "xor": _plain(torch.bitwise_xor),
    "shl": _plain(_shift(torch.bitwise_left_shift)),
    "shr": _plain(_shift(torch.bitwise_right_shift)),
    "where": _plain(torch.where),
    **dict.fromkeys(("sum", "prod", "max", "min"), sums.reduction),
    "argmax": positions.arg_extremum,
    "argmin": positions.arg_extremum,
    "argsort": positions.argsort,
    "orthonormal": _plain(_orthonormal),
    "jaxed": evaluate_jax_function,
    "gather": positions.gather,
    "scatter_add": positions.scatter_add,
    "scatter_set": positions.scatter_set,
    "discounted_sum": sums.discounted_sum,
    **dict.fromkeys(("sliding_sum", "sliding_max", "sliding_min"), sums.sliding),
    "conv": sums.conv,
    "linear_scan": sums.linear_scan,
    "dot": sums.dot,
    "reshape": lambda scope, op, args, sizes: args[0].reshape(scope.shape(op.shape)),
    "transpose": lambda scope, op, args, sizes: args[0].permute(op.attrs.perm),
    "expand": _expand,
    "concat": positions.concat,
    "reindex": positions.reindex,
}
# the gaps and the treatment of padding are those of JAX's rules, as both use capacities and masks
NO_RULE: Final = jax_rules.NO_RULE
PADDING: Final = jax_rules.PADDING
NO_PADDING: Final = jax_rules.NO_PADDING

# Kinds that move bits: unsigned integers pass through them as signed ones.
_MOVES: Final = frozenset(
    LAYOUT | {"where", "concat", "gather", "scatter_set", "copy", "detach", "reindex"}
)
# Kinds whose operands have a common type. PyTorch would ignore the types of operands without axes.
_PROMOTED: Final = frozenset(
    [
        "add",
        "sub",
        "mul",
        "pow",
        "max2",
        "min2",
        "floordiv",
        "mod",
        "eq",
        "ne",
        "lt",
        "le",
        "and",
        "or",
        "xor",
        "shl",
        "shr",
    ]
)
# Kinds without arithmetic in half precision.
_AS_IT_IS: Final = frozenset(_MOVES | {"const", "data", "cast", "jaxed"})


def compute(
    scope: TorchScope, op: Op, args: Sequence[Tensor], sizes: Sequence[Sequence[Size]]
) -> Tensor:
    """Compute an operation. Half precision is computed in float32 and rounded once."""
    moves = op.kind in _MOVES
    if op.kind in _PROMOTED:
        args = _to_common_type(args)
    elif op.kind in ("where", "concat"):
        args = [*args[: op.kind == "where"], *_to_common_type(args[op.kind == "where" :])]
    if op.kind not in ("unit", "jaxed"):
        args = [_without_unsigned(x, moves=moves) for x in args]
    if op.kind not in _AS_IT_IS:
        halves = (torch.bfloat16, torch.float16)
        args = [x.to(torch.float32) if x.dtype in halves else x for x in args]
    found = RULES[op.kind](scope, op, args, sizes)
    kind = TORCH[op.dtype]
    if kind is torch.uint32 and found.dtype is not kind:
        return found.to(torch.int32).view(kind)
    return found if found.dtype is kind else found.to(kind)


def _to_common_type(args: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return operands in their common type."""
    if len({x.dtype for x in args}) == 1:
        return args
    kind = TORCH[promote(NAMES[x.dtype] for x in args)]
    signed = [_without_unsigned(x, moves=False) for x in args]
    if kind is torch.uint32:
        return [x.to(torch.int32).view(kind) for x in signed]
    return [x.to(kind) for x in signed]


def _without_unsigned(x: Tensor, *, moves: bool) -> Tensor:
    if x.dtype is not torch.uint32:
        return x
    return x.view(torch.int32) if moves else x.view(torch.int32).to(torch.int64) & 0xFFFFFFFF
