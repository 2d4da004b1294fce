"""Every function of the language compared with NumPy: values, types, special numbers, gradients.

`WORDS` has a row per public function and method that computes something. `ELSEWHERE` names the
tests of the others. `docs/reference/operations.md` has a line for each.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special as special

import timerl_nb as trl
from timerl_nb.base.errors import TimeRLError
from timerl_nb.compiler.ir.reference.evaluator import Reference

BOUNDS = {"B": 2, "T": 3}
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "operations.md"


@dataclass(frozen=True)
class Word:
    """A function as ours and as NumPy's, of x and y of shape (4, 4).

    Attributes:
        ours, theirs: The compared functions, for x and y between -2 and 2.
        smooth: Whether it has a gradient.
        odd: Also try NaN, infinities, zeros, and empty arrays.
    """

    ours: Callable[[Any, Any], Any]
    theirs: Callable[[Any, Any], Any]
    smooth: bool = True
    odd: bool = True


def same(f: Callable[[Any, Any], Any], *, smooth: bool = True, odd: bool = True) -> Word:
    """Return a row with one spelling for both."""
    return Word(f, f, smooth, odd)


def one(name: str, theirs: Any = None, inside: Callable[[Any], Any] = lambda x: x) -> Word:
    """Return a row for a unary function, within its domain."""
    f = getattr(np, name) if theirs is None else theirs

    def ours(x: Any, y: Any) -> Any:
        return (
            getattr(trl, name, None)(inside(x))
            if hasattr(trl, name)
            else getattr(inside(x), name)()
        )

    return Word(ours, lambda x, y: f(inside(x)))


def flat(name: str, theirs: Any = None) -> Word:
    """Return a row for a unary function without a gradient."""
    f = getattr(np, name) if theirs is None else theirs
    return Word(lambda x, y: getattr(trl, name)(x), lambda x, y: f(x), smooth=False)


def both(name: str, *args: Any, smooth: bool = True, odd: bool = True, **options: Any) -> Word:
    """Return rows for a NumPy function with the same arguments, and for the method."""

    def ours(x: Any, y: Any) -> Any:
        return getattr(trl, name)(x, *args, **options)

    return Word(ours, lambda x, y: getattr(np, name)(x, *args, **options), smooth, odd)


def _small(x: Any) -> Any:
    return x * 0.45


def _positive(x: Any) -> Any:
    return x * x + 0.5


def _above_one(x: Any) -> Any:
    return x * x + 1.5


def _whole(x: Any) -> Any:
    """Integers from 0 to 3."""
    if isinstance(x, np.ndarray):
        return np.clip(np.round(x + 1.5), 0, 3).astype(np.int32)
    return (x + 1.5).round().clip(0, 3).cast("i32")


def _sigmoid(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _scan(factor: Any, x: Any) -> Any:
    rows = [x[0]]
    for k in range(1, len(x)):
        rows.append(factor[k] * rows[-1] + x[k])
    return np.stack(rows)


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _put(x: Any, k: int, value: Any) -> Any:
    made = x.copy()
    made[k] = value
    return made


def _put_add(x: Any, at: Any, values: Any) -> Any:
    made = x.copy()
    np.add.at(made, at, values)
    return made


def _pool(x: Any, fold: Any) -> Any:
    return fold(x.reshape(2, 2, 2, 2), (1, 3))[None]


def _conv(x: Any, w: Any) -> Any:
    return np.stack([[(x[i : i + 2, j : j + 2] * w).sum() for j in range(3)] for i in range(3)])[
        None
    ]


WORDS: dict[str, Word] = {
    # element by element
    "abs": one("abs"),
    "acos": one("arccos", inside=_small),
    "acosh": Word(lambda x, y: trl.acosh(_above_one(x)), lambda x, y: np.arccosh(_above_one(x))),
    "arccos": one("arccos", inside=_small),
    "acosh of large ones": Word(
        lambda x, y: trl.arccosh(x.clip(0.0, 3.0) * 1e38),
        lambda x, y: np.arccosh(np.clip(x, 0, 3) * np.float32(1e38)),
        smooth=False,
    ),
    "arccosh": one("arccosh", inside=_above_one),
    "arcsin": one("arcsin", inside=_small),
    "arcsinh": one("arcsinh"),
    "arctan": one("arctan"),
    "arctan2": Word(trl.arctan2, np.arctan2),
    "arctanh": one("arctanh", inside=_small),
    "arctanh of bytes": Word(
        lambda x, y: trl.arctanh(_whole(x).cast("u8")),
        lambda x, y: np.arctanh(np.float32(_whole(x))),
        False,
        False,
    ),
    "asin": Word(lambda x, y: trl.asin(x * 0.4), lambda x, y: np.arcsin(x * 0.4)),
    "asinh": Word(lambda x, y: x.asinh(), lambda x, y: np.arcsinh(x)),
    "atan": Word(lambda x, y: x.atan(), lambda x, y: np.arctan(x)),
    "atan2": Word(lambda x, y: x.atan2(y), np.arctan2),
    "atanh": Word(lambda x, y: trl.atanh(x * 0.4), lambda x, y: np.arctanh(x * 0.4)),
    "ceil": flat("ceil"),
    "clamp": Word(lambda x, y: x.clamp(-1, 1), lambda x, y: np.clip(x, -1, 1)),
    "clip": both("clip", -1, 1, odd=True),
    "cos": one("cos"),
    "cosh": one("cosh"),
    "elu": Word(lambda x, y: x.elu(), lambda x, y: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    "erf": one("erf", special.erf),
    "erf_inv": one("erf_inv", special.erfinv, _small),
    "exp": one("exp"),
    "exp2": one("exp2"),
    "expm1": one("expm1"),
    "floor": flat("floor"),
    "gelu": Word(lambda x, y: x.gelu(), lambda x, y: x * special.ndtr(x), odd=False),
    "hypot": Word(trl.hypot, np.hypot),
    "isfinite": flat("isfinite"),
    "isinf": flat("isinf"),
    "isnan": flat("isnan"),
    "leaky_relu": Word(lambda x, y: x.leaky_relu(), lambda x, y: np.where(x > 0, x, x * 0.01)),
    "log": one("log", inside=_positive),
    "log10": one("log10", inside=_positive),
    "log1p": one("log1p", inside=_positive),
    "log2": one("log2", inside=_positive),
    "log_sigmoid": Word(lambda x, y: x.log_sigmoid(), lambda x, y: -np.logaddexp(0, -x), odd=False),
    "maximum": Word(trl.maximum, np.maximum),
    "minimum": Word(trl.minimum, np.minimum),
    "nan_to_num": Word(
        lambda x, y: trl.nan_to_num(x, nan=7.0, neginf=-1.0),
        lambda x, y: np.nan_to_num(x, nan=7.0, neginf=-1.0),
    ),
    "power": Word(
        lambda x, y: trl.power(_positive(x), y), lambda x, y: np.power(_positive(x), y), odd=False
    ),
    "power of an integer": Word(
        lambda x, y: 2 ** _whole(x), lambda x, y: 2 ** _whole(x), False, False
    ),
    "reciprocal": one("reciprocal", inside=_positive),
    "relu": Word(lambda x, y: trl.relu(x), lambda x, y: np.maximum(x, 0), odd=False),
    "round": flat("round"),
    "rsqrt": one("rsqrt", lambda x: 1 / np.sqrt(x), _positive),
    "sigmoid": one("sigmoid", _sigmoid),
    "sign": flat("sign"),
    "silu": Word(lambda x, y: x.silu(), lambda x, y: x * _sigmoid(x), odd=False),
    "sin": one("sin"),
    "sinh": one("sinh"),
    "softplus": Word(lambda x, y: x.softplus(), lambda x, y: np.logaddexp(0, x), odd=False),
    "sqrt": one("sqrt", inside=_positive),
    "square": one("square"),
    "tan": one("tan", inside=_small),
    "tanh": one("tanh"),
    "trunc": flat("trunc"),
    "where": Word(lambda x, y: trl.where(x > 0.011, x, y), lambda x, y: np.where(x > 0.011, x, y)),
    # logic and bits
    "bitwise_and": Word(
        lambda x, y: trl.bitwise_and(_whole(x), _whole(y)),
        lambda x, y: np.bitwise_and(_whole(x), _whole(y)),
        False,
        False,
    ),
    "bitwise_not": Word(
        lambda x, y: trl.bitwise_not(_whole(x)), lambda x, y: ~_whole(x), False, False
    ),
    "bitwise_or": Word(
        lambda x, y: trl.bitwise_or(_whole(x), 4), lambda x, y: _whole(x) | 4, False, False
    ),
    "bitwise_xor": Word(
        lambda x, y: trl.bitwise_xor(_whole(x), _whole(y)),
        lambda x, y: _whole(x) ^ _whole(y),
        False,
        False,
    ),
    "left_shift": Word(
        lambda x, y: trl.left_shift(_whole(x) - 2, _whole(y) * 13),
        lambda x, y: np.left_shift(_whole(x) - 2, _whole(y) * 13),
        False,
        False,
    ),
    "right_shift": Word(
        lambda x, y: trl.right_shift((_whole(x) - 2) * 99, _whole(y) * 13),
        lambda x, y: np.right_shift((_whole(x) - 2) * 99, _whole(y) * 13),
        False,
        False,
    ),
    "logical_and": Word(
        lambda x, y: trl.logical_and(_whole(x), x),
        lambda x, y: np.logical_and(_whole(x), x),
        False,
        False,
    ),
    "logical_not": Word(lambda x, y: trl.logical_not(x), lambda x, y: np.logical_not(x), False),
    "logical_or": Word(trl.logical_or, np.logical_or, False),
    "logical_xor": Word(trl.logical_xor, np.logical_xor, False),
    # reductions
    "all": Word(
        lambda x, y: trl.all(x > 0, axis=0, keepdims=True),
        lambda x, y: np.all(x > 0, axis=0, keepdims=True),
        False,
    ),
    "any": Word(
        lambda x, y: trl.any(x > 0, axis=1, keepdims=True),
        lambda x, y: np.any(x > 0, axis=1, keepdims=True),
        False,
    ),
    "argmax": both("argmax", axis=0, keepdims=True, smooth=False),
    "argmin": both("argmin", axis=1, keepdims=True, smooth=False),
    "logsumexp": Word(
        lambda x, y: trl.logsumexp(x, axis=0, keepdims=True),
        lambda x, y: special.logsumexp(x, axis=0, keepdims=True),
        odd=False,
    ),
    "max": Word(
        lambda x, y: x.max(axis=1, keepdims=True), lambda x, y: x.max(1, keepdims=True), odd=False
    ),
    "min": Word(
        lambda x, y: x.min(axis=0, keepdims=True), lambda x, y: x.min(0, keepdims=True), odd=False
    ),
    "mean": both("mean", axis=1, keepdims=True),
    "median": both("median", axis=1, keepdims=True),
    "norm": Word(
        lambda x, y: trl.norm(x, axis=1, keepdims=True),
        lambda x, y: np.linalg.norm(x, axis=1, keepdims=True),
    ),
    "prod": both("prod", axis=0, keepdims=True),
    "quantile of a table": both("quantile", [[0.1, 0.7], [1.0, 0.5]], axis=0, odd=False),
    "quantile": both("quantile", [0.1, 0.7, 1.0], axis=0, keepdims=True, odd=False),
    "std": both("std", axis=0, keepdims=True),
    "sum": both("sum", axis=0, keepdims=True, odd=True),
    "var": both("var", axis=1, keepdims=True),
    "bincount": Word(
        lambda x, y: trl.bincount(_whole(x), 4, y),
        lambda x, y: np.bincount(_whole(x).ravel(), y.ravel(), 4),
        smooth=False,
        odd=False,
    ),
    # products
    "dot product": same(lambda x, y: x @ y, odd=False),
    "einsum of size 1": Word(
        lambda x, y: trl.einsum("ij,ij->ij", x.slice(0, 1), y),
        lambda x, y: np.einsum("ij,ij->ij", x[:1], y),
        odd=False,
    ),
    "einsum": Word(
        lambda x, y: trl.einsum("ij,kj,...k->i...", x, y, x),
        lambda x, y: np.einsum("ij,kj,...k->i...", x, y, x),
        odd=False,
    ),
    "matmul": Word(trl.matmul, np.matmul, odd=False),
    "matmul of batches": Word(
        lambda x, y: trl.stack([x, y]) @ trl.stack([trl.stack([y, x]), trl.stack([x, x])]),
        lambda x, y: np.stack([x, y]) @ np.stack([np.stack([y, x]), np.stack([x, x])]),
        odd=False,
    ),
    "outer": Word(trl.outer, np.outer, odd=False),
    "conv": Word(
        lambda x, y: trl.conv(x.unsqueeze(0), y.slice(0, 2).slice(0, 2, 1).reshape(1, 1, 2, 2)),
        lambda x, y: _conv(x, y[:2, :2]),
        odd=False,
    ),
    "max_pool": Word(
        lambda x, y: trl.max_pool(x.unsqueeze(0), (2, 2)), lambda x, y: _pool(x, np.max), odd=False
    ),
    "avg_pool": Word(
        lambda x, y: trl.avg_pool(x.unsqueeze(0), (2, 2)), lambda x, y: _pool(x, np.mean), odd=False
    ),
    # along an axis
    "argsort": both("argsort", axis=0, smooth=False),
    "cummax": Word(lambda x, y: x.cummax(1), lambda x, y: np.maximum.accumulate(x, 1)),
    "cummin": Word(lambda x, y: x.cummin(1), lambda x, y: np.minimum.accumulate(x, 1)),
    "cumprod": both("cumprod", axis=1, odd=False),
    "cumsum": both("cumsum", axis=0),
    "discounted_sum": Word(
        lambda x, y: x.discounted_sum(0.5),
        lambda x, y: (x * 0.5 ** np.arange(len(x))[:, None]).sum(0),
        odd=False,
    ),
    "linear_scan": Word(lambda x, y: x.linear_scan(y), lambda x, y: _scan(y, x), odd=False),
    "log_softmax": Word(lambda x, y: x.log_softmax(), lambda x, y: np.log(_softmax(x)), odd=False),
    "softmax": Word(lambda x, y: trl.softmax(x), lambda x, y: _softmax(x), odd=False),
    "sort": both("sort", axis=0),
    "topk": Word(lambda x, y: x.topk(2)[0], lambda x, y: -np.sort(-x)[:, :2], odd=False),
    # layout
    "T": same(lambda x, y: x.T),
    "broadcast_to": both("broadcast_to", (2, 4, 4)),
    "concat": Word(lambda x, y: trl.concat([x, y], 1), lambda x, y: np.concatenate([x, y], 1)),
    "concatenate": Word(
        lambda x, y: trl.concatenate([x, y]), lambda x, y: np.concatenate([x, y]), odd=False
    ),
    "expand": Word(
        lambda x, y: x.expand(3, 4, 4), lambda x, y: np.broadcast_to(x, (3, 4, 4)), odd=False
    ),
    "expand_dims": both("expand_dims", 1, odd=True),
    "flatten": Word(lambda x, y: x.flatten(), lambda x, y: x.ravel()),
    "flip": both("flip", 0),
    "hstack": Word(lambda x, y: trl.hstack([x, y]), lambda x, y: np.hstack([x, y])),
    "moveaxis": Word(
        lambda x, y: trl.moveaxis(trl.stack([x, y, x]), 0, -1),
        lambda x, y: np.moveaxis(np.stack([x, y, x]), 0, -1),
    ),
    "pad": both("pad", ((1, 2), (0, 3)), constant_values=0.5),
    "pad at the edge": both("pad", (1, 2), "edge"),
    "pad reflected": both("pad", 2, "reflect"),
    "pad wrapped": both("pad", 3, "wrap"),
    "permute": Word(lambda x, y: trl.permute(x, (1, 0)), lambda x, y: x.T),
    "repeat": both("repeat", 3, 1),
    "repeat all": both("repeat", 2),
    "reshape": both("reshape", (2, -1), odd=False),
    "roll": both("roll", 3, 1),
    "roll all": both("roll", -5),
    "slice": Word(lambda x, y: x.slice(1, 3, 1), lambda x, y: x[:, 1:3], odd=False),
    "split": Word(
        lambda x, y: trl.concat(trl.split(x, [1, 3])[::-1]),
        lambda x, y: np.concatenate(np.split(x, [1, 3])[::-1]),
        odd=False,
    ),
    "split in equal parts": Word(
        lambda x, y: trl.split(x, 2, 1)[1], lambda x, y: np.split(x, 2, 1)[1]
    ),
    "squeeze": Word(lambda x, y: trl.squeeze(x.reshape(1, 4, 1, 4)), lambda x, y: x, odd=False),
    "stack": Word(lambda x, y: trl.stack([x, y], 1), lambda x, y: np.stack([x, y], 1)),
    "swapaxes": both("swapaxes", 0, 1),
    "take": both("take", np.array([2, 0, 3]), axis=1),
    "take from the end": both("take", [-1, 1, -4], axis=1, odd=False),
    "take_along": Word(
        lambda x, y: x.take_along(_whole(y), 1),
        lambda x, y: np.take_along_axis(x, _whole(y), 1),
        odd=False,
    ),
    "tile": both("tile", (2, 1, 3)),
    "transpose": both("transpose", (1, 0)),
    "tril": both("tril", 1),
    "tril of booleans": Word(lambda x, y: trl.tril(x > 0), lambda x, y: np.tril(x > 0), False),
    "triu": both("triu", -1),
    "unsqueeze": Word(lambda x, y: x.unsqueeze(-1), lambda x, y: x[..., None]),
    "unstack": Word(lambda x, y: x.unstack(1)[2], lambda x, y: x[:, 2], odd=False),
    "vstack": Word(lambda x, y: trl.vstack([x, y]), lambda x, y: np.vstack([x, y])),
    "put at the last byte": Word(
        lambda x, y: trl.zeros(256).put(trl.constant(255, "u8"), y.take(0).take(0)),
        lambda x, y: _put(np.zeros(256, np.float32), 255, y[0, 0]),
        smooth=False,
        odd=False,
    ),
    "put": Word(lambda x, y: x.put(1, y.take(0)), lambda x, y: _put(x, 1, y[0]), odd=False),
    "put several": Word(
        lambda x, y: x.put([1, 3, 1], y.slice(0, 3)),
        lambda x, y: _put(_put(x, 1, y[2]), 3, y[1]),
        odd=False,
    ),
    "put_add": Word(
        lambda x, y: x.put_add([1, 3, 1], y.slice(0, 3)),
        lambda x, y: _put_add(x, [1, 3, 1], y[:3]),
        odd=False,
    ),
    # creation
    "arange": Word(
        lambda x, y: trl.arange(7, -2, -3), lambda x, y: np.arange(7, -2, -3), False, False
    ),
    "eye": Word(lambda x, y: trl.eye(3, 4, 1) * 2, lambda x, y: np.eye(3, 4, 1) * 2, False, False),
    "full": Word(lambda x, y: trl.full((2, 3), 7), lambda x, y: np.full((2, 3), 7), False, False),
    "full_like": Word(lambda x, y: trl.full_like(x, 7), lambda x, y: np.full_like(x, 7), False),
    "linspace of integers": Word(
        lambda x, y: trl.linspace(-1, 1, 5, dtype="i32"),
        lambda x, y: np.linspace(-1, 1, 5, dtype=np.int32),
        False,
        False,
    ),
    "linspace": Word(
        lambda x, y: trl.linspace(-1, 2, 7, endpoint=False),
        lambda x, y: np.linspace(-1, 2, 7, endpoint=False),
        False,
        False,
    ),
    "one_hot": Word(
        lambda x, y: trl.one_hot(_whole(x), 3, "u8"),
        lambda x, y: np.eye(4, 3, dtype=np.uint8)[_whole(x)],
        False,
        False,
    ),
    "ones": Word(lambda x, y: trl.ones((2, 3)), lambda x, y: np.ones((2, 3)), False, False),
    "ones_like": Word(lambda x, y: trl.ones_like(x), lambda x, y: np.ones_like(x), False),
    "zeros": Word(
        lambda x, y: trl.zeros((2,), "u8"), lambda x, y: np.zeros(2, np.uint8), False, False
    ),
    "zeros_like": Word(
        lambda x, y: trl.zeros_like(x > 0), lambda x, y: np.zeros_like(x > 0), False
    ),
    "constant": Word(
        lambda x, y: trl.constant([[1, 2]]), lambda x, y: np.array([[1, 2]]), False, False
    ),
    # types
    "astype": Word(
        lambda x, y: (x * 9).astype(np.int8), lambda x, y: (x * 9).astype(np.int8), False, False
    ),
    "cast": Word(lambda x, y: x.cast(bool), lambda x, y: x.astype(bool), False),
    "floating": Word(
        lambda x, y: _whole(x).floating(), lambda x, y: _whole(x).astype("f4"), False, False
    ),
    "detach": Word(lambda x, y: x.detach() * 2, lambda x, y: x * 2, False),
    "ndim": Word(lambda x, y: x * x.ndim, lambda x, y: x * x.ndim),
}
ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("at", "is_plain", "settled", "read", "op", "ctx"), "test_symbolic: reads"),
    **dict.fromkeys(("domain", "dtype", "shape", "rank", "type", "name", "subset"), "test_library"),
    **dict.fromkeys(("named", "named_if_new"), "test_library: labels"),
    **dict.fromkeys(("given", "otherwise"), "test_conditional"),
    "next": "test_learning: p.next",
    "collect": "test_collecting",
    **dict.fromkeys(("from_torch", "to_torch"), "test_exchange"),
    "kernel": "test_streams",
    "backward": "test_autodiff",
    **dict.fromkeys(
        ("grad", "value_and_grad", "custom_vjp"), "test_custom_gradients, test_autodiff"
    ),
    "checkpoint": "test_learning",
    "load": "test_loading",
    "orthonormal": "test_operations",
    "conv_transpose": "test_operations",
    "window": "test_past",
    **dict.fromkeys(("data", "like", "tensor", "parameter", "value"), "test_library"),
    "first_match": "test_patterns",
    "until": "test_dynamic_bounds",
    "udf": "test_udf",
    "jaxed": "test_jaxed",
    "profile": "test_profiler",
    "sweep": "test_sweeping",
    "tune_machine": "test_machine",
    "explore": "test_family_position",
}


OTHERS = {"given"}  # methods that differ from the function of that name


def _public() -> dict[str, Any]:
    """Return the public methods and functions of the language."""
    of_tensors = {n: getattr(trl.RecurrentTensor, n) for n in dir(trl.RecurrentTensor)}
    functions = {n: getattr(trl, n) for n in trl.__all__ if inspect.isfunction(getattr(trl, n))}
    return {n: f for n, f in (of_tensors | functions).items() if not n.startswith("_")}


def test_each_word_has_a_row() -> None:
    public = set(_public())
    tried = {name for name in WORDS if " " not in name}
    assert tried <= public | {"max", "min"}
    assert public - tried - set(ELSEWHERE) == set()


def _line(name: str, what: Any) -> str:
    """Return a function's lines in the page, one or two."""
    if name in OTHERS:
        method = inspect.getdoc(getattr(trl.RecurrentTensor, name)) or ""
        function = inspect.getdoc(getattr(trl, name)) or ""
        ways = {f"x.{name}()": method, f"trl.{name}()": function}
        return "\n".join(
            f"| `{way}` | {text.split(chr(10) * 2)[0].replace(chr(10), ' ')} |"
            for way, text in ways.items()
        )
    text = inspect.getdoc(what.fget if isinstance(what, property) else what) or ""
    text = text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    ways = []
    if name in dir(trl.RecurrentTensor):
        ways.append(f"`x.{name}`" if not inspect.isfunction(what) else f"`x.{name}()`")
    if name in trl.__all__:
        ways.append(f"`trl.{name}()`")
    return f"| {', '.join(ways)} | {text} |"


