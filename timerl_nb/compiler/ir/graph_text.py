"""Text form of operations: one stable line each, without addresses or times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op, Read, is_own
from timerl_nb.compiler.symbolic.index_expressions import TRUE, index_text, sym


def read_text(ops: Mapping[int, Op], read: Read) -> str:
    """Return a read as text: `%3`, `%3[b, i, t - 1]` if it is not at the reader's own point, `%3.1` for output
    1.
    """
    if read.source == OPERAND:
        return f"${read.out}"
    source = ops[read.source]
    output = source.outputs[read.out]
    name = f"%{read.source}" + (f".{read.out}" if len(source.outputs) > 1 else "")
    sound = len(read.index) == len(output.domain)  # invalid graphs can be printed, too
    own = sound and is_own(read.index, output.domain)
    return name if own else name + index_text(read.index)


def op_line(ops: Mapping[int, Op], op: Op) -> str:
    """Return an operation as text: `%7 = tanh %6 : f32[32] @ (b, i, t)`."""
    reads = [read_text(ops, read) for read in op.inputs]
    if op.kind == "merge":
        pairs = zip(op.inputs, reads, strict=True)
        body = "{ " + "; ".join(f"{read.cond}: {text}" for read, text in pairs) + " }"
    else:
        body = ", ".join(reads)
    made = " , ".join(map(str, op.outputs))
    if not op.outputs:
        made = f"@ ({', '.join(op.domain)})"
    parts = [op.kind, str(op.attrs), body]
    label = f" {op.label!r}" if op.label else ""
    where = f" where {op.where}" if op.where is not TRUE else ""
    return f"%{op.id}{label} = {' '.join(p for p in parts if p)} : {made}{where}"


def op_lines(ops: Mapping[int, Op], op: Op, indent: str = "") -> list[str]:
    """Return the operation's line, and the lines of its body for a fused region."""
    if not isinstance(op.attrs, DataflowAttrs):
        return [indent + op_line(ops, op)]
    inner = {inner.id: inner for inner in op.attrs.body}
    reads = ", ".join(f"${k} = {read_text(ops, read)}" for k, read in enumerate(op.inputs))
    where = f" where {op.where}" if op.where is not TRUE else ""
    label = f" {op.label!r}" if op.label else ""
    lines = [f"{indent}%{op.id}{label} = dataflow ({reads}) @ ({', '.join(op.domain)}){where}"]
    for body in op.attrs.body:
        lines += op_lines(inner, body, indent + "  ")
    for k, ((source, out), output) in enumerate(zip(op.attrs.results, op.outputs, strict=True)):
        lines.append(
            f"{indent}  -> .{k} = {read_text(inner, _plain(inner, source, out))} : {output}"
        )
    return lines


def _plain(ops: Mapping[int, Op], source: int, out: int) -> Read:
    if source == OPERAND:
        return Read(OPERAND, out, ())
    return Read(source, out, tuple(sym(d) for d in ops[source].outputs[out].domain))


def about(op: Op) -> list[str]:
    """Return the search keys of an operation: id, kind, name, region and line, with those of its body.

    Regions of the body are omitted, since a kernel belongs to the region of most of its operations.
    """
    found = [f"%{op.id}", op.kind, op.label, " / ".join(op.region), str(op.origin)]
    if isinstance(op.attrs, DataflowAttrs):
        for inner in op.attrs.body:
            found += about(inner.with_(region=()))
    return list(dict.fromkeys(filter(None, found)))


def op_json(op: Op) -> dict[str, Any]:
    """Return the operation as plain JSON values."""
    return {
        "op_id": op.id,
        "kind": op.kind,
        "label": op.label,
        "domain": list(op.domain),
        "where": str(op.where),
        "attrs": str(op.attrs),
        "region": list(op.region),
        "origin": {"file": op.origin.place, "line": op.origin.line, "text": op.origin.text},
        "inputs": [
            {
                "op_id": read.source,
                "out": read.out,
                "index": [str(entry) for entry in read.index],
                "cond": str(read.cond),
            }
            for read in op.inputs
        ],
        "outputs": [
            {
                "shape": [s if isinstance(s, int) else str(s) for s in o.type.shape],
                "dtype": o.type.dtype,
                "domain": list(o.domain),
                "reduce": o.reduce,
                "label": o.label,
            }
            for o in op.outputs
        ],
        "body": [op_json(inner) for inner in op.attrs.body]
        if isinstance(op.attrs, DataflowAttrs)
        else [],
    }
