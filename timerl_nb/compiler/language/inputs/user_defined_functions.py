"""User-defined host functions (`trl.udf`), and the resources that they use in order (`trl.Resource`).

The calls on one instance of a resource run in the order of a loop nest with one loop per dimension and the
calls in program order: `reset[b, i]` after `step[b, i - 1, T - 1]`, `step[b, i, t]` after `step[b, i, t - 1]`.
When the program is complete, this order is written into the graph as token tensors.
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
from timerl_nb.compiler.language.foreign_names import explain_call_errors, explain_constructor
from timerl_nb.compiler.language.indexing.index_parsing import Condition, as_dims
from timerl_nb.compiler.language.inputs.tensor_sources import shape_of_user
from timerl_nb.compiler.language.program_context import Context, current
from timerl_nb.compiler.language.recurrent_tensor import constant, operand, tensor_of
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Cond, Lin, all_of, eq, ge, sym


@explain_constructor
class Resource:
    """State on the host that functions use in order: a simulator, a file, a buffer.

    Args:
        make: called once per run as make(sizes, seed), where `sizes` maps the instance dimensions to their bounds.
            Its result is passed to every call. Its `close()` method, if any, is called at the end of the run; an
            exception there becomes a note of the run's error, or a warning.
        instances: dimensions with independent instances.
        name: the name in errors and pictures.

    Raises:
        DomainError: `make` is not callable.

    Example:
        >>> counter = trl.Resource(lambda sizes, seed: {"calls": 0}, name="counter")
        >>> def call(state, at):
        ...     state["calls"] += 1
        ...     return np.int32(state["calls"])
        >>> trl.udf(call, out="i32", domain=t, resource=counter)
        i32[] @ (t)
    """

    def __init__(
        self, make: Callable[[Mapping[str, int], int], Any], *, instances: Any = (), name: str = ""
    ) -> None:
        if not callable(make):
            raise DomainError(
                f"a resource needs a function that creates it, not {make!r}.",
                hint="write trl.Resource(lambda sizes, seed: …).",
            )
        self.ctx: Context = current()
        dims = as_dims(self.ctx, self.ctx.space, instances)
        label = checked_name(name or getattr(make, "__name__", "resource"))
        self.inner = host_functions.Resource(make, dims, label)
        self._turns: list[_Turn] = []
        self.ctx.at_end(self._order)

    def enter(self, op: Op, token: int) -> None:
        """Append a call, ordered after all earlier ones; `token` is the merge that it reads."""
        dims = tuple(d for d in op.domain if d not in self.inner.instances)
        self._turns.append(_Turn(op.id, token, dims))

    def _order(self) -> None:
        start = constant(self.ctx, False).read
        first = _Before(start.source, start.out, {}, TRUE)
        _Nest(self.ctx).write(self._turns, (), [first])


@dataclass(frozen=True)
class _Turn:
    """A call on a resource: its token merge, and the dimensions of its points."""

    op_id: int
    token: int
    dims: Domain


@dataclass(frozen=True)
class _Before:
    """A possible predecessor: an output at given points of some dimensions, under a condition."""

    source: int
    out: int
    at: Mapping[str, Lin]
    cond: Cond

    def at_index(self, name: str, to: Lin, cond: Cond) -> _Before:
        return _Before(self.source, self.out, {**self.at, name: to}, all_of(self.cond, cond))


class _Nest:
    """Writer of the token branches of one resource."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    def write(self, turns: Sequence[_Turn], prefix: Domain, before: list[_Before]) -> None:
        """Order the calls inside the loops `prefix` after their predecessors."""
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
        """Return the last call inside the loops `prefix`, at one point of these loops."""
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
    """Call a Python function on the host at every point.

    Without a resource the function must be pure. It receives NumPy arrays and may be called any number of times.
    With a resource it is called as `function(state, at, *arrays)`. `at` are the coordinates of the instance, in the
    order of the resource's dimensions; a vectorised dimension has slice(None).

    Args:
        function: the function. For several outputs it returns a tuple.
        inputs: tensors; symbolic slices arrive at their actual length.
        out: the type of the output: an object with a shape and a dtype, a dtype such as "f32" for a scalar, or a
            (shape, dtype) pair. A list declares several outputs. An empty list declares a function with a side
            effect only, called as `function(point, *arrays)`, with the point in the order of `domain`, or on its
            resource as above. A function with unused outputs is not called.
        domain: dimensions of the outputs in addition to those of the inputs.
        resource: state that the calls use in order.
        batched: whether the function also accepts arrays (and `at`) with one leading axis per vectorised
            dimension, the same axes for all inputs and outputs.
        where: the points of a call without outputs.
        name: the name in errors and pictures; by default the function's.

    Returns:
        a tensor, or a tuple of tensors if `out` is a list.

    Raises:
        DomainError, ShapeError: the arguments are inconsistent.

    Example:
        >>> x = trl.data(np.arange(8.0, dtype="f4"), domain=t)
        >>> trl.udf(lambda v: np.sqrt(v), x, out="f32", name="root")
        f32[] @ (t)
    """
    if not callable(function):
        raise ShapeError(
            f"{function!r} is not a function.", hint='write trl.udf(function, x, out="f32").'
        )
    ctx = current()
    reads = [operand(ctx, x).read for x in inputs]
    label = checked_name(name or getattr(function, "__name__", "udf").strip("<>"))
    dims = as_dims(ctx, ctx.space, domain)
    several = isinstance(out, list)
    types = tuple(parse_declared_type(one) for one in (out if several else [out]))
    if any(not isinstance(s, int) for kind in types for s in kind.shape):
        raise ShapeError(
            "a host function declares an output of symbolic size.",
            hint="declare integer sizes, or let the output vary over the dimension.",
        )
    if not types:
        if resource is not None:
            return _on_resource(ctx, function, label, dims, reads, resource, where)
        cond = TRUE if where is None else where.cond
        ctx.add_effect(CallAttrs(function, label, dims), reads, cond, label)
        return ()
    if where is not None:
        raise DomainError(
            "a function with outputs cannot have where=.",
            hint="omit where=, or declare no output: out=[].",
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
    """Call a function for its side effect on a resource; the program depends on its token."""
    if where is not None:
        raise DomainError(
            "a function on a resource cannot have where=: it runs at every point.",
            hint="omit where=, and test the condition inside the function.",
        )
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
    """Do nothing: the effect has happened in the call itself."""


def _token(
    ctx: Context, resource: Resource, reads: Sequence[Read], dims: Domain, label: str
) -> int:
    """Add the merge whose branches will order this call after its predecessors."""
    if resource.ctx is not ctx:
        raise DomainError(
            f"{resource.inner.name} belongs to another context.",
            hint="create the resource inside the context that uses it.",
        )
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
    """Return the type of a declared output: a typed object, an element type, or a (shape, dtype) pair.

    Raises:
        ShapeError: the declaration is none of these.
    """
    shape, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
    if isinstance(given, str):
        shape, dtype = (), given
    elif isinstance(given, tuple) and len(given) == 2:
        shape, dtype = given
    if shape is None or dtype is None:
        raise ShapeError(
            f"{given!r} does not declare an output type.",
            hint='write out="f32", out=((4,), "f32"), or a list of these.',
        )
    return TensorType(shape_of_user(shape), element_type(dtype))
