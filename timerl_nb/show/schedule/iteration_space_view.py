"""View-model of the iteration space: executed points over time and one dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.scheduling.schedule_artifact import StatementPoints
from timerl_nb.compiler.symbolic.dimensions import Dims
from timerl_nb.driver.program import Program
from timerl_nb.show.colours import Numbers, of_statements, operation_colour
from timerl_nb.show.schedule.loop_view import lines_at
from timerl_nb.show.schedule.points_of_one_iteration import EXACT, Turn
from timerl_nb.show.view_model import View, ints

MARKS: Final = 12_000  # maximal number of marks for a turn with many instants


@dataclass(frozen=True, eq=False)
class Statement:
    """Points of one statement in a turn; an evenly spaced subset if there are many.

    Attributes:
        op_ids: the kernel and the operations inside it.
        role: the outermost region, such as "acting"; "" without a region.
        colour, shape: the style of its marks in all views.
        points: the number of points.
        each: whether it runs per point (or block) of the vertical dimension; otherwise it is drawn as a bar
            over the dimension.
        times: int32 (n,), the instants.
        low: int32 (n,), the first point of the vertical dimension.
        tall: the number of points covered.
        coordinates: int32 (n,) by dimension.
    """

    op_id: int
    op_ids: tuple[int, ...]
    name: str
    region: tuple[str, ...]
    role: str
    colour: str
    shape: Literal["circle", "triangle", "diamond", "square", "cross"]
    points: int
    each: bool
    times: Array
    low: Array
    tall: int
    coordinates: Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class AtInstants:
    """For each marked instant, int32 (n,): the instant, the statement, and its line in the loop nest."""

    at: Array
    statement: Array
    line: Array


@dataclass(frozen=True, eq=False)
class IterationSpaceView(View):
    """Executed points of a turn: time on the x axis, one dimension on the y axis.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> view = trl.show.IterationSpaceView.from_program(program)
        >>> len(view.statements)
        1
    """

    view = "space"

    turn: Turn
    statements: tuple[Statement, ...]
    instants: AtInstants

    @classmethod
    def from_program(
        cls,
        program: Program,
        dim: str | None = None,
        fixed: Mapping[str, int] | None = None,
    ) -> IterationSpaceView:
        """Return the iteration space of a turn; the arguments are those of `Turn.from_program`."""
        return cls.of_turn(Turn.from_program(program, dim, fixed))

    @classmethod
    def of_turn(cls, turn: Turn, colours: Numbers | None = None) -> IterationSpaceView:
        """Return the iteration space of a turn.

        Args:
            turn: the turn.
            colours: numbers by statement name; by default those of the program.
        """
        colours = colours or of_statements(turn.schedule)
        most = len(turn) if len(turn) <= EXACT else max(MARKS // len(turn.points), 16)
        ops = {op.id: op for op in turn.schedule.constraints.statements.ops.values()}
        statements = tuple(
            statement_of(
                turn.dims,
                turn.dim,
                turn.size,
                one,
                ops[one.op_id].op_ids,
                colours[one.name],
                most,
            )
            for one in turn.points
        )
        lines = lines_at(turn)
        at = np.sort(np.concatenate([ints([]), *(one.times for one in statements)]))
        return cls(turn, statements, AtInstants(ints(at), ints(turn.statement[at]), lines[at]))

    def point_at(self, instant: int) -> tuple[Statement, dict[str, int]]:
        """Return the statement that runs at an instant, and its point."""
        statement = self.statements[int(self.turn.statement[instant])]
        (k,) = np.flatnonzero(statement.times == instant)
        return statement, {d: int(at[k]) for d, at in statement.coordinates.items()}

    def __str__(self) -> str:
        turn = self.turn
        if turn.dim is None:
            return str(turn.schedule)
        at = ", ".join(f"{d} = {value}" for d, value in turn.fixed.items())
        bounds = ", ".join(f"{name} = {value}" for name, value in turn.bounds.items())
        lines = [f"iteration space over {turn.dim}{' at ' * bool(at)}{at}, under {bounds}"]
        lines += [turn.problem] * bool(turn.problem)
        for one in self.statements:
            when = f"{one.times.min()} to {one.times.max()}"
            each = f"each {turn.dim}" if one.each else "once"
            lines.append(
                f"  {one.name}: {format_count(one.points, 'point')}, {each}, instants {when}"
            )
        return "\n".join(lines)


def statement_of(
    dims: Dims,
    dim: str | None,
    size: int,
    one: StatementPoints,
    ids: tuple[int, ...],
    number: int,
    most: int,
) -> Statement:
    """Return the marks of a statement, at most `most`.

    Args:
        dim, size: the vertical dimension and its number of points.
        one: the statement's points.
        ids: the operations of the statement.
        number: the number of its colour.
    """
    keep = np.linspace(0, len(one) - 1, min(len(one), most)).astype(int)
    coordinates = {d: ints(at[keep]) for d, at in one.coordinates.items()}
    role = one.region[0] if one.region else ""
    # blocks of a dimension have the same bound
    alike = [d for d in coordinates if dim is not None and dims[d].bound == dims[dim].bound]
    up = dim if dim in alike else next(iter(alike), None)
    tall = dims[up].step if up else size
    return Statement(
        one.op_id,
        ids,
        one.name,
        one.region,
        role,
        operation_colour(number),
        shape(role, number),
        len(one),
        up is not None,
        ints(one.time[keep]),
        coordinates[up] * np.int32(tall) if up else ints(np.zeros(len(keep))),
        tall,
        coordinates,
    )


# Acting is round, learning has points, other statements have corners.
_ROUND, _POINTED = ("circle",), ("triangle", "diamond")
_OTHERS = ("square", "cross", "diamond")


def shape(role: str, number: int) -> Any:
    """Return the shape of a statement's marks."""
    shapes = {"acting": _ROUND, "learning": _POINTED}.get(role, _OTHERS)
    return shapes[number % len(shapes)]
