"""Dynamic bounds as a user gives them: `{T: trl.until(done, at_most=500)}`, `{T: done}` (semantics.md §2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.base.errors import BoundsError
from timerl_nb.compiler.ir.host.host_functions import UdfAttrs
from timerl_nb.compiler.ir.operation_attributes import BoundAttrs
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.dimensions import Ceiling, Dim
from timerl_nb.compiler.symbolic.index_expressions import Lin


@dataclass(frozen=True, eq=False)
class Until:
    """A bound that the program finds out: a dimension ends at the first point where `done` holds.

    It has at most `at_most` points, whether `done` holds or not; where that may be `raised`, a run that
    reaches it is made again under a greater one.
    """

    done: RecurrentTensor
    at_most: int
    raised: bool = False

    def __repr__(self) -> str:
        most = "" if self.raised else f", at_most={self.at_most}"
        return f"until({self.done.name}{most})"


# What memory is planned for at first where no ceiling is given.
_FIRST = 256


def until(done: Any, at_most: Any = None) -> Until:
    """A bound for `compile`: the dimension ends where `done` holds, after `at_most` points at last.

    Episodes side by side end together, each standing still once it is done:
    `until((d | ~step.alive).all(over=b), at_most=500)`.

    Args:
        done: a boolean scalar over the dimension, and over the iterations if it is to end elsewhere
            in each.
        at_most: the ceiling, for which memory is planned. Without one it is found by running: a
            run that reaches the ceiling assumed is made again under twice that, with the same random
            numbers. That needs a program without effects on the host.

    Raises:
        BoundsError: `done` is no boolean scalar, or `at_most` no positive integer.
    """
    if not isinstance(done, RecurrentTensor):
        raise BoundsError(
            f"{done!r} cannot end a dimension.",
            hint="pass a boolean tensor that varies over it, such as the done of env.step.",
        )
    raised = at_most is None
    if raised:
        at_most = _FIRST
    if isinstance(at_most, bool) or not isinstance(at_most, int | np.integer) or at_most < 1:
        raise BoundsError(f"at_most must be a positive integer, not {at_most!r}.")
    if done.dtype != "bool" or done.shape:
        raise BoundsError(
            f"{done.name} is {done.type}: it cannot end a dimension.",
            hint="a boolean scalar can: compare, or reduce with any() or all().",
        )
    return Until(done, int(at_most), raised)


def ceiling(given: Until) -> Ceiling:
    """The number that stands for a dynamic bound where memory is planned."""
    return Ceiling(given.at_most, given.done.name, raised=given.raised)


def write_bound(ctx: Context, dim: Dim, given: Until) -> None:
    """Let the dimension `dim` end where the condition holds.

    Raises:
        BoundsError: the condition belongs to another context, or varies over other dimensions.
    """
    done = given.done
    if done.ctx is not ctx:
        raise BoundsError(f"{done.name} belongs to another context: it cannot end {dim.name}.")
    domain = done.domain
    if dim.name not in domain:
        raise BoundsError(
            f"{done.name} varies over ({', '.join(domain)}): it cannot end {dim.name}, over which it "
            "does not vary.",
            origin=done.op.origin,
            hint=f"give a tensor over {dim.name} that holds at its last point.",
        )
    instances = [d for d in domain if d != dim.name and _is_instance(ctx, d)]
    if instances:
        over = instances[0]
        raise BoundsError(
            f"{done.name} varies over {over}, along which nothing runs one after the other: "
            f"{dim.name} has one bound for all {over}.",
            origin=done.op.origin,
            hint=f"{done.name}.all(over={over}) ends {dim.name} when it holds for all {over}, "
            f"{done.name}.any(over={over}) when it holds for one.",
        )
    ctx.add("bound", [done.settled().read], BoundAttrs(dim.name), label=f"end of {dim.name}")


def _is_instance(ctx: Context, name: str) -> bool:
    """Whether a dimension stands for instances side by side, not for iterations.

    The first of several beside the one that ends does (docs/decisions/001), and those of a resource,
    unless the program steps along them.
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