def _table() -> str:
    draws = [
        f"| `trl.random.{n}()` | {(inspect.getdoc(getattr(trl.random, n)) or '').split(chr(10) * 2)[0].replace(chr(10), ' ')} |"
        for n in trl.random.__all__
    ]
    words = [
        _line(name, what) for name, what in sorted(_public().items(), key=lambda kv: kv[0].lower())
    ]
    return "\n".join(["| name | meaning |", "|---|---|", *words, *draws])


def test_the_page_has_a_line_for_each_word(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text()
    before, found = text.split("<!-- words -->\n")
    if request.config.getoption("--update-golden"):
        PAGE.write_text(f"{before}<!-- words -->\n{_table()}\n")
    else:
        assert found == f"{_table()}\n", "run pytest --update-golden, and look at it"


# --- values ---------------------------------------------------------------------------------------


def _numbers(seed: int) -> np.ndarray:
    """Return numbers with few digits: a small step is exact in float32."""
    drawn = np.random.default_rng(seed).uniform(-2, 2, (2, 3, 4, 4))
    return (np.round(drawn * 2**9) / 2**9).astype(np.float32)


X, Y = _numbers(3), _numbers(4)
ODD = np.array(
    [
        np.nan,
        np.inf,
        -np.inf,
        -0.0,
        0.0,
        1.0,
        -1.0,
        0.5,
        2.5,
        -2.5,
        1e-6,
        -1e-6,
        80.0,
        -80.0,
        3.0,
        -3.0,
    ],
    np.float32,
).reshape(4, 4)


def _program(words: dict[str, Word], x: np.ndarray, y: np.ndarray) -> trl.Context:
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        u, v = (trl.data(given, domain=(b, t)) for given in (x, y))
        for name, word in words.items():
            ctx.output(name, word.ours(u, v))
    return ctx


def _agree(words: dict[str, Word], x: np.ndarray, y: np.ndarray, loose: float = 1e-5) -> None:
    """Compare functions under the reference, the interpreter and XLA with NumPy's."""
    ctx = _program(words, x, y)
    bounds = dict(zip(("B", "T"), x.shape, strict=False))
    runs: dict[str, Any] = {"reference": Reference(ctx.pdg(), bounds).outputs()}
    for executor in ("interpret", "xla"):
        runs[executor] = ctx.compile(bounds, trl.Options(executor=executor)).execute()
    wrong: list[str] = []
    for name, word in words.items():
        with np.errstate(all="ignore"):
            each = [
                [np.asarray(word.theirs(u, v)) for u, v in zip(*r, strict=True)]
                for r in zip(x, y, strict=True)
            ]
        for how, run in runs.items():
            found, want = run[name], np.array(each)
            if found.ndim + 2 == want.ndim:  # it does not vary
                want = want[0, 0]
            try:
                assert found.dtype.kind == want.dtype.kind, f"{found.dtype}, {want.dtype}"
                np.testing.assert_allclose(found, want, rtol=loose, atol=loose)
            except AssertionError as error:
                wrong.append(f"{name} ({how}): {error}")
    assert not wrong, "\n".join(wrong)


def test_values_are_those_of_numpy() -> None:
    _agree(WORDS, X, Y, 3e-5)


def test_odd_numbers_are_those_of_numpy() -> None:
    odd = {name: word for name, word in WORDS.items() if word.odd}
    _agree(odd, ODD[None, None], np.roll(ODD, 5)[None, None], 1e-4)


def test_nothing_is_what_it_is_in_numpy() -> None:
    nothing, words = np.zeros((1, 1, 0, 4), np.float32), {}
    for name, word in WORDS.items():
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("error")
                word.theirs(nothing[0, 0], nothing[0, 0])
        except (ValueError, IndexError, RuntimeWarning):
            continue  # no value in NumPy either
        if word.odd:
            words[name] = word
    assert len(words) > 50
    _agree(words, nothing, nothing)


# --- gradients ------------------------------------------------------------------------------------


def test_gradients_are_finite_differences() -> None:
    smooth = {name: word for name, word in WORDS.items() if word.smooth}
    way = np.random.default_rng(5).choice([-1.0, 1.0], X.shape)
    step = 2.0**-12

    def run(x: np.ndarray, *, gradients: bool) -> dict[str, np.ndarray]:
        with trl.Context("b", "t") as ctx:
            (b, _), (t, _) = ctx.dims
            u, v = (trl.data(given.astype(np.float32), domain=(b, t)) for given in (x, Y))
            for name, word in smooth.items():
                made = word.ours(u, v)
                weights = np.random.default_rng(6).uniform(-1, 1, made.shape)
                loss = (made * weights.astype(np.float32)).sum()
                ctx.output(name, trl.grad(loss, u) if gradients else loss)
        return Reference(ctx.pdg(), BOUNDS, precise=True).outputs()

    high, low = (run(X + sign * step * way, gradients=False) for sign in (1, -1))
    for name, gradient in run(X, gradients=True).items():
        found, want = (gradient * way).sum(), (high[name].sum() - low[name].sum()) / (2 * step)
        np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-3, err_msg=name)


