"""Prefix and suffix reductions in a loop, as recurrences: each point updates the previous total.

A sum of x[0:t + 1] in the loop that makes x reads up to T values at each of T points, and stores all of
them. The recurrence e[0] = 0, e[t + 1] = y[t], y[t] = e[t] + x[t] reads two values and stores one. The same
holds for extrema, products and discounted sums from the current point; suffixes run backwards. This is the
reverse of lifting, for windows that are not lifted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from timerl_nb.compiler.ir.graph_rewriting import Edit, RewriteStep
from timerl_nb.compiler.ir.operation_attributes import NO_ATTRS, AxesAttrs, CastAttrs, DiscountAttrs
from timerl_nb.compiler.ir.operation_kinds import REDUCTIONS
from timerl_nb.compiler.ir.operations import Op, Read
from timerl_nb.compiler.ir.reference.evaluation_rules import identity
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.passes.lifting.recurrence_patterns import broadcast_factor, constant
from timerl_nb.compiler.passes.vectorization.batching_rules import Refused
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import TRUE, ZERO, Lin, Slice, eq, negate, sym

_JOIN: Final = {"sum": "add", "discounted_sum": "add", "prod": "mul", "max": "max2", "min": "min2"}
_JOIN_BOOLEANS: Final = {"max": "or", "min": "and"}


def step_by_step(edit: Edit, op: Op, dim: Dim) -> None:
    """Replace a reduction of a prefix or suffix by a recurrence.

    Raises:
        Refused: the reduction has no such recurrence.
    """
    backwards, inclusive = _ends(edit, op, dim)
    own = _own_part(edit, op, dim)
    reduce = "sum" if op.kind == "discounted_sum" else op.kind
    least = identity(reduce, NUMPY[op.dtype])
    nothing = broadcast_factor(edit, constant(edit, least, op), op.shape, op)

    total, before = (op.id, edit.fresh_id()) if inclusive else (edit.fresh_id(), op.id)
    edit.insert(op.with_(id=total))  # inserted for its type; it and the merge read each other
    start = eq(dim.var, dim.size - 1 if backwards else 0)
    last = dim.var + 1 if backwards else dim.var - 1
    index = tuple(last if d == dim.name else sym(d) for d in op.domain)
    branches = (
        Read(nothing.source, nothing.out, nothing.index, start),
        Read(total, 0, index, negate(start)),
    )
    merge = op.with_(id=before, kind="merge", inputs=branches, attrs=NO_ATTRS)
    edit.insert(merge)
    past = edit.read_same_point(merge)
    if isinstance(op.attrs, DiscountAttrs) and op.attrs.gamma != 1:
        gamma = constant(edit, op.attrs.gamma, op)
        past = edit.read_same_point(edit.add("mul", [gamma, past], like=op))
    join = (_JOIN_BOOLEANS if op.dtype == "bool" else _JOIN)[op.kind]
    edit.insert(op.with_(id=total, kind=join, inputs=(past, own), attrs=NO_ATTRS))
    what = "suffix" if backwards else "prefix"
    edit.steps.append(
        RewriteStep(f"{what} step by step", (op.id,), (before, total), f"over {dim.name}")
    )


def _ends(edit: Edit, op: Op, dim: Dim) -> tuple[bool, bool]:
    """Return whether the slice is a suffix, and whether it includes the current point.

    Raises:
        Refused: the operation does not reduce exactly one prefix or suffix.
    """
    (read,) = op.inputs
    source, output = edit.ops[read.source], edit.ops[read.source].outputs[read.out]
    if op.where is not TRUE or source.where is not TRUE:
        raise Refused("it runs, or its operand is defined, at some points only")
    varying = [s for s in (*op.shape, *output.type.shape) if isinstance(s, Lin)]
    if any(s.symbols.intersection(op.domain) for s in varying):
        raise Refused("its shape varies")
    for d, entry in zip(output.domain, read.index, strict=True):
        if isinstance(entry, Slice) != (d == dim.name):
            raise Refused(f"it reads {d} at {entry}")
        if d != dim.name and dim.name in entry.symbols:
            raise Refused(f"the index {entry} moves with {dim.name}")
    window = read.index[output.domain.index(dim.name)]
    assert isinstance(window, Slice)
    found = _SLICES.get((_relative(window.lo, dim), _relative(window.hi, dim)))
    if found is None:
        raise Refused(f"the moving slice {window} would have to remove earlier values")
    if op.kind == "discounted_sum":
        if op.attrs.axis != 0 or op.attrs.reverse == found[0]:
            raise Refused(f"its discount does not count from the current {dim.name}")
    elif 0 not in op.attrs.axes:
        raise Refused("it does not reduce the slice")
    return found


# (lo, hi) as distances from the point, or as ends: (is a suffix, includes the point)
_SLICES: Final[Mapping[tuple[int | str, int | str], tuple[bool, bool]]] = {
    ("first", 1): (False, True),
    ("first", 0): (False, False),
    (0, "end"): (True, True),
    (1, "end"): (True, False),
}


def _relative(at: Lin, dim: Dim) -> int | str:
    if at is ZERO:
        return "first"
    distance = at - dim.var
    return "end" if at is dim.size else distance.const if distance.is_const else "elsewhere"


def _own_part(edit: Edit, op: Op, dim: Dim) -> Read:
    """Return the summand of the current point, reduced along the other axes."""
    (read,) = op.inputs
    domain = edit.ops[read.source].outputs[read.out].domain
    index = tuple(dim.var if d == dim.name else e for d, e in zip(domain, read.index, strict=True))
    part = Read(read.source, read.out, index)
    axes = tuple(a - 1 for a in op.attrs.axes if a) if op.kind in REDUCTIONS else ()
    if axes:
        return edit.read_same_point(edit.add(op.kind, [part], AxesAttrs(axes), like=op))
    if (
        edit.ops[read.source].outputs[read.out].type.dtype != op.dtype
    ):  # sums of booleans are integers
        return edit.read_same_point(edit.add("cast", [part], CastAttrs(op.dtype), like=op))
    return part
