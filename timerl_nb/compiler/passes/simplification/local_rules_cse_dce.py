"""Application of local rules, removal of dead code, and common subexpression elimination.

A rule receives one operation. Its answer is an equal value: a read of another operation, or the operation
in another form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.compiler.ir.dependence_graph import Pdg, read_type
from timerl_nb.compiler.ir.graph_rewriting import Edit, RewriteStep
from timerl_nb.compiler.ir.operation_attributes import NO_ATTRS
from timerl_nb.compiler.ir.operation_kinds import SINKS
from timerl_nb.compiler.ir.operations import Op, Read, is_own, reached_from
from timerl_nb.compiler.ir.shapes import NUMPY, Shape, same_shape
from timerl_nb.compiler.symbolic.index_expressions import TRUE

Answer = Read | Op | None
Rule = Callable[["Look"], Answer]


@dataclass(frozen=True)
class Look:
    """One operation for a rule, with access to its operands."""

    edit: Edit
    op: Op

    def operand(self, k: int) -> Op | None:
        """Return the operation behind operand `k` if it is read at the operation's own point, else None."""
        read = self.op.inputs[k]
        return self.edit.ops[read.source] if self.is_own(read) else None

    def is_own(self, read: Read) -> bool:
        domain = self.edit.ops[read.source].outputs[read.out].domain
        return read.cond is TRUE and is_own(read.index, domain)

    def shape(self, k: int) -> Shape:
        read = self.op.inputs[k]
        return read_type(self.edit.ops[read.source].outputs[read.out], read).shape

    def scalar(self, k: int) -> float | None:
        """Return the value of operand `k` if it is a scalar constant, else None."""
        source = self.operand(k)
        if source is None or source.kind != "const" or source.shape:
            return None
        return float(source.attrs.value.array)

    def operand_as_result(self, k: int) -> Read | None:
        """Return operand `k` as an answer if it has the operation's own type, else None."""
        read = self.op.inputs[k]
        output = self.edit.ops[read.source].outputs[read.out]
        same = same_shape(self.shape(k), self.op.shape) and output.type.dtype == self.op.dtype
        return read if same else None

    def rebuild(self, kind: str, inputs: Iterable[Read], attrs: Any = NO_ATTRS) -> Op:
        """Return the operation as another kind, with the same id, type and domain."""
        return self.op.with_(kind=kind, inputs=tuple(inputs), attrs=attrs)


def typed_constant(value: Any, op: Op) -> Any:
    """Return a constant of the operation's element type."""
    return np.asarray(value, NUMPY[op.dtype])


def apply_rules(edit: Edit, rules: Mapping[str, Rule]) -> None:
    """Apply local rules until none applies."""
    pending = dict.fromkeys(edit.ops)
    while pending:
        op_id = next(iter(pending))
        del pending[op_id]
        op = edit.ops.get(op_id)
        if op is None:
            continue
        if op_id in edit.ordered:
            edit.refused[op_id] = "it is part of an order"
            continue
        for name, rule in rules.items():
            before = len(edit.ops)
            answer = rule(Look(edit, op))
            if answer is None:
                continue
            if isinstance(answer, Read):
                readers = list(edit.readers[op_id])
                if not readers or not edit.replace_all_uses(op_id, answer):
                    continue
                edit.record_replacement(op_id, [answer.source])
                edit.steps.append(RewriteStep(name, (op_id,), (answer.source,)))
                edit.remove(op_id)
                pending.update(dict.fromkeys(readers))
            else:
                edit.insert(answer)
                edit.steps.append(RewriteStep(name, (op_id,), (op_id,), answer.kind))
                fresh = list(edit.ops)[before:]
                pending.update(dict.fromkeys([op_id, *fresh, *edit.readers[op_id]]))
            break


def remove_dead(edit: Edit) -> None:
    """Remove all operations without influence on any sink."""
    sinks = [op.id for op in edit.ops.values() if op.kind in SINKS]
    alive = reached_from(sinks, lambda k: edit.ops[k].sources)
    dead = [op_id for op_id in edit.ops if op_id not in alive]
    if dead:
        edit.steps.append(RewriteStep("dead code", tuple(dead), ()))
    for op_id in dead:
        edit.insert(edit.ops[op_id].with_(inputs=()))
    for op_id in dead:
        edit.record_replacement(op_id, ())
        edit.remove(op_id)


def _key(op: Op) -> tuple[Any, ...]:
    outputs = tuple((o.type.dtype, o.domain, o.reduce) for o in op.outputs)
    return (op.kind, op.inputs, op.attrs, op.domain, op.where, outputs)


def remove_duplicates(edit: Edit) -> None:
    """Merge operations with equal equations."""
    changed = True
    while changed:
        changed = False
        first: dict[tuple[Any, ...], int] = {}
        for op_id in Pdg(edit.dims, edit.ops).order:
            op = edit.ops[op_id]
            if op.kind in SINKS or op.kind == "udf" or op_id in edit.ordered:
                continue
            kept = first.setdefault(_key(op), op_id)
            if kept != op_id and edit.replace_all_uses(op_id, edit.read_same_point(edit.ops[kept])):
                edit.steps.append(RewriteStep("duplicate code", (op_id, kept), (kept,)))
                if op.label and not edit.ops[kept].label:
                    edit.insert(edit.ops[kept].with_(label=op.label))
                edit.record_replacement(op_id, [kept])
                edit.remove(op_id)
                changed = changed or op.kind == "merge"
