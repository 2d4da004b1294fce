"""The names that pictures and texts use for statements and tensors."""

from __future__ import annotations

from collections import Counter

from timerl_nb.ir.ops import OPERAND, DataflowAttrs
from timerl_nb.ir.pdg import Pdg


def statement_names(pdg: Pdg) -> dict[int, str]:
    """A name per operation: its label where that is one operation's alone, else with the id."""
    labels = Counter(op.label for op in pdg if op.kind not in ("merge", "output"))
    return {op.id: op.label if op.label and labels[op.label] == 1 else op.name for op in pdg}


def tensor_name(pdg: Pdg, op_id: int, out: int) -> str:
    """The name of an operation's output: what the user named, else `%id` of what computes it."""
    op = pdg[op_id]
    if not isinstance(op.attrs, DataflowAttrs):
        name = op.label or f"%{op_id}"
        return name if len(op.outputs) < 2 else f"{name}.{out}"
    source, inner_out = op.attrs.results[out]
    if source == OPERAND:
        return tensor_name(pdg, op.inputs[inner_out].source, op.inputs[inner_out].out)
    inner = next(o for o in op.attrs.body if o.id == source)
    return inner.label or f"%{source}"
