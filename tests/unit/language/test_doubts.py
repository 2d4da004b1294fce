"""Lint warnings: once, at the user's line; none for usual code."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import ShapeError, TimeRLWarning


def _unreachable(v: Any, r: Any, n: Any, b: Any, i: Any, t: Any, T: Any) -> None:
    x = trl.first_match(trl.like(r).named("x"))
    x[b, i, t] = 1.0
    x[b, i, 0] = 2.0


DOUBTFUL: dict[str, tuple[Callable[..., Any], str]] = {
    "permuted": (
        lambda v, r, n, b, i, t, T: r[i, b, t],
        r"reads b at i, i at b(.|\n)*r\[b, i, t\]",
    ),
    "turned": (lambda v, r, n, b, i, t, T: r[t, b, i], r"b at t, i at b, t at i"),
    "first two": (lambda v, r, n, b, i, t, T: r[i, b], r"r\[b, i, t\]"),
    "first": (lambda v, r, n, b, i, t, T: v[0], r"b = 0, and(.|\n)*v\[0, \.\.\.\]"),
    "two": (lambda v, r, n, b, i, t, T: v[0, 1], r"b = 0, i = 1, and does not index an axis"),
    "slice": (lambda v, r, n, b, i, t, T: v[0:2], r"v\[0:2, \.\.\.\] if this is intended"),
    "normal": (lambda *_: trl.random.normal(2, 3), r"draws 2 numbers with mean 3"),
    "standard": (lambda *_: trl.random.normal(0, 1), r"draws 0 numbers with mean 1"),
    "uniform": (lambda *_: trl.random.uniform(1, 0), r"draws 1 numbers with low 0"),
    "overflow": (
        lambda *_: trl.constant(np.array([1e300, 1.0])),
        r"1e\+300 does not fit into float32",
    ),
    "number": (lambda v, r, n, b, i, t, T: r * 1e39, r"1e\+39 does not fit"),
    "half": (lambda *_: trl.constant(7e4, "f16"), r"70000 does not fit into float16"),
    "integer": (
        lambda *_: trl.constant(np.array([0.5, 16777217.0])),
        r"the integer 16777217 becomes 16777216 as float32",
    ),
    "time": (
        lambda v, r, n, b, i, t, T: r - 1700000001,
        r"the integer 1700000001 becomes 1700000000",
    ),
    "data": (
        lambda v, r, n, b, i, t, T: trl.data(np.array([123456789.0, 0.0]), domain=(b,)),
        r"the integer 123456789 becomes 123456792",
    ),
    "given": (lambda v, r, n, b, i, t, T: r[t > T], r"T < t never holds"),
    "last": (lambda v, r, n, b, i, t, T: r[t >= T], r"never holds(.|\n)*T - 1"),
    "chosen": (lambda v, r, n, b, i, t, T: trl.where(t < 0, r, 0.0), r"never holds"),
    "odd": (lambda v, r, n, b, i, t, T: r[(2 * t) % 4 == 1], r"never holds"),
    "branch": (
        lambda v, r, n, b, i, t, T: trl.like(r).__setitem__(t == T, 0.0),
        "the branch's condition T == t never holds",
    ),
    "unreachable": (_unreachable, "this branch of x defines no point"),
    "divided": (lambda v, r, n, b, i, t, T: n // 0, "integers have no // by zero"),
    "rest": (lambda v, r, n, b, i, t, T: n % np.zeros(3, int), "integers have no % by zero"),
}

USUAL: list[Callable[..., Any]] = [
    lambda v, r, n, b, i, t, T: r[b, i, t],
    lambda v, r, n, b, i, t, T: r[b, i, T - 1 - t] + r[b],
    lambda v, r, n, b, i, t, T: r[b, t, i + 0 * t] if False else r[b, i, 0] + r[0] + r[..., 0],
    lambda v, r, n, b, i, t, T: r[i, i, t] + r[t, t, t],
    lambda v, r, n, b, i, t, T: v[0, ...] + v[..., 0] + v[b, 0, t] + v[0, 0, 0],
    lambda v, r, n, b, i, t, T: v[b] + v[b, i] + v[b, trl.min(i + 1, 2)],
    lambda v, r, n, b, i, t, T: v[0:T, ...].sum(axis=0),
    lambda *_: trl.random.normal((2, 3)) + trl.random.normal(2).sum(),
    lambda *_: (
        trl.random.normal((2,), 3) + trl.random.normal(2, mean=3.0) + trl.random.normal((), 1)
    ),
    lambda *_: trl.random.uniform((2,), 0, 1) + trl.random.uniform(2, -1.0, 1.0),
    lambda *_: trl.constant(np.array([np.inf, np.nan, 0.1, 1e-300, 16777216.0, 1e30])),
    lambda *_: trl.constant(np.array([2**31 - 1, -(2**31)])),
    lambda *_: trl.constant(np.array([257.0]), "bf16"),
    lambda v, r, n, b, i, t, T: r[t > 5] * 2,  # true under other bounds
    lambda v, r, n, b, i, t, T: trl.where(t == T - 1, r, 0.0),
    lambda v, r, n, b, i, t, T: n // 2 + n % np.array([2, 1, 1]),
    lambda v, r, n, b, i, t, T: trl.where(np.array([0, 2]) != 0, n // np.array([0, 2]), 0),
    lambda v, r, n, b, i, t, T: trl.where(r > 0, r, -1e12) + 1e15,
    lambda v, r, n, b, i, t, T: r / 0,
]


def written(write: Callable[..., Any]) -> None:
    with trl.Context("b", "i", "t") as ctx:
        (b, _), (i, _), (t, T) = ctx.dims
        v = trl.tensor((3,), domain=(b, i, t)).named("v")
        r = trl.tensor((), domain=(b, i, t)).named("r")
        write(v, r, trl.value(t), b, i, t, T)


@pytest.mark.parametrize("name", DOUBTFUL)
def test_an_improbable_reading_warns_once(name: str) -> None:
    write, message = DOUBTFUL[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            written(write)
    ours = [w for w in caught if w.category is TimeRLWarning]
    assert len(caught) == len(ours) == 1, caught
    with pytest.warns(TimeRLWarning, match=message):
        written(write)
    lines, first = inspect.getsourcelines(write)
    assert ours[0].filename == __file__
    assert first <= ours[0].lineno < first + len(lines)


@pytest.mark.parametrize("write", USUAL, ids=range(len(USUAL)))
def test_what_is_usual_does_not(write: Callable[..., Any]) -> None:
    written(write)  # warnings are errors


def test_a_filter_silences_them() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=trl.errors.TimeRLWarning)
        for write, _ in DOUBTFUL.values():
            written(write)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: trl.random.normal(std=-1.0),
        lambda: trl.random.uniform((2,), 1.0, 0.0),
        lambda: trl.random.uniform(low=5.0),
    ],
)
def test_distributions_that_are_none(draw: Callable[[], Any]) -> None:
    with trl.Context("t"), pytest.raises(ShapeError, match="negative|is above"):
        draw()


def test_a_transposed_reading_is_what_it_says() -> None:
    values = np.arange(4, dtype=np.float32).reshape(2, 2)
    with trl.Context("i", "j") as ctx:
        (i, I), (j, J) = ctx.dims
        x = trl.data(values, domain=(i, j))
        with pytest.warns(TimeRLWarning, match="reads i at j, j at i"):
            ctx.output("y", x[j, i] * 1.0)
    np.testing.assert_array_equal(ctx.compile({I: 2, J: 2}).execute()["y"], values.T)
