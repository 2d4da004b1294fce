"""A schedule by parts, where isl's own would cost more than the ceiling (polyhedral.md §1).

Statements that depend on each other in a circle make a component. Going through the components in
an order that respects the dependences, those that can share a loop along one dimension, because no
dependence goes back along it, do share it; so the loop over iterations comes to lie outside all that
recurs from one to the next. What then remains, within one turn, is put in order in the same way. Only
a component along which no loop goes one way is left to isl, alone and under the same ceiling.

Unlike isl, this moves nothing: what acts and what learns five steps behind share no loop. A program
so keeps its meaning, and may need more memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from timerl_nb.base.errors import CeilingError
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.isl.isl_scheduler import (
    Edge,
    ScheduleTree,
    Unschedulable,
    in_loop,
    one_by_one,
    solve,
)
from timerl_nb.compiler.isl.operation_limit import TooMuchWork
from timerl_nb.compiler.isl.sets_and_relations import Relation, primed_name, union
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import components
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.infeasible_schedule_error import find_cycle
from timerl_nb.compiler.scheduling.schedule_validation import find_schedule, validate
from timerl_nb.compiler.scheduling.unbounded_schedule import within_turn
from timerl_nb.compiler.symbolic.index_expressions import gt, lt, sym

Way = tuple[str, int]  # a dimension, and 1 for upwards or -1 for downwards


@dataclass(frozen=True)
class Parts:
    """How a schedule by parts came out: what runs one after the other in which loops.

    `text` is a line per part; `why` says what made isl stop.
    """

    why: str
    text: tuple[str, ...]

    def describe_loss(self, peak: int) -> str:
        """What to tell the user: what was separated, and what that may cost."""
        shown = self.text if len(self.text) <= 12 else (*self.text[:11], "…")
        return "\n".join(
            [
                f"{self.why} So the statements were put in order by parts, one after the other:",
                *(f"  {line}" for line in shown),
                f"The results are the same. The predicted peak is {peak:,} bytes; statements that "
                "isl might have run in one loop keep their values for later, so that it is perhaps "
                "more than need be. To let isl go on, raise trl.Options(isl_operations=…), or keep "
                "fuse=True so that fewer statements are left.",
            ]
        )

    def make_ceiling_error(self, peak: int, budget: int) -> CeilingError:
        """The refusal of a schedule that needs more memory than there is."""
        return CeilingError(
            f"{self.why} Put in order by parts, the program needs {peak:,} bytes, more than the "
            f"{budget:,} that there are.",
            evidence=["run one after the other:", *(f"  {line}" for line in self.text[:12])],
            hint="raise trl.Options(isl_operations=…), or keep fuse=True so that fewer statements are "
            "left.",
        )


def schedule_by_parts_if_needed(
    constraints: Constraints, ceiling: int, source: Pdg
) -> tuple[ScheduleTree, Parts | None]:
    """isl's schedule; where it reaches its ceiling, one by parts, and how that came out.

    Raises:
        ScheduleError: no order exists; the message shows a cycle.
        CeilingError: a component is beyond the ceiling even by itself.
    """
    try:
        return find_schedule(constraints, ceiling, source), None
    except CeilingError as error:
        return by_parts(constraints, ceiling, source, error.what)


def by_parts(
    constraints: Constraints, ceiling: int, source: Pdg, why: str
) -> tuple[ScheduleTree, Parts]:
    """A valid schedule put together component by component."""
    arranger = _Arranger(constraints, ceiling, source)
    pairs: dict[tuple[str, str], list[Relation]] = {}
    for edge in constraints.validity:
        pairs.setdefault((edge.source, edge.sink), []).append(edge.pairs)
    edges = [Edge(*ends, whole) for ends, each in pairs.items() if (whole := union(each))]
    tree = arranger.arrange(list(constraints.points), edges, ())
    validate(constraints, tree)
    return tree, Parts(why, tuple(arranger.text))


class _Arranger:
    """Puts statements in order, from the outside inwards."""

    def __init__(self, constraints: Constraints, ceiling: int, source: Pdg) -> None:
        self.constraints, self.ceiling, self.source = constraints, ceiling, source
        self.dims = constraints.pdg.dims
        self.text: list[str] = []
        self._row: list[str] = []  # statements without a loop that follow each other
        names = constraints.pdg.names.statements
        self._names = {key: names[op.id] for key, op in constraints.statements.ops.items()}

    def arrange(
        self, names: Sequence[str], edges: Sequence[Edge], fixed: tuple[str, ...]
    ) -> ScheduleTree:
        """The order within one turn of the loops over `fixed`.

        Args:
            edges: the dependences within such a turn.
        """
        parts = list(self._partition_statements(names, edges, fixed))
        # one part at one depth is no separation, and not worth a line
        told = len(parts) > 1
        trees = [self._schedule_part(part, way, edges, fixed, told) for part, way in parts]
        self._row = []
        return one_by_one(trees)

    def _schedule_part(
        self,
        names: Sequence[str],
        way: Way | None,
        edges: Sequence[Edge],
        fixed: tuple[str, ...],
        told: bool,
    ) -> ScheduleTree:
        inside = set(names)
        inner = [e for e in edges if e.source in inside and e.sink in inside]
        if told:
            self._record_part(names, way, fixed)
        if way is not None:
            dim, step = way
            same = [within_turn(edge, dim) for edge in inner]
            within = [edge for edge in same if not edge.pairs.is_empty()]
            return in_loop(dim, step, self.arrange(names, within, (*fixed, dim)))
        (first, *more) = names
        points = self.constraints.points[first]
        if not more and not inner and set(points.domain) <= set(fixed):
            return ScheduleTree.leaf(self.dims, first, points)
        return self._by_isl(names, inner)

    def _record_part(self, names: Sequence[str], way: Way | None, fixed: tuple[str, ...]) -> None:
        if self._row and way is None:
            self.text.pop()
        self._row = [*self._row, *names] if way is None else []
        shown = [self._names[name] for name in (self._row or names)]
        shown = shown[:6] + ["…"] * (len(shown) > 6)
        loop = f", in a loop over {way[0]}" + " backwards" * (way[1] < 0) if way else ""
        within = f"within ({', '.join(fixed)}): " if fixed else ""
        self.text.append(f"{within}{', '.join(shown)}{loop}")

    def _by_isl(self, names: Sequence[str], edges: Sequence[Edge]) -> ScheduleTree:
        """A component along which no loop goes one way."""
        inside = set(names)
        near = [e for e in self.constraints.proximity if e.source in inside and e.sink in inside]
        statements = {name: self.constraints.points[name] for name in names}
        try:
            return solve(self.dims, statements, edges, near, self.ceiling)
        except Unschedulable:
            raise find_cycle(self.source) from None
        except TooMuchWork:
            ops = [self.constraints.statements.ops[name] for name in names]
            shown = [
                f"{self._names[n]}   {self.constraints.statements.ops[n].origin}" for n in names
            ]
            raise CeilingError(
                f"{len(names)} statements that need each other in a circle take more than the "
                f"ceiling of {self.ceiling:,} isl operations to put in order.",
                origin=ops[0].origin,
                evidence=["the statements:", *("  " + line for line in shown[:12])],
                hint="raise trl.Options(isl_operations=…), or keep fuse=True so that fewer "
                "statements are left.",
            ) from None

    # --- which statements share a loop -----------------------------------------------------------

    def _partition_statements(
        self, names: Sequence[str], edges: Sequence[Edge], fixed: tuple[str, ...]
    ) -> Iterator[tuple[list[str], Way | None]]:
        """Parts to run one after the other, each with the loop that all of it shares.

        Components come in a topological order; each joins the part before it where it can.
        """
        needs: dict[str, list[str]] = {name: [] for name in names}
        for edge in edges:
            needs[edge.sink].append(edge.source)
        waiting = components(_number_graph(names, needs))
        place = {k: at for at, component in enumerate(waiting) for k in component}
        number = {name: k for k, name in enumerate(names)}
        before: list[set[int]] = [set() for _ in waiting]
        after: list[set[int]] = [set() for _ in waiting]
        for edge in edges:
            a, b = place[number[edge.source]], place[number[edge.sink]]
            if a != b:
                before[b].add(a)
                after[a].add(b)
        ways = _Ways(self.constraints, edges)
        options = [ways.shared_loops([names[k] for k in component], fixed) for component in waiting]
        ready = [c for c in range(len(waiting)) if not before[c]]
        part: list[str] = []
        shared: frozenset[Way] = frozenset()

        def take(c: int) -> list[str]:
            ready.remove(c)
            for later in sorted(after[c]):
                before[later].discard(c)
                if not before[later]:
                    ready.append(later)
            return [names[k] for k in sorted(waiting[c])]

        def find_joining() -> tuple[int, frozenset[Way]] | None:
            """A component that can go on in this part, and the loops that then remain for it."""
            for c in sorted(ready) if part else ():
                members = [names[k] for k in waiting[c]]
                common = shared & options[c]
                if common and (
                    common := ways.loops_without_backward_dependence(part, members, common)
                ):
                    return c, common
            return None

        while ready:
            found = find_joining()
            if found is not None:
                part, shared = part + take(found[0]), found[1]
                continue
            if part:
                yield part, ways.choose_loop(shared)
            # what needs no loop is out of the way at once
            c = min(ready, key=lambda c: (bool(options[c]), c))
            part, shared = take(c), options[c]
        if part:
            yield part, ways.choose_loop(shared)


def _number_graph(names: Sequence[str], needs: Mapping[str, Sequence[str]]) -> dict[int, list[int]]:
    number = {name: k for k, name in enumerate(names)}
    return {number[name]: [number[n] for n in needs[name]] for name in names}


class _Ways:
    """The loops, by dimension and direction, that dependences allow."""

    def __init__(self, constraints: Constraints, edges: Sequence[Edge]) -> None:
        self._constraints = constraints
        self._dims = constraints.pdg.dims
        self._out: dict[str, list[Edge]] = {}
        for edge in edges:
            self._out.setdefault(edge.source, []).append(edge)
        self._known: dict[tuple[str, str, Way], bool] = {}

    def shared_loops(self, names: Sequence[str], fixed: tuple[str, ...]) -> frozenset[Way]:
        """The loops that these statements can share."""
        domains = [self._constraints.points[name].domain for name in names]
        dims = [d for d in domains[0] if d not in fixed and all(d in other for other in domains)]
        return self.loops_without_backward_dependence(
            names, names, frozenset((d, step) for d in dims for step in (1, -1))
        )

    def loops_without_backward_dependence(
        self, first: Sequence[str], second: Sequence[str], ways: frozenset[Way]
    ) -> frozenset[Way]:
        """Those of the loops along which no dependence from `first` on `second` goes back."""
        to = set(second)
        for name in first:
            for edge in self._out.get(name, ()):
                if edge.sink in to:
                    ways = frozenset(way for way in ways if self._goes_along(edge, way))
        return ways

    def _goes_along(self, edge: Edge, way: Way) -> bool:
        key = (edge.source, edge.sink, way)
        if key not in self._known:
            dim, step = way
            source, sink = sym(dim), sym(primed_name(dim))
            back = lt(sink, source) if step > 0 else gt(sink, source)
            pairs = Relation.from_condition(self._dims, edge.pairs.left, edge.pairs.right, back)
            self._known[key] = (edge.pairs & pairs).is_empty()
        return self._known[key]

    def choose_loop(self, ways: frozenset[Way]) -> Way | None:
        """A loop that something recurs along if there is one, outer dimensions first."""
        order = self._dims.names

        def rank(way: Way) -> tuple[bool, int, bool]:
            dim, step = way
            return (dim, -step) in ways, order.index(dim), step < 0

        return min(ways, key=rank, default=None)
