"""Vectorisation: a symbolic dimension becomes a leading axis (TimeRL §5.2, Alg. 2).

`vectorize_over` rewrites a selected set of operations. Reads between vectorised operations drop the
dimension's index, other readers select a position, and other sources are read as a whole. `batching_rules`
has each kind's rule. An operation is selected if it is on no non-trivial cycle, has an applicable rule, and
is not in the loop of acting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from timerl_nb.compiler.ir.dependence_graph import Pdg, read_type
from timerl_nb.compiler.ir.graph_rewriting import (
    Edit,
    RewriteStep,
    Rewritten,
    chain,
    identity_rewrite,
)
from timerl_nb.compiler.ir.operation_attributes import NO_ATTRS, PermAttrs, ReindexAttrs
from timerl_nb.compiler.ir.operation_kinds import KINDS
from timerl_nb.compiler.ir.operations import Op, Output, Read, read_symbols
from timerl_nb.compiler.ir.recorded_pass_decisions import Candidate, PassChoice
from timerl_nb.compiler.ir.shapes import TensorType
from timerl_nb.compiler.passes.simplification.algebra_rules import RULES
from timerl_nb.compiler.passes.simplification.local_rules_cse_dce import (
    apply_rules,
    remove_dead,
    remove_duplicates,
)
from timerl_nb.compiler.passes.vectorization.batching_rules import (
    NO_VECTOR,
    VECTOR,
    Made,
    MovingSlice,
    Operand,
    Refused,
    Site,
    clamp_position,
)
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import components, cycles_of
from timerl_nb.compiler.passes.vectorization.operations_kept_in_loops import Acting
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    Entry,
    Extremum,
    Index,
    Lin,
    Slice,
    const,
    sym,
)

# --- operands ------------------------------------------------------------------------------------


def _window(entry: Slice, dim: Dim) -> MovingSlice:
    """Return the extent of a moving slice along the dimension.

    Raises:
        Refused: the slice is none of d:D, d:min(d + n, D), 0:d + 1 and max(0, d - n):d + 1.
    """
    lo, hi, var = entry.lo, entry.hi, dim.var
    if lo is var and hi is dim.size:
        return MovingSlice(None, True)
    if lo is var and (n := _limit(hi, "min", dim.size, var)) is not None:
        return MovingSlice(n, True)
    if hi is var + 1 and lo.is_const and lo.const == 0:
        return MovingSlice(None, False)
    if hi is var + 1 and (n := _limit(lo, "max", const(0), var)) is not None:
        return MovingSlice(1 - n, False)
    raise Refused(f"the slice {entry} moves with {dim.name}")


def _limit(e: Lin, which: str, end: Lin, var: Lin) -> int | None:
    """Return n if the expression is min(var + n, end) (or max), else None."""
    if not e.is_atom or not isinstance(e.terms[0][0], Extremum):
        return None
    atom = e.terms[0][0]
    rest = [arg for arg in atom.args if arg is not end]
    if atom.which != which or len(rest) != 1 or len(atom.args) != 2:
        return None
    distance = rest[0] - var
    return distance.const if distance.is_const else None


def _slices(index: Index) -> int:
    return sum(isinstance(entry, Slice) for entry in index)


class _Vectorizer:
    def __init__(self, edit: Edit, dim: Dim, chosen: frozenset[int]) -> None:
        self.edit, self.dim, self.chosen = edit, dim, chosen
        self._old = {op_id: op.outputs for op_id, op in edit.ops.items()}
        self._views: dict[tuple[int, int, Lin], Op] = {}
        self._shifts: dict[tuple[int, int, str, Lin], Op] = {}

    def _original_output(self, read: Read) -> Output:
        return self._old[read.source][read.out]

    def operand(self, op: Op, read: Read) -> Operand:
        """Return the operand of a vectorised operation for one of its reads."""
        name, domain = self.dim.name, self._original_output(read).domain
        vectorised = read.source in self.chosen and name in domain
        entries: dict[str, Entry] = {}
        front: str | None = None  # the dimension whose slice becomes axis 0
        moving: MovingSlice | None = None
        # the operation to read instead of the source, if it is not read at the own point
        shifted: Op | None = None
        own = False  # whether the source's new axis is the new dimension
        for d, entry in zip(domain, read.index, strict=True):
            along = vectorised and d == name
            if name not in entry.symbols:
                if along:
                    return self._read_unmoved(op, read)
                entries[d] = entry
                continue
            if front is not None or own:
                raise Refused(f"two indices of one operand move with {name}")
            if isinstance(entry, Slice):
                if d != name:
                    raise Refused(f"a slice of {d} moves with {name}")
                moving = _window(entry, self.dim)
            elif entry.as_symbol != name:
                shifted = self._shift_source(op, read, d, entry)
                own = True
                continue
            if along:
                own = True
            else:
                front = d
                entries[d] = self.dim.full_range
        before = Read(read.source, read.out, tuple(entries.values()), read.cond)
        if shifted is not None:  # the index may vary with a dynamic bound
            index = tuple(entries.get(d, sym(d)) for d in shifted.domain)
            before = Read(shifted.id, 0, index, read.cond)
        slices = [d for d, e in zip(domain, read.index, strict=True) if isinstance(e, Slice)]
        if moving is not None:
            if len(slices) > 1:
                raise Refused(f"several slices, one of which moves with {name}")
            return Operand(before, 0, moving)
        if own:
            return Operand(before, len(slices))
        if front is None:
            return Operand(before, None)
        if any(
            name in s.symbols for s in self._original_output(read).type.shape if isinstance(s, Lin)
        ):
            raise Refused(f"an operand's shape varies with {name}")
        order = [d for d in domain if d in {*slices, front}]
        return Operand(before, order.index(front))

    def _shift_source(self, op: Op, read: Read, d: str, at: Lin) -> Op:
        """Return a source with an axis for the dimension, shifted to one position per point.

        Positions beyond the ends belong to unread points.
        """
        found = self._shifts.get((read.source, read.out, d, at))
        if found is not None:
            return found
        others = self.edit.dims.ordered(at.symbols - {self.dim.name})
        if others:
            raise Refused(f"the index {at} moves with {self.dim.name} and {', '.join(others)}")
        output, source = self._original_output(read), self.edit.ops[read.source]
        if source.where is not TRUE:
            raise Refused(f"{source.name}, read at {at}, has no value at some points")
        if any(d in s.symbols for s in output.type.shape if isinstance(s, Lin)):
            raise Refused(f"the shape of {source.name}, read at {at}, varies with {d}")
        if self.edit.dims[d].over is not None and d != self.dim.name:
            raise Refused(f"the length of {d} varies")
        along = d == self.dim.name and read.source in self.chosen
        whole = tuple(
            self.edit.dims[d].full_range if n == d else sym(n)
            for n in output.domain
            if not (along and n == d)
        )
        attrs = ReindexAttrs(0, at, self.dim.size, "end", self.dim.name)
        plain = Read(read.source, read.out, whole)
        made = self.edit.add("reindex", [plain], attrs, like=source, label=source.label)
        self._shifts[read.source, read.out, d, at] = made
        return made

    def _read_unmoved(self, op: Op, read: Read) -> Operand:
        """Return the operand for a vectorised source at an index independent of the dimension."""
        moves = any(
            self.dim.name in e.symbols and d != self.dim.name
            for d, e in zip(self._original_output(read).domain, read.index, strict=True)
        )
        if moves:
            raise Refused(f"two indices of one operand involve {self.dim.name}")
        return Operand(self.read_from_loop(op, read), None)

    def read_from_loop(self, op: Op, read: Read) -> Read:
        """Return the read of a vectorised source by an operation in a loop."""
        output = self._original_output(read)
        name, domain = self.dim.name, output.domain
        at = domain.index(name)
        entry = read.index[at]
        rest = tuple(e for k, e in enumerate(read.index) if k != at)
        if isinstance(entry, Lin):
            guarded = op.kind == "merge" or op.where is not TRUE
            if not self.edit.dims.ordered(entry.symbols):
                fixed = clamp_position(entry, self.dim) if guarded else entry
                return Read(self._view(read.source, read.out, fixed).id, 0, rest, read.cond)
            if guarded or entry is self.dim.var:
                view = self._view(read.source, read.out, self.dim.var)
                return Read(view.id, 0, read.index, read.cond)
            plain, slices = Read(read.source, read.out, rest), _slices(rest)
            return self.edit.read_same_point(
                self.edit.add("reindex", [plain], ReindexAttrs(slices, entry), like=op)
            )
        if op.kind == "merge":
            raise Refused("a merge reads a slice of it")
        plain = Read(read.source, read.out, rest)
        slices = [d for d, e in zip(domain, read.index, strict=True) if isinstance(e, Slice)]
        axis = len(slices) - 1
        if entry is not self.dim.full_range:
            cut = ReindexAttrs.from_range(axis, entry.lo, entry.hi)
            plain = self.edit.read_same_point(self.edit.add("reindex", [plain], cut, like=op))
        to = slices.index(name)
        if to == axis:
            return plain
        source = self.edit.ops[plain.source].outputs[plain.out]
        rank = len(read_type(source, plain).shape)
        order = [k for k in range(rank) if k != axis]
        order.insert(to, axis)
        return self.edit.read_same_point(
            self.edit.add("transpose", [plain], PermAttrs(tuple(order)), like=op)
        )

    def _view(self, op_id: int, out: int, at: Lin) -> Op:
        """Return a vectorised operation's value at one position: the current one, or a fixed one."""
        found = self._views.get((op_id, out, at))
        if found is None:
            op = self.edit.ops[op_id]
            own = self.edit.read_same_point(op, out)
            found = self.edit.add("reindex", [own], ReindexAttrs(0, at), like=op, label=op.label)
            self._views[op_id, out, at] = found
        return found

    def _repeat_once_computed(self, site: Site) -> Made:
        """Compute an operation once, and repeat the result, since it does not depend on the dimension."""
        if site.op.kind == "output":
            return "output", [site.repeat_along_axis(0)], VECTOR["output"](site)[2]
        if site.op.id in self.edit.ordered:  # the order refers to the computation
            raise Refused("it is part of an order, and would be computed once for all points")
        once = self.edit.add(site.op.kind, site.move_axes_to_front(), site.op.attrs, like=site.op)
        alone = Site(
            self.edit, self.dim, site.op, (Operand(self.edit.read_same_point(once), None),)
        )
        return "copy", [alone.repeat_along_axis(0)], NO_ATTRS

    def rewrite(self, op: Op) -> None:
        """Vectorise one operation; its sources, except merges, are vectorised already."""
        operands = tuple(self.operand(op, read) for read in op.inputs)
        site = Site(self.edit, self.dim, op, operands)
        by_itself = self.dim.name in op.attrs.varying_dims(self.edit.dims)
        if (
            operands
            and op.kind != "merge"
            and not by_itself
            and all(x.axis is None for x in operands)
        ):
            kind, reads, attrs = self._repeat_once_computed(site)
        else:
            kind, reads, attrs = VECTOR[op.kind](site)
        self.edit.insert(self.predict_type(op).with_(kind=kind, inputs=tuple(reads), attrs=attrs))

    def predict_type(self, op: Op) -> Op:
        """Return the operation with its new type, known before its operands are rewritten."""
        outputs = tuple(
            Output(
                TensorType((self.dim.size, *o.type.shape), o.type.dtype),
                tuple(d for d in o.domain if d != self.dim.name),
            )
            for o in op.outputs
        )
        return op.with_(domain=tuple(d for d in op.domain if d != self.dim.name), outputs=outputs)


