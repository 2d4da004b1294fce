"""View-model of the launch timeline: the launches of each kernel during a turn, with their durations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.text_formatting import format_count, format_duration
from timerl_nb.driver.program import Program
from timerl_nb.show.colours import Numbers, of_statements, operation_colour
from timerl_nb.show.schedule.points_of_one_iteration import Turn
from timerl_nb.show.stages.measured_launches import Measured, Readable, seconds_per_launch
from timerl_nb.show.stages.operation_costs import estimated_seconds
from timerl_nb.show.view_model import View, amounts, ints, shown


@dataclass(frozen=True, eq=False)
class LaunchRow:
    """Launches of one statement of the loop nest in a turn.

    Attributes:
        op_ids: the kernel and the operations inside it.
        launches: their number.
        seconds: the duration of one launch; None if it was not measured.
        columns: int32 (n,), the columns of the view that contain launches, ascending.
        counts: int32 (n,), the number of launches in each of these columns.
    """

    op_id: int
    op_ids: tuple[int, ...]
    name: str
    region: tuple[str, ...]
    colour: str
    launches: int
    seconds: float | None
    columns: Array
    counts: Array


@dataclass(frozen=True, eq=False)
class LaunchView(View):
    """Launches of a turn: a row for each statement, a bar for each launch.

    A column is one instant, and one launch. In a turn with many instants, a column covers several from `first`
    on, and has a number of launches for each row. Passes compare plans by the estimated durations; only
    their ratios are meaningful.

    Attributes:
        first: int32 (columns,), the first instant of each column.
        how: whether durations are estimated or measured; for programs of XLA, whole calls are measured.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> [row.launches for row in trl.show.LaunchView.from_program(program).rows]
        [1]
    """

    view = "launches"

    turn: Turn
    first: Array
    rows: tuple[LaunchRow, ...]
    how: Literal["estimated", "measured", "measured by call"]

    @classmethod
    def from_program(
        cls,
        program: Program,
        measured: Measured | Readable | None = None,
        dim: str | None = None,
        fixed: Mapping[str, int] | None = None,
    ) -> LaunchView:
        """Return the launches of a turn.

        Args:
            program: the program.
            measured: a profile of the program, or a recording that contains its launches, for measured durations. A
                call to XLA runs several launches; its time is divided among them in proportion to their estimates.
            dim, fixed: the arguments of `Turn.from_program`.

        Raises:
            CallError: the measurements are neither a profile nor a recording.
            OptionError: they contain no launch of the program.
        """
        return cls.of_turn(Turn.from_program(program, dim, fixed), program, measured)

    @classmethod
    def of_turn(
        cls,
        turn: Turn,
        program: Program,
        measured: Measured | Readable | None = None,
        colours: Numbers | None = None,
    ) -> LaunchView:
        """Return the launches of a turn.

        Args:
            turn: the turn.
            program: the program of the turn.
            measured: as for `from_program`.
            colours: numbers by statement name; by default those of the program.
        """
        colours = colours or of_statements(turn.schedule)
        how: Literal["estimated", "measured", "measured by call"] = "estimated"
        if measured is None:
            seconds = estimated_seconds(program)
        else:
            seconds = seconds_per_launch(program, measured)
            how = "measured" if program.executable.xla_program is None else "measured by call"
        first, _ = turn.columns(np.zeros(len(turn)))
        ops = {op.id: op for op in turn.schedule.constraints.statements.ops.values()}
        rows = []
        for one in sorted(turn.points, key=lambda points: int(points.time.min())):
            at = np.searchsorted(first, one.time, side="right") - 1
            columns, counts = np.unique(at, return_counts=True)
            rows.append(
                LaunchRow(
                    one.op_id,
                    ops[one.op_id].op_ids,
                    one.name,
                    one.region,
                    operation_colour(colours[one.name]),
                    len(one),
                    seconds.get(one.op_id),
                    ints(columns),
                    ints(counts),
                )
            )
        return cls(turn, first, tuple(rows), how)

    @shown
    def begin(self) -> Array:
        """The seconds from the start of the turn to the start of each column, float64; the last entry is the end."""
        spent = np.zeros(len(self.first) + 1)
        for row in self.rows:
            spent[row.columns + 1] += row.counts * (row.seconds or 0.0)
        return amounts(np.cumsum(spent))

    def __str__(self) -> str:
        count = format_count(len(self.turn), "launch")
        lines = [f"{count} of a turn, {format_duration(float(self.begin[-1]))} {self.how}"]
        lines += [self.turn.problem] * bool(self.turn.problem)
        return "\n".join([*lines, *self._texts()])

    def _texts(self) -> Iterator[str]:
        for row in self.rows:
            each = "not measured" if row.seconds is None else f"{format_duration(row.seconds)} each"
            yield f"  {row.name}: {format_count(row.launches, 'launch', 'launches')}, {each}"
