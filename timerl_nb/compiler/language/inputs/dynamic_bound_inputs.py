"""Dynamic bounds: `{T: trl.until(done, at_most=500)}` and `{T: done}`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.base.errors import BoundsError, warn
from timerl_nb.compiler.ir.host.host_functions import UdfAttrs
from timerl_nb.compiler.ir.operation_attributes import BoundAttrs
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.dimensions import ENDLESS, Ceiling, Dim
from timerl_nb.compiler.symbolic.index_expressions import Lin


@dataclass(frozen=True, eq=False)
class Until:
    """Dynamic bound: its dimension ends at the first point where `done` is true.

    The dimension has at most `at_most` points. With `raised=True`, a run that reaches this ceiling is repeated with a
    greater one.
    """

    done: RecurrentTensor
    at_most: int
    raised: bool = False

    def __repr__(self) -> str:
        most = "" if self.raised else f", at_most={self.at_most}"
        return f"until({self.done.name}{most})"


# First ceiling, if the user gives none.
_FIRST = 256


@explain_call_errors
def until(done: Any, at_most: Any = None) -> Until:
    """Return a dynamic bound for `compile`: the dimension ends where `done` is true.

    With `until((d | ~step.alive).all(over=b), at_most=500)`, all episodes run in parallel until the last one is done.
    With `until(d, at_most=500)`, each episode has a separate end, and the episodes run one after the other.

    Args:
        done: a boolean scalar over the dimension. It may also vary over other dimensions, such as iterations and
            environments. Each of their points then has its own end.
        at_most: the ceiling: the greatest number of points, for which memory is planned. If omitted, the first
            run assumes a ceiling. A run that reaches the ceiling is repeated with the same random numbers and
            twice the ceiling; this requires a program without side effects on the host.

    Raises:
        BoundsError: `done` is not a boolean scalar, or `at_most` is not a positive integer.

    Example:
        >>> done = trl.random.bernoulli(0.1, domain=t).named("done")
        >>> trl.until(done, at_most=500)
        until(done, at_most=500)
    """
    if not isinstance(done, RecurrentTensor):
        raise BoundsError(
            f"{done!r} cannot end a dimension.",
            hint="pass a boolean tensor over the dimension, such as done of env.step.",
        )
    raised = at_most is None
    if raised:
        at_most = _FIRST
    whole = isinstance(at_most, int | np.integer) and not isinstance(at_most, bool)
    if not whole or not 1 <= at_most < ENDLESS:
        raise BoundsError(
            f"at_most must be a positive integer below 2**53, not {at_most!r}.",
            hint="write trl.until(done, at_most=500).",
        )
    if done.dtype != "bool" or done.shape:
        raise BoundsError(
            f"{done.name} is {done.type}: it cannot end a dimension.",
            hint="give a boolean scalar: compare, or reduce with any() or all().",
        )
    return Until(done, int(at_most), raised)


def ceiling(given: Until) -> Ceiling:
    """Return the number that memory planning uses for a dynamic bound."""
    return Ceiling(given.at_most, given.done.name, raised=given.raised)


def write_bound(ctx: Context, dim: Dim, given: Until, ending: Collection[str] = ()) -> None:
    """Add the operation that ends dimension `dim` where the condition is true.

    Args:
        ctx: the context.
        dim: the dimension.
        given: the dynamic bound.
        ending: all dimensions with dynamic bounds; they count iterations, not parallel instances.

    Raises:
        BoundsError: the condition belongs to another context, or varies over unsuitable dimensions.
    """
    done = given.done
    if done.ctx is not ctx:
        raise BoundsError(
            f"{done.name} belongs to another context: it cannot end {dim.name}.",
            hint="give a tensor of the context that is compiled.",
        )
    domain = done.domain
    if dim.name not in domain:
        raise BoundsError(
            f"{done.name} varies over ({', '.join(domain)}), but not over {dim.name}: it cannot end {dim.name}.",
            origin=done.op.origin,
            hint=f"give a tensor over {dim.name} that is true at its last point.",
        )
    others = [d for d in domain if d != dim.name and d not in ending]
    instances = [d for d in others if _is_instance(ctx, d)]
    if instances:
        over = instances[0]
        warn(
            f"{done.name} varies over {over}: each {over} ends by itself, so operations over {over} and "
            f"{dim.name} are not vectorised over {over}.",
            hint=f"{done.name}.all(over={over}) ends all {over} together, and vectorises them. If separate "
            "ends are intended, filter this warning.",
        )
    ctx.add("bound", [done.settled().read], BoundAttrs(dim.name), label=f"end of {dim.name}")


def _is_instance(ctx: Context, name: str) -> bool:
    """Test whether a dimension counts parallel instances, not iterations.

    The first of several dimensions besides the one that ends counts instances (docs/decisions/001), and so do the
    instance dimensions of a resource, unless the program steps along them.
    """
    ops = [ctx[k] for k in ctx.op_ids]
    for op in ops:
        for read in op.inputs:
            for d, e in zip(ctx[read.source].outputs[read.out].domain, read.index, strict=True):
                if d == name and isinstance(e, Lin) and (e - e.const).as_symbol == d and e.const:
                    return False
    of_resource = any(
        isinstance(op.attrs, UdfAttrs) and op.attrs.resource and name in op.attrs.resource.instances
        for op in ops
    )
    return of_resource or (len(ctx.space.names) > 2 and name == ctx.space.names[0])
