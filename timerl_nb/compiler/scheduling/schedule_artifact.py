"""The schedule as an artifact: the time of every statement, and the points of iteration space."""

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
    """When one statement's points run.

    `time` is the position in the order of all chosen points, `rank` that in the order of all points.
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
    """An order of all points of all statements, found by isl and checked against every dependence.

    The order holds for all bounds of at least 1; `points` lists it under the program's.
    """

    def __init__(
        self,
        constraints: Constraints,
        tree: ScheduleTree,
        bounds: Point,
        clock: Clock | None = None,
    ) -> None:
        self.constraints, self.tree, self.bounds = constraints, tree, dict(bounds)
        self._known = clock  # where somebody has it already

    @property
    def names(self) -> dict[int, str]:
        return self.constraints.pdg.names.statements

    @property
    def statements(self) -> dict[str, Op]:
        """The statements by name."""
        return {self.names[op.id]: op for op in self.constraints.statements.ops.values()}

    @cached_property
    def clock(self) -> Clock:
        """The order of all points under the bounds."""
        return self._known or Clock(self.tree, self.bounds)

    def points(self, **fixed: int) -> list[StatementPoints]:
        """Every statement's points, and their places in the order of execution.

        Args:
            fixed: dimensions held at one value, such as `i=0`. Statements that do not vary over
                them are left out, and places are counted among the points that remain.

        Raises:
            DomainError: a name is no dimension.
        """
        self.constraints.pdg.dims.check(*fixed)
        return self.in_order(fixed, self._select_points)

    def _select_points(self, name: str, fixed: Point) -> tuple[Array, Array]:
        """The points of a statement where some of its dimensions are held, and their ranks."""
        rows, domain = self.clock.points[name], self.tree.statements[name].domain
        inside = np.ones(len(rows), bool)
        for d, value in fixed.items():
            inside &= rows[:, domain.index(d)] == value
        return rows[inside], self.clock.ranks[name][inside]

    def in_order(
        self, fixed: Point, chosen: Callable[[str, Point], tuple[Array, Array]]
    ) -> list[StatementPoints]:
        """As `points`, of statements whose points and ranks somebody else knows."""
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

    # --- how it shows itself ---------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n".join(line for line, _ in self.found_by())

    def found_by(self) -> Iterable[tuple[str, Sequence[str]]]:
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
        """Statements and the dependences between them."""
        graph = Dot("schedule")
        times = self.tree.times()
        for key, op in self.constraints.statements.ops.items():
            label = f"{self._signature(op)}\n({', '.join(map(str, times[key]))})"
            graph.node(key, label, fill=FUSED, element=f"op{op.id}")
        for source, sink in dict.fromkeys((e.source, e.sink) for e in self.constraints.validity):
            graph.edge(source, sink)
        return str(graph)
