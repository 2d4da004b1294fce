"""Fusion: groups of operations become dataflow regions, each run as one kernel.

`grouping` says what may run together. Constants, index values and layout operations are copied into
every region that reads them; merges stay, as names for whichever branch's value is meant, and are
never executed. About a dozen statements are left, however deep the networks are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from timerl_nb.ir.attrs import AccumulateAttrs
from timerl_nb.ir.ops import OPERAND, DataflowAttrs, Op, Output, Read
from timerl_nb.ir.pdg import Pdg
from timerl_nb.ir.rewrite import Edit, Rewritten, Step
from timerl_nb.passes.cycles import components
from timerl_nb.passes.grouping import Grouping


@dataclass(frozen=True)
class Fuse:
    """Regions of operations with one domain, as single kernels."""

    name: str = "fuse"

    def run(self, pdg: Pdg) -> Rewritten:
        grouping = Grouping(pdg)
        grouping.recurrences()
        grouping.single_readers()
        grouping.settle()
        return _materialise(pdg, grouping)


@dataclass(frozen=True)
class Separate:
    """One kernel per operation: what runs where fusion is left out."""

    name: str = "separate"

    def run(self, pdg: Pdg) -> Rewritten:
        return _materialise(pdg, Grouping(pdg))


def break_alias_cycles(pdg: Pdg) -> Pdg:
    """Put a copy between merges that read each other in a cycle, so that each names a value."""
    edges = {
        op.id: [r.source for r in op.inputs if pdg[r.source].kind == "merge"]
        for op in pdg
        if op.kind == "merge"
    }
    edit = Edit(pdg)
    for component in components(edges):
        if len(component) == 1 and component[0] not in edges[component[0]]:
            continue
        for op_id in component:
            op = edit.ops[op_id]
            inputs: list[Read] = []
            for read in op.inputs:
                if read.source in component:
                    source = edit.ops[read.source]
                    copy = edit.add("copy", [edit.own(source)], like=op, label=source.label)
                    read = Read(copy.id, 0, read.index, read.cond)
                inputs.append(read)
            edit.insert(op.with_(inputs=tuple(inputs)))
    return edit.finish().pdg


def _materialise(pdg: Pdg, grouping: Grouping) -> Rewritten:
    edit = Edit(pdg)
    made: dict[tuple[int, int], Read] = {}
    new: dict[int, int] = {}
    order = {op_id: k for k, op_id in enumerate(pdg.order)}
    for key in sorted(grouping.groups):
        members = sorted(grouping.groups[key].members, key=order.__getitem__)
        region = _Region(pdg, grouping, members, order)
        op = region.dataflow(edit.fresh_id())
        new[key] = op.id
        edit.ops[op.id] = op
        edit.readers[op.id] = set()
        for k, (source, out) in enumerate(region.provides):
            made[source, out] = edit.own(op, k)
        for member in members:
            edit.became(member, [op.id])
    for rule, parts in grouping.joins:
        edit.steps.append(Step(rule, parts, (new[grouping.home[parts[0]]],)))
    return _rewired(pdg, edit, made, grouping)


def _rewired(
    pdg: Pdg, edit: Edit, made: dict[tuple[int, int], Read], grouping: Grouping
) -> Rewritten:
    def to_dataflow(read: Read) -> Read:
        target = made.get((read.source, read.out))
        return read if target is None else Read(target.source, target.out, read.index, read.cond)

    for op in list(edit.ops.values()):
        if op.kind == "dataflow" or op.kind == "merge" or op.kind in ("output", "checkpoint"):
            edit.insert(op.with_(inputs=tuple(map(to_dataflow, op.inputs))))
    gone = [op.id for op in pdg if op.id in grouping.home or op.id in grouping.inlined]
    for op_id in gone:
        edit.insert(edit.ops[op_id].with_(inputs=(), kind="const"))
    for op_id in gone:
        edit.remove(op_id)
    return edit.finish()


class _Region:
    """The contents of one dataflow."""

    def __init__(
        self, pdg: Pdg, grouping: Grouping, members: list[int], order: dict[int, int]
    ) -> None:
        self.pdg, self.grouping, self.members = pdg, grouping, members
        self.inside = {k for k in members if pdg[k].kind != "accumulate"}
        self.operands: dict[Read, int] = {}
        self.body: dict[int, Op] = {}
        for k in members:
            if k in self.inside:
                self._place(k)
        self.provides: list[tuple[int, int]] = []
        self.results: list[tuple[int, int]] = []
        self.outputs: list[Output] = []
        for k in members:
            self._provide(k)
        self.order = order

    def _place(self, op_id: int) -> None:
        """Add an operation to the body, its operands inside the region first."""
        stack = [(op_id, False)]
        while stack:
            k, ready = stack.pop()
            if k in self.body:
                continue
            op = self.pdg[k]
            if ready:
                self.body[k] = op.with_(inputs=tuple(map(self._inner, op.inputs)))
                continue
            stack.append((k, True))
            stack += [(r.source, False) for r in op.inputs if self._is_inside(r)]

    def _is_inside(self, read: Read) -> bool:
        local = read.source in self.inside or read.source in self.grouping.inlined
        return local and self.pdg.is_identity(read)

    def _inner(self, read: Read) -> Read:
        if self._is_inside(read):
            return read
        k = self.operands.setdefault(read, len(self.operands))
        return Read(OPERAND, k, ())

    def _provide(self, op_id: int) -> None:
        """Export an operation's value if somebody outside reads it."""
        op = self.pdg[op_id]
        if isinstance(op.attrs, AccumulateAttrs):
            inner = self._inner(op.inputs[0])
            if inner.source in self.grouping.inlined and inner.source not in self.body:
                self._place(inner.source)
            self.provides.append((op_id, 0))
            self.results.append((inner.source, inner.out))
            self.outputs.append(op.outputs[0])
            return
        for reader, slot in self.pdg.readers[op_id]:
            read = self.pdg[reader].inputs[slot]
            home = self.grouping.home.get(reader)
            local = home is not None and home == self.grouping.home[op_id]
            if local and self._is_inside(read):
                continue
            if (
                reader in self.grouping.inlined
                and self.pdg.is_identity(read)
                and self._unread(reader)
            ):
                continue
            self.provides.append((op_id, 0))
            self.results.append((op_id, 0))
            self.outputs.append(op.outputs[0])
            return

    def _unread(self, op_id: int) -> bool:
        """Whether an inlined operation is read inside this region alone."""
        for reader, slot in self.pdg.readers[op_id]:
            read = self.pdg[reader].inputs[slot]
            if reader in self.grouping.inlined and self.pdg.is_identity(read):
                if not self._unread(reader):
                    return False
            elif not (self._is_inside(read) and reader in self.inside):
                return False
        return True

    def dataflow(self, op_id: int) -> Op:
        first = self.pdg[self.members[0]]
        body = tuple(self.body.values())
        return Op(
            op_id,
            "dataflow",
            first.domain,
            tuple(self.operands),
            tuple(self.outputs),
            DataflowAttrs(body, tuple(self.results)),
            first.where,
            origin=self.pdg[self.members[-1]].origin,
            region=self._region(),
            label=self._label(),
        )

    def _region(self) -> tuple[str, ...]:
        """The innermost region that nearly all members belong to."""
        inside = Counter(
            region[:depth]
            for region in (self.pdg[k].region for k in self.members)
            for depth in range(len(region) + 1)
        )
        nearly_all = 0.8 * len(self.members)
        return max((r for r, count in inside.items() if count >= nearly_all), key=len)

    def _label(self) -> str:
        """The region's name, or the names of what the users named inside."""
        region = self._region()
        if region:
            return region[-1]
        names = [self.pdg[k].label for k in self.members if self.pdg[k].label]
        return "+".join(dict.fromkeys(names[:3]))
