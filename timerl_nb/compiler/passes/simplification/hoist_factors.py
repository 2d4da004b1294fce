"""Hoisting of factors out of sums, if they are constant along the summed dimension.

Inside the sum, a factor would delay learning: an average over all steps, as a factor of every step's
gradient, prevents overlap.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from timerl_nb.compiler.ir.dependence_graph import crosses
from timerl_nb.compiler.ir.graph_rewriting import Edit, RewriteStep
from timerl_nb.compiler.ir.operation_attributes import NO_ATTRS, ConstArray, ConstAttrs
from timerl_nb.compiler.ir.operation_kinds import LAYOUT
from timerl_nb.compiler.ir.operations import Op, Read, read_symbols
from timerl_nb.compiler.ir.shapes import is_float
from timerl_nb.compiler.passes.simplification.local_rules_cse_dce import Look, typed_constant
from timerl_nb.compiler.symbolic.index_expressions import Lin, Slice
from timerl_nb.compiler.symbolic.substitution import subst_entry

Factor = tuple[str, Read]  # ("mul" or "div", the scalar)
_LINEAR: Final = LAYOUT | {"neg", "sum", "gather", "scatter_add"}


class _Factors:
    """Scalar factors of an operation's value, and the value without them."""

    def __init__(self, edit: Edit) -> None:
        self.edit = edit
        self._without: dict[tuple[int, Factor], tuple[Op | None, bool]] = {}
        self.past_zero = False  # whether a zero was passed without removing the factor from it

    def candidates(self, op: Op, summed: frozenset[str], seen: set[int]) -> dict[Factor, None]:
        """Return scalar factors and divisors below `op`, constant along `summed`."""
        if op.id in seen:
            return {}
        seen.add(op.id)
        look = Look(self.edit, op)
        found: dict[Factor, None] = {}
        for k in (1, 0) if op.kind == "mul" else (1,) if op.kind == "div" else ():
            source = look.operand(k)
            if source is not None and not source.shape and is_float(source.dtype):
                domain = set(source.outputs[0].domain)
                if domain < set(op.domain) and not domain & summed:
                    found[op.kind, op.inputs[k]] = None
        for k in self._linear_in(op):
            source = look.operand(k)
            if source is not None:
                found.update(self.candidates(source, summed, seen))
        return found

    def _linear_in(self, op: Op) -> tuple[int, ...]:
        """Return the operands with a linear effect, individually or jointly."""
        if op.kind in _LINEAR or op.kind == "div":
            return (0,)
        if op.kind in ("mul", "dot", "conv", "add", "sub"):
            return (0, 1)
        return (1, 2) if op.kind == "where" else ()

    def remove_factor(self, op: Op, factor: Factor) -> Op | None:
        """Return the operation's value without one occurrence of the factor; None if it has none."""
        key = (op.id, factor)
        before = self.past_zero
        if key not in self._without:
            self._without[key] = None, False  # a cycle has no factors
            self.past_zero = False
            rest = self._take(op, factor)
            self._without[key] = rest, self.past_zero
        found, passed = self._without[key]
        self.past_zero = before or passed
        return found

    def _take(self, op: Op, factor: Factor) -> Op | None:
        look, (how, read) = Look(self.edit, op), factor
        if op.kind == how:
            for k in (1, 0) if how == "mul" else (1,):
                rest = look.operand(1 - k)
                if op.inputs[k] == read and rest is not None and look.operand_as_result(1 - k):
                    return rest
        sides = self._linear_in(op)
        if op.kind in ("mul", "dot", "conv"):
            for k in sides:
                made = self._rebuild(look, (k,), factor)
                if made is not None:
                    return made
            return None
        if op.kind == "where":
            zeros = [k for k in sides if look.scalar(k) == 0]  # zero has every factor
            self.past_zero |= bool(zeros) and not self._is_finite(read)
            sides = tuple(k for k in sides if k not in zeros)
        return self._rebuild(look, sides, factor)

    def _is_finite(self, factor: Read) -> bool:
        """Whether a factor is a constant other than zero, infinity and NaN."""
        op = self.edit.ops[factor.source]
        return op.kind == "const" and bool(
            np.isfinite(op.attrs.value.array).all() and np.all(op.attrs.value.array)
        )

    def _rebuild(self, look: Look, sides: tuple[int, ...], factor: Factor) -> Op | None:
        """Return the operation with the factor removed from the given operands; None if one does not have
        it.
        """
        inputs = list(look.op.inputs)
        for k in sides:
            source = look.operand(k)
            stripped = None if source is None else self.remove_factor(source, factor)
            if stripped is None:
                return None
            inputs[k] = self.edit.read_same_point(stripped)
        if not sides:
            return None
        op = look.op
        made = self.edit.add(op.kind, inputs, op.attrs, like=op, label=op.label)
        self.edit.record_replacement(op.id, [made.id])
        return made


def hoist_factors(edit: Edit) -> None:
    """Apply sum over d of (c * x[d]) = c * sum over d of x[d], for scalars c independent of d."""
    factors = _Factors(edit)
    for op in list(edit.ops.values()):
        while op.kind == "sum" and op.id not in edit.ordered:
            lifted = _lift_one(edit, factors, op)
            if lifted is None:
                break
            op = lifted


def _lift_one(edit: Edit, factors: _Factors, op: Op) -> Op | None:
    """Hoist one factor and return the remaining sum; None if there is no factor."""
    (read,) = op.inputs
    body = edit.ops[read.source]
    entries = dict(zip(body.outputs[read.out].domain, read.index, strict=True))
    summed = frozenset(d for d, e in entries.items() if isinstance(e, Slice))
    if not summed:
        return None
    points = {d: e for d, e in entries.items() if isinstance(e, Lin)}
    for how, scalar in factors.candidates(body, summed, set()):
        factors.past_zero = False
        rest = factors.remove_factor(body, (how, scalar))
        if rest is None or not summed <= set(rest.outputs[0].domain):
            continue
        index = tuple(entries[d] for d in rest.outputs[0].domain)
        domain = body.outputs[read.out].domain
        if crosses(edit.dims, domain, read.index) and edit.dims.mention(read_symbols(scalar)):
            continue  # the factor would be read with another length
        inner = edit.add("sum", [Read(rest.id, 0, index)], op.attrs, like=op, label=op.label)
        outside = tuple(subst_entry(e, points) for e in scalar.index)
        factor = Read(scalar.source, scalar.out, outside)
        scaled = op.with_(kind=how, inputs=(edit.read_same_point(inner), factor), attrs=NO_ATTRS)
        if factors.past_zero:
            # A sum of zeros only must stay 0, even if the factor is 0 or infinite.
            made = edit.add(how, scaled.inputs, like=op)
            zero = edit.read_same_point(
                edit.add("const", (), ConstAttrs(ConstArray(typed_constant(0, op))), like=op)
            )
            empty = edit.add("eq", (edit.read_same_point(inner), zero), like=op)
            chosen = (
                edit.read_same_point(empty),
                edit.read_same_point(inner),
                edit.read_same_point(made),
            )
            scaled = op.with_(kind="where", inputs=chosen, attrs=NO_ATTRS)
        edit.insert(scaled)
        edit.steps.append(RewriteStep("factor lifted out of a sum", (op.id,), (op.id, inner.id)))
        return inner
    return None
