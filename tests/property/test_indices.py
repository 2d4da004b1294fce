"""Random index expressions, nested four deep: correct values and gradients, or a refusal in time.

Plain loops over NumPy arrays are the reference. A program's index is a text, evaluated on symbols
and on integers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import timerl_nb as trl
from timerl_nb.base.errors import CeilingError, TimeRLError

FUZZ = "TIMERL_FUZZ" in os.environ
COUNT = int(os.environ.get("TIMERL_FUZZ", "80")) // 10  # each takes seconds
FIRST = int(os.environ.get("TIMERL_SEED", "0"))
SECONDS = 90  # of CPU time, so that other load hardly matters
NAMES = ("b", "i", "t")
SIZES = tuple(product((1, 2, 3), (1, 2, 4, 8), (1, 3, 5, 6)))


def expression(draw: Random, depth: int) -> str:
    """Return an integer expression of the symbols."""
    if depth == 0 or draw.random() < 0.15:
        return draw.choice((*NAMES, *NAMES, "B", "I", "T", str(draw.randint(0, 3))))
    left = expression(draw, depth - 1)
    kind = draw.choice(("+", "-", "min", "max", "%", "//"))
    if kind in ("%", "//"):
        return f"({left} {kind} {draw.randint(1, 6)})"
    right = expression(draw, depth - 1)
    return f"{kind}({left}, {right})" if len(kind) > 1 else f"({left} {kind} {right})"


def inside(draw: Random, length: str) -> str:
    """Return an index below `length`, usually nested."""
    index = expression(draw, draw.choice((0, 1, 2, 2)))
    return f"max(min({index}, {length} - 1), 0)"


def reading(draw: Random) -> str:
    """Return a point of x, or a sum over a slice of one of its dimensions."""
    entries = [inside(draw, length) for length in ("B", "I", "T")]
    if draw.random() < 0.4:
        along = draw.randrange(3)
        first, last = entries[along], inside(draw, "BIT"[along])
        entries[along] = draw.choice(
            (
                f"min({first}, {last}) : max({first}, {last}) + 1",
                f"{first} : {'BIT'[along]}",
                f"0 : {last} + 1",
            )
        )
        return f"x[{', '.join(entries)}].sum(axis=0)"
    return f"x[{', '.join(entries)}]"


def condition(draw: Random) -> str:
    relation = draw.choice(("<", "<=", "==", ">"))
    return f"{draw.choice(NAMES)} + {expression(draw, 2)} {relation} {expression(draw, 1)}"


def value(draw: Random) -> str:
    read = reading(draw)
    kind = draw.random()
    if kind < 0.3:
        return f"where({condition(draw)}, {read}, {reading(draw)})"
    return f"{read} * {reading(draw)}" if kind < 0.5 else read


@contextmanager
def at_most(seconds: int) -> Generator[None]:
    def late(*_: object) -> None:
        raise AssertionError(f"not done in {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.mark.filterwarnings("ignore::timerl_nb.base.errors.TimeRLWarning")
@pytest.mark.some_of("seed", 4)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_an_index_is_right_or_refused(seed: int) -> None:
    draw = Random(seed)
    text, sizes = value(draw), draw.choice(SIZES)
    given = f"{text} at B, I, T = {sizes}"
    x = np.random.default_rng(seed).uniform(0.5, 1.5, sizes).astype(np.float32)
    try:
        with at_most(SECONDS):
            found = executed(text, x)
    except TimeRLError as error:
        if not FUZZ or not isinstance(error, CeilingError):
            raise AssertionError(f"{given}: {error}") from None
        pytest.skip(f"too hard for isl, and refused: {given}")
    except Exception as error:
        raise AssertionError(given) from error
    want, gradient = by_loops(text, x)
    np.testing.assert_allclose(found["y"], want, rtol=1e-4, err_msg=given)
    np.testing.assert_allclose(found["gradient"], gradient, rtol=1e-4, atol=1e-5, err_msg=given)


def executed(text: str, x: np.ndarray) -> dict[str, np.ndarray]:
    """Return y, and the gradient of the sum of its squares, by the compiler."""
    with trl.Context(*NAMES) as ctx:
        (b, B), (i, I), (t, T) = ctx.dims
        words = {"b": b, "i": i, "t": t, "B": B, "I": I, "T": T}
        words |= {"min": trl.min, "max": trl.max, "where": trl.where}
        words["x"] = tensor = trl.data(x, domain=(b, i, t)).named("x")
        y = (0.0 * tensor + eval(text, words)).named("y")
        ctx.output("y", y)
        ctx.output("gradient", trl.grad((y * y).sum(over=(b, i, t)), tensor))
    result = ctx.compile(dict(zip("BIT", x.shape, strict=True))).execute(progress=False)
    return {name: np.asarray(result[name]) for name in ("y", "gradient")}


def by_loops(text: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the same by loops over points."""
    sizes = dict(zip("BIT", x.shape, strict=True))
    exact = x.astype(np.float64)
    words = {"min": min, "max": max, "where": lambda c, x, y: x if c else y}
    y, gradient = np.zeros(x.shape), np.zeros(x.shape)
    for point in np.ndindex(*x.shape):
        names = {**sizes, **dict(zip(NAMES, point, strict=True)), **words}
        y[point] = eval(text, {**names, "x": exact})
        gradient += 2 * y[point] * eval(text, {**names, "x": Dual(exact)}).slope.reshape(x.shape)
    return y, gradient


class Dual:
    """Values with derivatives by every element of `x` (forward mode)."""

    def __init__(self, values: np.ndarray, slope: np.ndarray | None = None) -> None:
        self.values = values
        self.slope = np.eye(values.size).reshape(*values.shape, -1) if slope is None else slope

    def __getitem__(self, key: Any) -> Dual:
        return Dual(self.values[key], self.slope[key])

    def sum(self, axis: int) -> Dual:
        return Dual(self.values.sum(axis=axis), self.slope.sum(axis=axis))

    def __mul__(self, other: Dual) -> Dual:
        return Dual(
            self.values * other.values, self.slope * other.values + other.slope * self.values
        )