def vectorize_over(pdg: Pdg, dim: Dim, chosen: frozenset[int]) -> Rewritten:
    """Return the graph with the selected operations vectorised over `dim`.

    Raises:
        Refused: a rule does not apply (for sets from `choose`, all rules apply).
    """
    edit = Edit(pdg)
    work = _Vectorizer(edit, dim, chosen)
    for op_id in chosen:  # types first, since operations on cycles read later ones
        edit.ops[op_id] = work.predict_type(edit.ops[op_id])
    for op_id in pdg.order:
        if op_id in chosen:
            work.rewrite(pdg[op_id])
    for op in pdg:
        if op.id in chosen:
            continue
        reads = tuple(
            work.read_from_loop(op, r)
            if r.source in chosen and dim.name in pdg.output(r).domain
            else r
            for r in op.inputs
        )
        if reads != op.inputs:
            edit.insert(edit.ops[op.id].with_(inputs=reads))
    edit.steps.append(
        RewriteStep(f"vectorize over {dim.name}", tuple(sorted(chosen)), tuple(sorted(chosen)))
    )
    return edit.finish()


def choose(pdg: Pdg, dim: Dim, keep: Iterable[int] = ()) -> tuple[frozenset[int], dict[int, str]]:
    """Return the operations to vectorise over `dim`, and the reasons against all others.

    Args:
        pdg: the graph.
        dim: the dimension.
        keep: operations to leave unchanged.
    """
    cycles = cycles_of(pdg, dim.name)
    kept = set(keep)
    why: dict[int, str] = {}
    chosen: set[int] = set()
    for op in pdg:
        if dim.name not in op.domain:
            continue
        reason = _reason(op, dim, op.id in cycles.sequential, op.id in kept)
        reason = reason or length_reason(pdg, op, dim)
        if reason is None:
            chosen.add(op.id)
        else:
            why[op.id] = reason
    while True:
        refused = _refusals(pdg, dim, chosen)
        for group in cycles.together:
            if group - chosen and group & chosen:
                for op_id in group & chosen:
                    refused.setdefault(op_id, "it is on a cycle with operations that cannot be")
        if not refused:
            return frozenset(chosen), why
        chosen -= set(refused)
        why |= refused


