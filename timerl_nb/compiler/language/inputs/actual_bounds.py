"""Validation of the bounds passed to `compile`: by symbol or name, integers or dynamic bounds."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from timerl_nb.base.errors import BoundsError
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.inputs.dynamic_bound_inputs import Until, ceiling, until
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.dimensions import ENDLESS, Ceiling, Endless


def check_bounds(ctx: Context, given: Mapping[Any, Any]) -> tuple[dict[str, int], dict[str, Until]]:
    """Return the bounds by name, each a positive integer or a ceiling, and the dynamic bounds.

    Raises:
        BoundsError: a bound is missing, unknown or of an unsuitable type.
    """
    check_mapping(given)
    given = {key: _normalize_bound(value) for key, value in given.items()}
    known = ctx.space.bounds
    found: dict[str, int] = {}
    ends = {
        k if isinstance(k, str) else _bound_name(ctx, k): v
        for k, v in given.items()
        if isinstance(v, Until)
    }
    for key, value in given.items():
        name = key if isinstance(key, str) else _bound_name(ctx, key)
        if name not in known:
            raise BoundsError(
                f"{name} is not a bound of this context.",
                hint=f"the bounds are {', '.join(known)}.",
            )
        check_not_fixed(name, ctx.fixed)
        if name in found:
            raise BoundsError(
                f"the bound {name} is given twice.", hint="give it by symbol or by name, not both."
            )
        found[name] = bound_value(name, value)
    if sum(isinstance(value, Endless) for value in found.values()) > 1:
        raise BoundsError(
            "two dimensions are unbounded, but a program can have only one such dimension.",
            hint="give integers for all bounds but one.",
        )
    missing = [name for name in known if name not in found and name not in ctx.fixed]
    if missing:
        raise BoundsError(
            f"the bound {missing[0]} is missing.",
            hint=f"pass {{{', '.join(f'{k}: …' for k in known if k not in ctx.fixed)}}} to compile.",
        )
    return fixed_bounds(ctx, found), ends


def fixed_bounds(ctx: Context, given: Mapping[str, int]) -> dict[str, int]:
    """Return all bounds in the context's order, including those that the program fixes.

    Bounds of dimensions outside the context come first.

    Raises:
        BoundsError: a fixed value is not a valid bound.
    """
    found = {name: value for name, value in given.items() if name not in ctx.fixed}
    for name, value in ctx.fixed.items():
        if isinstance(value, Until | RecurrentTensor):
            raise BoundsError(
                f"{name} is fixed to a dynamic bound.",
                hint=f"remove ctx.fix, and pass {{{name}: …}} to compile.",
            )
        found[name] = bound_value(
            name, value(_RelatedBounds(name, found)) if callable(value) else value
        )
    own = ctx.space.bounds
    return {n: v for n, v in found.items() if n not in own} | {n: found[n] for n in own}


class _RelatedBounds(dict[str, int]):
    """The bounds available to a function given to `ctx.fix`, by name or symbol."""

    def __init__(self, wanted: str, bounds: Mapping[str, int]) -> None:
        self._wanted, self._dynamic = (
            wanted,
            [k for k, v in bounds.items() if isinstance(v, Ceiling)],
        )
        super().__init__({k: v for k, v in bounds.items() if k not in self._dynamic})

    def __missing__(self, key: Any) -> int:
        name: Any = key.lin.as_symbol if isinstance(key, Index) else key
        if name in self:
            return self[name]
        asked = f"{self._wanted} depends on {name}"
        if name in self._dynamic:
            raise BoundsError(
                f"{asked}, which is a dynamic bound.",
                hint=f"pass an integer for {name} to compile.",
            )
        raise BoundsError(
            f"{asked}, which is not known yet.",
            hint=f"known bounds: {', '.join(self) or 'none'}. Fix a bound before the bounds that depend on it.",
        )


def check_not_fixed(name: str, fixed: Container[str]) -> None:
    """Check that the program does not fix a bound of the user.

    Raises:
        BoundsError: the program fixes it.
    """
    if name in fixed:
        raise BoundsError(
            f"the bound {name} is fixed by the program.",
            hint=f"leave {name} out of the bounds, or remove ctx.fix({name}, …).",
        )


def check_mapping(bounds: Any) -> None:
    if not isinstance(bounds, Mapping):
        raise BoundsError(
            f"{bounds!r} is not a mapping of bounds.",
            hint="write {B: 64, I: 20, T: 500}: one bound per dimension.",
        )


def _bound_name(ctx: Context, key: Any) -> str:
    name = key.lin.as_symbol if isinstance(key, Index) else None
    if name is None:
        raise BoundsError(f"{key!r} is not a bound.", hint="use the bound symbols of ctx.dims.")
    if isinstance(key, Index) and key.owner is not ctx:
        raise BoundsError(
            f"{name} is a symbol of another context.",
            hint="use the symbols of the context that is compiled.",
        )
    if name in ctx.space:
        raise BoundsError(
            f"{name} is a variable, not a bound.", hint=f"write {ctx.space[name].bound}: …"
        )
    return name


def _normalize_bound(value: Any) -> Any:
    """Convert a boolean tensor to a dynamic bound."""
    return until(value) if isinstance(value, RecurrentTensor) else value


def bound_value(name: str, value: Any) -> int:
    value = _normalize_bound(value)
    if isinstance(value, Until):
        return ceiling(value)
    if isinstance(value, Endless):
        return value
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise BoundsError(
            f"the bound {name} must be an integer, not {value!r}.",
            hint=f"write {{{name}: 100}}, or trl.until(done) for a bound found during the run.",
        )
    if value < 1:
        raise BoundsError(
            f"the bound {name} must be at least 1, not {value}.",
            hint="every dimension has at least one point.",
        )
    if value >= ENDLESS:
        raise BoundsError(
            f"the bound {name} must be less than 2**53, not {value}.",
            hint=f"pass a smaller number, or {{{name}: trl.endless}} for a dimension without end.",
        )
    return int(value)
