"""Invariants of graphs, checked after construction and after every pass.

`verify` checks the structure: ids, operands, types and domains. A failure is a bug of the compiler.
`prove_reads` uses isl to prove that every read lies in its source's domain under given bounds. A failure is
an error of the program, reported with tensor, line and a sample point.
"""

from __future__ import annotations

from collections.abc import Mapping

from timerl_nb.base.errors import BranchError, Origin, ReadError, VerificationError, point_text
from timerl_nb.compiler.ir.analysis.needed_points import needed_points
from timerl_nb.compiler.ir.analysis.requested_orders import Order
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_text import op_line, read_text
from timerl_nb.compiler.ir.operation_attributes import (
    AccumulateAttrs,
    AxesAttrs,
    AxisAttrs,
    Filled,
    MergeAttrs,
    ReindexAttrs,
)
from timerl_nb.compiler.ir.operation_kinds import KINDS, SINKS
from timerl_nb.compiler.ir.operations import (
    OPERAND,
    DataflowAttrs,
    Op,
    Read,
    is_sliced,
    read_symbols,
)
from timerl_nb.compiler.ir.shapes import same_shape
from timerl_nb.compiler.ir.type_rules import TypeRuleError
from timerl_nb.compiler.isl.sets_and_relations import Point, Relation, Set, primed_name
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    Lin,
    all_of,
    const,
    ge,
    lin,
    negate,
    sym,
)
from timerl_nb.compiler.symbolic.substitution import subst_cond, subst_entry


def verify(pdg: Pdg, before: Pdg | None = None) -> None:
    """Check the structure of a graph.

    Args:
        pdg: the graph.
        before: a verified graph; operations equal in both are skipped.

    Raises:
        VerificationError: an operation violates an invariant; the message shows its line.
    """
    for op in pdg:
        if before is not None and _is_in(before, pdg, op):
            continue
        for problem in _find_problems(pdg, op):
            raise VerificationError(
                f"{problem}", origin=op.origin, evidence=f"operation: {op_line(pdg.ops, op)}"
            )
    for order in pdg.orders:
        fault = _order_problem(pdg, order)
        if fault is not None:
            raise VerificationError(f"an order {fault}.", origin=order.origin)


def _is_in(before: Pdg, pdg: Pdg, op: Op) -> bool:
    """Whether an operation, with everything that it reads, is part of another graph."""

    def made(one: Pdg, read: Read) -> object:
        source = one.ops.get(read.source)
        return None if source is None else source.outputs

    same = op is before.ops.get(op.id) and pdg.dims == before.dims
    return same and all(made(before, r) is made(pdg, r) is not None for r in op.inputs)


def _order_problem(pdg: Pdg, order: Order) -> str | None:
    if not {order.before, order.after} <= set(pdg.ops):
        return "names an operation that does not exist"
    if pdg[order.before].kind in SINKS or pdg[order.after].kind in SINKS | {"merge"}:
        return "names a sink, or makes a merge wait"
    return None


def _find_problems(pdg: Pdg, op: Op) -> list[str]:
    """Describe the violated invariants of an operation: operands, domain, result types and outputs."""
    found: list[str] = []
    spec = KINDS.get(op.kind)
    if spec is None:
        return [f"there is no operation kind {op.kind!r}"]
    if spec.arity is not None and len(op.inputs) != spec.arity:
        found.append(f"{op.kind} takes {spec.arity} operands, not {len(op.inputs)}")
    for read in op.inputs:
        if read.source not in pdg.ops or read.out >= len(pdg.ops[read.source].outputs):
            return [f"reads %{read.source}.{read.out}, which does not exist"]
        if len(read.index) != len(pdg.output(read).domain):
            return [f"reads %{read.source} with {len(read.index)} indices"]
        if read.cond is not TRUE and op.kind != "merge":
            found.append("only a merge's branches have conditions")
        if op.kind == "merge" and is_sliced(read):
            found.append("a merge's branch is a slice")
    needed = {s for r in op.inputs for s in read_symbols(r)} | set(op.attrs.varying_dims(pdg.dims))
    missing = tuple(d for d in pdg.dims.dims_of_symbols(needed) if d not in op.domain)
    if missing:
        found.append(f"depends on {', '.join(missing)} but varies over ({', '.join(op.domain)})")
    if op.kind in SINKS:
        return found + (["a sink has no outputs"] if op.outputs else [])
    if isinstance(op.attrs, DataflowAttrs):
        return found + _dataflow_problems(op, op.attrs)
    if op.kind == "merge" and not op.inputs:
        return found  # `prove_reads` reports it in the user's terms
    try:
        made = spec.outputs([pdg.read_type(read) for read in op.inputs], op.attrs)
    except TypeRuleError as error:
        return [*found, str(error)]
    if len(op.outputs) != len(made):
        found.append(f"{op.kind} has {len(made)} outputs, not {len(op.outputs)}")
    reduced = op.attrs.dims if isinstance(op.attrs, AccumulateAttrs) else ()
    for output, kind in zip(op.outputs, made, strict=False):
        if kind.dtype != output.type.dtype or not same_shape(kind.shape, output.type.shape):
            found.append(f"results in {kind} but is declared {output.type}")
        if output.domain != tuple(d for d in op.domain if d not in reduced):
            found.append("its output varies over other dimensions than it does")
    return found