def _reason(op: Op, dim: Dim, sequential: bool, kept: bool) -> str | None:
    if sequential:
        return f"it is on a cycle that runs along {dim.name}"
    if kept:
        return f"a trial schedule runs it in the same loop over {dim.name} as sequential operations"
    if op.kind in NO_VECTOR:
        return NO_VECTOR[op.kind]
    if any(dim.name in s.symbols for o in op.outputs for s in o.type.shape if isinstance(s, Lin)):
        return f"its shape varies with {dim.name}"
    if dim.name in op.where.symbols:
        return f"it runs at some points of {dim.name} only"
    return None


def _is_read_whole(pdg: Pdg, op: Op, dim: Dim) -> bool:
    """Whether an operation's value is read at all points of the dimension together."""
    at = op.outputs[0].domain.index(dim.name)
    reads = (pdg[reader].inputs[slot] for reader, slot in pdg.readers[op.id])
    return any(read.index[at] is dim.full_range for read in reads)


def length_reason(pdg: Pdg, op: Op, dim: Dim) -> str | None:
    """Return the reason why dynamic bounds forbid vectorisation, or None.

    An axis has one length, and functions on the host see true lengths.
    """
    for ends in pdg.dims.dynamic:
        if dim.name in (ends.over or ()) and (
            ends in pdg.dims.ending(op.domain) or _mentions(pdg, op, ends.bound)
        ):
            return f"{ends.bound} differs for each {dim.name}"
    if dim not in pdg.dims.dynamic:
        return None
    if dim not in pdg.dims.known(op.domain):
        return f"it runs up to the ceiling of {dim.bound}, since it does not vary with {dim.bound}"
    if op.kind == "output" and op.where is not TRUE:
        return "the coordinates of its values are recorded point by point"
    if op.kind == "udf":
        return f"its function would get more than {dim.bound} points"
    return None


