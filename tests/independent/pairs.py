"""Comparison of two versions of a program: bitwise equal, equal up to rounding, or both refused."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import timerl_nb as trl
from tests.independent.draw import make
from tests.independent.programs import Program
from tests.independent.rewritings import Rewriting, axes_of, rewritten, with_streams
from tests.independent.verdict import NOISE, Trial


@dataclass(frozen=True)
class Pair:
    """Comparison of two versions of a program.

    Attributes:
        kind: "same", "both refused", "one refused" or "other values".
        what: The evidence.
        kinds: The rewritings of the second version.
    """

    kind: str
    what: str
    kinds: tuple[str, ...]

    @property
    def fine(self) -> bool:
        return self.kind in ("same", "both refused")


def compared(seed: int, count: int = 5, *, small: bool = True) -> Iterator[Pair]:
    """Compare the program of a seed with some rewritings; the first one only changes names."""
    random = Random(f"rewriting {seed}")
    program = with_streams(make(seed, small=small))
    want = run(program.code())
    for k in range(count):
        other = rewritten(program, random, names=not k)
        have = run(other.text)
        written = ", ".join(other.kinds)
        texts = f"\n{program.code()}\n# written otherwise ({written}):\n{other.text}"
        if isinstance(want, str) and isinstance(have, str):
            yield Pair("both refused", "", other.kinds)
        elif isinstance(want, str) or isinstance(have, str):
            refusal = want if isinstance(want, str) else have
            yield Pair("one refused", f"{refusal}{texts}", other.kinds)
        else:
            off = differing(program, want, have, other)
            kind = "other values" if off else "same"
            yield Pair(kind, f"{', '.join(off)}{texts}" if off else "", other.kinds)


def run(text: str) -> Any:
    """Run a program's text; return its result or the text of its refusal."""
    file = f"<program {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict[str, Any] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, file, "exec"), scope)
    except trl.errors.TimeRLError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        linecache.cache.pop(file, None)
    return scope["result"]


def differing(program: Program, want: Any, have: Any, other: Rewriting) -> list[str]:
    """Return the outputs with differences beyond the tolerance."""
    found: list[str] = []
    for name in program.outputs:
        x, y = np.asarray(want[name]), np.asarray(have[other.names[name]])
        y = _in_order(program, name, have, y, other)
        if (x.dtype, x.shape) != (y.dtype, y.shape):
            found.append(f"{name}: {x.dtype}{x.shape}, {y.dtype}{y.shape}")
        elif other.exact:
            if x.tobytes() != y.tobytes():
                found.append(f"{name}: other bits")
        elif not _are_near(x, y) and not _rounds(program, name, want, x, y):
            found.append(f"{name}:\n{x}\n{y}\n")
    return found


def _in_order(program: Program, name: str, have: Any, y: Any, other: Rewriting) -> Any:
    """Return an output with its axes, or its defined points, in the source's order of dimensions."""
    if not other.dims:
        return y
    places = axes_of(program, name, other.dims)
    if other.names[name] not in have.coordinates:
        return np.moveaxis(y, places, range(len(places)))
    by_name = [*have.coordinates[other.names[name]].values()]
    return y[np.lexsort([np.asarray(by_name[k]) for k in reversed(places)])]


def _are_near(x: Any, y: Any) -> bool:
    if x.dtype.kind != "f":
        return np.array_equal(x, y)
    scale = np.max(np.abs(x), initial=1.0, where=np.isfinite(x))
    return bool(np.allclose(x, y, rtol=1e-4, atol=2e-5 * scale, equal_nan=True))


def _rounds(program: Program, name: str, want: Any, x: Any, y: Any) -> bool:
    """Return whether rounding may explain a difference, judged by loops with perturbed values.

    The loops do not cover gradients, updates and draws.
    """
    given = {one: np.asarray(want[one]) for one in program.outputs}
    noises = enumerate((0.0, NOISE, NOISE))
    runs = [Trial(program, given).loops(noise=noise, seed=k)[0] for k, noise in noises]
    if name not in runs[0].tables:
        return False
    base, *others = (run.tables[name] for run in runs)
    points = list(base.points())
    if x.dtype.kind != "f":
        return any(not np.array_equal(base[p], one[p]) for p in points for one in others)
    moved = [np.abs(np.asarray(one[p]) - base[p]) for p in points for one in others]
    off = max((float(np.max(one, initial=0.0)) for one in moved), default=0.0)
    return bool(np.nanmax(np.abs(x - y), initial=0.0) <= 40 * off)
