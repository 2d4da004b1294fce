"""Rewriting of graphs: a short-lived edit of an immutable graph, with a record of each named step.

A pass makes an `Edit`, applies its rules, and finishes with the new graph, a map from old to new ids, and
the steps. Unchanged operations retain their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from timerl_nb.base.errors import Origin
from timerl_nb.compiler.ir.analysis.requested_orders import Order, rewrite_orders
from timerl_nb.compiler.ir.dependence_graph import Pdg, at_own_point, crosses, read_type
from timerl_nb.compiler.ir.operation_attributes import NO_ATTRS
from timerl_nb.compiler.ir.operation_kinds import KINDS
from timerl_nb.compiler.ir.operations import (
    Op,
    Output,
    Read,
    is_own,
    is_sliced,
    reached_from,
    read_symbols,
)
from timerl_nb.compiler.ir.recorded_pass_decisions import PassChoice
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    And,
    Cond,
    Entry,
    Lin,
    Slice,
    all_of,
    span,
)
from timerl_nb.compiler.symbolic.substitution import subst_cond, subst_entry


@dataclass(frozen=True)
class RewriteStep:
    """One application of a rule, with the ids of the operations before and after."""

    rule: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    note: str = ""

    def __str__(self) -> str:
        took, made = (", ".join(f"%{k}" for k in ids) for ids in (self.before, self.after))
        return f"{self.rule}: {took} -> {made or 'nothing'}" + (f" ({self.note})" * bool(self.note))


@dataclass(frozen=True)
class Rewritten:
    """Result of a pass.

    Attributes:
        pdg: the new graph.
        ids: the new ids of each old operation.
        steps: the rewrites, in order.
        refused: for unchanged operations, the reason why the pass did not apply.
        choices: decisions with several candidates.
    """

    pdg: Pdg
    ids: Mapping[int, tuple[int, ...]]
    steps: tuple[RewriteStep, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict[int, str])
    choices: tuple[PassChoice, ...] = ()


def identity_rewrite(pdg: Pdg) -> Rewritten:
    return Rewritten(pdg, {op_id: (op_id,) for op_id in pdg.ops})


def chain(first: Rewritten, second: Rewritten) -> Rewritten:
    """Combine two transformations, one after the other."""
    ids = {old: _onward(middles, second.ids) for old, middles in first.ids.items()}
    refused = {k: why for k, why in first.refused.items() if k in second.pdg.ops}
    steps = (*first.steps, *second.steps)
    choices = (*first.choices, *second.choices)
    return Rewritten(second.pdg, ids, steps, {**refused, **second.refused}, choices)


def _onward(middles: tuple[int, ...], then: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
    if len(middles) == 1:
        return then.get(middles[0], ())
    return tuple(sorted({new for middle in middles for new in then.get(middle, ())}))


def operation(
    dims: Dims,
    ops: Mapping[int, Op],
    op_id: int,
    kind: str,
    inputs: Sequence[Read],
    attrs: Any = NO_ATTRS,
    *,
    origin: Origin,
    region: tuple[str, ...] = (),
    label: str = "",
) -> Op:
    """Return an operation with its type from the kind's rule and its domain from its reads."""
    types = [read_type(ops[r.source].outputs[r.out], r) for r in inputs]
    symbols = frozenset[str]().union(*(read_symbols(r) for r in inputs))
    domain = dims.dims_of_symbols({*symbols, *attrs.varying_dims(dims)})
    made = tuple(Output(kind_of, domain) for kind_of in KINDS[kind].outputs(types, attrs))
    return Op(op_id, kind, domain, tuple(inputs), made, attrs, TRUE, origin, region, label)


