"""Vectorisation: a symbolic dimension becomes a leading axis (000_9a2364bc51ddf94b.txt §5.2, Alg. 2).

`vectorize_over` rewrites a chosen set of operations; edges between vectorised operations drop the
dimension's index, other readers select a position, and other sources are read whole. The table
`VECTOR` holds each kind's rule. Which operations are chosen: those on no non-trivial cycle, whose
rule does not refuse, less those that a trial schedule keeps (`trial`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from timerl_nb.ir.attrs import (
    NO_ATTRS,
    AtAttrs,
    AxesAttrs,
    AxisAttrs,
    CastAttrs,
    ConstAttrs,
    DiscountAttrs,
    DotAttrs,
    OutputAttrs,
    PermAttrs,
    PlaceAttrs,
    RangeAttrs,
    RngAttrs,
    ShapeAttrs,
    SlidingAttrs,
    ValueAttrs,
)
from timerl_nb.ir.host import UdfAttrs
from timerl_nb.ir.kinds import ELEMENTWISE, KINDS, REDUCTIONS
from timerl_nb.ir.ops import Op, Output, Read, attr_domain, is_sliced
from timerl_nb.ir.pdg import Pdg, read_type
from timerl_nb.ir.rewrite import Edit, Rewritten, Step, chain, unchanged
from timerl_nb.ir.shapes import Shape, TensorType
from timerl_nb.passes.cycles import cycles_of
from timerl_nb.passes.simplify import RULES, apply_rules, remove_dead, remove_duplicates
from timerl_nb.symbolic.domain import Dim
from timerl_nb.symbolic.expr import (
    Entry,
    Extremum,
    Lin,
    Slice,
    const,
)


class Refused(Exception):
    """A rule does not apply; the message says why."""


@dataclass(frozen=True)
class Window:
    """A slice that moves with the dimension: `window` points ahead of, or back from, the index."""

    window: int | None
    forward: bool


@dataclass(frozen=True)
class Operand:
    """An operand of a vectorised operation: the read, and which axis is the new dimension.

    `axis` None is an operand that does not vary; `moving` one whose slice became the new axis.
    """

    read: Read
    axis: int | None
    moving: Window | None = None


@dataclass(frozen=True)
class Site:
    """One operation being vectorised over `dim`."""

    edit: Edit
    dim: Dim
    op: Op
    operands: tuple[Operand, ...]

    def shape(self, k: int) -> Shape:
        read = self.operands[k].read
        return read_type(self.edit.ops[read.source].outputs[read.out], read).shape

    def lead(self, k: int) -> Read:
        """Operand `k` with the new axis, if it has one, in front."""
        read, axis = self.operands[k].read, self.operands[k].axis
        if not axis:
            return read
        perm = (axis, *(a for a in range(len(self.shape(k))) if a != axis))
        return self.edit.own(self.edit.add("transpose", [read], PermAttrs(perm), like=self.op))

    def leads(self) -> list[Read]:
        return [self.lead(k) for k in range(len(self.operands))]

    def full(self, k: int) -> Read:
        """Operand `k` with the new axis in front, repeated along it where it does not vary."""
        if self.operands[k].axis is not None:
            return self.lead(k)
        shape = self.shape(k)
        one = self.edit.add(
            "reshape", [self.operands[k].read], ShapeAttrs((1, *shape)), like=self.op
        )
        whole = ShapeAttrs((self.dim.size, *shape))
        return self.edit.own(self.edit.add("expand", [self.edit.own(one)], whole, like=self.op))


Made = tuple[str, Sequence[Read], Any]  # kind, operands, attributes
Rule = Callable[[Site], Made]


# --- the rules -----------------------------------------------------------------------------------


def _elementwise(site: Site) -> Made:
    rank = len(site.op.shape)
    reads: list[Read] = []
    for k, operand in enumerate(site.operands):
        shape = site.shape(k)
        read = site.lead(k)
        if operand.axis is not None and len(shape) == 1 and rank > 0:  # a scalar per point
            shape = (*shape, *(1,) * rank)
            read = site.edit.own(site.edit.add("reshape", [read], ShapeAttrs(shape), like=site.op))
        elif operand.axis is None and shape:
            attrs = ShapeAttrs((1, *shape))
            read = site.edit.own(site.edit.add("reshape", [read], attrs, like=site.op))
        reads.append(read)
    return site.op.kind, reads, site.op.attrs


def _reduction(site: Site) -> Made:
    moving = site.operands[0].moving
    if moving is not None:
        if site.op.kind != "sum" or site.op.attrs.axes != (0,):
            raise Refused(f"{site.op.kind} over a window that moves with {site.dim.name}")
        made = _slide(site, SlidingAttrs(0, 1.0, moving.window, moving.forward))
        source = site.operands[0].read
        if site.edit.ops[source.source].outputs[source.out].type.dtype == site.op.dtype:
            return made
        counted = site.edit.add("cast", made[1], CastAttrs(site.op.dtype), like=site.op)
        return made[0], [site.edit.own(counted)], made[2]
    read, axes = _past(site, site.op.attrs.axes)
    return site.op.kind, [read], AxesAttrs(axes)


def _past(site: Site, axes: tuple[int, ...]) -> tuple[Read, tuple[int, ...]]:
    """The operand and the axes to reduce: the new axis is in front of what is left."""
    axis = site.operands[0].axis
    assert axis is not None
    if set(range(axis)) <= set(axes):  # all before it goes
        return site.operands[0].read, tuple(a if a < axis else a + 1 for a in axes)
    return site.lead(0), tuple(a + 1 for a in axes)


def _slide(site: Site, attrs: SlidingAttrs) -> Made:
    return "sliding_sum", [site.operands[0].read], attrs


def _discounted(site: Site) -> Made:
    attrs: DiscountAttrs = site.op.attrs
    moving = site.operands[0].moving
    if moving is None:
        read, (axis,) = _past(site, (attrs.axis,))
        return site.op.kind, [read], replace(attrs, axis=axis)
    if attrs.axis != 0 or attrs.reverse == moving.forward:
        raise Refused(f"a discount that does not count from the current {site.dim.name}")
    return _slide(site, SlidingAttrs(0, attrs.gamma, moving.window, moving.forward))


def _axis(site: Site) -> Made:
    _still(site)
    return site.op.kind, site.leads(), replace(site.op.attrs, axis=site.op.attrs.axis + 1)


def _still(site: Site) -> None:
    if any(x.moving for x in site.operands):
        raise Refused(f"{site.op.kind} of a window that moves with {site.dim.name}")


def _dot(site: Site) -> Made:
    _still(site)
    attrs: DotAttrs = site.op.attrs
    used = set(attrs.left + attrs.right + attrs.out)
    new = next(x for x in "tuvwxyzabcdefghijklmnopqrs" if x not in used)
    left, right = (new * (x.axis is not None) for x in site.operands)
    return "dot", site.leads(), DotAttrs(left + attrs.left, right + attrs.right, new + attrs.out)


def _reshape(site: Site) -> Made:
    _still(site)
    return "reshape", site.leads(), ShapeAttrs((site.dim.size, *site.op.attrs.shape))


def _transpose(site: Site) -> Made:
    _still(site)
    return "transpose", site.leads(), PermAttrs((0, *(k + 1 for k in site.op.attrs.perm)))


def _expand(site: Site) -> Made:
    _still(site)
    shape = (site.dim.size, *site.op.attrs.shape)
    before = site.shape(0)
    if len(before) < len(shape):  # a scalar per point
        ones = (*before, *(1,) * (len(shape) - len(before)))
        made = site.edit.add("reshape", site.leads(), ShapeAttrs(ones), like=site.op)
        return "expand", [site.edit.own(made)], ShapeAttrs(shape)
    return "expand", site.leads(), ShapeAttrs(shape)


def _concat(site: Site) -> Made:
    _still(site)
    reads = [site.full(k) for k in range(len(site.operands))]
    return "concat", reads, AxisAttrs(site.op.attrs.axis + 1)


def _range(site: Site) -> Made:
    attrs: RangeAttrs = site.op.attrs
    if site.dim.name in attrs.lo.symbols | attrs.hi.symbols:
        raise Refused(f"a range that moves with {site.dim.name}")
    return _axis(site)


def _at(site: Site) -> Made:
    attrs: AtAttrs = site.op.attrs
    if site.dim.name in attrs.at.symbols:
        raise Refused(f"a position that moves with {site.dim.name}")
    return _axis(site)


def _place(site: Site) -> Made:
    attrs: PlaceAttrs = site.op.attrs
    if site.dim.name in attrs.lo.symbols:
        raise Refused(f"a position that moves with {site.dim.name}")
    return _axis(site)


def _value(site: Site) -> Made:
    attrs: ValueAttrs = site.op.attrs
    axes, sizes = (site.dim.name, *attrs.axes), (site.dim.size, *attrs.sizes)
    return "value", [], replace(attrs, axes=axes, sizes=sizes)


def _drawn(site: Site) -> Made:
    attrs: RngAttrs | ConstAttrs = site.op.attrs
    axes, sizes = (site.dim.name, *attrs.axes), (site.dim.size, *attrs.sizes)
    return site.op.kind, [], replace(attrs, axes=axes, sizes=sizes)


def _merge(site: Site) -> Made:
    """Branches become whole; one that does not vary is repeated at its source."""
    if any(site.dim.name in read.cond.symbols for read in site.op.inputs):
        raise Refused(f"branches that are chosen by {site.dim.name}")
    reads: list[Read] = []
    for operand in site.operands:
        read = operand.read
        if is_sliced(read):
            raise Refused("a branch that is read one point at a time")
        if operand.axis is None:
            source = site.edit.ops[read.source]
            own = site.edit.own(source, read.out)
            repeated = Site(site.edit, site.dim, site.op, (Operand(own, None),)).full(0)
            read = Read(repeated.source, repeated.out, read.index, read.cond)
        reads.append(read)
    return "merge", reads, site.op.attrs


def _output(site: Site) -> Made:
    if is_sliced(site.operands[0].read):
        raise Refused("its operand is not vectorised")
    attrs: OutputAttrs = site.op.attrs
    return "output", site.leads(), replace(attrs, axes=(site.dim.name, *attrs.axes))


def _udf(site: Site) -> Made:
    attrs: UdfAttrs = site.op.attrs
    if attrs.resource is not None and site.dim.name not in attrs.resource.instances:
        raise Refused(f"{attrs.resource.name} is one for all {site.dim.name}")
    if not attrs.batched:
        raise Refused("its function takes one point at a time (batched=False)")
    if any(isinstance(e, Slice) for x in site.operands for e in x.read.index):
        raise Refused("its operand is read one point at a time")
    reads = [site.full(k) for k in range(len(site.operands))]
    axes, sizes = (site.dim.name, *attrs.axes), (site.dim.size, *attrs.sizes)
    return "udf", reads, replace(attrs, axes=axes, sizes=sizes)


VECTOR: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(sorted(ELEMENTWISE), _elementwise),
    **dict.fromkeys(REDUCTIONS, _reduction),
    "argmax": _axis,
    "discounted_sum": _discounted,
    "sliding_sum": _axis,
    "dot": _dot,
    "reshape": _reshape,
    "transpose": _transpose,
    "expand": _expand,
    "concat": _concat,
    "range": _range,
    "at": _at,
    "place": _place,
    "flip": _axis,
    "value": _value,
    "rng": _drawn,
    "data": _drawn,
    "merge": _merge,
    "output": _output,
    "udf": _udf,
}
NO_VECTOR: Final[Mapping[str, str]] = {
    "const": "a constant varies over no dimension",
    "checkpoint": "files are written one point at a time",
    "call": "functions are called for one point at a time",
    "accumulate": "values are accumulated after vectorisation",
    "dataflow": "regions are fused after vectorisation",
}


# --- operands ------------------------------------------------------------------------------------


def _window(entry: Slice, dim: Dim) -> Window:
    """What a slice that moves with the dimension reaches.

    Raises:
        Refused: it is neither d:D, d:min(d + n, D), 0:d + 1 nor max(0, d - n):d + 1.
    """
    lo, hi, var = entry.lo, entry.hi, dim.var
    if lo is var and hi is dim.size:
        return Window(None, True)
    if lo is var and (n := _limit(hi, "min", dim.size, var)) is not None:
        return Window(n, True)
    if hi is var + 1 and lo.is_const and lo.const == 0:
        return Window(None, False)
    if hi is var + 1 and (n := _limit(lo, "max", const(0), var)) is not None:
        return Window(1 - n, False)
    raise Refused(f"the slice {entry} moves with {dim.name}")


def _limit(e: Lin, which: str, end: Lin, var: Lin) -> int | None:
    """n where the expression is min(var + n, end) (or max)."""
    if not e.is_atom or not isinstance(e.terms[0][0], Extremum):
        return None
    atom = e.terms[0][0]
    rest = [arg for arg in atom.args if arg is not end]
    if atom.which != which or len(rest) != 1 or len(atom.args) != 2:
        return None
    distance = rest[0] - var
    return distance.const if distance.is_const else None


class _Vectorizer:
    def __init__(self, edit: Edit, dim: Dim, chosen: frozenset[int]) -> None:
        self.edit, self.dim, self.chosen = edit, dim, chosen
        self._old = {op_id: op.outputs for op_id, op in edit.ops.items()}
        self._views: dict[tuple[int, int], Op] = {}

    def _had(self, read: Read) -> Output:
        return self._old[read.source][read.out]

    def operand(self, op: Op, read: Read) -> Operand:
        """How a vectorised operation reads what it read."""
        name, domain = self.dim.name, self._had(read).domain
        vectorised = read.source in self.chosen and name in domain
        entries: list[Entry] = []
        front: str | None = None  # the dimension whose slice becomes axis 0
        moving: Window | None = None
        own = False  # whether the source's new axis is ours
        for d, entry in zip(domain, read.index, strict=True):
            along = vectorised and d == name
            if name not in entry.symbols:
                if along:
                    return self._still(op, read)
                entries.append(entry)
                continue
            if front is not None or own or (isinstance(entry, Slice) and moving is not None):
                raise Refused(f"two indices of one operand move with {name}")
            if isinstance(entry, Slice):
                if d != name:
                    raise Refused(f"a slice of {d} moves with {name}")
                moving = _window(entry, self.dim)
            elif entry.as_symbol != name:
                raise Refused(f"the index {entry} moves with {name}")
            if along:
                own = True
            else:
                front = d
                entries.append(self.dim.whole)
        before = Read(read.source, read.out, tuple(entries), read.cond)
        slices = [d for d, e in zip(domain, read.index, strict=True) if isinstance(e, Slice)]
        if moving is not None:
            if len(slices) > 1:
                raise Refused(f"several slices, one of which moves with {name}")
            return Operand(before, 0, moving)
        if own:
            return Operand(before, len(slices))
        if front is None:
            return Operand(before, None)
        if any(name in s.symbols for s in self._had(read).type.shape if isinstance(s, Lin)):
            raise Refused(f"an operand's shape varies with {name}")
        order = [d for d in domain if d in {*slices, front}]
        return Operand(before, order.index(front))

    def _still(self, op: Op, read: Read) -> Operand:
        """A vectorised source at an index that does not move with the dimension."""
        moves = any(
            self.dim.name in e.symbols and d != self.dim.name
            for d, e in zip(self._had(read).domain, read.index, strict=True)
        )
        if moves:
            raise Refused(f"two indices of one operand involve {self.dim.name}")
        return Operand(self.outside(op, read), None)

    def outside(self, op: Op, read: Read) -> Read:
        """How an operation that stays symbolic reads a vectorised source."""
        output = self._had(read)
        name, domain = self.dim.name, output.domain
        at = domain.index(name)
        entry = read.index[at]
        rest = tuple(e for k, e in enumerate(read.index) if k != at)
        if isinstance(entry, Lin):
            view = self._view(read.source, read.out)
            return Read(view.id, 0, read.index, read.cond)
        if op.kind == "merge":
            raise Refused("a merge reads a slice of it")
        plain = Read(read.source, read.out, rest)
        slices = [d for d, e in zip(domain, read.index, strict=True) if isinstance(e, Slice)]
        axis = len(slices) - 1
        if entry is not self.dim.whole:
            cut = RangeAttrs(axis, entry.lo, entry.hi)
            plain = self.edit.own(self.edit.add("range", [plain], cut, like=op))
        to = slices.index(name)
        if to == axis:
            return plain
        source = self.edit.ops[plain.source].outputs[plain.out]
        rank = len(read_type(source, plain).shape)
        order = [k for k in range(rank) if k != axis]
        order.insert(to, axis)
        return self.edit.own(self.edit.add("transpose", [plain], PermAttrs(tuple(order)), like=op))

    def _view(self, op_id: int, out: int) -> Op:
        """A vectorised operation's value at one position, over its former domain."""
        found = self._views.get((op_id, out))
        if found is None:
            op = self.edit.ops[op_id]
            own = self.edit.own(op, out)
            found = self.edit.add("at", [own], AtAttrs(0, self.dim.var), like=op, label=op.label)
            self._views[op_id, out] = found
        return found

    def _repeated(self, site: Site) -> Made:
        """An operation that is over the dimension in name only: computed once, and repeated."""
        if site.op.kind == "output":
            return "output", [site.full(0)], _output(site)[2]
        once = self.edit.add(site.op.kind, site.leads(), site.op.attrs, like=site.op)
        alone = Site(self.edit, self.dim, site.op, (Operand(self.edit.own(once), None),))
        return "copy", [alone.full(0)], NO_ATTRS

    def rewrite(self, op: Op) -> None:
        """Vectorise one operation; its sources are vectorised already, merges aside."""
        operands = tuple(self.operand(op, read) for read in op.inputs)
        site = Site(self.edit, self.dim, op, operands)
        by_itself = self.dim.name in attr_domain(self.edit.dims, op.attrs)
        if (
            operands
            and op.kind != "merge"
            and not by_itself
            and all(x.axis is None for x in operands)
        ):
            kind, reads, attrs = self._repeated(site)
        else:
            kind, reads, attrs = VECTOR[op.kind](site)
        self.edit.insert(self.promised(op).with_(kind=kind, inputs=tuple(reads), attrs=attrs))

    def promised(self, op: Op) -> Op:
        """The operation with its new type, known before its operands are rewritten."""
        outputs = tuple(
            Output(
                TensorType((self.dim.size, *o.type.shape), o.type.dtype),
                tuple(d for d in o.domain if d != self.dim.name),
            )
            for o in op.outputs
        )
        return op.with_(domain=tuple(d for d in op.domain if d != self.dim.name), outputs=outputs)


