"""Error messages for programs without a schedule: a cycle of dependent points, with the user's
lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from timerl_nb.base.errors import ScheduleError, VerificationError
from timerl_nb.compiler.ir.analysis.needed_points import remove_operations
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import components
from timerl_nb.compiler.scheduling.cycle_counterexample import (
    PointCycle,
    PointOf,
    Search,
    find_cycle_of_points,
    has_no_cycle,
    is_cycle,
    is_needed,
    search_cycles,
)
from timerl_nb.compiler.symbolic.dimensions import Ceiling, Endless, bounds_text
from timerl_nb.compiler.symbolic.index_expressions import Div, Lin, Mod, sym

SMALL: Final = (1, 2, 3)  # bounds for the search of cycles in every program
LARGE: Final = (5, 8, 13, 21, 34)  # further bounds, after a compilation has failed


def refuse_cycles(pdg: Pdg) -> None:
    """Refuse a graph with cyclic dependences.

    These are cycles of points that an output depends on, at small bounds, and cycles of operations
    at a single point. Passes rely on their absence: every cycle must pass through a merge, and
    fusion must not put a cycle into one kernel.

    Raises:
        ScheduleError: there is such a cycle; the message shows it.
    """
    cycle = find_cycle_of_points(pdg, SMALL)
    if cycle is not None and is_needed(pdg, cycle):
        raise _error(pdg, cycle)
    own = {
        op.id: [r.source for r in (*op.inputs, *pdg.waits(op)) if pdg.is_identity(r)] for op in pdg
    }
    for component in components(own):
        if len(component) > 1 or component[0] in own[component[0]]:
            raise find_cycle(pdg)


def persists(pdg: Pdg, error: Exception, bounds: Mapping[str, int]) -> bool:
    """Return whether the cycle of an error also exists under the actual bounds."""
    if not isinstance(error, ScheduleError) or error.cycle is None:
        return False
    there = PointCycle(error.cycle.points, bounds)
    return is_cycle(pdg, there) and is_needed(pdg, there)


def dims_to_fix(pdg: Pdg, bounds: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """Yield sets of dimensions to fix at their actual bounds: first a few dimensions, then all.

    The few have conditions on several dimensions, or indices other than a constant offset.
    """
    dims = pdg.dims
    free = [d for d in dims if not isinstance(bounds[d.bound], Ceiling | Endless)]
    told: set[str] = set()
    for op in pdg:
        for read in op.inputs:
            for d, entry in zip(pdg.output(read).domain, read.index, strict=True):
                is_near = isinstance(entry, Lin) and (entry - sym(d)).is_const
                if not is_near and dims.ordered(entry.symbols):
                    told |= entry.symbols
        for cond in (op.where, *(read.cond for read in op.inputs)):
            if len(dims.ordered(cond.symbols)) > 1:
                told |= cond.symbols
    few = tuple(d.name for d in free if told & {d.name, d.bound})
    yield from dict.fromkeys(names for names in (few, tuple(d.name for d in free)) if names)


@contextmanager
def explain_cycle(pdg: Pdg) -> Generator[None]:
    """Replace an internal error in the block if a cycle at larger bounds causes it.

    Raises:
        ScheduleError: there is such a cycle; the message shows it.
    """
    try:
        yield
    except VerificationError:
        cycle = find_cycle_of_points(pdg, LARGE)
        if cycle is None:
            raise
        raise _error(pdg, cycle) from None


def find_cycle(pdg: Pdg) -> ScheduleError:
    """Return an error with a cycle of points; if none is found, with the bounds of the search.

    A large program is searched in part, and then under smaller bounds than its fixed ones.
    """
    searches = search_cycles(pdg, (*SMALL, *LARGE))
    cycle = searches[-1].cycle
    if cycle is not None:
        return _error(pdg, cycle)
    return ScheduleError(
        "isl finds no schedule for this program.",
        evidence=f"{_searched(searches)}; an order of execution may exist, but none that is affine in "
        "the indices",
        hint="split a tensor that is written in several loops, or enable a disabled pass."
        + (f" If an index is flattened over several dimensions, {_FLAT}" * _divides(pdg)),
    )


def _searched(searches: Sequence[Search]) -> str:
    """Return the searched bounds without a cycle, and those of incomplete searches."""
    complete = [bounds_text(found.bounds) for found in searches if found.is_complete]
    partial = [bounds_text(found.bounds) for found in searches if not found.is_complete]
    parts = list[str]()
    if complete:
        parts.append(f"no values depend on each other in a cycle under {complete[-1]}")
    if partial:
        parts.append(f"the search of a cycle under {partial[0]} was stopped at its limit")
    return ", and ".join(parts)


# Hint for gradients without an order, or with an order beyond isl's limit.
_FLAT: Final = (
    "write the recurrence over one dimension (t for a * B + b, T = A * B), with its data over t."
)


def _divides(pdg: Pdg) -> bool:
    """Return whether a read has a quotient or remainder of several dimensions in its index."""
    entries = (e for op in pdg for read in op.inputs for e in read.index if isinstance(e, Lin))
    return any(
        isinstance(atom, Div | Mod) and len(pdg.dims.ordered(atom.symbols)) > 1
        for e in entries
        for atom, _ in e.terms
    )


def _error(pdg: Pdg, cycle: PointCycle) -> ScheduleError:
    """Return the error for values that depend on each other in a cycle, with the points and lines of the cycle."""
    lines: list[str] = []
    points = cycle.points
    shown = [node for node in points if pdg[node[0]].kind != "merge"] or list(points)
    for op_id, point in shown:
        op = pdg[op_id]
        at = ", ".join(f"{d}={v}" for d, v in zip(op.domain, point, strict=True))
        lines.append(f"{op.name}[{at}]   {op.origin}")
    if len(lines) > 12:
        lines = [*lines[:6], f"… {len(lines) - 12} more …", *lines[-6:]]
    bounds = cycle.bounds
    if len(set(bounds.values())) == 1:
        under = " = ".join([*bounds, str(next(iter(bounds.values())))])
    else:
        under = bounds_text(bounds)
    inside = {op_id for op_id, _ in points}
    asked = [o for o in pdg.orders if {o.before, o.after} <= inside]
    fixed = pdg.dims.values
    is_smaller = any(bounds[name] != value for name, value in fixed.items())
    what = "no order of execution satisfies this program:"
    hint = "let one of them read an earlier point (t - 1), or break the cycle with a branch."
    if _is_of_a_gradient(pdg, cycle):
        what = "the forward pass has an order of execution, but its gradient has none:"
        carried = _dim_of_crossing_gradient(pdg, shown)
        if _divides(pdg):
            hint = _FLAT
        elif carried:
            hint = (
                f"detach the value carried from {carried} to {carried} + 1 with .detach(): its gradient "
                f"crosses from {carried} + 1 to {carried}, but the parameters at {carried} + 1 depend on "
                "this gradient."
            )
    if is_smaller:
        what = "isl finds no schedule for this program, and under smaller bounds"
    error = ScheduleError(
        f"{what} these values depend on each other in a cycle.",
        origin=pdg[shown[0][0]].origin,
        others={f"%{o.before} must run before %{o.after} because of": o.origin for o in asked},
        evidence=[
            f"each value depends on the next (for {under}):",
            *("  " + line for line in lines),
            *([f"the search under {bounds_text(fixed)} was stopped at its limit"] * is_smaller),
        ],
        hint=hint,
    )
    error.cycle = cycle
    return error


def _is_of_a_gradient(pdg: Pdg, cycle: PointCycle) -> bool:
    """Return whether a cycle passes through a gradient, and vanishes without the gradients."""
    written = {op.id for op in pdg if op.origin.gradient_of is not None}
    if written.isdisjoint(op_id for op_id, _ in cycle.points):
        return False
    return has_no_cycle(remove_operations(pdg, written), cycle.bounds)


def _dim_of_crossing_gradient(pdg: Pdg, cycle: Sequence[PointOf]) -> str:
    """Return the first dimension along which a gradient needs a later gradient; empty if there is none.

    Args:
        cycle: the points without those of merges. Merges of gradients have no record of their forward operation.
    """
    found = set[str]()
    for (op_id, point), (next_id, following) in itertools.pairwise(cycle):
        op, source = pdg[op_id], pdg[next_id]
        if op.origin.gradient_of is not None and source.origin.gradient_of is not None:
            at = dict(zip(op.domain, point, strict=True))
            there = dict(zip(source.domain, following, strict=True))
            found |= {d for d in at.keys() & there.keys() if there[d] > at[d]}
    return next(iter(pdg.dims.ordered(found)), "")
