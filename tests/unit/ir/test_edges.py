"""NaN, infinities, signed zeros, empty axes and extreme integers:

NumPy's results under every executor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.compiler.ir.operation_kinds import KINDS
from timerl_nb.compiler.ir.reference.evaluator import Reference

Array = np.ndarray[Any, Any]
NAN, INF = np.nan, np.inf
FLOATS: Final = np.array([NAN, INF, -INF, 0.0, -0.0, 3.4e38, -2.5, 0.5], np.float32)
SUMMED: Final = np.where(FLOATS > 1e38, np.float32(1e10), FLOATS)  # in any order
MOST, LEAST = 2**31 - 1, -(2**31)
INTS: Final = np.array([0, 1, -1, 7, -7, 33, MOST, LEAST], np.int32)
WORDS: Final = np.array([0, 1, 7, 2**31, 2**32 - 1], np.uint32)


def pairs(values: Array) -> tuple[Array, Array]:
    x, y = np.meshgrid(values, values, indexing="ij")
    return x.ravel(), y.ravel()


def rows(values: Array, length: int) -> Array:
    """Return every value at every position of a row of others, and rows of special values."""
    made = np.random.default_rng(0).choice(values, (40, length))
    made[: len(values)] = values[:, None]
    return made.astype(values.dtype)


X, Y = pairs(FLOATS)
I, J = pairs(INTS)
U, V = pairs(WORDS)
POINTS: Final = len(X)


def filled(array: Array) -> Array:
    """Repeat the values to fill all points."""
    return np.resize(array, (POINTS, *array.shape[1:]))


GIVEN: Final[Mapping[str, Array]] = {
    "x": X,
    "y": Y,
    "i": filled(I),
    "j": filled(J),
    "u": filled(U),
    "v": filled(V),
    "c": filled(np.array([True, False, True])),
    "rows": filled(rows(SUMMED, 5)),
    "others": filled(rows(SUMMED[::-1], 5)),
    "whole": filled(rows(INTS, 5)),
    "none": np.zeros((POINTS, 2, 0), np.float32),
    "at": filled(np.array([[0, 4], [1, 1], [-1, 5], [MOST, LEAST]], np.int32)),
}
Fn = Callable[..., Any]
# Expressions of the tensors of these names, and NumPy's on arrays with points in front.
Row = tuple[str, Fn, Fn]


def both(names: str, f: Fn) -> Row:
    """Use one text for both."""
    return names, f, f


def scan(factor: Array, term: Array, *, restarts: bool) -> Array:
    made = np.array(term)
    for k in range(1, term.shape[1]):
        made[:, k] = factor[:, k] * made[:, k - 1] + term[:, k]
        if restarts:
            made[:, k] = np.where(factor[:, k] == 0, term[:, k], made[:, k])
    return made


def to_int(x: Array, kind: Any = np.int32) -> Array:
    ends, wide = np.iinfo(kind), np.trunc(np.float64(x))
    return np.clip(np.nan_to_num(wide, nan=0.0), ends.min, ends.max).astype(kind)


def int_power(x: Array, y: Array) -> Array:
    def one(a: int, n: int) -> int:
        if n < 0:
            return {1: 1, -1: 1 if n % 2 == 0 else -1}.get(a, 0)
        return (pow(a, n, 2**32) + 2**31) % 2**32 - 2**31

    return np.array([one(int(a), int(n)) for a, n in zip(x, y, strict=True)], np.int32)


def put_in_turn(x: Array, at: Array, values: Array) -> Array:
    made = x.copy()
    for row, places, given in zip(made, at, values, strict=True):
        for place, value in zip(places, given, strict=True):
            if 0 <= place < len(row):
                row[place] = value
    return made


def taken(x: Array, at: Array) -> Array:
    inside = (at >= 0) & (at < x.shape[1])
    return np.where(inside, np.take_along_axis(x, np.clip(at, 0, x.shape[1] - 1), 1), 0)


def in_order(x: Array, *, descending: bool = False) -> Array:
    return np.argsort(-x if descending else x, axis=1, kind="stable").astype(np.int32)


def unary(name: str, f: Fn) -> Row:
    return "x", lambda x: getattr(x, name)(), f


ERF: Final = np.vectorize(math.erf, otypes=[np.float32])
ROWS: Final[Mapping[str, list[Row]]] = {
    "neg": [both("x", lambda x: -x), both("i", lambda i: -i), both("u", lambda u: -u)],
    "abs": [both("x", abs), both("i", abs)],
    "sign": [unary("sign", np.sign), ("i", lambda i: i.sign(), np.sign)],
    **{
        name: [unary(name, getattr(np, name))]
        for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh", "floor", "round")
    },
    "sigmoid": [unary("sigmoid", lambda x: 1 / (1 + np.exp(-x)))],
    "erf": [unary("erf", ERF)],
    "erf_inv": [
        ("x", lambda x: x.clip(-2.0, 2.0).erf().erf_inv().isnan(), lambda x: np.isnan(x)),
        ("c", lambda c: c.cast("f32").erf_inv(), lambda c: np.where(c, INF, 0.0)),
    ],
    "not": [both("c", lambda c: ~c), both("i", lambda i: ~i)],
    "cast": [
        ("x", lambda x: x.cast("i32"), to_int),
        ("x", lambda x: x.cast("u32"), lambda x: to_int(x, np.uint32)),
        ("x", lambda x: x.cast("u8"), lambda x: to_int(x, np.uint8)),
        ("x", lambda x: x.cast("bf16").cast("i32") == 0, lambda x: abs(np.nan_to_num(x)) < 1),
        ("x", lambda x: x.cast("bool"), lambda x: x.astype(bool)),
        ("i", lambda i: i.cast("u32"), lambda i: i.astype(np.uint32)),
        ("u", lambda u: u.cast("i32"), lambda u: u.astype(np.int32)),
        ("i", lambda i: i.cast("f32"), lambda i: i.astype(np.float32)),
    ],
    "copy": [("x", lambda x: x[...], lambda x: x)],
    "detach": [("x", lambda x: x.detach(), lambda x: x)],
    "add": [both(n, lambda x, y: x + y) for n in ("x y", "i j", "u v")],
    "sub": [both(n, lambda x, y: x - y) for n in ("x y", "i j", "u v")]
    + [both("x", lambda x: x - x), both("x", lambda x: x - np.float32(0))],
    "mul": [both(n, lambda x, y: x * y) for n in ("x y", "i j", "u v")]
    + [both("x", lambda x: x * np.float32(0)), both("x", lambda x: x * np.float32(-1))],
    "div": [both("x y", lambda x, y: x / y), both("x", lambda x: x / x)],
    "pow": [
        both("x y", lambda x, y: x**y),
        both("x", lambda x: x ** np.float32(0)),
        ("i j", lambda i, j: i**j, int_power),
    ],
    "max2": [
        ("x y", trl.max, np.maximum),
        ("i j", trl.max, np.maximum),
        ("x", lambda x: trl.max(x, x), lambda x: x),
    ],
    "min2": [("x y", trl.min, np.minimum), ("u v", trl.min, np.minimum)],
    "floordiv": [both(n, lambda x, y: x // y) for n in ("x y", "i j", "u v")],
    "mod": [both(n, lambda x, y: x % y) for n in ("x y", "i j", "u v")],
    "atan2": [("x y", lambda x, y: x.atan2(y), np.arctan2)],
    "eq": [both("x y", lambda x, y: x == y), both("x", lambda x: x == x)],
    "ne": [both("x y", lambda x, y: x != y), both("x", lambda x: x != x)],
    "lt": [
        both("x y", lambda x, y: x < y),
        both("i j", lambda i, j: i < j),
        both("u v", lambda u, v: u > v),
    ],
    "le": [both("x y", lambda x, y: x <= y), both("x y", lambda x, y: x >= y)],
    "and": [both("i j", lambda i, j: i & j)],
    "or": [both("i j", lambda i, j: i | j)],
    "xor": [both("i j", lambda i, j: i ^ j)],
    "shl": [both("i j", lambda i, j: i << j)],
    "shr": [both("i j", lambda i, j: i >> j)],
    "where": [
        ("c x y", trl.where, np.where),
        ("x", lambda x: trl.where(x != x, x, x), lambda x: x),
    ],
    "sum": [
        ("rows", lambda x: x.sum(axis=0), lambda x: x.sum(1)),
        ("whole", lambda x: x.sum(axis=0), lambda x: x.sum(1, dtype=np.int32)),
        ("none", lambda x: x.sum(axis=1), lambda x: x.sum(2)),
    ],
    "prod": [
        ("rows", lambda x: x.prod(axis=0), lambda x: x.prod(1)),
        ("whole", lambda x: x.prod(axis=0), lambda x: x.prod(1, dtype=np.int32)),
        ("none", lambda x: x.prod(axis=1), lambda x: x.prod(2)),
    ],
    "max": [
        ("rows", lambda x: x.max(axis=0), lambda x: x.max(1)),
        ("whole", lambda x: x.max(axis=0), lambda x: x.max(1)),
    ],
    "min": [
        ("rows", lambda x: x.min(axis=0), lambda x: x.min(1)),
        ("whole", lambda x: x.min(axis=0), lambda x: x.min(1)),
    ],
    "argmax": [
        (n, lambda x: x.argmax(0), lambda x: x.argmax(1).astype(np.int32))
        for n in ("rows", "whole")
    ],
    "argmin": [
        (n, lambda x: x.argmin(0), lambda x: x.argmin(1).astype(np.int32))
        for n in ("rows", "whole")
    ],
    "argsort": [
        ("rows", lambda x: x.argsort(0), in_order),
        ("rows", lambda x: x.argsort(0, descending=True), lambda x: in_order(x, descending=True)),
        ("whole", lambda x: x.argsort(0), in_order),
        (
            "whole",
            lambda x: x.argsort(0, descending=True),
            lambda x: in_order(x.astype(np.int64), descending=True),
        ),
        ("rows", lambda x: x.sort(0), lambda x: np.sort(x, 1)),
    ],
    "discounted_sum": [
        (
            "rows",
            lambda x: x.discounted_sum(0.5),
            lambda x: sum(x[:, k] * np.float32(0.5) ** k for k in range(5)),
        ),
        (
            "rows",
            lambda x: x.discounted_sum(0.0),
            lambda x: sum(x[:, k] * np.float32(0.0) ** k for k in range(5)),
        ),
    ],
    "sliding_sum": [
        ("rows", lambda x: x.cumsum(0), lambda x: np.cumsum(x, 1)),
        ("whole", lambda x: x.cumsum(0), lambda x: np.cumsum(x, 1, dtype=np.int32)),
    ],
    "dot": [
        ("rows others", lambda x, y: x @ y, lambda x, y: sum(x[:, k] * y[:, k] for k in range(5)))
    ],
    "conv": [
        (
            "rows others",
            lambda x, y: trl.conv(x.reshape(1, 5), y.slice(0, 2).reshape(1, 1, 2)).reshape(4),
            lambda x, y: x[:, :-1] * y[:, :1] + x[:, 1:] * y[:, 1:2],
        )
    ],
    "linear_scan": [
        ("rows others", lambda x, y: x.linear_scan(y), lambda x, y: scan(y, x, restarts=True)),
        ("rows", lambda x: x.cumprod(0), lambda x: np.cumprod(x, 1)),
        (
            "rows",
            lambda x: x.cumprod(0, reverse=True),
            lambda x: np.cumprod(x[:, ::-1], 1)[:, ::-1],
        ),
        ("whole", lambda x: x.cumprod(0), lambda x: np.cumprod(x, 1, dtype=np.int32)),
    ],
    "sliding_max": [
        ("rows", lambda x: x.cummax(0), lambda x: np.maximum.accumulate(x, 1)),
        ("whole", lambda x: x.cummax(0), lambda x: np.maximum.accumulate(x, 1)),
        ("whole", lambda x: (x > 0).cummax(0), lambda x: np.maximum.accumulate(x > 0, 1)),
    ],
    "sliding_min": [
        ("rows", lambda x: x.cummin(0), lambda x: np.minimum.accumulate(x, 1)),
        ("whole", lambda x: x.cummin(0), lambda x: np.minimum.accumulate(x, 1)),
        (
            "whole",
            lambda x: x.cast("u32").cummin(0),
            lambda x: np.minimum.accumulate(x.astype(np.uint32), 1),
        ),
    ],
    "gather": [("rows at", lambda x, at: x.take_along(at, 0), taken)],
    "scatter_add": [
        (
            "rows at",
            lambda x, at: x.put_add(at, 1.0),
            lambda x, at: (
                x + sum((at[:, k : k + 1] == np.arange(5)) for k in range(2)).astype(np.float32)
            ),
        )
    ],
    "scatter_set": [
        (
            "rows at",
            lambda x, at: x.put(at, x.slice(0, 2) * 2.0),
            lambda x, at: put_in_turn(x, at, x[:, :2] * 2),
        )
    ],
    "reshape": [
        ("rows", lambda x: x.reshape(5, 1), lambda x: x[..., None]),
        both("none", lambda x: x),
    ],
    "transpose": [("rows", lambda x: x.reshape(1, 5).transpose(1, 0), lambda x: x[..., None])],
    "expand": [("x", lambda x: x.reshape(1).expand(2), lambda x: np.stack([x, x], 1))],
    "concat": [
        ("rows others", lambda x, y: trl.concat([x, y]), lambda x, y: np.concatenate([x, y], 1))
    ],
    "reindex": [
        ("rows", lambda x: x.slice(1, 3), lambda x: x[:, 1:3]),
        ("rows", lambda x: x.flip(0), lambda x: x[:, ::-1]),
        ("rows", lambda x: x.take(2), lambda x: x[:, 2]),
    ],
}
# Methods that are several kinds, or choose by comparisons.
METHODS: Final[Mapping[str, list[Row]]] = {
    "relu": [
        unary("relu", lambda x: np.maximum(x, 0)),
        ("i", lambda i: i.relu(), lambda i: np.maximum(i, 0)),
    ],
    "leaky_relu": [unary("leaky_relu", lambda x: np.where(x > 0, x, x * np.float32(0.01)))],
    "elu": [unary("elu", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))))],
    "softplus": [unary("softplus", lambda x: np.logaddexp(x, np.float32(0)))],
    "log_sigmoid": [unary("log_sigmoid", lambda x: -np.logaddexp(-x, np.float32(0)))],
    "clip": [("x", lambda x: x.clip(-1.0, 2.0), lambda x: np.clip(x, -1, 2))],
    "isnan": [unary("isnan", np.isnan), unary("isinf", np.isinf), unary("isfinite", np.isfinite)],
    "ceil": [unary("ceil", np.ceil)],
    "mean": [("rows", lambda x: x.mean(axis=0), lambda x: x.mean(1))],
    "norm": [("rows", lambda x: x.norm(axis=0), lambda x: np.sqrt((x * x).sum(1)))],
    "std": [("rows", lambda x: x.std(axis=0), lambda x: x.std(1))],
    "softmax": [
        (
            "rows",
            lambda x: x.softmax(0),
            lambda x: (e := np.exp(x - x.max(1, keepdims=True))) / e.sum(1, keepdims=True),
        )
    ],
    "logsumexp": [("rows", lambda x: x.logsumexp(axis=0), lambda x: np.logaddexp.reduce(x, 1))],
    "entropy": [
        (
            "rows",
            lambda x: trl.distributions.Categorical(x * NAN).entropy(),
            lambda x: np.full(len(x), NAN),
        ),
    ],
}
NOT_HERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("const", "data", "value"), "every row reads some, or folds them"),
    **dict.fromkeys(("rng", "unit"), "bits have no special values; `test_randomness`"),
    "orthonormal": "an initial value of parameters",
    **dict.fromkeys(("merge", "accumulate", "dataflow"), "of the graph; below"),
    **dict.fromkeys(("udf", "output", "bound", "checkpoint", "call"), "no arithmetic"),
    "jaxed": "as the function has it; `test_jaxed`",
}
WAYS: Final = {
    "by default": trl.Options(),
    "not simplified": trl.Options(simplify=False),
    "interpreted": trl.Options(executor="interpret", contract=False),
}


def test_every_kind_has_a_row() -> None:
    assert not set(ROWS) & set(NOT_HERE) and set(ROWS) | set(NOT_HERE) == set(KINDS)


def cases() -> dict[str, Row]:
    return {
        f"{name} {k}": row
        for name, many in {**ROWS, **METHODS}.items()
        for k, row in enumerate(many)
    }


def program(some: Mapping[str, Row]) -> trl.Context:
    with trl.Context("t") as ctx:
        t = ctx.dims[0][0]
        given = {name: trl.data(array, domain=(t,)) for name, array in GIVEN.items()}
        for name, (operands, ours, _) in some.items():
            ctx.output(name, ours(*(given[k] for k in operands.split())))
    return ctx


def check(found: Mapping[str, Any], way: str) -> None:
    for name, (operands, _, numpys) in cases().items():
        with np.errstate(all="ignore"):
            want = np.asarray(numpys(*(GIVEN[k] for k in operands.split())))
        have = np.asarray(found[name])
        where = f"{name}, {way}"
        assert have.shape == want.shape, where
        if have.dtype.kind == "f":
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-30, err_msg=where)
        else:
            np.testing.assert_array_equal(have, want, err_msg=where)


def test_the_reference_answers_as_numpy_does() -> None:
    check(Reference(program(cases()).pdg(), {"T": POINTS}).outputs(), "reference")


@pytest.mark.parametrize("way", WAYS)
def test_every_way_answers_as_numpy_does(way: str) -> None:
    made = program(cases()).compile({"T": POINTS}, WAYS[way])
    check(made.execute(progress=False), way)


# --- after graph passes
# ----------------------------------------------------------------------------

T: Final = 9
COLUMNS: Final = 12
A, B = (
    np.random.default_rng(k).choice(SUMMED, (T, COLUMNS), p=[0.1, 0.05, 0.05, *[0.16] * 5])
    for k in (1, 2)
)
RECURRENCES: Final[Mapping[str, Fn]] = {
    "product": lambda y, a, b, done: a * y,
    "linear": lambda y, a, b, done: a * y + b,
    "anew": lambda y, a, b, done: trl.where(done, b, y * 0.5 + b),
    "anew by a factor": lambda y, a, b, done: trl.where(done, 0.0, y) * 2.0 + b,
    "discounted": lambda y, a, b, done: y * 0.5 + b,
    "greatest": lambda y, a, b, done: trl.max(y, b),
    "least": lambda y, a, b, done: trl.min(y, a),
}
NOT_LIFTED: Final[Mapping[str, Fn]] = {"nothing": lambda y, a, b, done: y * 0.0 + a}


def recurrences(some: Mapping[str, Fn] = RECURRENCES) -> trl.Context:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        a, b = (trl.data(x, domain=(t,)) for x in (A, B))
        done = trl.data(np.arange(T) % 3 == 2, domain=(t,))
        for name, f in some.items():
            y = trl.tensor((COLUMNS,), domain=(t,))
            y[0] = b[0]
            y[t + 1] = f(y, a[t + 1], b[t + 1], done)
            ctx.output(name, y)
    return ctx


def multiplied_by_nothing() -> trl.Context:
    return recurrences(NOT_LIFTED)


def windows() -> trl.Context:
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        a, b = (trl.data(x, domain=(t,)) for x in (A, B))
        one = trl.data(A[:, 0], domain=(t,))
        for name, (x, y, z) in {
            "ahead": (
                a[t : trl.min(t + 3, T)],
                b[t : trl.min(t + 3, T)],
                one[t : trl.min(t + 3, T)],
            ),
            "prefix": (a[0 : t + 1], b[0 : t + 1], one[0 : t + 1]),
            "rest": (a[t:T], b[t:T], one[t:T]),
        }.items():
            for k, made in enumerate(
                (
                    x.sum(axis=0),
                    y.max(axis=0),
                    x.prod(axis=0),
                    x.argmax(0),
                    z @ x,
                    (x * y).sum(axis=0),
                    x.discounted_sum(0.5),
                    y.softmax(0).max(axis=0),
                    x.cumprod(0, reverse=True).sum(axis=0),
                    y.linear_scan(x, reverse=True).max(axis=0),
                    y.sort(0).take(0),
                )
            ):
                ctx.output(f"{name} {k}", made)
        ctx.output("all", b.sum(over=t))
        ctx.output("products", (a * b).sum(over=t))
        ctx.output("most", b.max(over=t))
    return ctx


def gradients() -> trl.Context:
    with trl.Context("t") as ctx:
        ((t, _),) = ctx.dims
        x = trl.data(FLOATS, domain=(t,))
        for name, f in {
            "relu": lambda x: x.relu(),
            "clip": lambda x: x.clip(-1.0, 1.0),
            "abs": abs,
            "power": lambda x: x ** trl.constant(np.float32(0.0)),
            "square": lambda x: x**2.0,
            "root": lambda x: (x * x).sqrt(),
            "greater": lambda x: trl.max(x, 0.0),
            "chosen": lambda x: trl.where(x > 0.0, x, -x),
            "norm": lambda x: x.reshape(1).norm(axis=0),
            "product": lambda x: trl.stack([x, x * 0.0 + 2.0]).prod(axis=0),
            "running": lambda x: trl.stack([x, x, x]).cumprod(0).sum(axis=0),
        }.items():
            ctx.output(name, trl.grad(f(x), [x])[0])
    return ctx


LIFTED: Final = {"linear_scan", "sliding_sum", "sliding_max", "sliding_min"}
ALSO: Final = {
    "by default": trl.Options(),
    "in loops": trl.Options(vectorize=False, lift=False),
    "interpreted, not simplified": trl.Options(executor="interpret", simplify=False),
}


@pytest.mark.parametrize("write", [recurrences, multiplied_by_nothing, windows, gradients])
def test_every_way_agrees_with_the_reference(write: Callable[[], trl.Context]) -> None:
    bounds = {"T": len(FLOATS) if write is gradients else T}
    want = Reference(write().pdg(), bounds).outputs()
    for way, options in ALSO.items():
        program = write().compile(bounds, options)
        if write is recurrences and way == "by default":
            assert {op.kind for op in program.stages["lift"].artifact} >= LIFTED
        have = program.execute(progress=False)
        for name in want:
            np.testing.assert_allclose(
                have[name], want[name], rtol=1e-4, atol=1e-6, err_msg=f"{name}, {way}"
            )


def test_derivatives_where_they_are_defined() -> None:
    found = Reference(gradients().pdg(), {"T": len(FLOATS)}).outputs()
    zero = list(FLOATS).index(0.0)
    assert [found[k][zero] for k in ("relu", "abs", "power", "square", "norm")] == [0, 0, 0, 0, 0]
    assert found["relu"][FLOATS == INF] == 1 and found["relu"][FLOATS == -INF] == 0


@pytest.mark.filterwarnings("ignore:.*padded to 140")
def test_discounts_above_1_do_not_leak_from_beyond_a_length() -> None:
    """Powers beyond the length are infinite, and NaN when multiplied by the zeros there."""
    n = 140
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(np.ones(n, np.float32), domain=(t,))
        ctx.output("prefix", x[0 : t + 1].discounted_sum(2.0))
        ctx.output("rest", x[t:T].discounted_sum(2.0))
    want = Reference(ctx.pdg(), {"T": n}).outputs()
    for options in (trl.Options(), trl.Options(vectorize=False)):
        have = ctx.compile({"T": n}, options).execute(progress=False)
        for name, x in want.items():
            assert not np.isnan(x).any()
            np.testing.assert_allclose(have[name], x, rtol=1e-5)


def test_given_numbers_keep_their_nan_in_a_loop() -> None:
    """Regression: XLA treated a constant NaN as a number if a loop computed its exp."""
    given = np.array([0, 1, NAN, 2, 3], np.float32)
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x, y = (trl.data(values, domain=t) for values in (given, given[::-1].copy()))
        logs = trl.data(np.array([0, 1, -1, 2, 3], np.float32), domain=t).log()
        same = trl.constant(given)
        ctx.output("prefix", x[0 : t + 1].logsumexp(axis=0))
        ctx.output("rest", y[t:T].logsumexp(axis=0))
        ctx.output("logs", (logs[0 : t + 1] - x[0]).exp().sum(axis=0))
        ctx.output("less", (same - trl.value(t)).exp().sum())
    for executor in ("xla", "interpret"):
        have = ctx.compile({"T": 5}, trl.Options(executor=executor)).execute(progress=False)
        for name, some in {"prefix": [0, 0, 1, 1, 1], "rest": [1, 1, 1, 0, 0]}.items():
            assert np.isnan(have[name]).tolist() == [bool(k) for k in some], (name, executor)
        assert np.isnan(have["logs"]).tolist() == [False, False, True, True, True]
        assert np.isnan(have["less"]).all()


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("first", [NAN, INF])
def test_a_moving_average_of_no_number_is_none(first: float, lift: bool) -> None:
    """With an infinity it becomes NaN step by step, and stays NaN as a scan."""
    with trl.Context("t") as ctx:
        ((t, T),) = ctx.dims
        x = trl.data(np.array([first, 1, 2, 3], np.float32), domain=t)
        m = trl.tensor((), domain=t)
        m[0] = x[0]
        m[t + 1] = m + 0.25 * (x[trl.min(t + 1, T - 1)] - m)
        ctx.output("m", m)
    have = ctx.compile({T: 4}, trl.Options(lift=lift)).execute()["m"]
    assert not np.isfinite(have).any() and (np.isnan(first) <= np.isnan(have)).all()


def test_inverse_sines_are_steepest_at_their_ends() -> None:
    with trl.Context("t") as ctx:
        x = trl.constant(np.array([-1, 0, 1], np.float32))
        ctx.output("sine", trl.grad(x.arcsin().sum(), x))
        ctx.output("cosine", trl.grad(x.arccos().sum(), x))
    have = ctx.compile({"T": 1}).execute()
    assert have["sine"].tolist() == (-have["cosine"]).tolist() == [INF, 1, INF]