def vectorize_over(pdg: Pdg, dim: Dim, chosen: frozenset[int]) -> Rewritten:
    """The graph with the chosen operations vectorised over `dim`.

    Raises:
        Refused: a rule does not apply (`choose` returns sets for which all do).
    """
    edit = Edit(pdg)
    work = _Vectorizer(edit, dim, chosen)
    for op_id in chosen:  # types first: cycles read what comes later
        edit.ops[op_id] = work.promised(edit.ops[op_id])
    for op_id in pdg.order:
        if op_id in chosen:
            work.rewrite(pdg[op_id])
    for op in pdg:
        if op.id in chosen:
            continue
        reads = tuple(
            work.outside(op, r) if r.source in chosen and dim.name in pdg.output(r).domain else r
            for r in op.inputs
        )
        if reads != op.inputs:
            edit.insert(edit.ops[op.id].with_(inputs=reads))
    edit.steps.append(
        Step(f"vectorize over {dim.name}", tuple(sorted(chosen)), tuple(sorted(chosen)))
    )
    return edit.finish()


def choose(pdg: Pdg, dim: Dim, keep: Iterable[int] = ()) -> tuple[frozenset[int], dict[int, str]]:
    """The operations to vectorise over `dim`, and why each other one over it is not.

    Args:
        keep: operations to leave alone.
    """
    cycles = cycles_of(pdg, dim.name)
    kept = set(keep)
    why: dict[int, str] = {}
    chosen: set[int] = set()
    for op in pdg:
        if dim.name not in op.domain:
            continue
        reason = _reason(op, dim, op.id in cycles.sequential, op.id in kept)
        if reason is None:
            chosen.add(op.id)
        else:
            why[op.id] = reason
    while True:
        refused = _refusals(pdg, dim, chosen)
        for group in cycles.together:
            if group - chosen and group & chosen:
                for op_id in group & chosen:
                    refused.setdefault(op_id, "it is on a cycle with operations that are not")
        if not refused:
            return frozenset(chosen), why
        chosen -= set(refused)
        why |= refused


