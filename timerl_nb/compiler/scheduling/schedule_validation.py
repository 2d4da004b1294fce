"""Scheduling of a whole program with isl, and validation of the result against every dependence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from timerl_nb.base.errors import CeilingError, VerificationError, point_text
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.host.iteration_io import is_given, is_iteration_output
from timerl_nb.compiler.isl.isl_scheduler import Edge, ScheduleTree, Unschedulable, solve
from timerl_nb.compiler.isl.operation_limit import TooMuchWork
from timerl_nb.compiler.isl.sets_and_relations import Set
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.infeasible_schedule_error import find_cycle
from timerl_nb.compiler.scheduling.statement_clusters import cluster_statements
from timerl_nb.compiler.scheduling.unbounded_schedule import schedule_turns


def find_schedule(
    constraints: Constraints, ceiling: int, source: Pdg | None = None
) -> ScheduleTree:
    """Return a valid schedule of the graph's statements, for any bounds.

    Args:
        constraints: the statements and dependences.
        ceiling: the limit on isl operations.
        source: the graph for error messages; by default the scheduled graph.

    Raises:
        ScheduleError: no order exists; the message shows a cycle.
        CeilingError: isl reached the limit.
    """
    try:
        schedule = _solve_schedule(constraints, ceiling)
    except Unschedulable:
        raise find_cycle(source or constraints.pdg) from None
    except TooMuchWork:
        raise CeilingError(
            f"scheduling {format_count(len(constraints.points), 'statement')} takes more than the limit of "
            f"{ceiling:,} isl operations.",
            evidence="statements: "
            + ", ".join(op.name for op in constraints.statements.ops.values()),
            hint="keep fuse=True to reduce the number of statements, or raise "
            "trl.Options(isl_operations=…).",
        ) from None
    validate(constraints, schedule)
    return schedule


def _solve_schedule(constraints: Constraints, ceiling: int) -> ScheduleTree:
    """Return isl's schedule, computed for clusters of statements if possible."""
    dims, groups = constraints.pdg.dims, cluster_statements(constraints)
    ops = constraints.statements.ops

    def tree(
        statements: Mapping[str, Set], validity: Sequence[Edge], proximity: Sequence[Edge]
    ) -> ScheduleTree:
        if dims.endless is None:
            return solve(dims, statements, validity, proximity, ceiling)
        given, handed = (
            [name for name in statements if kind(ops[name])]
            for kind in (is_given, is_iteration_output)
        )
        return schedule_turns(
            dims, dims.endless, statements, validity, proximity, given, handed, ceiling
        )

    if groups is not None:
        with suppress(Unschedulable):
            found = tree(groups.statements, groups.validity, groups.proximity)
            return found.expand(constraints.points, groups.members)
    return tree(constraints.points, constraints.validity, constraints.proximity)


def validate(constraints: Constraints, schedule: ScheduleTree) -> None:
    """Check a schedule against every dependence.

    Raises:
        VerificationError: a dependence is broken, a bug of the compiler.
    """
    broken = schedule.violation(constraints.validity)
    if broken is not None:
        edge, before, after = broken
        source, sink = (
            constraints.statements.ops[edge.source],
            constraints.statements.ops[edge.sink],
        )
        raise VerificationError(
            f"the schedule runs {sink.name} at {point_text(after)} before {source.name} at "
            f"{point_text(before)}, but depends on it.",
            origin=sink.origin,
        )
