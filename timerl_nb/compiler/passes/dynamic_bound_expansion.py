"""Expansion of dynamic bounds: a bound found at run time varies over dimensions.

After this pass, `T` is a length over some dimensions, the iterations. An operation with `T`
varies over them, too, and so do its readers. Expressions with the lengths of two iterations are
rewritten, or refused at their line. In all later passes, a dynamic bound is a symbol with a value per
point. Several bounds are expanded one after the other, those of outer dimensions first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
    MergeAttrs,
    OutputAttrs,
    ValueAttrs,
)
from timerl_nb.compiler.ir.operation_kinds import REDUCTIONS
from timerl_nb.compiler.ir.operations import Op, Read, read_symbols
from timerl_nb.compiler.symbolic.dimensions import Dim, Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Entry, Slice, sym


@dataclass(frozen=True)
class DynamicBounds:
    """The pass `dynamic_bounds`: lets dynamic bounds vary over the dimensions of their conditions."""

    name: str = "dynamic_bounds"

    def run(self, pdg: Pdg) -> Rewritten:
        """Return the graph with every dynamic bound varying over dimensions.

        Raises:
            BoundsError: a value combines several lengths, or two bounds vary over each other's dimension.
        """
        if not pdg.ends or pdg.dims.dynamic:
            return identity_rewrite(pdg)
        over = _varied_dims(pdg)
        while True:
            made = _expand(pdg, over)
            # the condition of a bound may depend on another bound, and then varies with it
            grown = _varied_dims(made.pdg)
            if grown == over:
                return made
            over = grown


def _varied_dims(pdg: Pdg) -> dict[str, Domain]:
    """Return the dimensions over which the dynamic bound of each dimension varies."""
    return {name: tuple(d for d in op.domain if d != name) for name, op in pdg.ends.items()}


def _expand(pdg: Pdg, over: Mapping[str, Domain]) -> Rewritten:
    dims = pdg.dims
    for name, outer in over.items():
        dims = dims.with_dynamic(name, outer)
    _check_nesting(pdg, dims)
    edit = Edit(pdg)
    for dim in dims.dynamic:
        edit.dims = edit.dims.with_dynamic(dim.name, dim.over or ())
        work = _Work(edit, dim, dim.over or ())
        work.add_up_in_turn()
        work.end_turns()
        work.spread_variation()
    _take_apart(edit)
    return edit.finish()


def _check_nesting(pdg: Pdg, dims: Dims) -> None:
    """Refuse bounds that vary over each other's dimension.

    Raises:
        BoundsError: there is no order of the dimensions from the outside to the inside.
    """
    outside: set[str] = set()
    for dim in dims.dynamic:
        inner = [
            d.name for d in dims.dynamic if d.name in (dim.over or ()) and d.name not in outside
        ]
        outside.add(dim.name)
        if not inner:
            continue
        other = dims[inner[0]]
        one, two = (pdg[pdg.ends[d.name].inputs[0].source] for d in (dim, other))
        raise BoundsError(
            f"{dim.bound} varies over ({', '.join(dim.over or ())}), and {other.bound} varies over "
            f"({', '.join(other.over or ())}), so neither {dim.name} nor {other.name} can be the dimension of the "
            f"outer loop: the existence of {dim.name} = 1 depends on {other.name}, and the existence of "
            f"{other.name} = 1 depends on {dim.name}.",
            origin=one.origin,
            others={f"{other.name} ends by a condition at": two.origin},
            hint=f"reduce the condition of one of them over the other dimension, for example with .any(over={other.name}).",
        )


@dataclass(frozen=True)
class _Work:
    """Expansion of one dynamic bound.

    Attributes:
        edit: the graph.
        dim: the dimension of the bound.
        over: the dimensions that it varies over.
        grown: the former domains of operations that have gained dimensions.
    """

    edit: Edit
    dim: Dim
    over: Domain
    grown: dict[int, Domain] = field(default_factory=dict[int, Domain])

    def _entries(self, read: Read) -> dict[str, Entry]:
        domain = self.edit.ops[read.source].outputs[read.out].domain
        if len(domain) != len(read.index):  # the source has gained dimensions meanwhile
            domain = self.grown[read.source]
        return dict(zip(domain, read.index, strict=True))

    def _is_read_across_bounds(self, read: Read) -> bool:
        domain = self.edit.ops[read.source].outputs[read.out].domain
        return self.dim in crosses(self.edit.dims, domain, read.index)

    def _step(self, rule: str, before: Op, *after: int, note: str = "") -> None:
        self.edit.steps.append(RewriteStep(rule, (before.id,), (*after, before.id), note))

    def add_up_in_turn(self) -> None:
        """Rewrite sum of x[0:I, 0:T] as sum over i of (sum of x[i, 0:T]), since each i has its own T."""
        for op in list(self.edit.ops.values()):
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

    def end_turns(self) -> None:
        """Let operations after an iteration's end depend on that iteration's last point.

        Only the tokens of resources are read so: token[i - 1, T - 1] means the T of i - 1.
        """
        for op in list(self.edit.ops.values()):
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

    def spread_variation(self) -> None:
        """Let operations with the bound, and their readers, vary over the bound's dimensions."""
        for op_id in Pdg(self.edit.dims, self.edit.ops).order:
            op = self.edit.ops[op_id]
            if op.kind == "merge":
                continue
            inputs = tuple(self._reread(r) for r in op.inputs)
            symbols = {s for r in inputs for s in read_symbols(r)}
            symbols |= {*op.domain, *op.where.symbols, *op.attrs.varying_dims(self.edit.dims)}
            domain = self.edit.dims.dims_of_symbols(symbols)
            if domain != op.domain:
                self._check_total(op.with_(inputs=inputs))
                self.grown[op_id] = op.domain
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
                self._settle_merge(op)

    def _reread(self, read: Read) -> Read:
        if read.source not in self.grown:
            return read
        before = dict(zip(self.grown[read.source], read.index, strict=True))
        domain = self.edit.ops[read.source].domain
        return replace(read, index=tuple(before.get(d, sym(d)) for d in domain))

    def _settle_merge(self, op: Op) -> None:
        inputs: list[Read] = []
        for read, line in zip(op.inputs, _lines(op), strict=True):
            mentioned = self.dim.bound in read_symbols(read)
            new = set(self.over) & set(self.edit.ops[read.source].domain)
            new -= set(self.grown.get(read.source, self.edit.ops[read.source].domain))
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
            inputs.append(self._reread(read))
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


