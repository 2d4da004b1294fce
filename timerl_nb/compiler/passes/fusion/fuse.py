"""Fusion: groups of operations become dataflow regions, each executed as one kernel.

`fusion_groups` selects the groups. Constants, index values and layout operations are copied into the
regions of all readers. Merges remain as names of their branches, and are never executed. About a dozen
statements remain, even for deep networks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from timerl_nb.compiler.ir.analysis.requested_orders import Order
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Edit, RewriteStep, Rewritten, chain
from timerl_nb.compiler.ir.operation_attributes import AccumulateAttrs
from timerl_nb.compiler.ir.operation_kinds import SINKS
from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op, Output, Read
from timerl_nb.compiler.passes.fusion.alias_cycles import break_alias_cycles
from timerl_nb.compiler.passes.fusion.fusion_groups import FusionGroups, joined


@dataclass(frozen=True)
class Fuse:
    """The pass `fuse`: turns operations over one domain into single kernels."""

    name: str = "fuse"

    def run(self, pdg: Pdg) -> Rewritten:
        ready = break_alias_cycles(pdg)
        return chain(ready, _materialise(ready.pdg, joined(ready.pdg)))


@dataclass(frozen=True)
class Separate:
    """The pass `separate`: makes one kernel per operation, for programs without fusion."""

    name: str = "separate"

    def run(self, pdg: Pdg) -> Rewritten:
        ready = break_alias_cycles(pdg)
        return chain(ready, _materialise(ready.pdg, FusionGroups(ready.pdg)))


def _materialise(pdg: Pdg, grouping: FusionGroups) -> Rewritten:
    """Return the graph with each group of operations replaced by one dataflow region."""
    edit = Edit(pdg)
    made: dict[tuple[int, int], Read] = {}
    new: dict[int, int] = {}
    order = {op_id: k for k, op_id in enumerate(pdg.order)}
    for key in sorted(grouping.groups):
        if pdg[key].kind == "udf":
            continue
        members = sorted(grouping.groups[key].members, key=order.__getitem__)
        region = _Region(pdg, grouping, members)
        op = region.dataflow(edit.fresh_id())
        new[key] = op.id
        edit.ops[op.id] = op
        edit.readers[op.id] = set()
        for k, (source, out) in enumerate(region.provides):
            made[source, out] = edit.read_same_point(op, k)
        for member in members:
            edit.record_replacement(member, [op.id])
    edit.orders = tuple(o for o in pdg.orders if not _holds_inside(pdg, grouping, o))
    _rename_equal_labels(edit, pdg, [op for op in edit.ops.values() if op.id in new.values()])
    for rule, parts in grouping.joins:
        edit.steps.append(RewriteStep(rule, parts, (new[grouping.home[parts[0]]],)))
    return _redirect_reads(pdg, edit, made, grouping)


def _redirect_reads(
    pdg: Pdg, edit: Edit, made: dict[tuple[int, int], Read], grouping: FusionGroups
) -> Rewritten:
    def to_dataflow(read: Read) -> Read:
        target = made.get(read.tensor)
        return read if target is None else Read(target.source, target.out, read.index, read.cond)

    for op in list(edit.ops.values()):
        if op.kind in SINKS | {"dataflow", "merge", "udf"}:
            edit.insert(op.with_(inputs=tuple(map(to_dataflow, op.inputs))))
    moved = grouping.home.keys() | grouping.inlined
    gone = [op.id for op in pdg if op.id in moved and op.kind != "udf"]
    for op_id in gone:
        edit.insert(edit.ops[op_id].with_(inputs=()))
    for op_id in gone:
        edit.remove(op_id)
    return edit.finish()


def _holds_inside(pdg: Pdg, grouping: FusionGroups, order: Order) -> bool:
    """Whether one kernel contains both operations of an order, as a direct dependence at one point."""
    after = pdg[order.after]
    together = grouping.home.get(order.before) == grouping.home.get(after.id)
    return together and order.to_read(pdg.dims, pdg[order.before].outputs[0], after) in after.inputs


class _Region:
    """The contents of one dataflow region."""

    def __init__(self, pdg: Pdg, grouping: FusionGroups, members: list[int]) -> None:
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

    def _place(self, op_id: int) -> None:
        """Add an operation to the body, after its operands inside the region."""
        stack = [(op_id, False)]
        while stack:
            k, ready = stack.pop()
            if k in self.body:
                continue
            op = self.pdg[k]
            if ready:
                self.body[k] = op.with_(inputs=tuple(map(self._read_inside, op.inputs)))
                continue
            stack.append((k, True))
            stack += [(r.source, False) for r in op.inputs if self._is_inside(r)]

    def _is_inside(self, read: Read) -> bool:
        local = read.source in self.inside or read.source in self.grouping.inlined
        return local and self.pdg.is_identity(read)

    def _read_inside(self, read: Read) -> Read:
        if self._is_inside(read):
            return read
        k = self.operands.setdefault(read, len(self.operands))
        return Read(OPERAND, k, ())

    def _provide(self, op_id: int) -> None:
        """Export an operation's value if an operation outside reads it."""
        op = self.pdg[op_id]
        if isinstance(op.attrs, AccumulateAttrs):
            inner = self._read_inside(op.inputs[0])
            if inner.source in self.grouping.inlined and inner.source not in self.body:
                self._place(inner.source)
            self.provides.append((op_id, 0))
            self.results.append(inner.tensor)
            self.outputs.append(op.outputs[0])
            return
        for reader, slot in self.pdg.readers[op_id]:
            read = self.pdg[reader].inputs[slot]
            home = self.grouping.home.get(reader)
            local = home is not None and home == self.grouping.home[op_id]
            copied = reader in self.grouping.inlined  # into the regions of all readers
            if local and self._is_inside(read) and not copied:
                continue
            if copied and self.pdg.is_identity(read) and self._is_unread(reader):
                continue
            self.provides.append((op_id, 0))
            self.results.append((op_id, 0))
            self.outputs.append(op.outputs[0])
            return

    def _is_unread(self, op_id: int) -> bool:
        """Whether an inlined operation is copied into no other region."""
        for reader, slot in self.pdg.readers[op_id]:
            read = self.pdg[reader].inputs[slot]
            named = self.pdg[reader].kind in SINKS | {"merge", "udf"}
            if op_id in self.inside and (named or not self.pdg.is_identity(read)):
                continue  # read as a result of this region
            if reader in self.grouping.inlined and self.pdg.is_identity(read):
                if not self._is_unread(reader):
                    return False
            elif not (self._is_inside(read) and reader in self.members):
                return False
        return True

    def dataflow(self, op_id: int) -> Op:
        first = self.pdg[self.members[0]]
        body = tuple(self.body.values())
        region = _home_region(self.pdg, self.members, 0.6)
        return Op(
            op_id,
            "dataflow",
            first.domain,
            tuple(self.operands),
            tuple(self.outputs),
            DataflowAttrs(body, tuple(self.results)),
            first.where,
            origin=self.pdg[self.members[-1]].origin,
            region=region,
            label=self._label(region),
        )

    def _label(self, region: tuple[str, ...]) -> str:
        """Return the region's name, or the functions that made most of it; "" if there are none."""
        if region:
            return region[-1]
        words = Counter(_word(self.pdg[k]) for k in self.members)
        del words[""]
        most = [word for word, count in words.most_common(2) if 5 * count >= len(self.members)]
        if 2 * sum(words[word] for word in most) < len(self.members):
            return ""
        return "+".join(word for word in words if word in most)


def _word(op: Op) -> str:
    """Return an operation's region, or else the function that the user called."""
    return op.region[-1] if op.region else op.origin.call


def _home_region(pdg: Pdg, members: Iterable[int], share: float) -> tuple[str, ...]:
    """Return the innermost region of at least this share of the members."""
    regions = [pdg[k].region for k in members]
    inside = Counter(region[:depth] for region in regions for depth in range(len(region) + 1))
    return max((r for r, count in inside.items() if count >= share * len(regions)), key=len)


def _rename_equal_labels(edit: Edit, pdg: Pdg, regions: list[Op]) -> None:
    """Rename regions with equal labels by the origin of most of their results, if that name is free."""
    taken = Counter(op.label for op in regions)
    for op in regions:
        assert isinstance(op.attrs, DataflowAttrs)
        if taken[op.label] < 2 or not op.region:
            continue
        made = [source for source, _ in op.attrs.results if source in pdg.ops]
        most = _home_region(pdg, made, 0.5) if made else ()
        if most and not taken[most[-1]]:
            taken[op.label] -= 1
            taken[most[-1]] += 1
            edit.ops[op.id] = op.with_(label=most[-1], region=most)
