"""Dynamic bounds without a user-defined ceiling: a run that reaches an assumed ceiling is repeated with a
larger one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from timerl_nb.base.errors import BoundsError, Origin
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.symbolic.dimensions import Ceiling

# Number of points at which a dimension without a ceiling counts as endless.
_LONGEST: Final = 1 << 17


def find_assumed_ceilings(bounds: Mapping[str, int]) -> list[str]:
    """Return the dynamic bounds with assumed ceilings."""
    return [n for n, b in bounds.items() if isinstance(b, Ceiling) and b.raised]


def refuse_assumed_ceiling(bounds: Mapping[str, int], why: str) -> None:
    """Refuse bounds with an assumed ceiling.

    Args:
        bounds: actual bounds, by name.
        why: the reason why a run cannot be repeated.

    Raises:
        BoundsError: a ceiling is assumed.
    """
    for name in find_assumed_ceilings(bounds):
        raise ceiling_error(bounds, name, why)


def ceiling_error(
    bounds: Mapping[str, int], name: str, why: str, origin: Origin | None = None
) -> BoundsError:
    """Return an error that requests a ceiling for the bound `name`."""
    bound = bounds[name]
    assert isinstance(bound, Ceiling)
    return BoundsError(
        f"the bound {name} has no ceiling, so the run may have to be repeated with a larger one: {why}.",
        origin=origin,
        hint=f"set a ceiling: {{{name}: trl.until({bound.until}, at_most=500)}}.",
    )


def double_ceiling(bounds: Mapping[str, int], name: str) -> dict[str, int]:
    """Return the bounds with twice the assumed ceiling.

    Raises:
        BoundsError: the dimension does not end.
    """
    bound = bounds[name]
    assert isinstance(bound, Ceiling)
    if bound >= _LONGEST:
        raise BoundsError(
            f"{bound.until} is false at the first {format_count(int(bound), 'point')}, so {name} does not end.",
            hint=f"set a ceiling: {{{name}: trl.until({bound.until}, at_most=…)}}.",
        )
    return {**bounds, name: Ceiling(2 * bound, bound.until, raised=True)}
