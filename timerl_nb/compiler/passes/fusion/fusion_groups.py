"""Selection of operations for common statements, without excluding any schedule.

Groups of operations over the same domain are joined only if no order of execution is lost
(TimeRL §5.4). The rules are:

- *recurrence*: a cycle whose edges stay at a point or go back along one direction;
- *single reader*: the producer is needed only at one reader's own point, so it can wait;
- *no further inputs*: a reader with the same needs as its producer can run directly after it;
- *first reader*: all other readers of a producer need this reader as well, so it can wait for it;
- *equal inputs*: groups with exactly the same needs, such as the updates of all parameters;
- *shared inputs*: all operands of a group are operands of another group.

Needs are compared as (group, index, condition), with reads resolved through merges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from timerl_nb.compiler.ir.analysis.dynamic_lengths import waits
from timerl_nb.compiler.ir.analysis.resolved_reads import Access, accesses
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_kinds import ELEMENTWISE, LAYOUT, SINKS
from timerl_nb.compiler.ir.operations import Op, Read, is_own, reached_from
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import (
    components,
    moves,
    steps_back,
)
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Cond, Index, Lin, Slice, sym

_PASSED_ON = LAYOUT | {"cast"}


class Need:
    """A dependence, seen from the reader's point: a source's output at an index, under `cond`.

    `FusionGroups.make_need` interns needs, so equal needs are the same object. A value read through a merge
    (not `direct`) is looked up under the merge's name, and never inside one region. If a slice goes
    `across` branches, its elements of each branch are not known exactly, and `index` is a superset. In a
    cycle, readers of different slices then have different needs.
    """

    __slots__ = (
        "across",
        "ahead",
        "back",
        "cond",
        "direct",
        "domain",
        "holds_point",
        "index",
        "same_point",
        "source",
    )

    def __init__(
        self,
        source: int,
        domain: Domain,
        index: Index,
        cond: Cond,
        direct: bool,
        across: tuple[Read, ...],
    ) -> None:
        self.source, self.domain, self.index, self.cond = source, domain, index, cond
        self.direct, self.across = direct, across
        # dimensions of possible steps ahead, and dimensions of certain steps back
        self.ahead, self.back = moves(index, domain)
        pairs = list(zip(domain, index, strict=True))
        # the value at the reader's own point, or a slice with that value
        self.same_point = cond is TRUE and is_own(index, domain)
        self.holds_point = (
            not across and cond is TRUE and all(_holds_own_point(e, d) for d, e in pairs)
        )

    @property
    def is_own(self) -> bool:
        """Whether the value would be passed directly if source and reader were in one region."""
        return self.same_point and self.direct

    @property
    def symbols(self) -> frozenset[str]:
        return self.cond.symbols.union(*(e.symbols for e in self.index))


def _holds_own_point(entry: Lin | Slice, dim: str) -> bool:
    if isinstance(entry, Lin):
        return entry.as_symbol == dim
    var = sym(dim)
    starts = entry.lo is var or (entry.lo.is_const and entry.lo.const == 0)
    # t:T, t:min(t + n, T), 0:t + 1, 0:T: the end is beyond t for every t inside the domain
    ends = entry.hi is var + 1 or entry.lo is var or not entry.hi.symbols.intersection((dim,))
    return starts and ends


@dataclass
class Group:
    """Operations that run together; needs exclude each other's values at one point.

    `reads` are all needs. `needs` has exact replacements for inexact ones, if there are any.
    """

    domain: Domain
    where: Cond
    members: set[int]
    reads: set[Need]
    needs: set[Need] = field(default_factory=set[Need])
    reach: int = 0  # groups needed at the own point, directly or not, as a bit set


class FusionGroups:
    """Groups of a graph's operations, joined step by step."""

    def __init__(self, pdg: Pdg) -> None:
        self.pdg = pdg
        self.inlined = inlineable(pdg)
        self.pinned = {k for k in self.inlined if _is_pinned(pdg, k)}
        self.nodes = [
            op.id
            for op in pdg
            if op.kind != "merge"
            and op.kind not in SINKS
            and (op.id not in self.inlined or op.id in self.pinned)
        ]
        self._table: dict[tuple[int, Domain, Index, Cond, bool, tuple[Read, ...]], Need] = {}
        self.reads = {k: self._collect_needs(pdg[k]) for k in self.nodes}
        self.read_by_sinks = self._find_sources_of_sinks()
        self.home = {k: k for k in self.nodes}
        self.groups = {
            k: Group(pdg[k].domain, pdg[k].where, {k}, set(self.reads[k])) for k in self.nodes
        }
        self.joins: list[tuple[str, tuple[int, ...]]] = []
        # Sets of groups are bit sets, since unions are the most frequent operation.
        self._bit = {k: 1 << place for place, k in enumerate(self.nodes)}
        self._needed_by: dict[Need, int] = {}
        self._readers: dict[int, list[tuple[int, Need]]] = {}

    # --- needs -----------------------------------------------------------------------------------

    def external(self, op: Op) -> list[Read]:
        """Return the reads of an operation from its own point, with inlined operands resolved."""
        found: list[Read] = []
        for read in op.inputs:
            if read.source in self.inlined and self.pdg.is_identity(read):
                found += self.external(self.pdg[read.source])
            else:
                found.append(read)
        return found

    def make_need(
        self,
        source: int,
        domain: Domain,
        index: Index,
        cond: Cond,
        direct: bool = True,
        across: tuple[Read, ...] = (),
    ) -> Need:
        key = (source, domain, index, cond, direct, across)
        found = self._table.get(key)
        if found is None:
            found = self._table[key] = Need(*key)
        return found

    def _collect_needs(self, op: Op) -> frozenset[Need]:
        reads = op.inputs if op.kind == "udf" else self.external(op)
        found = [need for read in reads for need in self._needs_of_read(read)]
        # operations behind the bound's condition cannot join operations with a length by it
        for read in waits(self.pdg, op, reads, self._inlined_producers(op), whole=True):
            found += self._needs_of_read(read)
        for read in self.pdg.waits(
            op
        ):  # an order passes no value, so it cannot be inside one region
            found += self._needs_of_read(read, direct=False)
        return frozenset(found)

    def _inlined_producers(self, op: Op) -> list[Op]:
        """Return the inlined operations that run with an operation."""
        found: list[Op] = []
        for read in op.inputs:
            if read.source in self.inlined and self.pdg.is_identity(read) and op.kind != "udf":
                inner = self.pdg[read.source]
                found += [inner, *self._inlined_producers(inner)]
        return found

    def _needs_of_read(self, read: Read, direct: bool = True) -> list[Need]:
        """Return the needs of a read, resolved through merges."""
        return [self._need_of_access(access, direct) for access in accesses(self.pdg, read)]

    def _need_of_access(self, access: Access, direct: bool) -> Need:
        read, source = access.read, self.pdg[access.read.source]
        # an accumulated value needs all points of the reduced dimensions
        domain, all_of = self.pdg.output(read).domain, read.index
        if source.domain != domain:
            index = dict(zip(domain, read.index, strict=True))
            all_of = tuple(index.get(d, self.pdg.dims[d].full_range) for d in source.domain)
        direct = direct and access.is_direct
        return self.make_need(source.id, source.domain, all_of, read.cond, direct, access.across)

    def _find_sources_of_sinks(self) -> set[int]:
        read_by_sinks: set[int] = set()
        for op in self.pdg.sinks:
            read_by_sinks |= {
                need.source for read in op.inputs for need in self._needs_of_read(read)
            }
        return read_by_sinks

    # --- joins -----------------------------------------------------------------------------------

    def join(self, rule: str, parts: Iterable[int]) -> None:
        """Join groups into one, under the first one's key."""
        first, *rest = dict.fromkeys(parts)
        for other in rest:
            group = self.groups.pop(other)
            self.groups[first].members |= group.members
            self.groups[first].reads |= group.reads
            self.groups[first].needs = self.groups[first].needs | group.needs
            for member in group.members:
                self.home[member] = first
        self.joins.append((rule, (first, *rest)))

    def refresh(self) -> None:
        """Update every group's needs."""
        for key, group in self.groups.items():
            found = map(self._at_home, group.reads)
            group.reads = {n for n in found if not (n.source == key and n.is_own)}
            group.needs = group.reads
        circle = self._cycle_numbers()
        for key, group in self.groups.items():
            across = [n for n in group.reads if n.across and circle[n.source] != circle[key]]
            if across:
                group.needs = group.reads.difference(across).union(
                    map(self._without_branches, across)
                )

    def _look_up(self) -> None:
        """Index the readers of each need, and the groups reachable from each group."""
        self._needed_by, self._readers = {}, {}
        for key, group in self.groups.items():
            for need in group.needs:
                plain = self._plain(need)
                self._needed_by[plain] = self._needed_by.get(plain, 0) | self._bit[key]
                self._readers.setdefault(need.source, []).append((key, need))
        done: set[int] = set()
        for key in self._own_order():
            group = self.groups[key]
            group.reach = 0
            for need in group.needs:
                if need.holds_point and need.source != key and need.source in done:
                    group.reach |= self._bit[need.source] | self.groups[need.source].reach
            done.add(key)

    def _cycle_numbers(self) -> Mapping[int, int]:
        """Return a number for each group, equal for groups in a cycle within one point.

        Cycles without needs across branches are not distinguished, since no rule uses them.
        """
        pairs = [(k, n.source) for k, g in self.groups.items() for n in g.reads if n.across]
        found: dict[int, int] = {}
        pending = [list(self.groups)]
        while pending:
            part = pending.pop()
            inside = set(part)
            smaller = [part]
            if any(a != b and a in inside and b in inside for a, b in pairs):
                smaller = components(self._edges(part))
            if len(smaller) == 1:
                found |= dict.fromkeys(part, len(found))
            else:
                pending += smaller
        return found

    def _is_reaching(self, key: int, other: int) -> bool:
        return bool(self.groups[key].reach & self._bit[other])

    def _is_implied(self, key: int, need: Need) -> bool:
        """Whether a need is satisfied at every point of a group: the group, or a reachable one, has the same need, at a point determined by the group's own point."""
        group = self.groups[key]
        if not self._needed_by.get(self._plain(need), 0) & (group.reach | self._bit[key]):
            return False
        return need.symbols.intersection(self.pdg.dims.names) <= set(group.domain)

    def _at_home(self, need: Need) -> Need:
        home = self.home[need.source]
        if home == need.source:
            return need
        return self.make_need(home, need.domain, need.index, need.cond, need.direct, need.across)

    def _plain(self, need: Need) -> Need:
        """Return the need as a direct need."""
        if need.direct:
            return need
        return self.make_need(need.source, need.domain, need.index, need.cond, across=need.across)

    def _without_branches(self, need: Need) -> Need:
        """Return a need across branches as a need of all possible elements."""
        return self.make_need(need.source, need.domain, need.index, need.cond, need.direct)

    def _own_order(self) -> list[int]:
        """Return the groups in topological order of needs at the own point."""
        edges = {
            key: sorted({n.source for n in g.needs if n.holds_point and n.source != key})
            for key, g in self.groups.items()
        }
        return [key for component in components(edges) for key in component]

    def can_join(self, a: int, b: int) -> bool:
        first, second = self.groups[a], self.groups[b]
        alone = self.pdg[a].kind == "udf" or self.pdg[b].kind == "udf"
        return (
            not alone and a != b and first.domain == second.domain and first.where is second.where
        )

    # --- rules -----------------------------------------------------------------------------------

    def recurrences(self) -> None:
        """Join each cycle that goes one way along one dimension."""
        self.refresh()
        edges = {
            key: sorted({n.source for n in g.needs if n.source != key})
            for key, g in self.groups.items()
        }
        pending = [(component, 0) for component in components(edges) if len(component) > 1]
        while pending:
            component, level = pending.pop()
            inside = set(component)
            needs = [
                (key, n) for key in component for n in self.groups[key].needs if n.source in inside
            ]
            if self._has_one_direction(component, self._needs_within_iteration(needs, level)):
                self.join("recurrence", component)
            elif level < len(self.pdg.dims.all):
                smaller: dict[int, list[int]] = {k: [] for k in component}
                for key, n in self._needs_within_iteration(needs, level + 1):
                    smaller[key].append(n.source)
                ordered = {k: sorted(set(sources)) for k, sources in smaller.items()}
                pending += [(c, level + 1) for c in components(ordered) if len(c) > 1]

    def _needs_within_iteration(
        self, needs: list[tuple[int, Need]], level: int
    ) -> list[tuple[int, Need]]:
        """Return the needs within one point of the first dimensions, if none goes ahead in them.

        Needs that go strictly back along such a dimension are satisfied before the point begins.
        """
        ahead = frozenset[str]().union(*(n.ahead for _, n in needs))
        outer = frozenset(self.pdg.dims.names[:level]) - ahead
        return [(k, n) for k, n in needs if n.back.isdisjoint(outer)]

    def _has_one_direction(self, component: list[int], needs: list[tuple[int, Need]]) -> bool:
        """Return whether the groups of a cycle can run as one kernel.

        They need a common domain, and all reads between them stay at a point or go back along one direction.
        """
        domain = self.groups[component[0]].domain
        where = self.groups[component[0]].where
        if any(
            self.groups[k].domain != domain
            or self.groups[k].where is not where
            or self.pdg[k].kind == "udf"
            for k in component
        ):
            return False
        steps: list[tuple[int, ...]] = []
        for _, need in needs:
            if need.domain != domain:
                return False
            back = [steps_back(e, d) for d, e in zip(domain, need.index, strict=True)]
            if any(x is None for x in back):
                return False
            if not any(back) and not need.direct:  # at the same point, but conditionally
                return False
            steps.append(tuple(x for x in back if x is not None))
        moving = [s for s in steps if any(s)]
        along = {k for s in moving for k, x in enumerate(s) if x}
        if len(along) == 1:
            (k,) = along
            return len({s[k] > 0 for s in moving}) == 1
        return all(next(x for x in s if x) > 0 for s in moving)

    def single_readers(self) -> None:
        """Join each group to its only reader, if the read is at the reader's own point."""
        self.refresh()
        readers: dict[int, set[tuple[int, bool]]] = {k: set() for k in self.nodes}
        for k, needs in self.reads.items():
            for n in needs:
                readers[n.source].add((k, n.is_own))
        for key in reversed(self._own_order()):
            members = self.groups[key].members
            if self.read_by_sinks & members:
                continue
            found = {(self.home[k], own) for m in members for k, own in readers[m]} - {(key, True)}
            if len(found) == 1:
                ((reader, own),) = found
                if own and self.can_join(key, reader):
                    self.join("single reader", (reader, key))

    def apply_until_stable(self) -> None:
        """Apply the other rules until none applies."""
        while True:
            self.refresh()
            self._look_up()
            if not (self._join_pairs() or self._join_equal_inputs() or self._join_shared_inputs()):
                return

    def _join_pairs(self) -> bool:
        touched: set[int] = set()
        for b in list(self.groups):
            if b in touched:
                continue
            for n in sorted(self.groups[b].needs, key=lambda n: n.source):
                a = n.source
                if not n.is_own or {a, b} & touched or not self.can_join(a, b):
                    continue
                if any(m.source == a and not m.is_own for m in self.groups[b].needs):
                    continue
                if self._needs_no_more(a, b):
                    rule = "no further inputs"
                elif self._nobody_earlier(a, b):
                    rule = "first reader"
                else:
                    continue
                self.join(rule, (a, b))
                touched |= {a, b}
                break
        return bool(touched)

    def _needs_no_more(self, a: int, b: int) -> bool:
        for need in self.groups[b].needs:
            if need.same_point and (need.source == a or self._is_reaching(a, need.source)):
                continue
            if self._is_implied(a, need) or self._is_given(need.source):
                continue
            return False
        return True

    def _is_given(self, key: int) -> bool:
        """Whether a group needs nothing, so that it can always run earlier."""
        return key in self.groups and not self.groups[key].needs

    def _nobody_earlier(self, a: int, b: int) -> bool:
        for reader, need in self._readers.get(a, ()):
            key = self.home[reader]
            if key == b:
                continue
            twin = self.make_need(b, need.domain, need.index, need.cond, across=need.across)
            own = need.same_point and self._is_reaching(key, b)
            if not own and not self._is_implied(key, twin):
                return False
        return True

    def _join_equal_inputs(self) -> bool:
        alike: dict[tuple[Domain, Cond, frozenset[Need]], list[int]] = {}
        for key, group in self.groups.items():
            if self.pdg[key].kind == "udf":
                continue
            mine = frozenset(
                self.make_need(-1, n.domain, n.index, n.cond, n.direct, n.across)
                if n.source == key
                else n
                for n in group.needs
            )
            alike.setdefault((group.domain, group.where, mine), []).append(key)
        bundles = [keys for keys in alike.values() if len(keys) > 1]
        for keys in bundles:
            self.join("equal inputs", keys)
        return bool(bundles)

    def _join_shared_inputs(self) -> bool:
        """Join a group to another reader of all its operands, to save a launch.

        The group may then run later than before. So nothing needed by the other group may depend on it,
        except values from before the point of a dimension in which no need goes ahead.
        """
        pairs = [
            (a, b)
            for b, second in self.groups.items()
            for a, first in self.groups.items()
            if self.can_join(a, b) and second.needs and second.needs <= first.needs
        ]
        for a, b in pairs:
            if b not in self._reachable(a):
                self.join("shared inputs", (a, b))
                return True
        return False

    def _reachable(self, start: int) -> set[int]:
        """Return the groups needed by a group at points without a guaranteed earlier run."""
        edges = self._edges(self.groups)
        return set(reached_from(edges[start], edges.__getitem__))

    def _edges(self, among: Collection[int]) -> dict[int, list[int]]:
        """Return, for each group, the groups needed at points without a guaranteed earlier run."""
        edges: dict[int, list[int]] = {k: [] for k in among}
        every = [(k, n) for k in among for n in self.groups[k].needs if n.source in edges]
        for k, n in self._needs_within_iteration(every, len(self.pdg.dims.all)):
            edges[k].append(n.source)
        return edges


