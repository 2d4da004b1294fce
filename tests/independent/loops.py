"""Programs as plain loops: one dictionary per tensor, filled on demand, point by point.

A `Problem` is a point outside a tensor, a point with no branch or several, or a point that depends
on itself. The compiler must refuse every program with a problem.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

Point = tuple[int, ...]
Rule = Callable[..., Any]


class Problem(Exception):
    """Reason for a missing value; `refusal` is the name of the compiler's error."""

    refusal = ""


class Outside(Problem):
    refusal = "ReadError"


class Uncovered(Problem):
    refusal = "BranchError"


class Overlap(Problem):
    refusal = "BranchError"


class Circle(Problem):
    refusal = "ScheduleError"


class Table(ABC):
    """Values of one tensor by point."""

    def __init__(self, loops: Loops, name: str, sizes: Callable[[], Point]) -> None:
        self.loops, self.name, self.sizes = loops, name, sizes
        self.where: Rule | None = None
        self.values: dict[Point, Any] = {}
        self.failed: dict[Point, Problem] = {}
        self.active: set[Point] = set()
        loops.tables[name] = self

    @abstractmethod
    def rule(self, point: Point) -> Any:
        """Compute the value at a point."""

    def points(self) -> Iterator[Point]:
        for point in product(*(range(size) for size in self.sizes())):
            if self.where is None or self.where(*point):
                yield point

    def __getitem__(self, key: Any) -> Any:
        point: Point = key if isinstance(key, tuple) else (key,)
        if point in self.values:
            return self.values[point]
        if point in self.failed:
            raise self.failed[point]
        try:
            inside = all(0 <= at < size for at, size in zip(point, self.sizes(), strict=True))
            if not inside or (self.where is not None and not self.where(*point)):
                raise Outside(f"{self.name}{list(point)}")
            if point in self.active:
                raise Circle(f"{self.name}{list(point)}")
            self.active.add(point)
            try:
                value = self.rule(point)
            finally:
                self.active.discard(point)
        except Problem as problem:
            self.failed[point] = problem
            raise
        self.values[point] = value = self.loops.settled(self.name, point, value)
        return value

    def cut(self, *entries: int | range) -> Any:
        """Return the values in ranges of points, with a leading axis per range."""
        lengths = [len(e) for e in entries if isinstance(e, range)]
        cells = [
            np.asarray(self[point])
            for point in product(*(e if isinstance(e, range) else (e,) for e in entries))
        ]
        one = cells[0] if cells else np.zeros(self.loops.shapes[self.name])
        return np.array(cells, one.dtype).reshape(*lengths, *one.shape)


class Equation(Table):
    """Tensor that is one function of its point."""

    function: Rule

    def rule(self, point: Point) -> Any:
        return self.function(*point)


class Given(Table):
    """Tensor with fixed values: data, or draws of the compiled program."""

    array: Any

    def rule(self, point: Point) -> Any:
        return self.array[point]


class Merge(Table):
    """Tensor defined by branches."""

    def __init__(self, loops: Loops, name: str, sizes: Callable[[], Point]) -> None:
        super().__init__(loops, name, sizes)
        self.branches: list[Callable[[], Iterator[tuple[Point, Point, Rule]]]] = []
        self.owners: dict[Point, list[tuple[Point, Rule]]] | None = None

    def at(self, left: Rule, sizes: Callable[[], Point], where: Rule | None = None) -> Any:
        """Add a branch `x[left(point)] = rule(point)` for the points of a value."""

        def entered(rule: Rule) -> Rule:
            def pairs() -> Iterator[tuple[Point, Point, Rule]]:
                for point in product(*(range(size) for size in sizes())):
                    if where is None or where(*point):
                        yield left(*point), point, rule

            self.branches.append(pairs)
            return rule

        return entered

    def owned(self) -> dict[Point, list[tuple[Point, Rule]]]:
        if self.owners is None:
            self.owners = {point: [] for point in self.points()}
            for pairs in self.branches:
                for target, point, rule in pairs():
                    if target in self.owners:  # points outside are dropped
                        self.owners[target].append((point, rule))
        return self.owners

    def rule(self, point: Point) -> Any:
        found = self.owned()[point]
        if not found:
            raise Uncovered(f"{self.name}{list(point)}")
        if len(found) > 1:
            raise Overlap(f"{self.name}{list(point)}")
        ((source, rule),) = found
        return rule(*source)


