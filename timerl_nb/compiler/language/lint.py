"""Warnings about legal but probably mistaken code, at the user's line.

Each check recognizes one common mistake. Its hint names the probable intention, and a way to write the current
meaning without a warning.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import is_user_call, warn
from timerl_nb.compiler.isl.operation_limit import TooMuchWork, at_most
from timerl_nb.compiler.isl.sets_and_relations import Set
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import FALSE, TRUE, Cond, Entry, Lin

_EXACT = 2.0**53  # float64 represents all integers up to here
_OPERATIONS = 100_000  # limit of isl operations per check


def warn_permuted_index(name: str, entries: dict[str, Entry]) -> None:
    """Warn about `r[i, b, t]` for a tensor over (b, i, t): its own variables in another order."""
    domain = tuple(entries)
    read = [e.as_symbol if isinstance(e, Lin) else None for e in entries.values()]
    if read != list(domain) and sorted(map(str, read)) == sorted(domain):
        moved = ", ".join(f"{d} at {s}" for d, s in zip(domain, read, strict=True) if d != s)
        warn(
            f"{name} varies over ({', '.join(domain)}): {name}[{', '.join(map(str, read))}] reads "
            f"{moved}.",
            hint=f"write indices in the order of the domain: {name}[{', '.join(domain)}] is the "
            "current point. If the transposed read is intended, filter this warning.",
        )


def fewer(name: str, domain: Domain, rank: int, given: tuple[Any, ...]) -> None:
    """Warn about `v[0]` for a tensor with axes and more dimensions than indices: an axis may be meant."""
    if rank and len(given) < len(domain) and not any(e is Ellipsis for e in given):
        if any(map(_is_position, given)):
            shown = ", ".join(map(_text, given))
            warn(
                f"{name} varies over ({', '.join(domain)}): {name}[{shown}] is at "
                f"{', '.join(f'{d} = {_text(e)}' for d, e in zip(domain, given, strict=False))}, and "
                f"does not index an axis.",
                hint=f"write {name}[{shown}, ...] if this is intended; for an axis, write x.take(0) or "
                "x.slice(0, 2).",
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
    """Warn about a condition that is false at every point of a domain, under any bounds."""
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
            hint="check the comparison: t runs from 0 to T - 1.",
        )


def unreachable(name: str, cond: Cond) -> None:
    """Warn about a branch whose points are all defined by branches with precedence."""
    if cond is FALSE:
        warn(
            f"this branch of {name} defines no point: other branches define all of its points.",
            hint="remove it, or write trl.first_match and assign it before them.",
        )


def warn_lost_precision(given: Array, kept: Array) -> None:
    """Warn about 64-bit numbers that a narrower floating-point type cannot represent."""
    if given.dtype.kind not in "iuf" or given.dtype.itemsize < 8 or kept.dtype.kind in "iub":
        return
    if kept.dtype.itemsize >= 8 or not given.size:
        return
    before, after = given.astype(np.float64), kept.astype(np.float64)
    beyond = np.isfinite(before) & ~np.isfinite(after)
    if beyond.any():
        warn(
            f"{before[beyond].flat[0]:g} does not fit into {kept.dtype.name} and becomes infinite.",
            hint="scale the values, or use their logarithm.",
        )
    # Lost digits are expected of a requested narrow type, and of a literal such as 1e12.
    if kept.dtype != np.float32 or (given.dtype.kind == "f" and not given.ndim):
        return
    rounded = (before != after) & (before == np.rint(before)) & (abs(before) <= _EXACT)
    if rounded.any():
        at = tuple(np.argwhere(rounded)[0])
        warn(
            f"the integer {before[at]:.0f} becomes {after[at]:.0f} as float32, which represents all integers only up to "
            "16777216.",
            hint="use an integer type, or subtract a common offset.",
        )


def bare_numbers(name: str, shape: Any, second: Any, of: str) -> None:
    """Warn about `normal(2, 3)`: the second number may be part of a shape."""
    if isinstance(shape, int) and isinstance(second, int) and not isinstance(second, bool):
        warn(
            f"trl.random.{name}({shape}, {second}) draws {shape} numbers with {of} {second}.",
            hint=f"for a shape, write ({shape}, {second}) in parentheses; if this is intended, write "
            f"({shape},) and {of}={second}.",
        )


def no_axes(method: str, type_text: str, domain: Domain, varying: Domain) -> None:
    """Warn about `loss.mean()` without axes to reduce: the dimensions may be meant.

    Must be called by a function that the method calls. Calls of the method by the library do not warn.

    Args:
        method: the name of the reduction.
        type_text: the tensor's type, of rank 0.
        domain: the tensor's dimensions.
        varying: the dimensions over which parameters vary. A loss that varies over nothing else is reduced.
    """
    over = ", ".join(d for d in domain if d not in varying)
    if over and is_user_call(2, _WRAPPERS):
        over = f"({over})" if "," in over else over
        warn(
            f"{method}() reduces axes, but this tensor is {type_text} over ({', '.join(domain)}): it has no "
            "axes, and no dimension is reduced.",
            hint=f"write {method}(over={over}) to reduce it over dimensions; if no reduction is intended, "
            f"omit {method}() or write {method}(axis=()).",
        )


# Files with functions between the user's call and a method.
_WRAPPERS = ("foreign_names.py", "numpy_style_functions.py", "numpy_dispatch.py")


def zero_divisor(kind: str, divisor: Array) -> None:
    """Warn about integers divided by constants that are all 0."""
    if divisor.dtype.kind in "iu" and divisor.size and not divisor.any():
        sign = "//" if kind == "floordiv" else "%"
        warn(
            f"integers have no {sign} by zero: the result is 0.",
            hint="divide by another number, or convert to floating point: x / 0 is infinite.",
        )
