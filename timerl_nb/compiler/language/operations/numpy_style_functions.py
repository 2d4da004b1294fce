"""Functions with NumPy's names: tensor methods as functions, einsum, constants.

`trl.exp(x)` is `x.exp()`, and also accepts a number, an array or an index expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.ir.shapes import Size, is_integer
from timerl_nb.compiler.language.argument_checks import element_type, integer, number
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import concat, full
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import LABELS, RecurrentTensor, dot, operand
from timerl_nb.compiler.language.recurrent_tensor import constant as const_tensor

__all__ = [
    "abs",
    "acos",
    "acosh",
    "all",
    "any",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "argmax",
    "argmin",
    "argsort",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bincount",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "ceil",
    "clip",
    "concatenate",
    "cos",
    "cosh",
    "cumprod",
    "cumsum",
    "einsum",
    "erf",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "eye",
    "flip",
    "floor",
    "full_like",
    "hstack",
    "hypot",
    "isfinite",
    "isinf",
    "isnan",
    "left_shift",
    "linspace",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "matmul",
    "maximum",
    "mean",
    "median",
    "minimum",
    "moveaxis",
    "nan_to_num",
    "norm",
    "one_hot",
    "ones_like",
    "outer",
    "pad",
    "permute",
    "power",
    "prod",
    "quantile",
    "reciprocal",
    "relu",
    "repeat",
    "reshape",
    "right_shift",
    "roll",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "softmax",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "std",
    "sum",
    "swapaxes",
    "take",
    "tan",
    "tanh",
    "tile",
    "transpose",
    "tril",
    "triu",
    "trunc",
    "var",
    "vstack",
    "zeros_like",
]

# --- methods -------------------------------------------------------------------------------------


def _function(name: str) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(RecurrentTensor, name)

    def call(x: Any, *args: Any, **options: Any) -> Any:
        given = [x, *args]
        ctx = next((a.ctx for a in given if isinstance(a, RecurrentTensor)), None)
        return method(operand(ctx or current(), x), *args, **options)

    call.__name__ = call.__qualname__ = name.strip("_")
    call.__doc__ = method.__doc__
    return call


abs = _function("abs")
all = _function("all")
any = _function("any")
arccos = acos = _function("arccos")
arccosh = acosh = _function("arccosh")
arcsin = asin = _function("arcsin")
arcsinh = asinh = _function("arcsinh")
arctan = atan = _function("arctan")
arctan2 = atan2 = _function("atan2")
arctanh = atanh = _function("arctanh")
argmax = _function("argmax")
argmin = _function("argmin")
argsort = _function("argsort")
bincount = _function("bincount")
bitwise_and = _function("__and__")
bitwise_not = _function("__invert__")
bitwise_or = _function("__or__")
bitwise_xor = _function("__xor__")
broadcast_to = _function("broadcast_to")
ceil = _function("ceil")
clip = _function("clip")
cos = _function("cos")
cosh = _function("cosh")
cumprod = _function("cumprod")
cumsum = _function("cumsum")
erf = _function("erf")
exp = _function("exp")
exp2 = _function("exp2")
expand_dims = _function("expand_dims")
expm1 = _function("expm1")
flip = _function("flip")
floor = _function("floor")
hypot = _function("hypot")
isfinite = _function("isfinite")
isinf = _function("isinf")
isnan = _function("isnan")
left_shift = _function("__lshift__")
log = _function("log")
log10 = _function("log10")
log1p = _function("log1p")
log2 = _function("log2")
logical_and = _function("logical_and")
logical_not = _function("logical_not")
logical_or = _function("logical_or")
logical_xor = _function("logical_xor")
logsumexp = _function("logsumexp")
matmul = _function("__matmul__")
maximum = _function("maximum")
mean = _function("mean")
median = _function("median")
minimum = _function("minimum")
moveaxis = _function("moveaxis")
nan_to_num = _function("nan_to_num")
norm = _function("norm")
one_hot = _function("one_hot")
pad = _function("pad")
permute = _function("permute")
power = _function("power")
prod = _function("prod")
quantile = _function("quantile")
reciprocal = _function("reciprocal")
relu = _function("relu")
repeat = _function("repeat")
reshape = _function("reshape")
right_shift = _function("__rshift__")
roll = _function("roll")
round = _function("round")
rsqrt = _function("rsqrt")
sigmoid = _function("sigmoid")
sign = _function("sign")
sin = _function("sin")
sinh = _function("sinh")
softmax = _function("softmax")
sort = _function("sort")
split = _function("split")
sqrt = _function("sqrt")
square = _function("square")
squeeze = _function("squeeze")
std = _function("std")
sum = _function("sum")
swapaxes = _function("swapaxes")
take = _function("take")
tan = _function("tan")
tanh = _function("tanh")
tile = _function("tile")
transpose = _function("transpose")
tril = _function("tril")
triu = _function("triu")
trunc = _function("trunc")
var = _function("var")


# --- constants -----------------------------------------------------------------------------------


@explain_call_errors
def zeros_like(x: Any, dtype: Any = None) -> RecurrentTensor:
    """Return zeros of the shape of `x`.

    Args:
        x: a tensor.
        dtype: the element type; by default that of `x`.

    Example:
        >>> trl.zeros_like(trl.arange(3))
        i32[3] @ ()
    """
    return full_like(x, 0, dtype)


@explain_call_errors
def ones_like(x: Any, dtype: Any = None) -> RecurrentTensor:
    """Return ones of the shape of `x`.

    Args:
        x: a tensor.
        dtype: the element type; by default that of `x`.

    Example:
        >>> trl.ones_like(trl.arange(3))
        i32[3] @ ()
    """
    return full_like(x, 1, dtype)


@explain_call_errors
def full_like(x: Any, fill: Any, dtype: Any = None) -> RecurrentTensor:
    """Return a tensor of the shape of `x` with all elements equal to `fill`.

    Args:
        x: a tensor.
        fill: the value.
        dtype: the element type; by default that of `x`.

    Example:
        >>> trl.full_like(trl.arange(3), 7)
        i32[3] @ ()
    """
    x = operand(None, x)
    return full(x.shape, fill, x.dtype if dtype is None else dtype)


@explain_call_errors
def eye(rows: int, columns: int | None = None, k: int = 0, dtype: Any = "f32") -> RecurrentTensor:
    """Return a matrix of zeros with ones on a diagonal.

    Args:
        rows, columns: the sizes; a square matrix by default.
        k: the diagonal; 0 is the main one, positive ones lie above it.
        dtype: the element type.

    Example:
        >>> trl.eye(3)
        f32[3,3] @ ()
    """
    columns = rows if columns is None else columns
    n, m = (integer("a size", size, least=0) for size in (rows, columns))
    return const_tensor(current(), np.eye(n, m, integer("k", k)), element_type(dtype))


@explain_call_errors
def linspace(
    start: float, stop: float, num: int = 50, endpoint: bool = True, dtype: Any = "f32"
) -> RecurrentTensor:
    """Return evenly spaced numbers.

    Args:
        start, stop: the ends of the interval.
        num: the number of elements.
        endpoint: whether `stop` is the last element.
        dtype: the element type; integer types round down.

    Example:
        >>> trl.linspace(0, 1, 5)  # 0, 0.25, 0.5, 0.75, 1
        f32[5] @ ()
    """
    count, name = integer("num", num, least=0, most=2**31 - 1), element_type(dtype)
    hint = "scale trl.linspace(0, 1) by tensors."
    ends = number("start", start, hint), number("stop", stop, hint)
    made = np.linspace(*ends, count, endpoint)
    return const_tensor(current(), np.floor(made) if is_integer(name) else made, name)


# --- several tensors -------------------------------------------------------------------------------


@explain_call_errors
def hstack(xs: Sequence[Any]) -> RecurrentTensor:
    """Join tensors horizontally: along axis 1, or along axis 0 for vectors and numbers.

    Args:
        xs: a list of at least one tensor.

    Raises:
        ShapeError: `xs` is not such a list, or the shapes do not match.

    Example:
        >>> trl.hstack([trl.zeros((2, 1)), trl.ones((2, 3))])
        f32[2,4] @ ()
    """
    parts = [x if x.rank else x.unsqueeze(0) for x in _operands(xs)]
    return concat(parts, min(1, parts[0].rank - 1))


@explain_call_errors
def vstack(xs: Sequence[Any]) -> RecurrentTensor:
    """Join tensors vertically, along axis 0; vectors are rows.

    Args:
        xs: a list of at least one tensor.

    Raises:
        ShapeError: `xs` is not such a list, or the shapes do not match.

    Example:
        >>> trl.vstack([trl.zeros(3), trl.ones((2, 3))])
        f32[3,3] @ ()
    """
    return concat([x if x.rank > 1 else x.reshape((1, *(x.shape or (1,)))) for x in _operands(xs)])


def _operands(xs: Sequence[Any]) -> list[RecurrentTensor]:
    if isinstance(xs, RecurrentTensor) or not isinstance(xs, Sequence) or not len(xs):
        raise ShapeError(
            f"{xs!r} is not a list of tensors.", hint="give a list of at least one tensor: [x, y]."
        )
    return [operand(current(), x) for x in xs]


@explain_call_errors
def outer(x: Any, y: Any) -> RecurrentTensor:
    """Return the outer product of two vectors; other tensors are flattened first.

    Args:
        x, y: tensors.

    Returns:
        a matrix with one row per element of `x`.

    Example:
        >>> trl.outer(trl.arange(2), trl.arange(3))
        i32[2,3] @ ()
    """
    left, right = (v if v.rank == 1 else v.reshape(-1) for v in _operands([x, y]))
    return left.unsqueeze(1) * right.unsqueeze(0)


@explain_call_errors
def einsum(spec: str, *operands: Any) -> RecurrentTensor:
    """Multiply tensors and sum over labels, like `np.einsum`.

    Args:
        spec: one letter per axis, as in "ij,jk->ik". "..." means all remaining axes. Without "->" the result has
            the labels that occur once, in alphabetical order.
        operands: the tensors, multiplied from left to right.

    Raises:
        ShapeError: the labels do not match the operands.

    Example:
        >>> trl.einsum("bi,ij->bj", trl.zeros((8, 3)), trl.zeros((3, 4)))
        f32[8,4] @ ()
    """
    if not isinstance(spec, str):
        raise ShapeError(
            f"the first argument must be the labels, not {spec!r}.",
            hint='write einsum("ij,jk->ik", x, y).',
        )
    xs = _operands(operands)
    inputs, out = _labels(spec, xs)
    names = dict.fromkeys("".join(inputs))
    if len(names) > len(LABELS):
        raise ShapeError(
            f"{spec!r} has more than {len(LABELS)} different labels.",
            hint="split the product into several calls.",
        )
    to = str.maketrans(dict(zip(names, LABELS, strict=False)))  # vectorisation uses the others
    inputs, out = [labels.translate(to) for labels in inputs], out.translate(to)
    sizes: dict[str, Size] = {}
    for x, labels in zip(xs, inputs, strict=True):
        sizes |= {c: s for c, s in zip(labels, x.shape, strict=True) if s != 1}
    named = [zip(x.shape, labels, strict=True) for x, labels in zip(xs, inputs, strict=True)]
    wide = [[sizes.get(c, 1) if s == 1 else s for s, c in pairs] for pairs in named]
    xs = [x.expand(shape) for x, shape in zip(xs, wide, strict=True)]
    x, have = xs[0], inputs[0]
    if len(xs) == 1:
        return _contract(x, have, operand(x.ctx, 1, x.dtype), "", out)
    for k, (y, labels) in enumerate(zip(xs[1:], inputs[1:], strict=True), 1):
        later = set(out).union(*inputs[k + 1 :])
        kept = "".join(label for label in dict.fromkeys(have + labels) if label in later)
        kept = out if k == len(xs) - 1 else kept
        x, have = _contract(x, have, y, labels, kept), kept
    return x


def _contract(
    x: RecurrentTensor, left: str, y: RecurrentTensor, right: str, out: str
) -> RecurrentTensor:
    x, left = _diagonal(x, left)
    y, right = _diagonal(y, right)
    return dot(x, y, f"{left},{right}->{out}")


def _diagonal(x: RecurrentTensor, labels: str) -> tuple[RecurrentTensor, str]:
    """Take the diagonal of axes with the same label."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            a, b = labels.index(label), labels.rindex(label)
            size = x.shape[a]
            if not isinstance(size, int) or size != x.shape[b]:
                raise ShapeError(
                    f"axes {a} and {b} of {x.type} have no diagonal.",
                    hint="repeat a label only for axes of one integer size.",
                )
            rows = np.arange(size, dtype=np.int32)
            at = rows.reshape([-1 if k == a else 1 for k in range(x.rank)])
            sizes = [1 if k == b else s for k, s in enumerate(x.shape)]
            x = x.take_along(operand(x.ctx, at).expand(sizes), b).squeeze(b)
            labels = labels[:b] + labels[b + 1 :]
    return x, labels


