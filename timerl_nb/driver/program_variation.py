"""Requests for the same program under other bounds or options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from timerl_nb.base.errors import BoundsError
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.inputs.actual_bounds import (
    bound_value,
    check_mapping,
    check_not_fixed,
    fixed_bounds,
)
from timerl_nb.compiler.language.inputs.dynamic_bound_inputs import Until, until
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.dimensions import Ceiling, Endless
from timerl_nb.driver.compilation import Compilation
from timerl_nb.driver.compile_request import CompileRequest
from timerl_nb.driver.compiling.compile_pipeline import Front
from timerl_nb.driver.compiling.machine_dependent_options import holds_for_all_bounds
from timerl_nb.driver.program_runs.assumed_ceiling import double_ceiling, find_assumed_ceilings


def vary(
    compiled: Compilation, bounds: Mapping[Any, int] | None, options: Mapping[str, Any] | None
) -> tuple[CompileRequest, Front | None]:
    """Return the request with some bounds and options changed, and the front if it stays valid.

    Raises:
        BoundsError: a bound is unknown, or of another kind than before.
        OptionError: an option does not exist, or does not take the value.
    """
    changed = compiled.options.with_(**options) if options else compiled.options
    request = compiled.request
    under = _change_bounds(request.owner, request.bounds, {} if bounds is None else bounds)
    varied = CompileRequest(request.compiler, request.owner, under, changed)
    # a front chosen within a memory budget depends on the bounds
    stays = not options and holds_for_all_bounds(changed) and not compiled.front.bounds
    return varied, compiled.front if stays else None


def raise_reached_ceiling(
    compiled: Compilation, lengths: Mapping[str, np.ndarray]
) -> tuple[CompileRequest, Front | None] | None:
    """If a run has reached an assumed ceiling, return the request with twice the ceiling, else None.

    Args:
        compiled: the compilation of the run.
        lengths: the number of executed points, by dynamic bound.

    Returns:
        the request, and the front if it stays valid.

    Raises:
        BoundsError: the dimension does not end.
    """
    bounds = dict(compiled.bounds)
    assumed = find_assumed_ceilings(bounds)
    reached = [name for name in assumed if lengths[name].max() >= bounds[name]]
    if not reached:
        return None
    for name in reached:
        bounds = double_ceiling(bounds, name)
    varied = compiled.request.with_bounds(bounds)
    return varied, compiled.front if holds_for_all_bounds(compiled.options) else None


def _change_bounds(
    owner: Context, before: Mapping[str, int], bounds: Mapping[Any, int]
) -> dict[str, int]:
    """Return all bounds after a change.

    Raises:
        BoundsError: a name is not a bound of the program, or the program fixes the bound.
    """
    changed = dict(before)
    check_mapping(bounds)
    for key, value in bounds.items():
        name = key.lin.as_symbol if isinstance(key, Index) else key
        if isinstance(key, Index) and key.owner is not owner:
            raise BoundsError(
                f"{key} is a symbol of another context.",
                hint=f"the bounds are {', '.join(changed)}.",
            )
        if name not in changed:
            raise BoundsError(
                f"{key} is not a bound of this program.",
                hint=f"the bounds are {', '.join(changed)}.",
            )
        check_not_fixed(name, owner.fixed)
        _check_kind(owner, name, before[name], value)
        changed[name] = bound_value(name, value)
    return fixed_bounds(owner, changed)


def _check_kind(owner: Context, name: str, before: int, value: Any) -> None:
    """Refuse another kind of bound; the ceiling of a dynamic bound may change."""
    if isinstance(before, Endless) or isinstance(value, Endless):
        if isinstance(before, Endless) and isinstance(value, Endless):
            return
        was = "has no end" if isinstance(before, Endless) else f"is {before}"
        raise BoundsError(
            f"{name} {was}, and with_bounds cannot change the kind of a bound.",
            hint="call ctx.compile with the new bounds.",
        )
    value = until(value) if isinstance(value, RecurrentTensor) else value
    given = value.done.name if isinstance(value, Until) else None
    had = before.until if isinstance(before, Ceiling) else None
    if given == had and (given is None or value.done.ctx is owner):
        return
    was = f"{name} ends at the first true {had}" if had else f"{name} is a number"
    raise BoundsError(
        f"{was}, and with_bounds cannot change the kind of a bound.",
        hint=f"pass trl.until({had}, at_most=…), or call ctx.compile with the new bounds."
        if had
        else "call ctx.compile with the new bounds.",
    )
