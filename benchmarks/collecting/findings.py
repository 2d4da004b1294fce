"""Findings F.1 to F.4 of *Optimizing Data Collection*, from our measurements, beside its figures.

A finding holds where the least ratio is what it asks for, does not where the greatest is less, and is undecided between.
C++ is EnvPool here, and CUDA are blocks: all steps of some environments before the next ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.collecting.sweep import Measured
from benchmarks.collecting.table import BRAX
from benchmarks.finding import Finding, Spread

LOOPS: Final = ("Gymnasium, a loop + PyTorch", "Gymnasium, a loop")
EAGER, STEPS, SCAN = "PyTorch, batched", "JAX, a call a step", "JAX, scan"
OURS: Final = "ours, scan"
NO_GPU: Final = "batches run on the few cores of a CPU"


class Ratio(Spread):
    """A ratio of speeds."""

    @classmethod
    def of(cls, a: Measured, b: Measured) -> Ratio:
        """Round by round where both were measured by turns; the outermost ones elsewhere."""
        if a.cell == b.cell:
            each = [x / y for x, y in zip(a.speeds, b.speeds, strict=True)]
            return cls(median(each), min(each), max(each))
        ends = min(a.speeds) / max(b.speeds), max(a.speeds) / min(b.speeds)
        return cls(a.median / b.median, *ends)

    def __str__(self) -> str:
        return f"{self.median:.3g} x ({self.least:.3g}–{self.greatest:.3g})"


@dataclass(frozen=True)
class Rows:
    """All that was measured."""

    all: Sequence[Measured]

    def where(self, name: str, **sizes: int) -> list[Measured]:
        def fits(m: Measured) -> bool:
            return all(getattr(m.cell, key) == value for key, value in sizes.items())

        return [m for m in self.all if m.name == name and m.speeds and fits(m)]

    def best(self, name: str, **sizes: int) -> Measured | None:
        """Its plateau: where it is fastest."""
        return max(self.where(name, **sizes), key=lambda m: m.median, default=None)

    def ends(self, name: str, **sizes: int) -> tuple[Measured, Measured] | None:
        """Of the fewest and the most steps in a batch, with the same environments."""
        found = self.where(name, **sizes)
        for envs in sorted({m.cell.envs for m in found}):
            some = sorted((m for m in found if m.cell.envs == envs), key=lambda m: m.cell.steps)
            if len({m.cell.steps for m in some}) > 1 and some[0].cell.steps == 1:
                return some[0], some[-1]
        return None


def found(measured: Sequence[Measured]) -> list[Finding]:
    """Those that can be said something about."""
    rows = Rows(measured)
    return [*simulators(rows), *vectorised(rows), *called(rows), *fused(rows), *complex_ones(rows)]


def _said(
    number: str, what: str, ratio: Ratio, needed: float, paper: str, on: str, because: str
) -> Finding:
    verdict = "undecided"
    if ratio.least >= needed:
        verdict = "holds"
    elif ratio.greatest < needed:
        verdict = "does not hold"
    why = because if verdict == "does not hold" else ""
    asked = f"{what} (at least {needed:g} x)"
    return Finding(number, asked, str(ratio), "", paper, verdict, on, why)


def _at(m: Measured) -> str:
    return f"N = {m.cell.envs:,}, K = {m.cell.steps:,}"


def simulators(rows: Rows) -> Iterator[Finding]:
    """Fig. 2: CartPole beside simulators of rigid bodies, each at its plateau; alike is within ten times."""
    one = rows.best(SCAN, width=0, state=0)
    for name in BRAX:
        other = rows.best(name, width=0, state=0)
        if one is None or other is None:
            continue
        ratio, verdict, why = Ratio.of(one, other), "undecided", ""
        if ratio.greatest <= 10:
            verdict = "holds"
        elif ratio.least > 10:
            verdict, why = "does not hold", "a step of bodies with joints computes far more"
        on = f"{_at(one)}; {_at(other)}"
        what = f"CartPole ({SCAN}) over {name} (at most 10 x)"
        yield Finding("Fig. 2", what, str(ratio), "", "similar", verdict, on, why)


def vectorised(rows: Rows) -> Iterator[Finding]:
    """F.1: what batches gain over an object for each environment, each at its plateau."""
    loop = next((m for name in LOOPS if (m := rows.best(name, width=64, state=0))), None)
    if loop is None:
        return
    asked = (
        (EAGER, 100, "up to 1,024 x"),
        (SCAN, 100, "up to 1,024 x"),
        (OURS, 100, "–"),
        ("EnvPool", 2, "C++ 4 x"),
    )
    for name, needed, paper in asked:
        if (one := rows.best(name, width=64, state=0)) is not None:
            on = f"{_at(one)}; {loop.name}: {_at(loop)}"
            because = "inference takes turns with it" if name == "EnvPool" else NO_GPU
            yield _said(
                "F.1", f"{name} over {loop.name}", Ratio.of(one, loop), needed, paper, on, because
            )


def called(rows: Rows) -> Iterator[Finding]:
    """F.2: calls of a batch, and what fewer of them gain."""
    for name in (EAGER, SCAN, OURS):
        if (ends := rows.ends(name, width=64, state=0)) is None:
            continue
        one, many = ends
        on = f"N = {one.cell.envs:,}, K 1 to {many.cell.steps:,}"
        if one.calls is not None and many.calls is not None:
            eager = name == EAGER
            grown = many.calls / max(1, one.calls)
            expected = grown == many.cell.steps if eager else many.calls == one.calls
            yield Finding.of(
                "F.2",
                f"calls of a batch, {name}",
                f"{one.calls:,} to {many.calls:,}",
                "",
                "grow with K" if eager else "do not grow with K",
                expected,
                on,
            )
        yield _said(
            "F.2",
            f"more steps in a batch, {name}",
            Ratio.of(many, one),
            2,
            "1 x" if name == EAGER else "53.8 x",
            on,
            "each step is calls of its own" if name == EAGER else "calls take little of the time",
        )
        if name != EAGER:
            eager = [m for m in rows.where(EAGER, state=0) if m.cell == many.cell]
            for other in eager:
                ratio = Ratio.of(many, other)
                yield _said(
                    "F.2",
                    f"{name} over {EAGER}",
                    ratio,
                    4,
                    "13.4 x",
                    _at(many),
                    "calls take little",
                )
        for m in ends:
            parts = dict(m.split)
            total = sum(parts.get(p, 0) for p in ("python", "simulator", "backend", "waiting"))
            if total and name != EAGER:
                python, backend = 100 * parts["python"] / total, 100 * parts["backend"] / total
                few = m.cell.steps == 1
                yield Finding.of(
                    "F.2",
                    f"Python and calls, of the time, {name}",
                    f"{python + backend:.0f} % (Python {python:.0f} %)",
                    "",
                    "87 % (Python 57 %)" if few else "little",
                    (python + backend > 50) == few,
                    _at(m),
                )


def fused(rows: Rows) -> Iterator[Finding]:
    """F.3: launches of a batch, and what fewer of them gain: simulation alone."""
    for name in (SCAN, OURS):
        ends = rows.ends(name, width=64, state=0)
        if ends and ends[0].launches is not None and ends[1].launches is not None:
            grown = ends[1].launches / max(1, ends[0].launches)
            yield Finding.of(
                "F.3",
                f"kernels of a batch, {name}",
                f"{ends[0].launches:,} to {ends[1].launches:,}",
                "",
                "grow with K",
                grown > ends[1].cell.steps / 4,
                f"N = {ends[0].cell.envs:,}, K 1 to {ends[1].cell.steps:,}",
            )
    for name in (SCAN, OURS):
        if (ends := rows.ends(name, width=0, state=0)) is not None:
            yield _said(
                "F.3",
                f"more steps in a batch, random actions, {name}",
                Ratio.of(ends[1], ends[0]),
                2,
                "83.3 x",
                f"N = {ends[0].cell.envs:,}, K 1 to {ends[1].cell.steps:,}",
                "calls take little of the time",
            )
    small = rows.where("JAX, blocks", state=1, compute=1)
    for m in small:
        for name, paper in (("JAX, a call a step", "11.3 x"), ("JAX, one call", "112.8 x")):
            for other in (o for o in rows.where(name) if o.cell == m.cell):
                why = "a cache holds the whole state either way"
                yield _said("F.3", f"blocks over {name}", Ratio.of(m, other), 2, paper, _at(m), why)


def complex_ones(rows: Rows) -> Iterator[Finding]:
    """F.4: what blocks gain over a call a step, over S, C and N."""
    gains: dict[tuple[int, int, int], Ratio] = {}
    for pair in (("JAX, blocks", "JAX, a call a step"), ("ours, blocks", "ours")):
        for m in rows.where(pair[0]):
            for other in (o for o in rows.where(pair[1]) if o.cell == m.cell):
                key = m.cell.envs, m.cell.state, m.cell.compute
                gains[key] = Ratio.of(m, other)
        yield from _compared(gains, " over ".join(pair))
        gains = {}


def _compared(gains: dict[tuple[int, int, int], Ratio], of: str) -> Iterator[Finding]:
    def against(
        what: str, high: tuple[int, int, int], low: tuple[int, int, int], paper: str, why: str
    ) -> Finding:
        a, b = gains[high], gains[low]
        ratio = Ratio(a.median / b.median, a.least / b.greatest, a.greatest / b.least)
        on = f"N, S, C = {high} over {low}: {a.median:.2f} x over {b.median:.2f} x"
        return _said("F.4", f"{what}, gain of {of}", ratio, 1.2, paper, on, why)

    for envs in sorted({n for n, _, _ in gains}):
        plain = sorted(s for n, s, c in gains if n == envs and c == 1)
        if len(plain) > 1:
            yield against(
                "more state",
                (envs, plain[-1], 1),
                (envs, plain[0], 1),
                "16 x to 1,024 x",
                "the state is in a cache as it is",
            )
        for state in plain:
            worked = sorted(c for n, s, c in gains if (n, s) == (envs, state))
            if len(worked) > 1:
                yield against(
                    "less work",
                    (envs, state, worked[0]),
                    (envs, state, worked[-1]),
                    "1,024 x to 1 x",
                    "memory is no bottleneck with little work either",
                )
    for state in sorted({s for _, s, _ in gains}):
        counts = sorted(n for n, s, c in gains if (s, c) == (state, 1))
        if len(counts) > 1:
            a, b = gains[counts[-1], state, 1], gains[counts[0], state, 1]
            ratio = Ratio(a.median / b.median, a.least / b.greatest, a.greatest / b.least)
            same = ratio.least < 1.2 and ratio.greatest > 1 / 1.2
            verdict = "holds" if 1 / 1.2 < ratio.least <= ratio.greatest < 1.2 else "undecided"
            if not same:
                verdict = "does not hold"
            why = "the more environments, the less of them a cache holds" if not same else ""
            on = f"S = {state}: {b.median:.2f} x at N = {counts[0]:,}, {a.median:.2f} x at {counts[-1]:,}"
            yield Finding(
                "F.4",
                f"the same for every N, gain of {of}",
                str(ratio),
                "",
                "1 x",
                verdict,
                on,
                why,
            )