def _mentions(pdg: Pdg, op: Op, bound: str) -> bool:
    """Whether a symbol occurs in an operation's reads, attributes or shape."""
    sizes = (s for o in op.outputs for s in o.type.shape if isinstance(s, Lin))
    operands = (s for r in op.inputs for s in pdg.read_type(r).shape if isinstance(s, Lin))
    found = (op.where, *sizes, *operands, *op.attrs.exprs)
    return any(bound in e.symbols for e in found) or any(
        bound in read_symbols(read) for read in op.inputs
    )


def _refusals(pdg: Pdg, dim: Dim, chosen: set[int]) -> dict[int, str]:
    """Return the obstacles to this selection, by operation."""
    found: dict[int, str] = dict.fromkeys(
        _cutting(pdg, dim, chosen), "its branches alone break a cycle"
    )
    edit = Edit(pdg)
    work = _Vectorizer(edit, dim, frozenset(chosen))
    for op_id in chosen:
        edit.ops[op_id] = work.predict_type(edit.ops[op_id])
    for op_id in pdg.order:
        op = pdg[op_id]
        try:
            if op_id in chosen:
                work.rewrite(op)
        except Refused as refusal:
            found[op_id] = str(refusal)
        readers = {pdg[reader].id for reader, _ in pdg.readers[op_id]}
        if op_id not in chosen or readers & chosen:
            continue
        light = not op.inputs or "layout" in KINDS[op.kind].tags
        if light and not _is_read_whole(pdg, op, dim):
            found[op_id] = "all readers read it point by point"
    for op in pdg:
        if op.id in chosen:
            continue
        for read in op.inputs:
            if read.source in chosen and dim.name in pdg.output(read).domain:
                try:
                    work.read_from_loop(op, read)
                except Refused as refusal:
                    found[read.source] = str(refusal)
    return found


