"""Reverse-mode differentiation through symbolic dimensions. Source: TimeRL §5.1.

For an edge y[p] = f(x[φ(p)]), the gradient of x at q is the sum of Jᵀ∇y[p] over all p with φ(p) = q. `vjp_rules`
implements this vector-Jacobian product per kind of operation, and `adjoint` the sum over the inverse of φ. Cycles pass through merges: the
gradient of a merge is created first and defined last. Hence the gradient of a recurrence is a recurrence.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from timerl_nb.base.errors import GradientError, user_origin
from timerl_nb.compiler.ir.analysis.needed_points import needed_points, restrict_to_needed
from timerl_nb.compiler.ir.dependence_graph import Pdg, at_own_point
from timerl_nb.compiler.ir.operations import Op, reached_from
from timerl_nb.compiler.ir.shapes import is_float
from timerl_nb.compiler.language.autodiff.gradient_paths import Paths
from timerl_nb.compiler.language.autodiff.index_adjoints import (
    Needed,
    adjoint,
    counted_at,
    through_slices,
)
from timerl_nb.compiler.language.autodiff.vjp_rules import NO_VJP, VJP, Node, Tensor
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.inputs.tensor_sources import zeros
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import (
    Backward,
    RecurrentTensor,
    broadcast_to,
    constant,
    register_backward,
    tensor_of,
)
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Cond


def backward(loss: Tensor) -> Backward:
    """Add to each parameter's `grad` the gradient of the sum of `loss` over all its points.

    Raises:
        GradientError: the loss depends on no parameter, or only through operations without a derivative.
    """
    ctx = loss.ctx
    leaves = [p for p in ctx.parameters.values() if p.trainable]
    with ctx.attempt():
        found = gradients(loss, [RecurrentTensor(ctx, p.read) for p in leaves], optional=True)
    if all(g is None for g in found):
        raise GradientError(
            "backward() reaches no parameter from this loss.",
            hint="check that the loss depends on parameters and is not detached; gradients do not "
            "flow through p.next.",
        )
    reached = [(leaf, g) for leaf, g in zip(leaves, found, strict=True) if g is not None]
    for leaf, g in reached:
        leaf.accumulate(g)
    varied = {d for _, g in reached for d in g.domain}
    return Backward(len(reached), tuple(d for d in loss.domain if d not in varied))


@explain_call_errors
def grad(loss: Tensor, of: Tensor | Sequence[Tensor]) -> Any:
    """Return the gradients of the sum of `loss` over its points, one per tensor in `of`.

    Raises:
        GradientError: the loss does not depend on a tensor, or only through operations without a derivative.
    """
    several: list[Any] = list(of) if isinstance(of, list | tuple) else [of]
    for x in (loss, *several):
        if not isinstance(x, RecurrentTensor):  # Python does not check annotations
            raise GradientError(
                f"{x!r} is not a tensor to differentiate.",
                hint="write trl.grad(loss, [x, y]) with tensors.",
            )
    with loss.ctx.attempt():
        found = gradients(loss, several, optional=False)
    return found[0] if isinstance(of, RecurrentTensor) else found


def gradients(loss: Tensor, leaves: Sequence[Tensor], *, optional: bool) -> list[Tensor | None]:
    """Return the gradients of the leaves; if `optional`, None for leaves on which the loss does not depend."""
    if not is_float(loss.dtype):
        raise GradientError(
            f"only floating-point values have a gradient, not {loss.type}.",
            hint="differentiate a floating-point tensor.",
        )
    ctx = loss.ctx
    loss = loss.settled()
    for leaf in leaves:
        if leaf.read != at_own_point(leaf.read.source, leaf.op.outputs[0]):
            raise GradientError(
                f"the gradient of an indexed tensor ({leaf.name}) is not defined.",
                hint="take the gradient with respect to the tensor itself and index that.",
            )
    graph = restrict_to_needed(ctx.snapshot(), [loss.read.source])
    targets = frozenset(leaf.read.source for leaf in leaves)
    paths = Paths(ctx, loss.read.source, None if optional else targets)
    active = paths.active(graph)
    paths.require_unchanged(user_origin())
    needed = cache(
        lambda: needed_points(
            _dependence_subgraph(graph, loss.read.source), frozenset([loss.read.source])
        )
    )
    total: dict[int, list[Tensor]] = {op_id: [] for op_id in active}
    if loss.read.source in active:
        total[loss.read.source].append(broadcast_to(constant(ctx, 1.0, loss.dtype), loss.shape))

    # The gradient of a merge is read by its branches before all its readers are processed; so is that of a
    # result with a custom rule.
    pending: dict[int, Tensor] = {}
    for rule in dict.fromkeys(ctx.rules[k] for k in active if k in ctx.rules):
        made = [y.read.source for y in rule.outputs]
        given = [_open(ctx, y.op) for y in rule.outputs]
        pending.update(zip(made, given, strict=True))
        parts = rule.gradients([g.given(graph[k].where) for k, g in zip(made, given, strict=True)])
        for x, part in zip(rule.operands, parts, strict=True):
            if part is not None and x.read.source in active:
                total[x.read.source].append(part)
    for op_id in active:
        op = graph[op_id]
        if op.kind == "merge" and (op_id not in targets or op_id not in ctx.parameters):
            ctx.mark_traversed(op_id)
            pending[op_id] = _open(ctx, op)
            for read in op.inputs:
                if read.source in active:
                    total[read.source].append(adjoint(graph, op, read, pending[op_id], needed))
    for op_id in reversed(graph.order):
        op = graph[op_id]
        if op_id in active and op_id not in pending and op.kind != "merge":
            parts = total[op_id]
            if parts and op.kind in VJP:
                with ctx.gradient_of(op):
                    _differentiate(ctx, graph, op, _sum_parts(parts, op.where), total, needed)
    for op_id, gradient in pending.items():
        parts, where = total.get(op_id), graph[op_id].where
        whole = _sum_parts(parts, where) if parts else zeros(gradient.shape, gradient.dtype)
        if where is not TRUE and whole.subset is TRUE:  # other points may have no readers
            whole = whole.given(where)
        ctx.set_branches(gradient.read.source, [whole.otherwise(0.0).read])

    result: list[Tensor | None] = []
    for leaf in leaves:
        op_id = leaf.read.source
        if op_id in pending:
            result.append(pending[op_id])
        elif total.get(op_id):
            whole = counted_at(_sum_parts(total[op_id], leaf.subset).settled(), leaf.subset)
            whole = _broadcast_to_domain(whole, leaf.domain)
            result.append(whole if whole.subset is leaf.subset else whole.given(leaf.subset))
        elif optional:
            result.append(None)
        else:
            raise _unreached_error(graph, paths, leaf)
    return result


def _dependence_subgraph(graph: Pdg, root: int) -> Pdg:
    """Return the subgraph of an operation's dependences."""
    found = reached_from([root], lambda k: graph[k].sources)
    return Pdg(graph.dims, {k: op for k, op in graph.ops.items() if k in found})