def joined(pdg: Pdg) -> FusionGroups:
    """Return the operations in maximal groups."""
    grouping = FusionGroups(pdg)
    grouping.recurrences()
    grouping.single_readers()
    grouping.apply_until_stable()
    return grouping


# --- classification -----------------------------------------------------------------------------


def inlineable(pdg: Pdg) -> frozenset[int]:
    """Return operations so cheap that every reader has its own copy: constants, indices, layout, scalars."""
    return pdg.analysis(_inlineable)


def _inlineable(pdg: Pdg) -> frozenset[int]:
    found: set[int] = set()
    for op_id in pdg.order:
        op = pdg[op_id]
        if op_id in pdg.ordered:
            continue
        if op.kind in ("const", "value"):
            found.add(op_id)
        elif op.kind in _PASSED_ON:
            if pdg.is_identity(op.inputs[0]):
                found.add(op_id)
        elif op.kind in ELEMENTWISE and _is_small(op):
            if all(r.source in found and pdg.is_identity(r) for r in op.inputs):
                found.add(op_id)
    return frozenset(found)


def _is_small(op: Op) -> bool:
    return prod(s if isinstance(s, int) else 1 << 30 for s in op.shape) <= 16


def _is_pinned(pdg: Pdg, op_id: int) -> bool:
    """Whether an inlineable operation also needs a statement."""
    for reader, slot in pdg.readers[op_id]:
        read = pdg[reader].inputs[slot]
        alias = pdg[reader].kind in SINKS | {"merge", "accumulate", "udf"}
        if alias or not pdg.is_identity(read):
            return True
    return False
