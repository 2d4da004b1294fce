"""Dynamic bounds without a given ceiling: a run that reaches the assumed one is repeated under a larger one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from timerl_nb.base.errors import BoundsError, Origin
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.symbolic.dimensions import Ceiling

# Points of a dimension without a given ceiling, after which it counts as endless.
_LONGEST: Final = 1 << 17


def find_assumed_ceiling(bounds: Mapping[str, int]) -> str | None:
    """Return the dynamic bound whose ceiling is raised if a run reaches it."""
    found = (n for n, b in bounds.items() if isinstance(b, Ceiling) and b.raised)
    return next(found, None)


def refuse_assumed_ceiling(bounds: Mapping[str, int], why: str) -> None:
    """Refuse bounds with an assumed ceiling.

    Args:
        why: the reason why a run cannot be repeated.

    Raises:
        BoundsError: a ceiling is assumed.
    """
    name = find_assumed_ceiling(bounds)
    if name is not None:
        raise ceiling_error(bounds, name, why)


def ceiling_error(
    bounds: Mapping[str, int], name: str, why: str, origin: Origin | None = None
) -> BoundsError:
    """The request for a ceiling of the bound `name`."""
    bound = bounds[name]
    assert isinstance(bound, Ceiling)
    return BoundsError(
        f"the bound {name} has no ceiling, and a run that reaches the one assumed is made again: {why}.",
        origin=origin,
        hint=f"give one: {{{name}: trl.until({bound.until}, at_most=500)}}.",
    )


def double_ceiling(bounds: Mapping[str, int], name: str) -> dict[str, int]:
    """Return the bounds with twice the ceiling that was assumed.

    Raises:
        BoundsError: the dimension ends nowhere.
    """
    bound = bounds[name]
    assert isinstance(bound, Ceiling)
    if bound >= _LONGEST:
        raise BoundsError(
            f"{bound.until} holds at none of the first {format_count(int(bound), 'point')}: {name} does not end.",
            hint=f"give a ceiling: {{{name}: trl.until({bound.until}, at_most=…)}}.",
        )
    return {**bounds, name: Ceiling(2 * bound, bound.until, raised=True)}
