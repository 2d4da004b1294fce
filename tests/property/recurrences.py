"""Random valid recurrences over one or two dimensions with a legal execution order.

A recurrence is data: index expressions as texts, evaluated by `build` on symbols and by `order` on
integers. `order` walks the points one by one, so a recurrence is valid if and only if `order`
returns an order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import timerl_nb as trl

WEIGHTS = (0.3, -0.7, 0.5)
Point = tuple[int, ...]


@dataclass(frozen=True)
class Recurrence:
    """`s[p] = x[p] + sum of w * sin(s[read of p])`, with other reads under other conditions.

    Attributes:
        dims: Sizes of dimensions, by name.
        conditions: Conditions of branches, as texts; the first that holds applies.
        reads: Index texts of reads, by branch; the last branch covers all other points.
        is_reversed: The branches are assigned last to first.
        is_linear: Leave out the sine.
    """

    dims: dict[str, int]
    conditions: tuple[str, ...]
    reads: tuple[tuple[tuple[str, ...], ...], ...]
    is_reversed: bool = False
    is_linear: bool = False

    def __str__(self) -> str:
        lines = [f"{self.dims}, reversed {self.is_reversed}, linear {self.is_linear}"]
        for condition, reads in zip((*self.conditions, "else"), self.reads, strict=True):
            text = " ".join("s[" + ", ".join(read) + "]" for read in reads)
            lines.append(f"  {condition}: {text or 'x'}")
        return "\n".join(lines)

    def _evaluated(self, text: str, at: dict[str, Any]) -> Any:
        return eval(f"entry[{text}]", {**at, "entry": _Entry()})

    def sources(self, point: Point) -> list[list[Point]] | None:
        """Return the points read at each point; None if one is outside."""
        at: dict[str, Any] = dict(zip(self.dims, point, strict=True), min=min, max=max)
        holds = [bool(self._evaluated(text, at)) for text in self.conditions]
        found: list[list[Point]] = []
        for read in self.reads[[*holds, True].index(True)]:
            ranges: list[range] = []
            for text, size in zip(read, self.dims.values(), strict=True):
                one = self._evaluated(text, at)
                along = (
                    range(one.start, one.stop) if isinstance(one, slice) else range(one, one + 1)
                )
                if isinstance(one, slice) and one.stop < one.start:
                    return None
                if along and (along.start < 0 or along.stop > size):
                    return None
                ranges.append(along)
            found.append(list(itertools.product(*ranges)))
        return found

    def order(self) -> dict[Point, list[list[Point]]] | None:
        """Return all points in a valid order, each with its sources; None without a valid order."""
        every = list(itertools.product(*map(range, self.dims.values())))
        reads: dict[Point, list[list[Point]]] = {}
        for point in every:
            found = self.sources(point)
            if found is None:
                return None
            reads[point] = found
        done: dict[Point, list[list[Point]]] = {}
        while len(done) < len(every):
            ready = [p for p in every if p not in done and _flat(reads[p]) <= done.keys()]
            if not ready:
                return None
            done |= {p: reads[p] for p in ready}
        return done

    def value_and_gradient(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return s, and the gradient of the sum of its squares, in double precision."""
        order = self.order()
        assert order is not None
        s, sums = np.zeros(x.shape), dict[tuple[Point, int], float]()
        for p, reads in order.items():
            s[p] = x[p]
            for k, points in enumerate(reads):
                sums[p, k] = sum(s[q] for q in points)
                s[p] += WEIGHTS[k] * (sums[p, k] if self.is_linear else np.sin(sums[p, k]))
        g = 2 * s
        for p, reads in reversed(order.items()):
            for k, points in enumerate(reads):
                slope = 1.0 if self.is_linear else np.cos(sums[p, k])
                for q in points:
                    g[q] += g[p] * WEIGHTS[k] * slope
        return s, g

    def data(self) -> np.ndarray:
        return np.random.default_rng(0).normal(size=tuple(self.dims.values()))

    def build(self, *, gradient: bool) -> tuple[trl.Context, dict[str, int]]:
        """Return the program and its bounds."""
        with trl.Context(*self.dims) as ctx:
            domain = tuple(var for var, _ in ctx.dims)
            at: dict[str, Any] = dict(zip(self.dims, domain, strict=True))
            at |= {"min": trl.min, "max": trl.max}
            x = trl.data(self.data().astype("f"), domain=domain)
            s = trl.tensor((), domain=domain)
            branches: list[tuple[Any, Any]] = []
            rest: Any = None
            for k, reads in enumerate(self.reads):
                here = self._evaluated(self.conditions[k], at) if k < len(self.reads) - 1 else None
                both = here if rest is None else rest if here is None else here & rest
                if here is not None:
                    rest = ~here if rest is None else rest & ~here
                branches.append((both, reads))
            for condition, reads in reversed(branches) if self.is_reversed else branches:
                value = x
                for k, read in enumerate(reads):
                    u = s[tuple(self._evaluated(text, at) for text in read)]
                    if any(":" in text for text in read):
                        u = u.sum(axis=tuple(range(u.rank)))
                    value = value + WEIGHTS[k] * (u if self.is_linear else u.sin())
                s[condition] = value
            ctx.output("s", s)
            if gradient:
                ctx.output("g", trl.grad(s.square().sum(over=domain), x))
        return ctx, {str(bound): self.dims[str(var)] for var, bound in ctx.dims}