# --- axes of symbolic length -------------------------------------------------------------------------

SLICED = [
    "arcsinh",
    "hypot",
    "logical_or",
    "nan_to_num",
    "max",
    "min",
    "mean",
    "sum",
    "prod",
    "any",
    "all",
    "var",
    "std",
    "norm",
    "logsumexp",
    "median",
    "argsort",
    "sort",
    "cumsum",
    "cumprod",
    "cummax",
    "flip",
    "concat",
    "expand_dims",
    "T",
    "swapaxes",
    "tril",
    "triu",
    "zeros_like",
    "full_like",
    "softmax",
    "pad",
    "hstack",
    "vstack",
    "moveaxis",
    "permute",
    "transpose",
]


def test_words_on_an_axis_whose_length_varies() -> None:
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        u, v = (trl.data(given[:, :, 0], domain=(b, t))[b, 0 : t + 1] for given in (X, Y))
        words = {name: WORDS[name] for name in SLICED}
        words["roll"] = Word(lambda x, y: trl.roll(x, 2, 0), lambda x, y: np.roll(x, 2, 0))
        words["outer"] = Word(
            lambda x, y: trl.outer(x.take(0, 1), y.take(1, 1)),
            lambda x, y: np.outer(x[:, 0], y[:, 1]),
        )
        words["einsum"] = Word(lambda x, y: trl.einsum("ij,ik->jk", x, y), lambda x, y: x.T @ y)
        words["bincount"] = Word(
            lambda x, y: trl.bincount(_whole(x), 4),
            lambda x, y: np.bincount(_whole(x).ravel(), None, 4),
        )
        for name, word in words.items():
            made = word.ours(u, v)
            ctx.output(name, (made * 1.0).sum() if made.dtype != "bool" else made.sum())
            first = made.take(0, -1) if made.rank else made
            ctx.output(
                f"{name} first", first.sum() if first.dtype == "bool" else (first * 1.0).sum()
            )
    runs = [Reference(ctx.pdg(), BOUNDS).outputs()]
    runs.append(ctx.compile(BOUNDS, trl.Options(executor="xla")).execute())
    for name, word in words.items():
        for run in runs:
            for at in np.ndindex(2, 3):
                x, y = (given[at[0], : at[1] + 1, 0] for given in (X, Y))
                want = np.asarray(word.theirs(x, y))
                near = {"rtol": 1e-4, "atol": 1e-4, "err_msg": name}
                np.testing.assert_allclose(run[name][at[-run[name].ndim :]], want.sum(), **near)
                first = want[..., 0] if want.ndim else want
                found = run[f"{name} first"]
                np.testing.assert_allclose(found[at[-found.ndim :]], first.sum(), **near)


