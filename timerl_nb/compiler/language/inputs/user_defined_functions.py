"""A user's own operations (`trl.udf`), and the resources that they use in order (`trl.Resource`).

Operations on one resource run, per instance, as a loop nest would run them that has a loop per
dimension and the operations in the order in which they are written: `reset[b, i]` after
`step[b, i - 1, T - 1]`, `step[b, i, t]` after `step[b, i, t - 1]` (semantics.md §7). That order is
written down as tokens, tensors like any other, when the program is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from timerl_nb.base.errors import DomainError, ShapeError
from timerl_nb.compiler.ir.dependence_graph import at_own_point
from timerl_nb.compiler.ir.host import host_functions
from timerl_nb.compiler.ir.host.host_functions import TOKEN, CallAttrs, UdfAttrs
from timerl_nb.compiler.ir.operations import Op, Read, read_symbols
from timerl_nb.compiler.ir.shapes import TensorType
from timerl_nb.compiler.language.argument_checks import checked_name, element_type
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.indexing.index_parsing import Condition, as_dims
from timerl_nb.compiler.language.inputs.tensor_sources import shape_of_user
from timerl_nb.compiler.language.program_context import Context, current
from timerl_nb.compiler.language.recurrent_tensor import constant, operand, tensor_of
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Cond, Lin, all_of, eq, ge, sym


class Resource:
    """Something on the host that operations use in order: a simulator, a file, a buffer.

    Args:
        make: called once a run as make(sizes, seed), where `sizes` are the bounds of the instance
            dimensions by name; what it returns is handed to every operation. A `close()` method is
            called at the end of the run, however it ends; where that fails, the run's error has a
            note of it, and a run without one a warning.
        instances: dimensions over which there are instances that do not depend on each other.
        name: what errors and pictures call it.
    """

    def __init__(
        self, make: Callable[[Mapping[str, int], int], Any], *, instances: Any = (), name: str = ""
    ) -> None:
        if not callable(make):
            raise DomainError(f"a resource is made by a function, not by {make!r}.")
        self.ctx: Context = current()
        dims = as_dims(self.ctx, self.ctx.space, instances)
        label = checked_name(name or getattr(make, "__name__", "resource"))
        self.inner = host_functions.Resource(make, dims, label)
        self._turns: list[_Turn] = []
        self.ctx.at_end(self._order)

    def enter(self, op: Op, token: int) -> None:
        """Add an operation, after all before it; `token` is the merge that it waits for."""
        dims = tuple(d for d in op.domain if d not in self.inner.instances)
        self._turns.append(_Turn(op.id, token, dims))

    def _order(self) -> None:
        start = constant(self.ctx, False).read
        first = _Before(start.source, start.out, {}, TRUE)
        _Nest(self.ctx).write(self._turns, (), [first])


@dataclass(frozen=True)
class _Turn:
    """An operation of a resource: its token merge, and the dimensions that its points go along."""

    op_id: int
    token: int
    dims: Domain


@dataclass(frozen=True)
class _Before:
    """What may have run just before: an output at given points of some dimensions, if `cond`."""

    source: int
    out: int
    at: Mapping[str, Lin]
    cond: Cond

    def at_index(self, name: str, to: Lin, cond: Cond) -> _Before:
        return _Before(self.source, self.out, {**self.at, name: to}, all_of(self.cond, cond))


class _Nest:
    """Writes the branches of the tokens of one resource."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    def write(self, turns: Sequence[_Turn], prefix: Domain, before: list[_Before]) -> None:
        """Let each operation inside the loops `prefix` wait for what runs before it."""
        for name, group in groupby(turns, key=lambda x: _next_dim(x, prefix)):
            inside = list(group)
            if name is None:
                for turn in inside:
                    self.ctx.set_branches(turn.token, [self._token_read(x) for x in before])
                    before = [self._token_of(turn)]
                continue
            last = self._last_inside(inside, (*prefix, name))
            entered = [
                _Before(x.source, x.out, x.at, all_of(x.cond, eq(sym(name), 0))) for x in before
            ]
            again = last.at_index(name, sym(name) - 1, ge(sym(name), 1))
            self.write(inside, (*prefix, name), [*entered, again])
            before = [last.at_index(name, self.ctx.space[name].size - 1, TRUE)]

    def _last_inside(self, turns: Sequence[_Turn], prefix: Domain) -> _Before:
        """What runs last inside the loops `prefix`, at one point of them."""
        last = turns[-1]
        found = self._token_of(last)
        for name in last.dims[len(prefix) :]:
            found = found.at_index(name, self.ctx.space[name].size - 1, TRUE)
        return found

    def _token_of(self, turn: _Turn) -> _Before:
        return _Before(turn.op_id, len(self.ctx[turn.op_id].outputs) - 1, {}, TRUE)

    def _token_read(self, x: _Before) -> Read:
        domain = self.ctx[x.source].outputs[x.out].domain
        return Read(x.source, x.out, tuple(x.at.get(d, sym(d)) for d in domain), x.cond)


def _next_dim(turn: _Turn, prefix: Domain) -> str | None:
    return turn.dims[len(prefix)] if len(turn.dims) > len(prefix) else None


