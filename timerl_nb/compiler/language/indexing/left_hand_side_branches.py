"""Branches: the reads defined by assignments `x[key] = value`.

In `x[t + 1] = f(x[t])` the value is computed at t, but read at t + 1. Solving the left-hand index for its symbols
gives the index of the read, and the condition under which the branch applies. isl solves it, and finds values
that would define the same point twice.
"""

from __future__ import annotations

from typing import Any, Protocol

from timerl_nb.base.errors import BranchError, DomainError, IndexExpressionError
from timerl_nb.compiler.ir.graph_rewriting import compose
from timerl_nb.compiler.ir.operations import Op, Read
from timerl_nb.compiler.isl.operation_limit import limit_isl_work
from timerl_nb.compiler.isl.sets_and_relations import Relation, Set
from timerl_nb.compiler.language.indexing.branch_precedence import Branch
from timerl_nb.compiler.language.indexing.index_parsing import Condition, as_cond, parse
from timerl_nb.compiler.language.lint import never
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import Cond, Entry, Lin, Slice, all_of, lt, sym
from timerl_nb.compiler.symbolic.substitution import subst_cond


class Side(Protocol):
    """A tensor on either side of `x[key] = value`; implemented by `RecurrentTensor`."""

    @property
    def ctx(self) -> Context: ...
    @property
    def op(self) -> Op: ...
    @property
    def read(self) -> Read: ...
    @property
    def domain(self) -> Domain: ...
    @property
    def name(self) -> str: ...
    @property
    def subset(self) -> Cond: ...
    def is_plain(self) -> bool: ...
    def settled(self) -> Side: ...


def assigned_branch(x: Side, key: Any, value: Side) -> Branch:
    """Return the branch that `x[key] = value` adds: a read at the tensor's own point."""
    ctx, dims, domain = x.ctx, x.ctx.space, x.op.domain
    if not value.is_plain():  # a branch reads one point, not a slice
        value = value.settled()
    if isinstance(key, Condition):
        never(dims, domain, as_cond(ctx, key), f"{x.name}: the branch's condition")
        cond = all_of(as_cond(ctx, key), value.subset)
        _only_dims(x, value.domain, domain)
        return Branch(Read(value.read.source, value.read.out, value.read.index, cond))
    entries = parse(ctx, dims, domain, key, x.name)
    if any(isinstance(e, Slice) for e in entries.values()):
        raise IndexExpressionError(
            f"{x.name}: the left-hand side of a branch contains a slice.",
            hint=f"use a condition: {x.name}[(t >= 2) & (t < 5)] = …",
        )
    bound = dims.ordered({s for e in entries.values() for s in e.symbols})
    _only_dims(x, value.domain, bound)
    index = tuple(e for e in entries.values() if isinstance(e, Lin))
    return Branch(_invert(x, entries, bound, value), index)


def _only_dims(x: Side, given: Domain, allowed: Domain) -> None:
    extra = [d for d in given if d not in allowed]
    if extra:
        raise DomainError(
            f"the branch's value varies over {', '.join(extra)}, but the left-hand side of "
            f"{x.name} does not.",
            hint=f"index the value at a point, or let {x.name} vary over {', '.join(extra)}.",
        )


def _invert(x: Side, entries: dict[str, Entry], bound: Domain, value: Side) -> Read:
    """Solve `point = entries(symbols)` for the symbols: the read's index, and its condition."""
    with limit_isl_work(f"solving the left-hand index of {x.name}"):
        return _solve_for_read(x, entries, bound, value)


def _solve_for_read(x: Side, entries: dict[str, Entry], bound: Domain, value: Side) -> Read:
    dims, domain = x.ctx.space, x.op.domain
    sink = Set.from_condition(dims, bound)
    target = Set.from_condition(dims, domain)
    index = tuple(entries[d] for d in domain)
    forward = Relation.reads(sink, index, target).restrict_range(target)
    if not forward.is_injective():
        raise BranchError(
            f"{x.name}[{', '.join(map(str, index))}] assigns one point from several: the left-hand "
            "index is not injective.",
            evidence=_collision(forward),
            hint="write an index with a different point for each value of its symbols, such as x[t + 1].",
        )
    inverse = forward.inverse()
    solved = {s: _point_entry(inverse, s, entries) for s in bound}
    # a conditional value defines only points of its own subset
    cond = all_of(inverse.domain().condition(target), subst_cond(value.subset, solved))
    point = compose(Read(-1, 0, tuple(solved[d] for d in value.domain)), value.domain, value.read)
    assert point is not None  # points always compose
    return Read(point.source, point.out, point.index, all_of(cond, point.cond))


def _point_entry(inverse: Relation, symbol: str, entries: dict[str, Entry]) -> Lin:
    # shortcut for the common form `t + c`
    for d, e in entries.items():
        if isinstance(e, Lin) and (e - e.const).as_symbol == symbol:
            return sym(d) - e.const
    return inverse.bounds(symbol)[0]


def _collision(forward: Relation) -> str:
    both = forward.then(forward.inverse())
    for name in both.left:
        different = Relation.from_condition(
            both.dims, both.left, both.right, lt(sym(name), sym(name + "'"))
        )
        found = (both & different).with_bounds({d.bound: 8 for d in both.dims}).sample()
        if found is not None:
            return f"sample: {found[0]} and {found[1]} are assigned to the same point"
    return "two points are assigned to the same one"