def test_reductions_over_dimensions() -> None:
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        x = trl.data(X, domain=(b, t))
        ctx.output("median", x.median(over=t))
        ctx.output("quantile", x.quantile([0.25, 0.5], over=b))
    result = ctx.compile(BOUNDS, trl.Options(executor="xla")).execute()
    np.testing.assert_allclose(result["median"], np.median(X, 1), rtol=1e-6)
    want = np.moveaxis(np.quantile(X, [0.25, 0.5], 0), 0, 1)
    np.testing.assert_allclose(result["quantile"], want, rtol=1e-5, atol=1e-6)


# --- wrong arguments ----------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "kept dimensions": ("keepdims=True keeps axes", lambda x, t: x.sum(over=t, keepdims=True)),
    "a mode": ("there is no mode", lambda x, t: x.pad(1, "circular")),
    "widths": ("are not padding widths", lambda x, t: x.pad(-1)),
    "many widths": ("are not padding widths", lambda x, t: x.pad(((1, 1), (2, 2), (0, 0)))),
    "repeated lengths": ("symbolic length", lambda x, t: x[0 : t + 1].repeat(2, 0)),
    "edges of lengths": (
        "takes elements at both ends",
        lambda x, t: x[0 : t + 1].pad(((1, 0), (0, 0), (0, 0)), "edge"),
    ),
    "split lengths": ("symbolic length", lambda x, t: x[0 : t + 1].split(2)),
    "no equal parts": ("does not split into 3 equal parts", lambda x, t: x.split(3)),
    "no integer": ("must be an integer", lambda x, t: x.roll(1.5)),
    "no positions": ("takes integers", lambda x, t: x.one_hot(3)),
    "no shares": ("q must be a number from 0 to 1, not 1.5", lambda x, t: x.quantile(1.5)),
    "a text as a share": ("q must be a number", lambda x, t: x.quantile("0.5")),
    "no parts": ("parts must be an integer", lambda x, t: x.split(1.5)),
    "fills of each end": ("must be one number", lambda x, t: x.pad(1, constant_values=(5, 6))),
    "what ... left out": ("has ... in an operand", lambda x, t: trl.einsum("i...->i", x)),
    "more than there can be": ("more numbers than", lambda x, t: trl.arange(0, 10**10)),
    "no type": ("None is not an element type", lambda x, t: x.cast(None)),
    "no type of ones": ("None is not an element type", lambda x, t: trl.eye(2, dtype=None)),
    "a first value": (
        "but the parameter has the shape",
        lambda x, t: trl.parameter((3,), init=x[0]),
    ),
    "betas": (
        "betas must be two numbers",
        lambda x, t: trl.optim.Adam([trl.parameter((3,))], betas=0.9),
    ),
    "three betas": (
        "betas must be two numbers",
        lambda x, t: trl.optim.Adam(trl.parameter(3), betas=(1, 1, 1)),
    ),
    "no rate": ("positive number", lambda x, t: trl.optim.Adam(trl.parameter(3), lr="a")),
    "a start": ("start must be", lambda x, t: trl.optim.schedules.linear(t, "a", 1)),
    "an end": ("end must be", lambda x, t: trl.optim.schedules.cosine(t, 1.0, "a")),
    "a factor": ("factor must be", lambda x, t: trl.optim.schedules.exponential(t, 1, "a")),
    "changes": (
        "must map positions to rates",
        lambda x, t: trl.optim.schedules.piecewise(t, 1.0, [1, 2]),
    ),
    "inputs": ("has none", lambda x, t: trl.parameter((0, 3), init=trl.nn.scaled_normal())),
    "no inputs": ("has none", lambda x, t: trl.parameter((), init=trl.nn.scaled_normal())),
    "gain": ("gain must be", lambda x, t: trl.nn.Linear(3, 2, gain="a")),
    "not normal": ("last axis of 3", lambda x, t: trl.nn.LayerNorm(3)(3.0)),
    "choices": ("do not match choices", lambda x, t: trl.distributions.MultiCategorical(x, 3)),
    "an interval": ("low must be", lambda x, t: trl.distributions.TanhNormal(x, 0.0, "a", 1)),
    "first weights": (
        "is not an initialiser",
        lambda x, t: trl.DNNBuilder().from_env(trl.env.make("CartPole-v1"), init=None),
    ),
    "another action": (
        "the action that sample",
        lambda x, t: trl.DNNBuilder().from_env(trl.env.make("CartPole-v1")).build().log_prob(1),
    ),
    "no bits": ("needs booleans or integers", lambda x, t: x & 1),
    "no shifts": ("shifts need integers", lambda x, t: x << 1),
    "no labels": ("must be the labels", lambda x, t: trl.einsum(x, "ij")),
    "too few labels": ("one letter for each axis", lambda x, t: trl.einsum("i->i", x)),
    "a result of nothing": (
        "does not follow from its operands",
        lambda x, t: trl.einsum("ij->k", x),
    ),
    "another operand": ("names 2 operand", lambda x, t: trl.einsum("ij,jk", x)),
    "sizes": ("disagree in a size", lambda x, t: trl.einsum("ij,jk->ik", x, x.slice(0, 3))),
    "no list": ("not a list of tensors", lambda x, t: trl.hstack(x)),
    "no size": ("a size must be", lambda x, t: trl.eye(-1)),
    "ends that vary": ("must be a number", lambda x, t: trl.linspace(x, 1)),
    "no tensor": ("is not a tensor", lambda x, t: trl.exp("x")),
    "fractions": ("arange takes integers", lambda x, t: trl.arange(0.5)),
    "two ways": ("not both", lambda x, t: x.median(over=t, axis=0)),
    "no matrix": ("no matrix", lambda x, t: x.flatten().tril()),
    "random ends": ("takes integers", lambda x, t: trl.random.randint(0.5)),
    "random ends of floats": ("takes integers", lambda x, t: trl.random.randint(0, x)),
    "empty random ranges": ("is empty", lambda x, t: trl.random.randint(3, np.array([4, 3]))),
    "wide random ends": (
        "and the draws are int8",
        lambda x, t: trl.random.randint(0, trl.value(t), dtype="i8"),
    ),
    "random ends of another shape": (
        "give a shape",
        lambda x, t: trl.random.randint(0, np.array([3, 4]), ()),
    ),
    "no random integers": ("no integers from", lambda x, t: trl.random.randint(3, 3)),
    "random bytes": ("no integers from", lambda x, t: trl.random.randint(0, 300, dtype="u8")),
    "no random type": ("draws integers", lambda x, t: trl.random.randint(3, dtype="f32")),
    "no probability": ("must be a probability", lambda x, t: trl.random.bernoulli(x > 0)),
    "no logits": ("logits must be", lambda x, t: trl.random.categorical(trl.constant([1, 2]))),
    "random lengths": ("cannot be permuted", lambda x, t: trl.random.permutation(x[0 : t + 1])),
    "no axis": ("has no axis", lambda x, t: trl.random.permutation(x, 5)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_errors_at_the_line(name: str) -> None:
    message, wrong = WRONG[name]
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.data(X[0], domain=t)
        with pytest.raises(TimeRLError) as found:
            wrong(x, t)
    # the whole text has this row
    assert message in f"{found.value.what} {found.value.hint}"
    assert "at test_words.py:" in str(found.value)


# --- randomness -----------------------------------------------------------------------------------


def test_draws_made_of_bits() -> None:
    """Each draw is its formula on the reference's bits, in every execution order."""
    bounds = {"B": 12, "T": 25}
    ends = np.random.default_rng(0).integers(-(2**31), 2**31, (2, 12, 25)).astype(np.int32)
    with trl.Context("b", "t") as ctx:
        (b, _), (t, _) = ctx.dims
        over = {"domain": (b, t)}
        logits = trl.constant([0.0, 1.0, -np.inf, 0.5])
        low, high = (trl.data(x, domain=(b, t)) for x in ends)
        ctx.output("bits", trl.random.bits((3,), stream="s", shared=True, **over))
        for name, made in {
            "integers": trl.random.randint(-3, 7, (3,), stream="s", shared=True, **over),
            "bytes": trl.random.randint(
                256, shape=(3,), dtype="u8", stream="s", shared=True, **over
            ),
            "all": trl.random.randint(-(2**31), 2**31, (3,), stream="s", shared=True, **over),
            "ranges": trl.random.randint(low, high, (3,), stream="s", shared=True, **over),
            "ranges of bytes": trl.random.randint(
                low.cast("i8") % 8, 9, (3,), dtype="i8", stream="s", shared=True, **over
            ),
            "up to here": trl.random.randint(t + 1, shape=(3,), stream="s", shared=True, **over),
            "as a number": trl.random.randint(
                trl.constant(-3), 7, (3,), stream="s", shared=True, **over
            ),
            "coins": trl.random.bernoulli(0.3, (3,), stream="s", shared=True, **over),
            "sure": trl.random.bernoulli(trl.constant([0.0, 1.0, 0.5]), **over),
            "positions": trl.random.categorical(logits, **over),
            "order": trl.random.permutation(5, **over),
            "rows": trl.random.permutation(trl.value(t) * 4 + trl.arange(4).reshape(1, 4), 1),
        }.items():
            ctx.output(name, made)
    want = Reference(ctx.pdg(), bounds, seed=3).outputs()
    bits = want["bits"].astype(np.int64)
    np.testing.assert_array_equal(want["integers"], bits % 10 - 3)
    np.testing.assert_array_equal(want["as a number"], want["integers"])
    np.testing.assert_array_equal(want["bytes"], bits % 256)
    low, high = ends.astype(np.int64)[..., None]
    size = np.maximum(high - low, 1)  # an empty range gives its lower end
    assert (size == 1).any() and (size > 2**31).any()
    np.testing.assert_array_equal(want["ranges"], low + bits % size)
    np.testing.assert_array_equal(want["ranges of bytes"], low % 8 + bits % (9 - low % 8))
    np.testing.assert_array_equal(want["up to here"], bits % np.arange(1, 26)[:, None])
    np.testing.assert_array_equal(want["all"], bits - 2**31)
    np.testing.assert_array_equal(want["coins"], ((bits >> 9) + 0.5) * 2.0**-23 < np.float32(0.3))
    assert want["bytes"].dtype == np.uint8 and want["integers"].dtype == np.int32
    assert (want["sure"].reshape(-1, 3).mean(0) == [0, 1, want["sure"][..., 2].mean()]).all()
    assert 0.4 < want["sure"][..., 2].mean() < 0.6
    shares = np.bincount(want["positions"].ravel(), None, 4) / want["positions"].size
    np.testing.assert_allclose(shares, special.softmax([0, 1, -np.inf, 0.5]), atol=0.1)
    orders = want["order"].reshape(-1, 5)
    assert (np.sort(orders, 1) == np.arange(5)).all() and len({*map(tuple, orders)}) > 100
    assert (np.sort(want["rows"][:, 0], 1) == np.arange(100).reshape(25, 4)).all()
    for how in ({"executor": "xla"}, {"vectorize": False}):
        result = ctx.compile(bounds, trl.Options(**how)).execute(seed=3)
        for name in want:
            np.testing.assert_array_equal(result[name], want[name], err_msg=name)