class Edit:
    """A mutable working copy of a graph."""

    def __init__(self, pdg: Pdg) -> None:
        self._before = pdg
        self.dims = pdg.dims
        self.ops: dict[int, Op] = dict(pdg.ops)
        self.readers: dict[int, set[int]] = {op_id: set() for op_id in self.ops}
        for op in pdg:
            for read in op.inputs:
                self.readers[read.source].add(op.id)
        self._next = max(self.ops, default=-1) + 1
        self._became: dict[int, set[int]] = {}
        self.orders, self.ordered = pdg.orders, pdg.ordered
        self.steps: list[RewriteStep] = []
        self.refused: dict[int, str] = {}

    # --- changes -----------------------------------------------------------------------------

    def add(
        self,
        kind: str,
        inputs: Sequence[Read],
        attrs: Any = NO_ATTRS,
        *,
        like: Op,
        label: str = "",
    ) -> Op:
        """Add an operation with the origin, region and condition of `like`."""
        op = operation(
            self.dims,
            self.ops,
            self._next,
            kind,
            inputs,
            attrs,
            origin=like.origin,
            region=like.region,
            label=label,
        )
        self.insert(op.with_(where=_known_in(self.dims, like.where, op.domain)))
        return op

    def fresh_id(self) -> int:
        self._next += 1
        return self._next - 1

    def insert(self, op: Op) -> None:
        """Insert an operation, in place of the one with the same id if there is one."""
        if op.id in self.ops:
            self._unlink(self.ops[op.id])
        self.ops[op.id] = op
        self.readers.setdefault(op.id, set())
        for read in op.inputs:
            self.readers[read.source].add(op.id)
        self._next = max(self._next, op.id + 1)

    def _unlink(self, op: Op) -> None:
        for read in op.inputs:
            self.readers[read.source].discard(op.id)

    def remove(self, op_id: int) -> None:
        """Remove an operation without readers."""
        self._unlink(self.ops.pop(op_id))
        del self.readers[op_id]

    def record_replacement(self, old: int, new: Iterable[int]) -> None:
        """Record that the operations `new` replace `old`."""
        self._became.setdefault(old, set()).update(new)

    def replace_all_uses(self, old: int, to: Read, out: int = 0) -> bool:
        """Let every reader of `old` read `to` instead, expressed in the coordinates of `old`.

        Returns:
            False, without any change, if some reader's index cannot be composed, a merge would read a
            slice, or the length at one point would replace that at another.
        """
        changed: list[Op] = []
        output = self.ops[old].outputs[out]
        for reader_id in sorted(self.readers[old]):
            reader = self.ops[reader_id]
            inputs: list[Read] = []
            for read in reader.inputs:
                if read.tensor == (old, out):
                    composed = compose(read, output.domain, to)
                    if crosses(self.dims, output.domain, read.index) and self._has_lengths(to):
                        return False
                    if composed is None or (reader.kind == "merge" and is_sliced(composed)):
                        return False
                    read = composed
                inputs.append(read)
            changed.append(reader.with_(inputs=tuple(inputs)))
        for reader in changed:
            self.insert(reader)
        return True

    def needs(self, starts: Iterable[int], op_id: int) -> bool:
        """Whether operations depend on another one without passing a merge; such a cycle would be invalid."""

        def onward(k: int) -> tuple[int, ...]:
            return () if self.ops[k].kind == "merge" else self.ops[k].sources

        return op_id in reached_from(starts, onward)

    def _has_lengths(self, read: Read) -> bool:
        """Whether a read depends on a dynamic bound at its own point."""
        mentioned = self.dims.mention(read_symbols(read))
        return mentioned or read.source in merges_by_length(self.dims, self.ops)

    # --- results ---------------------------------------------------------------------------------

    def read_same_point(self, op: Op, out: int = 0) -> Read:
        """Return the read of an operation at the reader's own point."""
        return at_own_point(op.id, op.outputs[out], out)

    def finish(self) -> Rewritten:
        """Return the new graph in topological order, and the successors of each old operation."""
        found = Pdg(self.dims, self.ops).order
        ids = {op_id: self._gone_on(op_id) for op_id in self._before.ops}
        orders: list[Order] = []
        for order, became in rewrite_orders(self.orders, ids):
            orders += became
            if not became:
                ends = (order.before, order.after)
                self.steps.append(
                    RewriteStep(
                        "order dropped", ends, (), "one of the two operations is not needed"
                    )
                )
        pdg = Pdg(self.dims, {op_id: self.ops[op_id] for op_id in found}, orders)
        vars(pdg)["order"] = found  # cached, since the operations are already in topological order
        return Rewritten(
            pdg,
            ids,
            tuple(self.steps),
            {op_id: why for op_id, why in self.refused.items() if op_id in pdg.ops},
        )

    def _gone_on(self, op_id: int) -> tuple[int, ...]:
        if op_id not in self._became:
            return (op_id,) if op_id in self.ops else ()
        return tuple(sorted(self._find_successors(op_id, frozenset())))

    def _find_successors(self, op_id: int, seen: frozenset[int]) -> set[int]:
        if op_id in self.ops and op_id not in self._became:
            return {op_id}
        if op_id in seen:
            return set()
        found = {op_id} if op_id in self.ops else set[int]()
        for new in self._became.get(op_id, ()):
            found |= self._find_successors(new, seen | {op_id})
        return found


