"""The iteration space of a turn: what runs when, and where in one dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.program import Program
from timerl_nb.show.lineage import inside
from timerl_nb.show.loop import LoopView, lines_at
from timerl_nb.show.pictures import turn_picture
from timerl_nb.show.turn import LIMIT, Turn
from timerl_nb.show.view import Array, View, ints


@dataclass(frozen=True, eq=False)
class Statement:
    """The points of one statement in a turn.

    Attributes:
        op_ids: the kernel and the operations inside it.
        role: the outermost region, such as "acting"; "" where it is in none.
        each: whether it runs at points of the dimension that goes up; else it is a bar over all.
        times: int32 (n,), its instants.
        coordinates: int32 (n,) by dimension.
    """

    op_id: int
    op_ids: tuple[int, ...]
    name: str
    region: tuple[str, ...]
    role: str
    each: bool
    times: Array
    coordinates: Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class IterationSpaceView(View):
    """Time across, one dimension up, one mark per executed point of a turn.

    JSON: `{"view": "space", "turn": {"dim", "size", "fixed", "bounds", "program_bounds", "reduced",
    "count"}, "statements": [{"op_id", "op_ids", "name", "region", "role", "each", "times",
    "coordinates": {dim: []}}], "instants": {"statement": [], "line": []}}`. `instants` has an entry
    per instant: the number of the statement that runs, and of the line of the loop nest.
    """

    turn: Turn
    statements: tuple[Statement, ...]
    line: Array

    @classmethod
    def of(
        cls,
        program: Program,
        dim: str | None = None,
        fixed: Mapping[str, int] | None = None,
        limit: int | None = LIMIT,
    ) -> IterationSpaceView:
        """The space of a turn; the arguments are those of `Turn.of`."""
        return cls.of_turn(Turn.of(program, dim, fixed, limit))

    @classmethod
    def of_turn(cls, turn: Turn) -> IterationSpaceView:
        ops = {op.id: op for op in turn.program.schedule.constraints.ops.values()}
        statements = tuple(
            Statement(
                one.op_id,
                inside(ops[one.op_id]),
                one.name,
                one.region,
                one.region[0] if one.region else "",
                turn.dim in one.coordinates,
                ints(one.time),
                {d: ints(at) for d, at in one.coordinates.items()},
            )
            for one in turn.points
        )
        return cls(turn, statements, lines_at(turn, LoopView.of(turn.program)))

    def at(self, instant: int) -> tuple[Statement, dict[str, int]]:
        """The statement that runs at an instant, and its point."""
        statement = self.statements[int(self.turn.statement[instant])]
        (k,) = np.flatnonzero(statement.times == instant)
        return statement, {d: int(at[k]) for d, at in statement.coordinates.items()}

    def values(self) -> dict[str, Any]:
        return {
            "view": "space",
            "turn": self.turn.json(),
            "statements": [
                {
                    "op_id": one.op_id,
                    "op_ids": list(one.op_ids),
                    "name": one.name,
                    "region": list(one.region),
                    "role": one.role,
                    "each": one.each,
                    "times": one.times,
                    "coordinates": dict(one.coordinates),
                }
                for one in self.statements
            ],
            "instants": {"statement": ints(self.turn.statement), "line": self.line},
        }

    def __str__(self) -> str:
        turn = self.turn
        at = ", ".join(f"{d} = {value}" for d, value in turn.fixed.items())
        drawn = ", ".join(f"{name} = {value}" for name, value in turn.bounds.items())
        lines = [f"iteration space over {turn.dim}{' at ' * bool(at)}{at}, drawn for {drawn}"]
        for one in self.statements:
            when = f"{one.times.min()} to {one.times.max()}"
            each = f"each {turn.dim}" if one.each else "once"
            lines.append(f"  {one.name}: {len(one.times)} points, {each}, instants {when}")
        return "\n".join(lines)

    def to_svg(self) -> str:
        return self.picture()

    def picture(self, time: int = 0, up: int = 0) -> str:
        """The view as SVG; its axes end at `time` and `up` where these are greater."""
        return turn_picture(self.turn, time, up)