class Loops:
    """One run of a program.

    Args:
        given: Values chosen by the compiled program, by name: draws, parameters.
        noise: Multiply each value by about 1 ± this, to estimate rounding errors.
        moved: Names whose floating-point values move along `direction`, and the step length.
        way: Index of the direction.
        held: Values of `detach` in the unperturbed run.
        seed: Seed of the noise.
    """

    def __init__(
        self,
        given: Mapping[str, Any] | None = None,
        noise: float = 0.0,
        moved: Mapping[str, float] | None = None,
        held: dict[Any, Any] | None = None,
        seed: int = 0,
        way: int = 0,
    ) -> None:
        self.tables: dict[str, Table] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._given, self._noise, self._moved = given or {}, noise, moved or {}
        self._random = np.random.default_rng(seed)
        self._side = 1 if seed % 2 else -1
        self._way = way
        self.kept: dict[Any, Any] = {}
        self._held = held

    # --- program interface -----------------------------------------------------------------------

    def data(self, name: str, shape: Sequence[int], sizes: Any, array: Any) -> Table:
        self.shapes[name] = tuple(shape)
        table = Given(self, name, sizes)
        table.array = np.asarray(array)
        if table.array.dtype.kind == "f":
            table.array = table.array.astype(np.float64)
        return table

    def found(self, name: str, shape: Sequence[int], sizes: Any) -> Table:
        """Return values from the compiled program; zeros before its run."""
        found = self._given.get(name)
        return self.data(
            name, shape, sizes, np.zeros((*sizes(), *shape)) if found is None else found
        )

    def equation(self, name: str, shape: Sequence[Any], sizes: Any, where: Any = None) -> Any:
        def entered(function: Rule) -> Table:
            self.shapes[name] = tuple(s for s in shape if isinstance(s, int))
            table = Equation(self, name, sizes)
            table.function, table.where = function, where
            return table

        return entered

    def merge(self, name: str, shape: Sequence[int], sizes: Any) -> Merge:
        self.shapes[name] = tuple(shape)
        return Merge(self, name, sizes)

    def detached(self, site: str, point: Point, value: Any) -> Any:
        """Return the value of the unperturbed run: no derivative passes."""
        self.kept[site, point] = value
        return value if self._held is None else self._held[site, point]

    def near(self, value: Any) -> Any:
        """Return the operand of a discontinuous operation, such as a comparison, slightly shifted in a perturbed run."""
        value = np.asarray(value)
        if not self._noise or value.dtype.kind != "f":
            return value
        off = self._noise * self._random.uniform(0.5, 1, value.shape) * (1 + np.abs(value))
        return value + off * self._side

    # --- perturbations ---------------------------------------------------------------------------

    def settled(self, name: str, point: Point, value: Any) -> Any:
        value = np.asarray(value)
        assert value.shape == self.shapes[name], f"{name}: {value.shape}"
        if value.dtype.kind != "f":
            return value
        if self._noise:
            value = value * (1 + self._noise * self._random.uniform(-1, 1, value.shape))
        if name in self._moved:
            value = value + self._moved[name] * direction(name, point, value.shape, self._way)
        return value


def direction(name: str, point: Point, shape: Sequence[int], seed: int) -> Any:
    """Return the direction of a tensor's perturbation at a point."""
    entropy = [seed, *name.encode(), *point]
    return np.random.default_rng(entropy).choice([-1.0, -0.5, 0.5, 1.0], tuple(shape))


# --- functions that NumPy lacks
# --------------------------------------------------------------------


def discounted(x: Any, gamma: float, axis: int = 0) -> Any:
    """Sum of gamma**k * x[k]."""
    rows = np.moveaxis(np.asarray(x, float), axis, 0)
    total = np.zeros(rows.shape[1:])
    for k in range(len(rows)):
        total = total + gamma**k * rows[k]
    return total


def scan(x: Any, factor: Any, axis: int = 0, reverse: bool = False) -> Any:
    """y[k] = factor[k] * y[k - 1] + x[k], from the far end if `reverse`."""
    x, factor = np.broadcast_arrays(np.asarray(x, float), np.asarray(factor, float))
    rows, by = np.moveaxis(x, axis, 0), np.moveaxis(factor, axis, 0)
    out = np.zeros(rows.shape)
    before = np.zeros(rows.shape[1:])
    order = range(len(rows))
    for count, k in enumerate(reversed(order) if reverse else order):
        out[k] = before = rows[k] + (by[k] * before if count else 0)
    return np.moveaxis(out, 0, axis)


def softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def logsumexp(x: Any, axis: int = -1) -> Any:
    return np.log(np.sum(np.exp(x), axis=axis))


def erf(x: Any) -> Any:
    """Error function by Gauss quadrature of its integral: exact to rounding for |x| < 4."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    x = np.asarray(x, float)
    at = x[..., None] * (nodes + 1) / 2
    return np.sum(np.exp(-at * at) * weights, axis=-1) * x / np.sqrt(np.pi)


def stacked(cells: list[Any], shape: Sequence[int]) -> Any:
    """Stack the operands of a reduction over symbolic dimensions along axis 0."""
    return np.array(cells) if cells else np.zeros((0, *shape))


def first(done: Table, most: int) -> int:
    """Return the length of a dynamic bound: up to the first point with `done`."""
    return next((at + 1 for at in range(most) if done[at]), most)


def put(x: Any, at: Any, value: Any, axis: int) -> Any:
    """Return an array with one position of an axis replaced."""
    rows = np.moveaxis(np.array(x), axis, 0)
    rows[int(at)] = value
    return np.moveaxis(rows, 0, axis)