def _known_in(dims: Dims, where: Cond, domain: Domain) -> Cond:
    """Return the parts of a condition that contain dimensions of the domain only."""
    parts = where.args if isinstance(where, And) else (where,)
    return all_of(TRUE, *(p for p in parts if set(dims.dims_of_symbols(p.symbols)) <= set(domain)))


def compose(read: Read, domain: Domain, inner: Read) -> Read | None:
    """Compose `read`, of a tensor over `domain`, with that tensor's definition `inner`; None if impossible.

    A slice can be composed only if the inner index moves with it (`d` or `d + c`) and the slices retain
    their order; otherwise the axes would differ.
    """
    if is_own(read.index, domain):  # the common case
        return Read(inner.source, inner.out, inner.index, all_of(read.cond, inner.cond))
    entries: dict[str, Entry] = dict(zip(domain, read.index, strict=True))
    points = {name: e for name, e in entries.items() if isinstance(e, Lin)}
    slices = [name for name, e in entries.items() if isinstance(e, Slice)]
    if inner.cond.symbols.intersection(slices):
        return None
    index: list[Entry] = []
    passed: list[str] = []
    for entry in inner.index:
        sliced = [name for name in slices if name in entry.symbols]
        if not sliced:
            index.append(subst_entry(entry, points))
            continue
        (name, *more) = sliced
        along = entries[name]
        if more or not isinstance(entry, Lin) or not isinstance(along, Slice):
            return None
        shift = _shift(entry, name)
        if shift is None:
            return None
        index.append(span(along.lo + shift, along.hi + shift))
        passed.append(name)
    inner_slices = any(isinstance(entry, Slice) for entry in inner.index)
    if passed != slices or (slices and inner_slices):
        return None
    cond = all_of(read.cond, subst_cond(inner.cond, points))
    return Read(inner.source, inner.out, tuple(index), cond)


def merges_by_length(dims: Dims, ops: Mapping[int, Op]) -> frozenset[int]:
    """Return the merges whose branches depend on a dynamic bound, directly or not."""
    found: set[int] = set()
    if not dims.dynamic:
        return frozenset()
    merges = [op for op in ops.values() if op.kind == "merge"]
    growing = True
    while growing:
        more = {
            op.id
            for op in merges
            if any(r.source in found or dims.mention(read_symbols(r)) for r in op.inputs)
        }
        growing = not more <= found
        found |= more
    return frozenset(found)


def _shift(e: Lin, name: str) -> int | None:
    """Return c if the expression is `name + c`, else None."""
    rest = e - e.const
    return e.const if rest.as_symbol == name else None
