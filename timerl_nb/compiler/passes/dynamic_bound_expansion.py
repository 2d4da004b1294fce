"""Expansion of dynamic bounds: a bound found at run time varies over dimensions.

After this pass, `T` is a length over some dimensions, the iterations. An operation with `T`
varies over them, too, and so do its readers. Expressions with the lengths of two iterations are
rewritten, or refused at their line. In all later passes, a dynamic bound is a symbol with a value per
point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from timerl_nb.base.errors import BoundsError, Origin
from timerl_nb.compiler.ir.dependence_graph import Pdg, crosses
from timerl_nb.compiler.ir.graph_rewriting import (
    Edit,
    RewriteStep,
    Rewritten,
    identity_rewrite,
    merges_by_length,
)
from timerl_nb.compiler.ir.operation_attributes import (
    AxesAttrs,
    BoundAttrs,
    MergeAttrs,
    OutputAttrs,
    ValueAttrs,
)
from timerl_nb.compiler.ir.operation_kinds import REDUCTIONS
from timerl_nb.compiler.ir.operations import Op, Read, read_symbols
from timerl_nb.compiler.symbolic.dimensions import Dim, Domain
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Entry, Slice, sym


@dataclass(frozen=True)
class DynamicBounds:
    """The pass `dynamic_bounds`: lets a dynamic bound vary over the dimensions of its condition."""

    name: str = "dynamic_bounds"

    def run(self, pdg: Pdg) -> Rewritten:
        bound = pdg.bound
        if bound is None or pdg.dims.dynamic is not None:
            return identity_rewrite(pdg)
        attrs: BoundAttrs = bound.attrs
        over = tuple(d for d in bound.domain if d != attrs.dim)
        edit = Edit(pdg)
        edit.dims = pdg.dims.with_dynamic(attrs.dim, over)
        work = _Work(edit, edit.dims[attrs.dim], over)
        for change in (work.add_up_in_turn, work.end_turns, work.spread_variation, work.take_apart):
            change(pdg)
        return edit.finish()


@dataclass(frozen=True)
class _Work:
    edit: Edit
    dim: Dim
    over: Domain

    def _entries(self, read: Read) -> dict[str, Entry]:
        domain = self.edit.ops[read.source].outputs[read.out].domain
        if len(domain) != len(read.index):  # the source has gained dimensions meanwhile
            domain = tuple(d for d in domain if d not in self.over)
        return dict(zip(domain, read.index, strict=True))

    def _is_read_across_bounds(self, read: Read) -> bool:
        domain = self.edit.ops[read.source].outputs[read.out].domain
        return crosses(self.edit.dims, domain, read.index)

    def _step(self, rule: str, before: Op, *after: int, note: str = "") -> None:
        self.edit.steps.append(RewriteStep(rule, (before.id,), (*after, before.id), note))

    def add_up_in_turn(self, pdg: Pdg) -> None:
        """Rewrite sum of x[0:I, 0:T] as sum over i of (sum of x[i, 0:T]), since each i has its own T."""
        for op in pdg:
            if op.kind not in REDUCTIONS:
                continue
            (read,) = op.inputs
            entries = self._entries(read)
            sliced = [d for d, e in entries.items() if isinstance(e, Slice)]
            whole = entries.get(self.dim.name) is self.dim.full_range
            outer = [d for d in sliced if d in self.over]
            if not (whole and outer and set(range(len(sliced))) <= set(op.attrs.axes)):
                continue
            inside = {d: sym(d) if d in outer else e for d, e in entries.items()}
            left = [d for d in sliced if d not in outer]
            gone = len(sliced) - len(left)
            axes = tuple(range(len(left))) + tuple(
                a - gone for a in op.attrs.axes if a >= len(sliced)
            )
            inner = replace(read, index=tuple(inside.values()))
            part = self.edit.add(op.kind, [inner], AxesAttrs(axes), like=op)
            rest = tuple(entries.get(d, sym(d)) for d in part.domain)
            again = Read(part.id, 0, rest)
            self.edit.insert(op.with_(inputs=(again,), attrs=AxesAttrs(tuple(range(gone)))))
            self._step("sum per iteration", op, part.id, note=f"{self.dim.name} before {outer[0]}")

    def end_turns(self, pdg: Pdg) -> None:
        """Let operations after an iteration's end depend on that iteration's last point.

        Only the tokens of resources are read so: token[i - 1, T - 1] means the T of i - 1.
        """
        for op in pdg:
            if not (isinstance(op.attrs, MergeAttrs) and op.attrs.turns):
                continue
            inputs = [
                self._last_turn(op, r)
                if self._is_read_across_bounds(r) and self.dim.bound in read_symbols(r)
                else r
                for r in op.inputs
            ]
            if tuple(inputs) != op.inputs:
                self.edit.insert(op.with_(inputs=tuple(inputs)))

    def _last_turn(self, op: Op, read: Read) -> Read:
        entries = self._entries(read)
        own = {d: sym(d) if d in self.over else e for d, e in entries.items()}
        made = self.edit.add("copy", [replace(read, index=tuple(own.values()), cond=TRUE)], like=op)
        index = tuple(entries[d] for d in made.domain)
        self._step("end of iteration", op, made.id)
        return Read(made.id, 0, index, read.cond)

    def spread_variation(self, pdg: Pdg) -> None:
        """Let operations with the bound, and their readers, vary over the bound's dimensions."""
        grown: dict[int, Domain] = {}
        for op_id in Pdg(self.edit.dims, self.edit.ops).order:
            op = self.edit.ops[op_id]
            if op.kind == "merge":
                continue
            inputs = tuple(self._reread(op, r, grown) for r in op.inputs)
            symbols = {s for r in inputs for s in read_symbols(r)}
            symbols |= {*op.domain, *op.where.symbols, *op.attrs.varying_dims(self.edit.dims)}
            domain = self.edit.dims.dims_of_symbols(symbols)
            if domain != op.domain:
                self._check_total(op.with_(inputs=inputs))
                grown[op_id] = op.domain
                made = tuple(replace(o, domain=domain) for o in op.outputs)
                attrs = op.attrs
                if isinstance(attrs, OutputAttrs):
                    attrs = replace(attrs, dims=domain)
                op = op.with_(domain=domain, outputs=made, attrs=attrs)
                self._step(f"varies with {self.dim.bound}", op, note=f"over {', '.join(self.over)}")
            if inputs != self.edit.ops[op_id].inputs or op is not self.edit.ops[op_id]:
                self.edit.insert(op.with_(inputs=inputs))
        for op in list(self.edit.ops.values()):
            if op.kind == "merge":
                self._settle_merge(op, grown)

    def _reread(self, op: Op, read: Read, grown: dict[int, Domain]) -> Read:
        if read.source not in grown:
            return read
        before = dict(zip(grown[read.source], read.index, strict=True))
        domain = self.edit.ops[read.source].domain
        return replace(read, index=tuple(before.get(d, sym(d)) for d in domain))

    def _settle_merge(self, op: Op, grown: dict[int, Domain]) -> None:
        inputs: list[Read] = []
        for read, line in zip(op.inputs, _lines(op), strict=True):
            mentioned = self.edit.dims.mention(read_symbols(read))
            new = set(self.over) & set(self.edit.ops[read.source].domain)
            new -= set(grown.get(read.source, self.edit.ops[read.source].domain))
            moved = set(self.over) & read.cond.symbols if new else set[str]()
            if ((mentioned or new) and not set(self.over) <= set(op.domain)) or moved:
                over = ", ".join(self.over)
                name = op.label or f"the tensor %{op.id}"
                raise BoundsError(
                    f"{name} varies over ({', '.join(op.domain)}), but this branch depends on "
                    f"{self.dim.bound}, which varies over {over}.",
                    origin=line,
                    others={"it is made at": op.origin},
                    hint=f"let {name} and the branch's value vary over {over}.",
                )
            inputs.append(self._reread(op, read, grown))
        if tuple(inputs) != op.inputs:
            self.edit.insert(op.with_(inputs=tuple(inputs)))

    def _check_total(self, op: Op) -> None:
        """Refuse operations that combine a total over all iterations with one iteration's length."""
        gained = frozenset(self.over) - set(op.domain)
        counts = any(
            self._counts(one) for one in (op, *(self.edit.ops[r.source] for r in op.inputs))
        )
        if not counts and not any(self._is_total(r, gained, set()) for r in op.inputs):
            return
        over, name = ", ".join(self.over), self.dim.bound
        every = over if len(self.over) == 1 else f"({over})"
        raise BoundsError(
            f"this combines {name}, which differs for each {over}, with a value reduced over {over}.",
            origin=op.origin,
            hint=f"reduce over {self.dim.name} first and then over {over}, as in "
            f"x.mean(over={self.dim.name}).mean(over={every}); let parameters vary over {over}.",
        )

    def _is_total(self, read: Read, gained: frozenset[str], seen: set[int]) -> bool:
        """Whether a value is reduced over one of the dimensions `gained`, in the reader's iteration."""
        entries = self._entries(read)
        if any(isinstance(e, Slice) for d, e in entries.items() if d in gained):
            return True
        if any(e is not sym(d) for d, e in entries.items() if d in self.over and d not in gained):
            return False  # another iteration's total, such as a parameter's update
        source = self.edit.ops[read.source]
        if source.id in seen or gained <= set(source.domain):
            return False
        seen.add(source.id)
        return any(self._is_total(r, gained, seen) for r in source.inputs)

    def _counts(self, op: Op) -> bool:
        """Whether an operation is the number of iterations.

        Gradients of a mean over iterations and steps divide by both numbers, and do not contain the total.
        """
        sizes = {self.edit.dims[d].bound for d in self.over}
        return isinstance(op.attrs, ValueAttrs) and bool(op.attrs.expr.symbols & sizes)

    def take_apart(self, pdg: Pdg) -> None:
        """Copy merges that depend on the bound, if another iteration reads them.

        Reads are resolved through merges, and would evaluate the branches with the reader's length.
        """
        merges = merges_by_length(self.edit.dims, self.edit.ops)
        copies: dict[int, Op] = {}
        for op in list(self.edit.ops.values()):
            inputs: list[Read] = []
            for read in op.inputs:
                if read.source in merges and self._is_read_across_bounds(read):
                    source = self.edit.ops[read.source]
                    if source.id not in copies:
                        own = self.edit.read_same_point(source)
                        copies[source.id] = self.edit.add(
                            "copy", [own], like=source, label=source.label
                        )
                        self._step("evaluated for other lengths", source, copies[source.id].id)
                    read = replace(read, source=copies[source.id].id)
                inputs.append(read)
            if tuple(inputs) != op.inputs:
                self.edit.insert(op.with_(inputs=tuple(inputs)))


def _lines(op: Op) -> tuple[Origin, ...]:
    lines = op.attrs.lines if isinstance(op.attrs, MergeAttrs) else ()
    return lines if len(lines) == len(op.inputs) else (op.origin,) * len(op.inputs)
