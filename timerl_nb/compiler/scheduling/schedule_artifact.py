"""The schedule artifact: the time of every statement and the points of the iteration space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.display_registry import Inspectable
from timerl_nb.base.graphviz_text import FUSED, Dot
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.graph_text import about
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.isl.isl_scheduler import ScheduleTree
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.enumerated_schedule_points import Clock


@dataclass(frozen=True)
class StatementPoints:
    """Points of one statement in order of execution.

    Attributes:
        op_id: the operation.
        name: the statement.
        region: the region of the operation, from the outermost name inwards.
        time: the position of each point among the selected points.
        rank: the position of each point among all points.
        coordinates: the coordinates of the points per dimension.
    """

    op_id: int
    name: str
    region: tuple[str, ...]
    time: Array
    rank: Array
    coordinates: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.time)


class Schedule(Inspectable):
    """A total order of all points of all statements, checked against every dependence.

    The order holds for all bounds >= 1. `points` enumerates it under the program's bounds.
    """

    def __init__(
        self,
        constraints: Constraints,
        tree: ScheduleTree,
        bounds: Point,
        clock: Clock | None = None,
    ) -> None:
        self.constraints, self.tree, self.bounds = constraints, tree, dict(bounds)
        self._clock = clock  # if the caller has it already

    @property
    def names(self) -> dict[int, str]:
        return self.constraints.pdg.names.statements

    @property
    def statements(self) -> dict[str, Op]:
        """The operations by statement name."""
        return {self.names[op.id]: op for op in self.constraints.statements.ops.values()}

    @cached_property
    def clock(self) -> Clock:
        """The order of all points under the bounds."""
        return self._clock or Clock(self.tree, self.bounds)

    def points(self, **fixed: int) -> list[StatementPoints]:
        """Return the points of every statement with their positions in the order of execution.

        Args:
            fixed: dimensions with one selected value, such as `i=0`. Statements without these
                dimensions are omitted, and `time` counts only the selected points.

        Raises:
            DomainError: a name is not a dimension.
        """
        self.constraints.pdg.dims.check(*fixed)
        return self.in_order(fixed, self._select_points)

    def _select_points(self, name: str, fixed: Point) -> tuple[Array, Array]:
        """Return the selected points of a statement, and their ranks."""
        rows, domain = self.clock.points[name], self.tree.statements[name].domain
        inside = np.ones(len(rows), bool)
        for d, value in fixed.items():
            inside &= rows[:, domain.index(d)] == value
        return rows[inside], self.clock.ranks[name][inside]

    def in_order(
        self, fixed: Point, chosen: Callable[[str, Point], tuple[Array, Array]]
    ) -> list[StatementPoints]:
        """Return the points like `points`, with points and ranks supplied by a function."""
        ops = self.constraints.statements.ops
        found = {k: chosen(k, fixed) for k, op in ops.items() if set(fixed) <= set(op.domain)}
        order = np.sort(np.concatenate([np.zeros(0, int), *(ranks for _, ranks in found.values())]))
        return [
            StatementPoints(
                ops[key].id,
                self.names[ops[key].id],
                ops[key].region,
                np.searchsorted(order, ranks),
                ranks,
                {d: rows[:, k] for k, d in enumerate(ops[key].domain)},
            )
            for key, (rows, ranks) in found.items()
        ]

    # --- text and JSON ---------------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n".join(line for line, _ in self.searchable_lines())

    def searchable_lines(self) -> Iterable[tuple[str, Sequence[str]]]:
        times = self.tree.times()
        width = max(len(self._signature(op)) for op in self.constraints.statements.ops.values())
        yield f"schedule of {format_count(len(times), 'statement')}", ()
        for key, op in self.constraints.statements.ops.items():
            time = ", ".join(map(str, times[key]))
            yield f"  {self._signature(op):<{width}} -> ({time})", about(op)

    def _signature(self, op: Op) -> str:
        return f"{self.names[op.id]}({', '.join(op.domain)})"

    def to_json(self) -> dict[str, Any]:
        times, loops = self.tree.times(), self.tree.loops()
        return {
            "stage": "schedule",
            "statements": [
                {
                    "op_id": op.id,
                    "name": self.names[op.id],
                    "domain": list(op.domain),
                    "time": [str(e) for e in times[key]],
                    "loops": [{"loop": k, "position": str(e)} for k, e in loops[key]],
                }
                for key, op in self.constraints.statements.ops.items()
            ],
        }

    def to_dot(self) -> str:
        """Return a Graphviz graph of the statements and their dependences."""
        graph = Dot("schedule")
        times = self.tree.times()
        for key, op in self.constraints.statements.ops.items():
            label = f"{self._signature(op)}\n({', '.join(map(str, times[key]))})"
            graph.node(key, label, fill=FUSED, element=f"op{op.id}")
        for source, sink in dict.fromkeys((e.source, e.sink) for e in self.constraints.validity):
            graph.edge(source, sink)
        return str(graph)
