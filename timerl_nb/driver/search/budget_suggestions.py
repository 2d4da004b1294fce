"""Suggestions for programs that exceed a budget, found by trial."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from timerl_nb.base.errors import TimeRLError
from timerl_nb.base.options import Options

# Bytes needed by a program with some options and bounds changed.
Need = Callable[[Mapping[str, Any], Mapping[str, int]], int]


def fit_suggestions(
    known: Sequence[str],
    changes: Mapping[str, Mapping[str, Any]],
    budget: int,
    options: Options,
    bounds: Mapping[str, tuple[str, int]],
    need: Need,
    decided: Collection[str] = (),
) -> str:
    """Return changes that make a program fit, each sufficient by itself; "" if there are none.

    Args:
        known: sufficient changes that need no trial.
        changes: changes of options to try, by text.
        budget: bytes available.
        options: the current options.
        bounds: name and value of the bound of each dimension.
        need: returns the bytes needed after a change.
        decided: dimensions that a search has already tried to keep in loops.
    """

    def is_within_budget(options: Mapping[str, Any], bounds: Mapping[str, int]) -> bool:
        try:
            return need(options, bounds) <= budget
        except TimeRLError:  # the changed program is not valid
            return False

    found = list(known)
    found += [
        f"{text} would do" for text, change in changes.items() if is_within_budget(change, {})
    ]
    dims = options.vectorize if isinstance(options.vectorize, tuple) else tuple(bounds)
    if options.vectorize:
        for name in reversed(dims):  # the innermost dimension, usually time, is the best candidate
            if name in decided:
                continue
            rest = tuple(d for d in dims if d != name) or False
            if is_within_budget({"vectorize": rest}, {}):
                found.append(f"vectorize={rest!r} would do")
                break
    for bound, value in bounds.values():
        less = _most(value, lambda n, bound=bound: is_within_budget({}, {bound: n}))
        if less is not None:
            found.append(f"{bound} = {less} would do")
    return "; ".join(found) + "." if found else ""


def _most(value: int, fits: Callable[[int], bool]) -> int | None:
    """Return the largest of value / 2, value / 4, … 1 that fits, or None."""
    halves = [value >> k for k in range(1, value.bit_length())]
    if not halves or not fits(halves[-1]):
        return None
    low, high = 0, len(halves) - 1  # if a value fits, so does its half
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(halves[middle]) else (middle + 1, high)
    return halves[low]