def _dataflow_problems(op: Op, attrs: DataflowAttrs) -> list[str]:
    seen: dict[int, Op] = {}
    for inner in attrs.body:
        for read in inner.inputs:
            if read.source == OPERAND:
                if read.out >= len(op.inputs):
                    return [f"%{inner.id} reads operand {read.out}, which does not exist"]
            elif read.source not in seen:
                return [f"%{inner.id} reads %{read.source} before it is computed"]
        if set(inner.domain) - set(op.domain):
            return [f"%{inner.id} varies over dimensions that the dataflow lacks"]
        seen[inner.id] = inner
    if len(attrs.results) != len(op.outputs):
        return ["a dataflow has one output per result"]
    return []


def prove_reads(pdg: Pdg, bounds: Point) -> None:
    """Prove that every read is inside its source's domain, and that branches are complete and disjoint.

    Raises:
        ReadError: a read of points without a value.
        BranchError: branches leave points undefined, or overlap.
    """
    for op in pdg:
        if op.kind == "merge":
            _prove_branches(pdg, op, bounds)
        if isinstance(op.attrs, ReindexAttrs) and op.attrs.beyond == "never":
            _prove_positions(pdg, op, op.attrs, bounds)
        for read in op.inputs:
            if pdg.ops[read.source].where in (TRUE, op.where) and pdg.is_identity(read):
                continue
            if pdg.crossed(read):
                _prove_across(pdg, op, read, bounds)
                continue
            outside = pdg.reads(op, read).subtract_range(pdg.defined(read)).with_bounds(bounds)
            found = outside.sample()
            if found is not None:
                raise out_of_bounds_error(pdg, op, read, *found)
    _prove_filled(pdg, bounds)


def _prove_filled(pdg: Pdg, bounds: Point) -> None:
    """Refuse reductions of nothing, at needed points, for operations without a neutral element."""
    needed: Mapping[int, Set | None] | None = None
    for op in pdg:
        filled = _must_hold(pdg, op)
        if filled is None or filled.cond is TRUE:
            continue
        empty = (pdg.points(op) - _nonempty_points(pdg, op, filled)).with_bounds(bounds)
        if empty.is_empty():
            continue
        needed = needed_points(pdg, chosen=True) if needed is None else needed
        points = needed[op.id]
        at = None if points is None else (empty & points).sample()
        if at is not None:
            raise _nothing(pdg, op, filled, at)


def _must_hold(pdg: Pdg, op: Op) -> Filled | None:
    """Return the condition under which an operation has a value."""
    if isinstance(op.attrs, AxesAttrs):
        return op.attrs.filled
    if isinstance(op.attrs, AxisAttrs) and op.kind in ("argmax", "argmin"):
        size = pdg.read_type(op.inputs[0]).shape[op.attrs.axis]
        return Filled(ge(lin(size), 1))
    return None


def _nonempty_points(pdg: Pdg, op: Op, filled: Filled) -> Set:
    """Return the points at which an operation has something to reduce."""
    if not filled.among:
        return Set.from_condition(pdg.dims, op.domain, filled.cond)
    inner = {name: sym(primed_name(name)) for name in filled.among}
    inside = subst_cond(pdg.dims.range_condition(filled.among), inner)
    cond = all_of(subst_cond(filled.cond, inner), inside)
    return Relation.from_condition(pdg.dims, op.domain, filled.among, cond).domain()


def _nothing(pdg: Pdg, op: Op, filled: Filled, at: dict[str, int]) -> ReadError:
    (read,) = op.inputs
    source = pdg[read.source]
    what = f"{source.label or 'the operand'}, {pdg.read_type(read)}"
    if filled.among:
        over = ", ".join(filled.among)
        what = f"{source.label or 'the operand'}, defined where {filled.cond}, over {over}"
    word = "mean" if op.kind == "sum" else op.kind
    where = f" at {point_text(at)}" if at else ""
    return ReadError(
        f"{word} of an empty set{where}: there is no element to reduce.",
        origin=op.origin,
        others={"made at": source.origin} if source.origin != op.origin else {},
        evidence=f"{word} of {what}",
        hint="provide an element at every needed point, define the tensor by branches, "
        "or pass initial= to max, min or mean.",
    )


