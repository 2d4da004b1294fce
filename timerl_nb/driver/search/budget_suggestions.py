"""What would make a program fit, found by trying, when a budget cannot be met."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from timerl_nb.base.errors import TimeRLError
from timerl_nb.base.options import Options

# What a program needs with some options and bounds changed, in bytes.
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
    """Changes that make a program fit, each on its own; empty where none is found.

    Args:
        known: what is known to do.
        changes: of options, by their text: what else may do, besides fewer axes and smaller bounds.
        bounds: for each dimension its bound's name and value.
        need: tries a change.
        decided: the dimensions that a search has tried to leave in a loop.
    """

    def is_within_budget(options: Mapping[str, Any], bounds: Mapping[str, int]) -> bool:
        try:
            return need(options, bounds) <= budget
        except TimeRLError:  # not a program under these
            return False

    found = list(known)
    found += [
        f"{text} would do" for text, change in changes.items() if is_within_budget(change, {})
    ]
    dims = options.vectorize if isinstance(options.vectorize, tuple) else tuple(bounds)
    if options.vectorize:
        for name in reversed(dims):  # the innermost first: it is most often time
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
    """The greatest of value / 2, value / 4, … 1 that fits, if any does."""
    halves = [value >> k for k in range(1, value.bit_length())]
    if not halves or not fits(halves[-1]):
        return None
    low, high = 0, len(halves) - 1  # what fits stays so when it is halved
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(halves[middle]) else (middle + 1, high)
    return halves[low]
