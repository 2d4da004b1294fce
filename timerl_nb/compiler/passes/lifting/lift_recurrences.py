"""Lifting: recurrences become one batch operation over their dimension.

A running sum, a discounted return or an advantage estimate `a[t] = d[t] + g * a[t + 1]` runs step by step.
Outside the loop of acting, one operation over all steps computes the same values: a sliding sum or
extremum, or a linear scan (TimeRL §5.2, Fig. 7). The dimension can then be vectorised.
Inside the loop of acting, memory would grow with the dimension, so the recurrence remains.
(`sliding_windows` treats windows in the same way, after vectorisation.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import (
    Edit,
    RewriteStep,
    Rewritten,
    chain,
    identity_rewrite,
)
from timerl_nb.compiler.ir.operation_attributes import ReindexAttrs, ScanAttrs, SlidingAttrs
from timerl_nb.compiler.ir.operation_kinds import LAYOUT
from timerl_nb.compiler.ir.operations import Op, Read
from timerl_nb.compiler.ir.reference.evaluation_rules import identity
from timerl_nb.compiler.ir.shapes import NUMPY, is_float
from timerl_nb.compiler.isl.sets_and_relations import Set
from timerl_nb.compiler.passes.lifting.recurrence_patterns import (
    NONE,
    Factor,
    Recurrence,
    broadcast_factor,
    merge_of,
    recognise,
)
from timerl_nb.compiler.passes.simplification.local_rules_cse_dce import remove_dead
from timerl_nb.compiler.passes.vectorization.batching_rules import Refused
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import cycles_of
from timerl_nb.compiler.passes.vectorization.operations_kept_in_loops import Acting
from timerl_nb.compiler.passes.vectorization.vectorize import length_reason
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import any_of, eq


@dataclass(frozen=True)
class Lift:
    """The pass `lift`: turns recurrences into batch operations.

    Attributes:
        dims: the vectorised dimensions, or None for all. Lifting along others has no advantage.
        acting: finds recurrences in the loop of acting; None without trials.
    """

    dims: tuple[str, ...] | None = None
    acting: Acting | None = None
    name: str = "lift"

    def run(self, pdg: Pdg) -> Rewritten:
        total, acting = identity_rewrite(pdg), self.acting or Acting()
        for dim in pdg.dims:
            made = self._lift_along(total.pdg, dim, acting.operations_over(dim.name))
            acting = acting.map_to_rewritten(total.pdg, made)
            total = chain(total, made)
        return total

    def _lift_along(self, pdg: Pdg, dim: Dim, acting: frozenset[int]) -> Rewritten:
        """Lift the recurrences along one dimension."""
        found, refused = self.recurrences(pdg, dim)
        lifted = [one for one in found if not one.members & acting]
        why = f"it is in the loop of acting over {dim.name}, and memory would grow"
        refused |= {one.head.id: why for one in found if one not in lifted}
        untouched = replace(identity_rewrite(pdg), refused=refused)
        if not lifted:
            return untouched
        edit = Edit(pdg)
        for one in lifted:
            _lift(edit, pdg, dim, one.members)
        remove_dead(edit)
        return chain(untouched, edit.finish())

    def candidate_dims(self, pdg: Pdg) -> list[Dim]:
        """Return the dimensions of possible lifting."""
        return [d for d in pdg.dims.bounded if self.dims is None or d.name in self.dims]

    def recurrences(self, pdg: Pdg, dim: Dim) -> tuple[list[Recurrence], dict[int, str]]:
        """Return the liftable recurrences along a dimension, and the reasons against other cycles."""
        refused: dict[int, str] = {}
        found: list[Recurrence] = []
        for members in cycles_of(pdg, dim.name).loops:
            try:
                if self.dims is not None and dim.name not in self.dims:
                    raise Refused(f"{dim.name} is not vectorised")
                if dim.endless:
                    raise Refused(f"{dim.name} has no end")
                for k in members:
                    if (reason := length_reason(pdg, pdg[k], dim)) is not None:
                        raise Refused(reason)
                found.append(_lift(Edit(pdg), pdg, dim, members))
            except Refused as reason:
                merges = [k for k in members if pdg[k].kind == "merge"]
                refused |= dict.fromkeys(merges, f"not lifted along {dim.name}: {reason}")
        return found, refused


def _lift(edit: Edit, pdg: Pdg, dim: Dim, members: frozenset[int]) -> Recurrence:
    """Replace a recurrence's head by a batch operation.

    Raises:
        Refused: the cycle is not a supported recurrence.
    """
    found = recognise(edit, pdg, dim, members)
    head = found.head
    if found.extremum is not None:
        rule, made = _extremum(edit, found)
    else:
        rule, made = _lift_linear(edit, found)
    read = edit.read_same_point(made)
    edit.insert(head.with_(kind="reindex", inputs=(read,), attrs=ReindexAttrs(0, dim.var)))
    edit.steps.append(
        RewriteStep(rule, tuple(sorted(members)), (made.id, head.id), f"over {dim.name}")
    )
    return found


def _extremum(edit: Edit, found: Recurrence) -> tuple[str, Op]:
    if not _starts_once(edit, found):
        raise Refused(f"its {found.extremum} restarts at some points")
    attrs = SlidingAttrs(0, 1.0, None, found.reverse)
    made = _add_labelled(
        edit, f"sliding_{found.extremum}", [_rests(edit, found)], attrs, found.head
    )
    return f"running {found.extremum}", made


def _lift_linear(edit: Edit, found: Recurrence) -> tuple[str, Op]:
    """Add a sliding sum or a scan in place of a linear recurrence; return the rule's name and the new operation.

    Raises:
        Refused: the recurrence is of booleans, or multiplies its earlier value by 0.
    """
    head = found.head
    factors = [part.factor for _, part in found.branches if part.factor != NONE]
    if not factors:
        raise Refused("it multiplies its earlier value by 0")
    if head.dtype == "bool":  # a copy of its earlier value, which is a factor of 1
        raise Refused("there is no arithmetic on booleans")
    rests, once = _rests(edit, found), _starts_once(edit, found)
    same = factors[0] if all(factor == factors[0] for factor in factors) else None
    if same is not None and not isinstance(same, Read) and abs(same) <= 1 and once:
        if same == 1 or is_float(head.dtype):
            attrs = SlidingAttrs(0, same, None, found.reverse)
            made = _add_labelled(edit, "sliding_sum", [rests], attrs, head)
            return "running sum" if same == 1 else "discounted sum", made
    ordered = is_float(head.dtype) and not all(_is_bounded(edit, x, set()) for x in factors)
    values = [
        (c, broadcast_factor(edit, part.factor, head.shape, head)) for c, part in found.branches
    ]
    along = _whole(edit, found.dim, merge_of(edit, values, head))
    attrs = ScanAttrs(0, found.reverse, ordered, restarts=found.restarts or not once)
    made = _add_labelled(edit, "linear_scan", [along, rests], attrs, head)
    product = all(part.rest is None for _, part in found.branches if part.factor != NONE)
    return "running product" if product else "linear recurrence", made


def _add_labelled(edit: Edit, kind: str, inputs: Sequence[Read], attrs: Any, head: Op) -> Op:
    """Add the operation that replaces a recurrence, named after the recurrent tensor."""
    label = f"{head.label}.{kind}" if head.label else ""
    return edit.add(kind, inputs, attrs, like=head, label=label)


def _starts_once(edit: Edit, found: Recurrence) -> bool:
    """Whether the recurrence starts at the first (or last) point only."""
    head, dim = found.head, found.dim
    starts = any_of(*(cond for cond, part in found.branches if part.factor == NONE))
    first = eq(dim.var, dim.size - 1 if found.reverse else 0)
    have, want = (Set.from_condition(edit.dims, head.domain, cond) for cond in (starts, first))
    return (have - want).is_empty() and (want - have).is_empty()


def _rests(edit: Edit, found: Recurrence) -> Read:
    """Return the summands of all points of the dimension."""
    head, nothing = found.head, NONE
    if found.extremum is not None:
        nothing = identity(found.extremum, NUMPY[head.dtype])
    values = [
        (
            cond,
            broadcast_factor(edit, nothing if part.rest is None else part.rest, head.shape, head),
        )
        for cond, part in found.branches
    ]
    return _whole(edit, found.dim, merge_of(edit, values, head))


def _whole(edit: Edit, dim: Dim, read: Read) -> Read:
    """Return the read at all points of a dimension, as the leading axis."""
    domain = edit.ops[read.source].outputs[read.out].domain
    index = tuple(
        dim.full_range if d == dim.name else e for d, e in zip(domain, read.index, strict=True)
    )
    return Read(read.source, read.out, index)


# --- bounded factors ----------------------------------------------------------------------------

_WITHIN_ONE: Final = frozenset({"tanh", "sigmoid", "sin", "cos", "sign"})
_PASSES: Final = LAYOUT | {"neg", "abs", "copy", "detach", "mul", "where", "merge"}


def _is_bounded(edit: Edit, x: Factor, seen: set[int]) -> bool:
    """Whether a factor is provably at most 1 in magnitude, for all values."""
    if not isinstance(x, Read):
        return abs(x) <= 1
    op = edit.ops[x.source]
    if op.id in seen:
        return False
    seen = {*seen, op.id}
    match op.kind:
        case "const" | "data":
            return bool((np.abs(op.attrs.value.array) <= 1).all())
        case "cast":
            return edit.ops[op.inputs[0].source].dtype == "bool"
        case "sub":  # 1 - x, for x between 0 and 1
            one, other = (edit.ops[read.source] for read in op.inputs)
            return _is_one(one) and _is_share(edit, other)
        case _ if op.kind in _WITHIN_ONE:
            return True
        case _ if op.kind in _PASSES:
            operands = op.inputs[1:] if op.kind == "where" else op.inputs
            return all(_is_bounded(edit, read, seen) for read in operands)
        case _:
            return False


def _is_one(op: Op) -> bool:
    return op.kind == "const" and bool((op.attrs.value.array == 1).all())


def _is_share(edit: Edit, op: Op) -> bool:
    """Whether a value is provably between 0 and 1."""
    if op.kind == "cast":
        return edit.ops[op.inputs[0].source].dtype == "bool"
    return op.kind == "sigmoid"