def _take_apart(edit: Edit) -> None:
    """Copy merges that depend on a bound, if they are read at a point with another value of a bound.

    Reads are resolved through merges, and would evaluate the branches with the reader's length.
    """
    merges = merges_by_length(edit.dims, edit.ops)
    copies: dict[int, Op] = {}
    for op in list(edit.ops.values()):
        inputs: list[Read] = []
        for read in op.inputs:
            domain = edit.ops[read.source].outputs[read.out].domain
            if read.source in merges and crosses(edit.dims, domain, read.index):
                source = edit.ops[read.source]
                if source.id not in copies:
                    own = edit.read_same_point(source)
                    copies[source.id] = edit.add("copy", [own], like=source, label=source.label)
                    made = copies[source.id].id, source.id
                    step = RewriteStep("evaluated for other lengths", (source.id,), made)
                    edit.steps.append(step)
                read = replace(read, source=copies[source.id].id)
            inputs.append(read)
        if tuple(inputs) != op.inputs:
            edit.insert(op.with_(inputs=tuple(inputs)))


def _lines(op: Op) -> tuple[Origin, ...]:
    lines = op.attrs.lines if isinstance(op.attrs, MergeAttrs) else ()
    return lines if len(lines) == len(op.inputs) else (op.origin,) * len(op.inputs)
