"""A schedule assembled from parts, for programs above isl's operation limit.

The strongly connected components of the statements are visited in a topological order. Consecutive
components share a loop along a dimension if no dependence goes backwards along it. So the loop over
iterations encloses all recurrences from one iteration to the next. The statements inside a loop are
ordered in the same loop. isl schedules only components without such a loop, each under the same
limit.

Unlike isl, this never shifts statements: acting and learning at a delay of five steps share no
loop. The program computes the same results, and may need more memory.
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

LoopDirection = tuple[
    str, int
]  # a dimension, and 1 for an ascending loop or -1 for a descending one


@dataclass(frozen=True)
class Parts:
    """Report of a schedule by parts.

    Attributes:
        why: the reason for isl's failure.
        text: one line per part, in order of execution, with its loops.
    """

    why: str
    text: tuple[str, ...]

    def describe_loss(self, peak: int) -> str:
        """Return a warning text: the parts, and the possible cost in memory."""
        shown = self.text if len(self.text) <= 12 else (*self.text[:11], "…")
        return "\n".join(
            [
                f"{self.why} The compiler therefore scheduled the statements by parts, in this order:",
                *(f"  {line}" for line in shown),
                f"The results are the same. The predicted peak is {peak:,} bytes. It may be higher "
                "than necessary, because isl might run some of these parts in one loop and free "
                "their values earlier. To let isl finish, raise trl.Options(isl_operations=…), or "
                "keep fuse=True to reduce the number of statements.",
            ]
        )

    def make_ceiling_error(self, peak: int, budget: int) -> CeilingError:
        """Return the error for a schedule by parts above the memory budget.

        Args:
            peak: the bytes of memory needed.
            budget: the bytes of memory allowed.
        """
        return CeilingError(
            f"{self.why} Scheduled by parts, the program needs {peak:,} bytes of memory, more than "
            f"the budget of {budget:,} bytes.",
            evidence=["parts in order of execution:", *(f"  {line}" for line in self.text[:12])],
            hint="raise trl.Options(isl_operations=…), or keep fuse=True to reduce the number of "
            "statements.",
        )


def schedule_by_parts_if_needed(
    constraints: Constraints, ceiling: int, source: Pdg
) -> tuple[ScheduleTree, Parts | None]:
    """Return isl's schedule, or one by parts and its report if isl reaches its limit.

    Raises:
        ScheduleError: no order exists; the message shows a cycle.
        CeilingError: a single component exceeds the limit.
    """
    try:
        return find_schedule(constraints, ceiling, source), None
    except CeilingError as error:
        return by_parts(constraints, ceiling, source, error.what)


def by_parts(
    constraints: Constraints, ceiling: int, source: Pdg, why: str
) -> tuple[ScheduleTree, Parts]:
    """Return a valid schedule by parts, and its report.

    Args:
        constraints: the statements and dependences.
        ceiling: the limit on isl operations, per component.
        source: the graph for error messages.
        why: the reason for isl's failure.

    Raises:
        ScheduleError: no order exists; the message shows a cycle.
        CeilingError: a single component exceeds the limit.
    """
    arranger = _Arranger(constraints, ceiling, source)
    pairs: dict[tuple[str, str], list[Relation]] = {}
    for edge in constraints.validity:
        pairs.setdefault((edge.source, edge.sink), []).append(edge.pairs)
    edges = [Edge(*ends, whole) for ends, each in pairs.items() if (whole := union(each))]
    tree = arranger.arrange(list(constraints.points), edges, ())
    validate(constraints, tree)
    return tree, Parts(why, tuple(arranger.text))


class _Arranger:
    """Orders statements from the outermost loop inwards."""

    def __init__(self, constraints: Constraints, ceiling: int, source: Pdg) -> None:
        self.constraints, self.ceiling, self.source = constraints, ceiling, source
        self.dims = constraints.pdg.dims
        self.text: list[str] = []
        self._row: list[str] = []  # consecutive statements without a loop
        names = constraints.pdg.names.statements
        self._names = {key: names[op.id] for key, op in constraints.statements.ops.items()}

    def arrange(
        self, names: Sequence[str], edges: Sequence[Edge], fixed: tuple[str, ...]
    ) -> ScheduleTree:
        """Return the order of statements within one iteration of the loops over `fixed`.

        Args:
            names: the statements.
            edges: the dependences within such an iteration.
            fixed: the dimensions of the surrounding loops.
        """
        parts = list(self._partition_statements(names, edges, fixed))
        # A single part at a depth separates nothing, so it is not reported.
        told = len(parts) > 1
        trees = [self._schedule_part(part, loop, edges, fixed, told) for part, loop in parts]
        self._row = []
        return one_by_one(trees)

    def _schedule_part(
        self,
        names: Sequence[str],
        loop: LoopDirection | None,
        edges: Sequence[Edge],
        fixed: tuple[str, ...],
        told: bool,
    ) -> ScheduleTree:
        inside = set(names)
        inner = [e for e in edges if e.source in inside and e.sink in inside]
        if told:
            self._record_part(names, loop, fixed)
        if loop is not None:
            dim, step = loop
            same = [within_turn(edge, dim) for edge in inner]
            within = [edge for edge in same if not edge.pairs.is_empty()]
            return in_loop(dim, step, self.arrange(names, within, (*fixed, dim)))
        (first, *more) = names
        points = self.constraints.points[first]
        if not more and not inner and set(points.domain) <= set(fixed):
            return ScheduleTree.leaf(self.dims, first, points)
        return self._by_isl(names, inner)

    def _record_part(
        self, names: Sequence[str], loop: LoopDirection | None, fixed: tuple[str, ...]
    ) -> None:
        if self._row and loop is None:
            self.text.pop()
        self._row = [*self._row, *names] if loop is None else []
        shown = [self._names[name] for name in (self._row or names)]
        shown = shown[:6] + ["…"] * (len(shown) > 6)
        suffix = f", in a loop over {loop[0]}" + " backwards" * (loop[1] < 0) if loop else ""
        within = f"within ({', '.join(fixed)}): " if fixed else ""
        self.text.append(f"{within}{', '.join(shown)}{suffix}")

    def _by_isl(self, names: Sequence[str], edges: Sequence[Edge]) -> ScheduleTree:
        """Return isl's schedule of a component without a loop in one direction."""
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
                f"scheduling {len(names)} statements that depend on each other in a cycle takes more "
                f"than the limit of {self.ceiling:,} isl operations.",
                origin=ops[0].origin,
                evidence=["the statements:", *("  " + line for line in shown[:12])],
                hint="raise trl.Options(isl_operations=…), or keep fuse=True to reduce the number of "
                "statements.",
            ) from None

    # --- shared loops ----------------------------------------------------------------------------

    def _partition_statements(
        self, names: Sequence[str], edges: Sequence[Edge], fixed: tuple[str, ...]
    ) -> Iterator[tuple[list[str], LoopDirection | None]]:
        """Yield the parts in order of execution, each with the loop shared by all of it.

        Components are visited in a topological order. Each joins the current part if possible.
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
        loops = _AllowedLoops(self.constraints, edges)
        options = [
            loops.shared_loops([names[k] for k in component], fixed) for component in waiting
        ]
        ready = [c for c in range(len(waiting)) if not before[c]]
        part: list[str] = []
        shared: frozenset[LoopDirection] = frozenset()

        def take(c: int) -> list[str]:
            ready.remove(c)
            for later in sorted(after[c]):
                before[later].discard(c)
                if not before[later]:
                    ready.append(later)
            return [names[k] for k in sorted(waiting[c])]

        def find_joining() -> tuple[int, frozenset[LoopDirection]] | None:
            """Return a component to add to the part, and the loops that both can share."""
            for c in sorted(ready) if part else ():
                members = [names[k] for k in waiting[c]]
                common = shared & options[c]
                if common and (
                    common := loops.loops_without_backward_dependence(part, members, common)
                ):
                    return c, common
            return None

        while ready:
            found = find_joining()
            if found is not None:
                part, shared = part + take(found[0]), found[1]
                continue
            if part:
                yield part, loops.choose_loop(shared)
            # Components without a loop come first, so that they do not separate others.
            c = min(ready, key=lambda c: (bool(options[c]), c))
            part, shared = take(c), options[c]
        if part:
            yield part, loops.choose_loop(shared)


def _number_graph(names: Sequence[str], needs: Mapping[str, Sequence[str]]) -> dict[int, list[int]]:
    number = {name: k for k, name in enumerate(names)}
    return {number[name]: [number[n] for n in needs[name]] for name in names}


class _AllowedLoops:
    """Loops allowed by the dependences, as dimensions with directions."""

    def __init__(self, constraints: Constraints, edges: Sequence[Edge]) -> None:
        self._constraints = constraints
        self._dims = constraints.pdg.dims
        self._out: dict[str, list[Edge]] = {}
        for edge in edges:
            self._out.setdefault(edge.source, []).append(edge)
        self._follows_dependences: dict[tuple[str, str, LoopDirection], bool] = {}

    def shared_loops(
        self, names: Sequence[str], fixed: tuple[str, ...]
    ) -> frozenset[LoopDirection]:
        """Return the loops that the statements can share."""
        domains = [self._constraints.points[name].domain for name in names]
        dims = [d for d in domains[0] if d not in fixed and all(d in other for other in domains)]
        return self.loops_without_backward_dependence(
            names, names, frozenset((d, step) for d in dims for step in (1, -1))
        )

    def loops_without_backward_dependence(
        self, first: Sequence[str], second: Sequence[str], loops: frozenset[LoopDirection]
    ) -> frozenset[LoopDirection]:
        """Return the loops in `loops` without a backward dependence from `first` to `second`."""
        to = set(second)
        for name in first:
            for edge in self._out.get(name, ()):
                if edge.sink in to:
                    loops = frozenset(loop for loop in loops if self._goes_along(edge, loop))
        return loops

    def _goes_along(self, edge: Edge, loop: LoopDirection) -> bool:
        key = (edge.source, edge.sink, loop)
        if key not in self._follows_dependences:
            dim, step = loop
            source, sink = sym(dim), sym(primed_name(dim))
            back = lt(sink, source) if step > 0 else gt(sink, source)
            pairs = Relation.from_condition(self._dims, edge.pairs.left, edge.pairs.right, back)
            self._follows_dependences[key] = (edge.pairs & pairs).is_empty()
        return self._follows_dependences[key]

    def choose_loop(self, loops: frozenset[LoopDirection]) -> LoopDirection | None:
        """Return the loop to use.

        A loop with a recurrence along it is preferred, then one along an outer dimension.
        """
        order = self._dims.names

        def rank(loop: LoopDirection) -> tuple[bool, int, bool]:
            dim, step = loop
            return (dim, -step) in loops, order.index(dim), step < 0

        return min(loops, key=rank, default=None)