def _reason(op: Op, dim: Dim, sequential: bool, kept: bool) -> str | None:
    if sequential:
        return f"it is on a cycle that runs along {dim.name}"
    if kept:
        return f"a trial schedule runs it in one loop over {dim.name} with operations that must be"
    if op.kind in NO_VECTOR:
        return NO_VECTOR[op.kind]
    if any(dim.name in s.symbols for o in op.outputs for s in o.type.shape if isinstance(s, Lin)):
        return f"its shape varies with {dim.name}"
    if dim.name in op.where.symbols:
        return f"it runs at chosen points of {dim.name} only"
    return None


def _refusals(pdg: Pdg, dim: Dim, chosen: set[int]) -> dict[int, str]:
    """The chosen operations that cannot be vectorised if exactly these are."""
    found: dict[int, str] = {}
    edit = Edit(pdg)
    work = _Vectorizer(edit, dim, frozenset(chosen))
    for op_id in chosen:
        edit.ops[op_id] = work.promised(edit.ops[op_id])
    for op_id in pdg.order:
        op = pdg[op_id]
        try:
            if op_id in chosen:
                work.rewrite(op)
        except Refused as refusal:
            found[op_id] = str(refusal)
        readers = {pdg[reader].id for reader, _ in pdg.readers[op_id]}
        free = not op.inputs or "layout" in KINDS[op.kind].tags
        if op_id in chosen and free and not readers & chosen:
            found[op_id] = "all that read it do so one point at a time"
    for op in pdg:
        if op.id in chosen:
            continue
        for read in op.inputs:
            if read.source in chosen and dim.name in pdg.output(read).domain:
                try:
                    work.outside(op, read)
                except Refused as refusal:
                    found[read.source] = str(refusal)
    return found