@explain_call_errors
def udf(
    function: Callable[..., Any],
    *inputs: Any,
    out: Any,
    domain: Any = (),
    resource: Resource | None = None,
    batched: bool = False,
    where: Condition | None = None,
    name: str = "",
) -> Any:
    """The values of a function that runs on the host, at every point.

    Without a resource the function must be pure: it gets NumPy arrays and returns the same for the
    same, however often it is called; for several outputs it returns a tuple. With one it is called as function(state, at, *arrays), where
    `at` are the coordinates of the instance, in the order of the resource's dimensions, or
    slice(None) for a dimension that has been vectorised.

    Args:
        inputs: recurrent tensors; those at symbolic slices arrive at their true length.
        out: what it returns: anything with a shape and a dtype, a dtype ("f32") for a scalar, or a
            (shape, dtype) pair; a list of these for several outputs; an empty list for a function
            called for its effect alone, as function(point, *arrays), in the order of the domain, or
            on its resource as ever. A function whose values nobody uses is not called.
        domain: dimensions that the values vary over, besides the inputs'.
        resource: what it uses in order.
        batched: it also takes arrays (and, with a resource, `at`) with a leading axis per
            dimension that is vectorised, the same ones for all inputs and outputs.
        where: with an empty `out`: the points at which it is called.
        name: what errors and pictures call it; the function's own name by default.

    Returns:
        a recurrent tensor, or a tuple of them where `out` is a list.

    Raises:
        DomainError, ShapeError: the arguments do not go together.
    """
    if not callable(function):
        raise ShapeError(f"{function!r} is no function.")
    ctx = current()
    reads = [operand(ctx, x).read for x in inputs]
    label = checked_name(name or getattr(function, "__name__", "udf").strip("<>"))
    dims = as_dims(ctx, ctx.space, domain)
    several = isinstance(out, list)
    types = tuple(parse_declared_type(one) for one in (out if several else [out]))
    if any(not isinstance(s, int) for kind in types for s in kind.shape):
        raise ShapeError("a host function returns arrays whose sizes are integers.")
    if not types:
        if resource is not None:
            return _on_resource(ctx, function, label, dims, reads, resource, where)
        cond = TRUE if where is None else where.cond
        ctx.add_effect(CallAttrs(function, label, dims), reads, cond, label)
        return ()
    if where is not None:
        raise DomainError(
            "only a function called for its effect is called at chosen points.",
            hint="leave where= out, or declare no output: out=[].",
        )
    attrs = UdfAttrs(
        function, label, types, dims, None if resource is None else resource.inner, batched
    )
    token = -1
    if resource is not None:
        token = _token(ctx, resource, reads, dims, label)
        reads = [*reads, at_own_point(token, ctx[token].outputs[0])]
    op = ctx.add("udf", reads, attrs, label=label)
    if resource is not None:
        resource.enter(op, token)
    made = [tensor_of(ctx, op, k) for k in range(len(types))]
    return tuple(made) if several else made[0]


def _on_resource(
    ctx: Context,
    function: Callable[..., Any],
    label: str,
    dims: Domain,
    reads: Sequence[Read],
    resource: Resource,
    where: Condition | None,
) -> tuple[()]:
    """A function called for its effect on a resource: its token is what the program needs of it."""
    if where is not None:
        raise DomainError("on a resource, a function is called at every point: leave where= out.")
    token = _token(ctx, resource, reads, dims, label)
    own = at_own_point(token, ctx[token].outputs[0])
    op = ctx.add(
        "udf", [*reads, own], UdfAttrs(function, label, (), dims, resource.inner), label=label
    )
    resource.enter(op, token)
    done = at_own_point(op.id, op.outputs[0])
    ctx.add_effect(CallAttrs(_nothing, f"{label}.done", ()), [done], TRUE, f"{label}.done")
    return ()


def _nothing(point: Mapping[str, int], token: Any) -> None:
    """What is left to do when the effect is done."""


def _token(
    ctx: Context, resource: Resource, reads: Sequence[Read], dims: Domain, label: str
) -> int:
    """A tensor that says what must have run before."""
    if resource.ctx is not ctx:
        raise DomainError(f"{resource.inner.name} belongs to another context.")
    symbols = {s for read in reads for s in read_symbols(read)} | set(dims)
    domain = ctx.space.ordered(symbols)
    lacking = [d for d in resource.inner.instances if d not in domain]
    if lacking:
        raise DomainError(
            f"{resource.inner.name} has an instance for each {', '.join(lacking)}, but {label} does "
            "not vary over it.",
            hint="name the dimension in domain=.",
        )
    return ctx.open_merge(TOKEN, domain, f"{label}.turn", turns=True).id


def parse_declared_type(given: Any) -> TensorType:
    """The type that a user writes down: something of it, an element type, or a shape and one.

    Raises:
        ShapeError: it is none of these.
    """
    shape, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
    if isinstance(given, str):
        shape, dtype = (), given
    elif isinstance(given, tuple) and len(given) == 2:
        shape, dtype = given
    if shape is None or dtype is None:
        raise ShapeError(
            f"{given!r} does not say what is returned.",
            hint='write out="f32", out=((4,), "f32"), or a list of such.',
        )
    return TensorType(shape_of_user(shape), element_type(dtype))
