"""Readings that are sound and improbable: accepted, with a warning at the user's line.

Each check knows one slip that is often made, and says what was probably meant and how to say that
the reading is meant. What cannot be right is an error, and not here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import warn
from timerl_nb.compiler.isl.operation_limit import TooMuchWork, at_most
from timerl_nb.compiler.isl.sets_and_relations import Set
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Cond, Entry, Lin

_EXACT = 2.0**53  # beyond it, float64 itself holds no odd integers
_OPERATIONS = 100_000  # that isl may spend on a doubt


def warn_permuted_index(name: str, entries: dict[str, Entry]) -> None:
    """`r[i, b, t]` of a tensor over (b, i, t): the variables themselves, in another order."""
    domain = tuple(entries)
    read = [e.as_symbol if isinstance(e, Lin) else None for e in entries.values()]
    if read != list(domain) and sorted(map(str, read)) == sorted(domain):
        moved = ", ".join(f"{d} at {s}" for d, s in zip(domain, read, strict=True) if d != s)
        warn(
            f"{name} varies over ({', '.join(domain)}): {name}[{', '.join(map(str, read))}] reads "
            f"{moved}.",
            hint=f"indices stand in the order of the domain: {name}[{', '.join(domain)}] is the "
            "current point. If a transposed reading is meant, silence this warning.",
        )


def fewer(name: str, domain: Domain, rank: int, given: tuple[Any, ...]) -> None:
    """`v[0]` of a tensor that has more dimensions than indices, and an axis that may be meant."""
    if rank and len(given) < len(domain) and not any(e is Ellipsis for e in given):
        if any(map(_is_position, given)):
            shown = ", ".join(map(_text, given))
            warn(
                f"{name} varies over ({', '.join(domain)}): {name}[{shown}] is at "
                f"{', '.join(f'{d} = {_text(e)}' for d, e in zip(domain, given, strict=False))}, and "
                f"the axes are whole.",
                hint=f"{name}[{shown}, ...] says that this is meant; x.take(0) and x.slice(0, 2) "
                "read an axis.",
            )


def _is_position(entry: Any) -> bool:
    if isinstance(entry, slice):
        return isinstance(entry.stop, int) and isinstance(entry.start, int | None)
    return isinstance(entry, int | np.integer) and not isinstance(entry, bool)


def _text(entry: Any) -> str:
    if isinstance(entry, slice):
        return f"{'' if entry.start is None else entry.start}:{entry.stop}"
    return str(entry)


def never(dims: Dims, domain: Domain, cond: Cond, what: str) -> None:
    """A condition that holds at no point of a domain, whatever the bounds."""
    if cond is TRUE:
        return
    try:
        with at_most(_OPERATIONS):
            over = dims.ordered({*domain, *(s for s in cond.symbols if s in dims.names)})
            held = not Set.from_condition(dims, over, cond).with_bounds({}).is_empty()
    except TooMuchWork:
        return
    if not held:
        warn(
            f"{what} {cond} never holds.",
            hint="symbols start at 0 and end before their bound: the last one is T - 1.",
        )


def warn_lost_precision(given: Array, kept: Array) -> None:
    """Numbers of 64 bits that a narrower floating-point type does not hold."""
    if given.dtype.kind not in "iuf" or given.dtype.itemsize < 8 or kept.dtype.kind in "iub":
        return
    if kept.dtype.itemsize >= 8 or not given.size:
        return
    before, after = given.astype(np.float64), kept.astype(np.float64)
    beyond = np.isfinite(before) & ~np.isfinite(after)
    if beyond.any():
        warn(
            f"{before[beyond].flat[0]:g} does not fit into {kept.dtype.name}, and is infinite there.",
            hint="scale the values, or take their logarithm.",
        )
    # who asks for less expects to lose digits, and who writes 1e12 means about as much
    if kept.dtype != np.float32 or (given.dtype.kind == "f" and not given.ndim):
        return
    rounded = (before != after) & (before == np.rint(before)) & (abs(before) <= _EXACT)
    if rounded.any():
        at = tuple(np.argwhere(rounded)[0])
        warn(
            f"the integer {before[at]:.0f} is {after[at]:.0f} as float32, which holds integers up to "
            "16777216.",
            hint="give integers as integers, or subtract what is common to all of them.",
        )


def bare_numbers(name: str, shape: Any, second: Any, of: str) -> None:
    """`normal(2, 3)`: a shape or the first of two moments?"""
    if isinstance(shape, int) and isinstance(second, int) and not isinstance(second, bool):
        warn(
            f"trl.random.{name}({shape}, {second}) draws {shape} numbers, {second} being the {of}.",
            hint=f"({shape}, {second}) in parentheses is a shape; ({shape},) with {of}={second} says "
            "that this is meant.",
        )


def zero_divisor(kind: str, divisor: Array) -> None:
    """Integers divided by constant zeros alone; single ones may be meant for `trl.where` to leave out."""
    if divisor.dtype.kind in "iu" and divisor.size and not divisor.any():
        sign = "//" if kind == "floordiv" else "%"
        warn(
            f"integers have no {sign} by zero: the result is 0.",
            hint="divide by another number, or floating-point numbers: x / 0 is infinite.",
        )