class _Entry:
    """Stand-in object that returns its index."""

    def __getitem__(self, index: Any) -> Any:
        return index


def _flat(reads: list[list[Point]]) -> set[Point]:
    return {point for points in reads for point in points}


def _flattened(draw: Random, names: Sequence[str], sizes: Sequence[int]) -> Iterator[Any]:
    """Yield one read at a flattened position, and split it by division."""
    total = int(np.prod(sizes))
    at = names[0] if len(names) == 1 else f"{sizes[1]} * {names[0]} + {names[1]}"

    def index(position: str) -> tuple[str, ...]:
        if len(names) == 1:
            return (position,)
        return f"({position}) // {sizes[1]}", f"({position}) % {sizes[1]}"

    back, ahead = draw.choice([1, 1, 2, 3]), draw.choice([1, 1, 2])
    yield index(f"{at} - {back}")
    yield index(f"max({at} - {back}, {draw.choice([0, 0, 1])})")
    yield index(f"min(max({at} - {back}, 0), {total - 1})")
    yield index(f"{at} + {ahead}")
    yield index(f"min({at} + {ahead}, {draw.choice([total - 1, total - 1, total - 2])})")
    yield index(draw.choice([f"({at}) // 2", f"({at}) // 3", f"({at} - 1) // 2"]))
    yield index(draw.choice([f"({at}) % 2", f"({at} - 1) % 2"]))
    yield index(f"{total - 1} - ({at})")
    yield index(f"min({at} + 1, max({at} - 1, {draw.randrange(total)}))")


def _by_dimension(draw: Random, name: str, size: int) -> str:
    near = [
        name,
        f"{name} - 1",
        f"{name} + 1",
        f"max({name} - 1, 0)",
        f"min({name} + 1, {size - 1})",
    ]
    far = [f"{size - 1} - {name}", str(draw.randrange(size)), f"{name} // 2"]
    slices = [f"0:{name}", f"max({name} - 2, 0):{name}", f"{name} + 1:min({name} + 3, {size})"]
    return draw.choice([*near, *near, *far, *slices])


def _read(draw: Random, names: Sequence[str], sizes: Sequence[int]) -> tuple[str, ...]:
    if draw.random() < 0.6:
        return draw.choice(list(_flattened(draw, names, sizes)))
    return tuple(_by_dimension(draw, d, n) for d, n in zip(names, sizes, strict=True))


def drawn(seed: int) -> Recurrence:
    """Return the first valid recurrence of a seed."""
    draw = Random(seed)
    while True:
        names = draw.choice([("a",), ("c", "j"), ("j", "c")])
        sizes = [draw.randint(3, 6)] if len(names) == 1 else [draw.randint(2, 4) for _ in names]
        position = names[0] if len(names) == 1 else f"{sizes[1]} * {names[0]} + {names[1]}"
        conditions: list[str] = []
        for _ in range(draw.choice([1, 1, 2])):
            of, size = draw.choice(
                [(position, int(np.prod(sizes)))] * 2 + list(zip(names, sizes, strict=True))
            )
            number = draw.randint(1, size - 1)
            conditions.append(draw.choice([f"{of} < {number}", f"{of} >= {number}"]))

        more = [
            tuple(_read(draw, names, sizes) for _ in range(draw.choice([1, 1, 2])))
            for _ in conditions
        ]
        found = Recurrence(
            dict(zip(names, sizes, strict=True)),
            tuple(conditions),
            ((), *more),
            draw.random() < 0.5,
            draw.random() < 0.3,
        )
        order = found.order()
        if order is not None and any(map(_flat, order.values())):
            return found
