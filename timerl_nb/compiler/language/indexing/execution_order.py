"""Execution order requested by the user with `ctx.before(a, b)`, independent of the equations."""

from __future__ import annotations

from typing import Any

from timerl_nb.base.errors import DomainError, user_origin
from timerl_nb.compiler.ir.analysis.requested_orders import Order
from timerl_nb.compiler.ir.dependence_graph import at_own_point
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.index_expressions import Entry, Lin, index_text


def order_of(ctx: Context, a: Any, b: Any) -> Order:
    """Return the order requested by `ctx.before(a, b)`.

    Raises:
        DomainError: an argument is not a tensor of the context, or `b` is not computed at its own point.
    """
    for side, x in (("first", a), ("second", b)):
        if not isinstance(x, RecurrentTensor):
            raise DomainError(
                f"the {side} of an order must be a tensor, not {x!r}.",
                hint="write ctx.before(a, b) for two recurrent tensors.",
            )
        if x.ctx is not ctx:
            raise DomainError(
                f"the {side} tensor of the order belongs to another context.",
                others={"it is made at": x.op.origin},
                hint="order two tensors of one context.",
            )
    if b.read != at_own_point(b.op.id, b.op.outputs[b.read.out], b.read.out):
        raise DomainError(
            f"{b.name}{index_text(b.read.index)} is a read of {b.name}, not a computation that can wait.",
            hint="shift the other side: instead of before(a, b[t + 1]) write before(a[t - 1], b).",
        )
    if b.op.kind == "merge":
        raise DomainError(
            f"{b.name} is defined by branches: its assigned values are the computations.",
            others={"it is made at": b.op.origin},
            hint="order the assigned tensors, as in next_o, r, d = env.step(a); "
            "ctx.before(x, next_o); o[b, i, t + 1] = next_o.",
        )
    if a.read.source == b.read.source and a.read == b.read:
        raise DomainError(
            f"{a.name} cannot run before itself at the same point.",
            origin=user_origin(),
            others={"it is made at": a.op.origin},
            hint="order two tensors, or one at another point: before(x[t - 1], x).",
        )
    at: list[tuple[str, Entry]] = []
    for d, entry in zip(a.op.outputs[a.read.out].domain, a.read.index, strict=True):
        alone = isinstance(entry, Lin) and entry.as_symbol is not None
        missing = [s for s in ctx.space.ordered(entry.symbols) if s not in b.op.domain]
        if missing and not alone:
            raise DomainError(
                f"{a.name} is indexed with {entry}, but {b.name} does not vary over "
                f"{', '.join(missing)}.",
                hint=f"omit {d} from the index: then all points of {d} run before {b.name}.",
            )
        if not missing:
            at.append((d, entry))
    return Order(a.read.source, b.read.source, tuple(at), user_origin())