def _labels(spec: str, xs: Sequence[RecurrentTensor]) -> tuple[list[str], str]:
    """Return the labels of each operand and of the result, with "..." expanded."""
    given, arrow, out = spec.replace(" ", "").partition("->")
    inputs = given.split(",")
    if len(inputs) != len(xs):
        raise ShapeError(
            f"{spec!r} names {len(inputs)} operand(s), but there are {len(xs)}.",
            hint="separate the operands' labels by commas.",
        )
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in spec]
    most = max(
        (x.rank - len(i.replace("...", "")) for x, i in zip(xs, inputs, strict=True)), default=0
    )
    found: list[str] = []
    for x, labels in zip(xs, inputs, strict=True):
        more = x.rank - len(labels.replace("...", ""))
        if "..." in labels and more >= 0:
            labels = labels.replace("...", "".join(free[max(0, most - more) : most]), 1)
        if len(labels) != x.rank or not (labels.isalpha() or not labels):
            raise ShapeError(
                f"{spec!r} does not match {x.type}.", hint="write one letter for each axis."
            )
        found.append(labels)
    shared = "".join(free[: max(0, most)]) if "..." in given else ""
    counted = "".join(found)
    if not arrow:
        once = sorted(c for c in set(counted) - set(shared) if counted.count(c) == 1)
        out = shared + "".join(once)
    elif shared and "..." not in out:
        raise ShapeError(
            f"{spec!r} has ... in an operand, but not in the result.",
            hint='write "i...->i...", or a letter per axis: einsum sums over letters only.',
        )
    out = out.replace("...", shared, 1)
    if set(out) - set(counted) or len(set(out)) < len(out):
        raise ShapeError(
            f"{spec!r} has a result that does not follow from its operands.",
            hint="use each label of the result once; it must occur in an operand.",
        )
    return found, out


concatenate = concat
