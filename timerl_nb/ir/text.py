"""The text form of operations: one line each, stable, without addresses or times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timerl_nb.ir.attrs import (
    AccumulateAttrs,
    AtAttrs,
    AxesAttrs,
    AxisAttrs,
    BoundAttrs,
    CastAttrs,
    CheckpointAttrs,
    ConstAttrs,
    ConvAttrs,
    DiscountAttrs,
    DotAttrs,
    GatherAttrs,
    OutputAttrs,
    PermAttrs,
    PlaceAttrs,
    RangeAttrs,
    ReindexAttrs,
    RngAttrs,
    ScanAttrs,
    ScatterAttrs,
    ShapeAttrs,
    SlidingAttrs,
    SortAttrs,
    ValueAttrs,
)
from timerl_nb.ir.host import CallAttrs, UdfAttrs
from timerl_nb.ir.ops import OPERAND, DataflowAttrs, Op, Read, is_own
from timerl_nb.symbolic.domain import Domain
from timerl_nb.symbolic.expr import TRUE, Lin, index_text, sym


def attrs_text(attrs: Any) -> str:
    """The parameters as they stand in an operation's line; empty where there are none."""
    match attrs:
        case ConstAttrs(value, _, axes, starts=starts):
            return f"{value}{_along(axes, starts)}"
        case ValueAttrs(expr, _, axes):
            return f"{expr}{_along(axes)}"
        case RngAttrs(stream, dims, _, axes, starts=starts):
            return f"stream={stream} of ({', '.join(dims)}){_along(axes, starts)}"
        case CastAttrs(dtype):
            return dtype
        case AxesAttrs(axes):
            return f"axes={','.join(map(str, axes))}"
        case AxisAttrs(axis):
            return f"axis={axis}"
        case DiscountAttrs(axis, gamma, reverse):
            return f"axis={axis} gamma={gamma}" + (" reverse" if reverse else "")
        case SlidingAttrs(axis, gamma, window, forward):
            way = "ahead" if forward else "back"
            return f"axis={axis} gamma={gamma} {way}={'all' if window is None else window}"
        case DotAttrs() | ConvAttrs() | GatherAttrs() | ScatterAttrs():
            return str(attrs)
        case SortAttrs(axis, descending):
            return f"axis={axis}" + (" descending" if descending else "")
        case ScanAttrs(axis, reverse, ordered, restarts):
            how = " reverse" * reverse + " in order" * ordered + " anew at 0" * restarts
            return f"axis={axis}{how}"
        case ShapeAttrs(shape):
            return f"[{','.join(map(str, shape))}]"
        case PermAttrs(perm):
            return f"perm={','.join(map(str, perm))}"
        case RangeAttrs(axis, lo, hi):
            return f"axis={axis} {lo}:{hi}"
        case PlaceAttrs(axis, lo, size):
            return f"axis={axis} from {lo} of {size}"
        case AtAttrs(axis, at):
            return f"axis={axis} at {at}"
        case ReindexAttrs(axis, at, dim, _):
            return f"axis={axis} at {at} along {dim}"
        case OutputAttrs(name, role, _, axes):
            return f"{role} {name!r}" + (f" along {', '.join(axes)}" if axes else "")
        case BoundAttrs(dim):
            return f"of {dim}"
        case CheckpointAttrs(path):
            return repr(path)
        case UdfAttrs(name=name, resource=resource, axes=axes):
            uses = f" of {resource.name}" if resource else ""
            return name + uses + (f" along {', '.join(axes)}" if axes else "")
        case CallAttrs(name=name):
            return name
        case AccumulateAttrs(reduce, dims):
            return f"{reduce} over {', '.join(dims)}"
        case _:
            return ""


def _along(axes: Domain, starts: tuple[Lin, ...] = ()) -> str:
    """The dimensions that are laid out as axes, and where they start."""
    shown = [f"{d} from {e}" for d, e in zip(axes, starts, strict=True)] if starts else axes
    return f" along {', '.join(shown)}" if axes else ""


def read_text(ops: Mapping[int, Op], read: Read) -> str:
    """`%3`, `%3[b, i, t - 1]` where the index is not the reader's own point, `%3.1` for output 1."""
    if read.source == OPERAND:
        return f"${read.out}"
    source = ops[read.source]
    output = source.outputs[read.out]
    name = f"%{read.source}" + (f".{read.out}" if len(source.outputs) > 1 else "")
    sound = len(read.index) == len(output.domain)  # faults of the compiler are shown, too
    own = sound and is_own(read.index, output.domain)
    return name if own else name + index_text(read.index)


def op_line(ops: Mapping[int, Op], op: Op) -> str:
    """`%7 = tanh %6 : f32[32] @ (b, i, t)`."""
    reads = [read_text(ops, read) for read in op.inputs]
    if op.kind == "merge":
        pairs = zip(op.inputs, reads, strict=True)
        body = "{ " + "; ".join(f"{read.cond}: {text}" for read, text in pairs) + " }"
    else:
        body = ", ".join(reads)
    made = " , ".join(map(str, op.outputs))
    if not op.outputs:
        made = f"@ ({', '.join(op.domain)})"
    parts = [op.kind, attrs_text(op.attrs), body]
    label = f" {op.label!r}" if op.label else ""
    where = f" where {op.where}" if op.where is not TRUE else ""
    return f"%{op.id}{label} = {' '.join(p for p in parts if p)} : {made}{where}"


def op_lines(ops: Mapping[int, Op], op: Op, indent: str = "") -> list[str]:
    """The operation's line, and the lines of its body where it is a fused region."""
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
    """What an operation can be found by: id, kind, name, region, line; and that of those inside it.

    Not their regions: a kernel belongs to the region that most of it comes from.
    """
    found = [f"%{op.id}", op.kind, op.label, " / ".join(op.region), str(op.origin)]
    if isinstance(op.attrs, DataflowAttrs):
        for inner in op.attrs.body:
            found += about(inner.with_(region=()))
    return list(dict.fromkeys(filter(None, found)))


def op_json(op: Op) -> dict[str, Any]:
    """The operation as plain JSON values."""
    return {
        "op_id": op.id,
        "kind": op.kind,
        "label": op.label,
        "domain": list(op.domain),
        "where": str(op.where),
        "attrs": attrs_text(op.attrs),
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