def _cutting(pdg: Pdg, dim: Dim, chosen: set[int]) -> set[int]:
    """Return the selected merges on cycles without another merge; as selections of values, they would close them."""
    whole = {
        op_id
        for op_id in chosen
        if pdg[op_id].kind == "merge"
        and any(dim.name in read.cond.symbols for read in pdg[op_id].inputs)
    }
    if not whole:
        return set()
    edges = {
        op.id: [r.source for r in op.inputs] if op.kind != "merge" or op.id in whole else []
        for op in pdg
    }
    return whole & {k for group in components(edges) if len(group) > 1 for k in group}


STRATEGIES: Final = {
    "keep": "vectorise all operations outside loops with sequential operations",
    "all": "vectorise every possible operation",
    "none": "vectorise nothing",
}


@dataclass(frozen=True)
class Vectorize:
    """The pass `vectorize`: turns dimensions into axes.

    Attributes:
        dims: the dimensions to vectorise, or None for all.
        acting: operations in the loops of acting, to leave there; None without trials.
        strategies: decided strategies, by dimension with sequential operations.
    """

    dims: tuple[str, ...] | None = None
    acting: Acting | None = None
    strategies: tuple[tuple[str, str], ...] = ()
    name: str = "vectorize"

    def run(self, pdg: Pdg) -> Rewritten:
        total, acting = identity_rewrite(pdg), self.acting or Acting()
        for dim in self.candidate_dims(pdg):
            made = self._vectorize_along(total.pdg, dim, acting.operations_over(dim.name))
            acting = acting.map_to_rewritten(total.pdg, made)
            total = chain(total, made)
        return total

    def _vectorize_along(self, pdg: Pdg, dim: Dim, acting: frozenset[int]) -> Rewritten:
        """Vectorise one dimension; if it has sequential operations, there are several strategies."""
        if not cycles_of(pdg, dim.name).sequential:
            return _vectorize_except(pdg, dim)
        decided = dict(self.strategies).get(dim.name)
        if decided is not None:
            return _apply_strategy(pdg, dim, decided, acting)
        strategies = dict(STRATEGIES)
        if self.acting is None:
            del strategies["keep"]
        candidates = tuple(
            Candidate(name, doc, (("strategies", ((dim.name, name),)),))
            for name, doc in strategies.items()
        )
        taken = candidates[0]
        if taken.name == "keep":
            why = "there is no memory budget, and memory need not grow with the bound"
        else:
            why = "trials are switched off, so every possible operation is vectorised"
        choice = PassChoice(f"vectorize over {dim.name}", candidates, taken, why)
        return replace(_apply_strategy(pdg, dim, taken.name, acting), choices=(choice,))

    def candidate_dims(self, pdg: Pdg) -> list[Dim]:
        """Return the dimensions to vectorise; dimensions without sequential operations come first."""
        wanted = [d for d in pdg.dims.bounded if self.dims is None or d.name in self.dims]
        return sorted(wanted, key=lambda d: (d.seeds, bool(cycles_of(pdg, d.name).sequential)))


def _apply_strategy(pdg: Pdg, dim: Dim, name: str, acting: frozenset[int]) -> Rewritten:
    if name == "none":
        return _skip_vectorization(pdg, dim)
    return _vectorize_except(pdg, dim, acting if name == "keep" else frozenset())


def _vectorize_except(pdg: Pdg, dim: Dim, keep: frozenset[int] = frozenset()) -> Rewritten:
    """Vectorise all possible operations over one dimension, except operations to leave in loops."""
    return pdg.analysis(_vectorize_possible, dim, keep)


def _vectorize_possible(pdg: Pdg, dim: Dim, keep: frozenset[int]) -> Rewritten:
    chosen, why = choose(pdg, dim, keep)
    if not chosen:
        return replace(identity_rewrite(pdg), refused=why)
    made = _clean_up(vectorize_over(pdg, dim, chosen))
    return replace(made, refused={**made.refused, **why})


def _skip_vectorization(pdg: Pdg, dim: Dim) -> Rewritten:
    why = f"nothing is vectorised over {dim.name} within this budget"
    return replace(
        identity_rewrite(pdg), refused={op.id: why for op in pdg if dim.name in op.domain}
    )


def _clean_up(made: Rewritten) -> Rewritten:
    """Remove unnecessary transpositions and repetitions of the new axes."""
    edit = Edit(made.pdg)
    apply_rules(edit, RULES)
    remove_duplicates(edit)
    remove_dead(edit)
    return chain(made, edit.finish())