def _prove_across(pdg: Pdg, op: Op, read: Read, bounds: Point) -> None:
    """Prove that a read at another value of a dynamic bound is defined for every possible value."""
    crossed = pdg.crossed(read)
    surely = pdg.defined(read).at_every_length(crossed)
    missing = pdg.reads(op, read).at_some_length(crossed).subtract_range(surely)
    found = missing.with_bounds(bounds).sample()
    if found is None:
        return
    error = out_of_bounds_error(pdg, op, read, *found)
    if not any(dim.name in pdg.output(read).domain for dim in crossed):
        raise error
    dim = next(dim for dim in crossed if dim.name in pdg.output(read).domain)
    over = ", ".join(dim.over or ())
    raise ReadError(
        f"{error.what} The bound {dim.bound} differs for each {over}, so only the first point of "
        f"{dim.name} certainly exists.",
        origin=op.origin,
        others=error.others,
        evidence=error.evidence,
        hint=f"reduce it over {dim.name} at the current {over} first, for example to its last or mean "
        f"value, and read the result at another {over}.",
    )


def out_of_bounds_error(
    pdg: Pdg, op: Op, read: Read, sink: dict[str, int], source: dict[str, int]
) -> ReadError:
    """Return the error of a read outside its source's domain, given a point of the reader and the point read."""
    tensor = pdg.ops[read.source]
    name = tensor.label or f"the tensor %{tensor.id}"
    by = {d: const(v) for d, v in sink.items()}
    shown = ", ".join(str(subst_entry(entry, by)) for entry in read.index)
    index = read_text(pdg.ops, read)
    index = index[index.index("[") :] if "[" in index else ""
    at = f" at {point_text(sink)}" if sink else ""
    hint = (
        "restrict the index with trl.min / trl.max, give the tensor a branch for the missing "
        "points, or define the reading tensor by branches."
    )
    if tensor.where is not TRUE:
        hint = (
            f"it is defined only for {tensor.where}: read it there, as in y[condition], reduce it with "
            "over=, or define the other points with x.otherwise(value)."
        )
    output = pdg.output(read)
    foreign = [
        str(entry)
        for d, entry in zip(output.domain, read.index, strict=True)
        if isinstance(entry, Lin) and d not in entry.symbols and pdg.dims.ordered(entry.symbols)
    ]
    if output.type.shape and foreign:
        hint += f" Indices are for the dimensions ({', '.join(output.domain)}) of {name}; for an axis, write "
        hint += f"x.take({foreign[0]})."
    return ReadError(
        f"{name}{index} is read{at}, but {name} has no value at {point_text(source)}.",
        origin=op.origin,
        others={"defined at": tensor.origin},
        evidence=f"sample: the reader's point {point_text(sink) or '()'} reads [{shown}]",
        hint=hint,
    )


def _prove_positions(pdg: Pdg, op: Op, attrs: ReindexAttrs, bounds: Point) -> None:
    kind = pdg.read_type(op.inputs[0])
    size = lin(kind.shape[attrs.axis])
    lo, hi = attrs.ends
    inside = all_of(ge(lo, 0), ge(hi, lo), ge(size, hi))
    text = f"{lo}" if attrs.size is None else f"{lo}:{hi}"
    outside = (
        (pdg.points(op) & Set.from_condition(pdg.dims, op.domain, negate(inside)))
        .with_bounds(bounds)
        .sample()
    )
    if outside is not None:
        at = f" at {point_text(outside)}" if outside else ""
        raise ReadError(
            f"axis {attrs.axis} of {kind} has no position {text}{at}.",
            origin=op.origin,
            hint="restrict the position with trl.min / trl.max, or choose another axis.",
        )


def _prove_branches(pdg: Pdg, op: Op, bounds: Point) -> None:
    """Prove that the branches of a merge are disjoint and cover all of its points.

    Raises:
        BranchError: two branches have a common point, or a point has no branch.
    """
    covered: Set | None = None
    name = op.label or f"the tensor %{op.id}"
    lines = [f"branch where {r.cond}: {line}" for r, line in _branches(op)]
    for read in op.inputs:
        here = Set.from_condition(pdg.dims, op.domain, read.cond)
        if covered is not None:
            both = (covered & here).with_bounds(bounds).sample()
            if both is not None:
                raise BranchError(
                    f"{name} has two values at {point_text(both)}: its branches overlap.",
                    origin=op.origin,
                    evidence=lines,
                    hint="make the left-hand indices disjoint. To give the first branch precedence, write "
                    f"trl.first_match({op.label or 'x'}) before the assignments.",
                )
        covered = here if covered is None else covered | here
    everywhere = pdg.points(op)
    missing = (
        (everywhere - covered if covered is not None else everywhere).with_bounds(bounds).sample()
    )
    if missing is not None:
        raise BranchError(
            f"{name} has no value at {point_text(missing)}: no branch covers that point.",
            origin=op.origin,
            evidence=lines or ["it has no branch at all"],
            hint="assign the missing points, for example with a constant index or a condition.",
        )


def _branches(op: Op) -> list[tuple[Read, Origin]]:
    lines = op.attrs.lines if isinstance(op.attrs, MergeAttrs) else (op.origin,) * len(op.inputs)
    return list(zip(op.inputs, lines, strict=True))