class Keep(Protocol):
    """Says which operations had better stay symbolic over a dimension (`schedule.trial`)."""

    def __call__(self, pdg: Pdg, dim: Dim, /) -> Iterable[int]: ...


def keep_nothing(pdg: Pdg, dim: Dim, /) -> Iterable[int]:
    """Vectorise whatever can be, as the paper does."""
    return ()


@dataclass(frozen=True)
class Vectorize:
    """Dimensions as axes.

    Attributes:
        dims: the dimensions to try, or None for all.
        keep: the operations to leave alone, by dimension.
    """

    dims: tuple[str, ...] | None = None
    keep: Keep = keep_nothing
    name: str = "vectorize"

    def run(self, pdg: Pdg) -> Rewritten:
        total = unchanged(pdg)
        for dim in self._in_order(pdg):
            chosen, why = choose(total.pdg, dim, self.keep(total.pdg, dim))
            refused = {**total.refused, **why}
            if chosen:
                total = chain(total, _tidied(vectorize_over(total.pdg, dim, chosen)))
            total = replace(total, refused=refused)
        return total

    def _in_order(self, pdg: Pdg) -> list[Dim]:
        """Dimensions along which nothing is sequential first: the others are tried on what is left."""
        wanted = [d for d in pdg.dims if self.dims is None or d.name in self.dims]
        return sorted(wanted, key=lambda d: bool(cycles_of(pdg, d.name).sequential))


def _tidied(made: Rewritten) -> Rewritten:
    """Without the transpositions and repetitions that the new axes do not need."""
    edit = Edit(made.pdg)
    apply_rules(edit, RULES)
    remove_duplicates(edit)
    remove_dead(edit)
    return chain(made, edit.finish())