def _open(ctx: Context, op: Op) -> Tensor:
    """Create the gradient of an operation's value; its branches follow later."""
    made = ctx.open_merge(op.type, op.domain, f"d{op.label}" if op.label else "")
    return tensor_of(ctx, made)


def _broadcast_to_domain(g: Tensor, domain: Domain) -> Tensor:
    """Return the gradient over the whole domain, broadcast if it is constant."""
    if g.domain == domain:
        return g
    merge = g.ctx.open_merge(g.type, domain)
    g.ctx.set_branches(merge.id, [g.read])
    return tensor_of(g.ctx, merge)


def _sum_parts(parts: Sequence[Tensor], where: Cond = TRUE) -> Tensor:
    """Sum the parts of a gradient defined at the points `where`; each part is zero where it is undefined."""
    if len({part.subset for part in parts}) > 1:
        parts = [counted_at(part, where) for part in parts]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _unreached_error(graph: Pdg, paths: Paths, leaf: Tensor) -> GradientError:
    """Return the error that names the operations between the loss and an unreached leaf."""
    seen = reached_from([paths.root], lambda k: graph[k].sources)
    if leaf.read.source not in seen:
        return GradientError(
            f"the loss does not depend on {leaf.name}.",
            hint="differentiate with respect to a tensor that the loss uses.",
        )
    blocks = {
        f"{op.name} ({NO_VJP.get(op.kind, 'a parameter')}) at": op.origin
        for op in (graph[k] for k in seen)
        if paths.stop_at(op) and op.inputs and op.id != leaf.read.source
    }
    return GradientError(
        f"the gradient reaches {leaf.name} only through operations without a derivative.",
        others=dict(list(blocks.items())[:4]),
        hint="differentiate another path, or with respect to another tensor.",
    )


def _differentiate(
    ctx: Context,
    graph: Pdg,
    op: Op,
    g: Tensor,
    total: dict[int, list[Tensor]],
    needed: Needed,
) -> None:
    """Add an operation's contribution to the total of each active operand."""
    inputs = tuple(RecurrentTensor(ctx, read) for read in op.inputs)
    node = Node(ctx, op, inputs, tensor_of(ctx, op))
    slots = [k for k, read in enumerate(op.inputs) if read.source in total]
    reduced = through_slices(graph, node, g, needed) if slots else None
    if reduced is not None:
        total[op.inputs[0].source].append(reduced.cast(graph.output(op.inputs[0]).type.dtype))
    elif slots:
        parts = VJP[op.kind](node, g)
        for slot in slots:
            part = parts[slot]
            if part is not None:
                read = op.inputs[slot]
                of_type = graph.output(read).type.dtype
                total[read.source].append(adjoint(graph, op, read, part, needed).cast(of_type))


register_backward(backward)
