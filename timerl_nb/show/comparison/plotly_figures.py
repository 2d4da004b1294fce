"""Plotly figures: programs side by side with shared axes, learning curves and sweeps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError
from timerl_nb.base.text_formatting import format_bytes
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.compiler.memory.memory_timeline import GATHERED
from timerl_nb.compiler.memory.steady_state.extrapolated_timeline import AnyTimeline
from timerl_nb.driver.program import Program, a_program
from timerl_nb.show.colours import GREY, SERIES, of_statements, of_tensors, tensor_colour
from timerl_nb.show.comparison.argument_sweep import SweepView
from timerl_nb.show.memory.whole_run_memory import Stretch, stretches
from timerl_nb.show.schedule.iteration_space_view import Statement, statement_of
from timerl_nb.show.schedule.points_of_one_iteration import main_dimension, outer_dimensions
from timerl_nb.show.side_by_side import by_title

_SYMBOLS = {"triangle": "triangle-up"}
# Figures have a transparent background, light or dark: a grey that is legible on both.
_GREY, _GRID = "#808080", "rgba(128, 128, 128, 0.3)"
_AXIS = {"gridcolor": _GRID, "zerolinecolor": _GRID, "linecolor": _GREY}
THEME = go.layout.Template(
    layout={
        "paper_bgcolor": "rgba(0, 0, 0, 0)",
        "plot_bgcolor": "rgba(0, 0, 0, 0)",
        "font": {"color": _GREY},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
)
_DASHES = ("solid", "dash", "dot", "dashdot")


def iteration_space(
    programs: Mapping[str, Program], dim: str | None = None, iteration: int = 1
) -> go.Figure:
    """Plot the iteration spaces of programs side by side, with shared axes.

    The x axis is time, the y axis one dimension. Each part shows one iteration of the outer loops.

    Args:
        programs: programs by title.
        dim: the vertical dimension; by default the innermost one.
        iteration: the value of the outer dimensions.

    Returns:
        A Plotly figure.

    Raises:
        CallError: the argument is not a mapping of programs.
        OptionError: the mapping is empty, or a program has no dimensions.

    Example:
        >>> c = trl.data(np.arange(4.0), domain=t)
        >>> y = ctx.output("y", trl.exp(c))
        >>> program = ctx.compile({B: 1, I: 1, T: 4}, trl.Options(vectorize=False))
        >>> figure = trl.show.iteration_space({"unvectorised": program})
        >>> len(figure.data) > 0
        True
    """
    by_title(programs, a_program)
    figure = _side_by_side(list(programs), "time (order of execution)", dim or "")
    legend, numbers = _Legend(), of_statements(*(p.schedule for p in programs.values()))
    for column, program in enumerate(programs.values(), start=1):
        schedule = program.schedule
        up = dim or main_dimension(schedule)
        if up is None:
            raise OptionError(
                "a program without dimensions has no iteration space.",
                hint="choose a program with a loop, for example one compiled with vectorize=False.",
            )
        dims = schedule.constraints.pdg.dims
        dims.check(up)
        fixed = {
            d: min(iteration, dims[d].count(schedule.bounds) - 1)
            for d in outer_dimensions(schedule, up)
        }
        size = dims[up].count(schedule.bounds)
        for points in schedule.points(**fixed):
            number = numbers[points.name]
            trace = _trace(statement_of(dims, up, size, points, (), number, 1500), legend)
            figure.add_trace(trace, row=1, col=column)
        figure.update_yaxes(title_text=up, row=1, col=1)
    return figure


class _Legend:
    """Shows each title once in the legend of all parts."""

    def __init__(self) -> None:
        self._titles: set[str] = set()

    def __call__(self, title: str) -> dict[str, Any]:
        first = title not in self._titles
        self._titles.add(title)
        return {"name": title, "legendgroup": title, "showlegend": first}


def _trace(one: Statement, legend: _Legend) -> go.Scatter | go.Scattergl:
    if one.tall == 1:
        marker = {
            "color": one.colour,
            "symbol": _SYMBOLS.get(one.shape, one.shape),
            "size": 6 if len(one.times) <= 100 else 4,
        }
        return go.Scattergl(
            x=one.times, y=one.low, mode="markers", marker=marker, **legend(one.name)
        )
    x = np.repeat(one.times, 3).astype(float)
    y = np.column_stack([one.low, one.low + one.tall, np.full(len(one.low), np.nan)]).ravel()
    line = {"color": one.colour, "width": 4}
    title = one.name if one.each else f"{one.name} (once)"
    return go.Scatter(x=x, y=y, mode="lines", line=line, **legend(title))


def memory_timeline(programs: Mapping[str, Program], limit: int = 6) -> go.Figure:
    """Plot the predicted live bytes of programs over time, stacked by tensor, with shared axes.

    Of the repeated turns of a long run one is drawn; a break in the axis shows the number of omitted turns.

    Args:
        programs: programs by title.
        limit: the number of tensors shown separately, the largest ones.

    Returns:
        A Plotly figure.

    Raises:
        CallError: the argument is not a mapping of programs.
        OptionError: the mapping is empty.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> figure = trl.show.memory_timeline({"program": program})
        >>> figure.layout.yaxis.title.text
        'live bytes, predicted'
    """
    by_title(programs, a_program)
    plans = {name: program.memory for name, program in programs.items()}
    peaks = [(f"{n}: peak {format_bytes(p.peak)}", *p.saved_by) for n, p in plans.items()]
    titles = [peak + "<br>" + ", ".join(ways) if ways else peak for peak, *ways in peaks]
    figure = _side_by_side(titles, "time (executed points)", "live bytes, predicted")
    legend, numbers = _Legend(), of_tensors(*plans.values())
    drawn = {name: (plan.timeline(), stretches(plan.timeline())) for name, plan in plans.items()}
    gap = max(sum(map(len, found)) for _, found in drawn.values()) // 6
    for column, (line, found) in enumerate(drawn.values(), start=1):
        parts = list(_parts(line, found, gap))
        for name, values in _top_series(parts, limit):
            fill = tensor_colour(numbers[name]) if name in numbers else GREY
            title = name if name in numbers or name == GATHERED else "others"
            figure.add_trace(
                go.Scatter(
                    x=np.concatenate([one.x for one in parts]),
                    y=np.concatenate(
                        [one.close_at_zero(held) for one, held in zip(parts, values, strict=True)]
                    ),
                    customdata=np.concatenate([one.x - one.at + one.first for one in parts]),
                    hovertemplate="%{y:,} bytes at %{customdata:,}",
                    mode="lines",
                    stackgroup="live",
                    line={"width": 0.5, "color": fill},
                    **legend(title),
                ),
                row=1,
                col=column,
            )
        _break_axis(figure, parts, gap, line.peak, column)
    figure.update_yaxes(**_byte_ticks(max(plan.peak for plan in plans.values())))
    return figure


def _byte_ticks(most: float) -> dict[str, Any]:
    """Return the ticks of an axis of bytes, at multiples of a power of two."""
    step = 2.0 ** max(0, math.ceil(math.log2(max(most, 1) / 6)))
    values = np.arange(0, most + step, step)
    return {"tickvals": values, "ticktext": [format_bytes(value) for value in values]}


@dataclass(frozen=True)
class _TimelineSegment:
    """Segment of a timeline on the axis of a figure, from `at` to `end`.

    Attributes:
        held: by tensor, live bytes in each column, at the column's maximum.
        begins, ends: whether the axis is interrupted before it, and after it.
    """

    at: int
    first: int
    end: int
    note: str
    columns: Array
    held: Mapping[str, Array]
    begins: bool
    ends: bool

    @property
    def x(self) -> Array:
        """The x positions of the amounts, with additional ones at the edges."""
        behind = [self.end, self.end] if self.ends else []
        return np.concatenate([[self.at] * self.begins, self.at + self.columns, behind])

    def close_at_zero(self, held: Array) -> Array:
        """Extend amounts per column by zeros at interrupted edges."""
        behind = [held[-1], 0] if self.ends else []
        return np.concatenate([[0] * self.begins, held, behind])


def _parts(line: AnyTimeline, found: Sequence[Stretch], gap: int) -> Iterator[_TimelineSegment]:
    at, begins = 0, True
    for one in found:
        columns = np.arange(0, len(one), max(1, len(one) // 1500))
        held = line.held_at(line.peak_times(one.first + columns, one.last))
        ends, end = one.turns > 0 or one is found[-1], at + len(one)
        yield _TimelineSegment(at, one.first, end, one.note, columns, held, begins, ends)
        at, begins = end + gap * (one.turns > 0), ends


def _break_axis(
    figure: go.Figure, parts: Sequence[_TimelineSegment], gap: int, peak: int, column: int
) -> None:
    """Mark breaks of the axis with the number of omitted turns, and label the times of all segments."""
    if len(parts) < 2:
        return
    where = {"showarrow": False, "row": 1, "col": column}
    for one, after in itertools.pairwise(parts):
        if one.note:
            middle = (one.end + after.at) / 2
            figure.add_annotation(x=middle, y=peak / 2, text=one.note, **where)
            for x in (one.end, after.at):
                figure.add_annotation(x=x, y=0, text="//", **where)
    last = parts[-1]
    times = {one.at: one.first for one in parts}
    times[last.end] = last.first + last.end - last.at
    shown: dict[int, str] = {}
    for at, time in times.items():
        if not shown or at - max(shown) >= gap / 2:
            shown[at] = f"{time:,}"
    figure.update_xaxes(tickvals=[*shown], ticktext=[*shown.values()], row=1, col=column)


def _top_series(parts: Sequence[_TimelineSegment], limit: int) -> list[tuple[str, list[Array]]]:
    """Return the largest tensors, the sum of the others, and gathered operands."""
    found = {name: [one.held[name] for one in parts] for name in parts[0].held} if parts else {}
    gathered = found.pop(GATHERED, [])
    most = {name: max(float(held.max(initial=0)) for held in ones) for name, ones in found.items()}
    ranked = sorted(found.items(), key=lambda item: (-most[item[0]], item[0]))
    shown = ranked[:limit]
    if len(ranked) > limit:
        others = zip(*(ones for _, ones in ranked[limit:]), strict=True)
        rest: list[Array] = [np.sum(np.stack(ones), axis=0) for ones in others]
        shown.append((f"{len(ranked) - limit} others", rest))
    if any(held.any() for held in gathered):
        shown.append((GATHERED, gathered))
    return shown


def learning_curves(
    runs: Mapping[str, Sequence[Any]], output: str = "return", goal: float | None = None
) -> go.Figure:
    """Plot learning curves: one line per run, and the median of each group.

    Args:
        runs: lists of results, or of arrays over iterations, by group name.
        output: the plotted output of the results.
        goal: a value to mark.

    Returns:
        A Plotly figure.

    Raises:
        CallError: the argument is not a mapping of lists of results.

    Example:
        >>> figure = trl.show.learning_curves({"PPO": [np.array([1.0, 2.0]), np.array([2.0, 4.0])]})
        >>> figure.data[-1].y.tolist()
        [1.5, 3.0]
    """
    by_title(runs, _runs)
    figure = go.Figure()
    for k, (name, results) in enumerate(runs.items()):
        curves = [np.asarray(r if isinstance(r, np.ndarray) else r[output]) for r in results]
        colour, dash = SERIES[k % len(SERIES)], _DASHES[k % len(_DASHES)]
        for n, curve in enumerate(curves):
            figure.add_trace(
                go.Scatter(
                    y=curve,
                    mode="lines",
                    line={"color": colour, "width": 1, "dash": dash},
                    opacity=0.45,
                    name=f"{name}, run {n}",
                    showlegend=False,
                )
            )
        figure.add_trace(
            go.Scatter(
                y=np.median(curves, axis=0),
                mode="lines",
                line={"color": colour, "width": 3, "dash": dash},
                name=f"{name} (median of {len(curves)})",
            )
        )
    if goal is not None:
        figure.add_hline(
            y=goal,
            line={"color": "#888888", "dash": "dot"},
            annotation_text=f"{goal:g}",
            annotation_position="top left",
        )
    figure.update_layout(
        template=THEME,
        xaxis_title="iteration",
        yaxis_title=output,
        height=380,
        margin={"t": 30, "r": 20, "b": 50, "l": 60},
    )
    return figure


def sweep(swept: SweepView) -> go.Figure:
    """Plot the peak, launches, compile time and measured time of a sweep's programs over its argument.

    The x axis has one position per value, in the order of the list. A cross at the bottom marks a program
    that does not compile; hovering shows the error.

    Args:
        swept: the result of `trl.sweep`.

    Returns:
        A Plotly figure.

    Raises:
        CallError: the argument is not a sweep.

    Example:
        >>> def program(width):
        ...     with trl.Context("t") as ctx:
        ...         x = trl.random.normal((width,), domain=ctx.dims[0][:1])
        ...         ctx.output("y", trl.exp(x))
        ...     return ctx
        >>> view = trl.sweep(program, {"T": 4}, width=[1, 2], measure=0, progress=False)
        >>> figure = trl.show.sweep(view)
        >>> figure.data[0].y
        (16, 32)
    """
    expect_type(swept, SweepView, "a sweep's view", "trl.sweep(function, …) shows a sweep.")
    titles = [one.title + (": none" if not one.known[0] else "") for one in swept.charts]
    figure = make_subplots(rows=2, cols=2, subplot_titles=titles, vertical_spacing=0.2)
    labels = [point.label for point in swept.points]
    failed = [k for k, point in enumerate(swept.points) if point.peak is None]
    for place, chart in enumerate(swept.charts):
        at, up = chart.known
        figure.add_scatter(
            x=at,
            y=up,
            mode="lines+markers",
            line={"color": SERIES[place]},
            marker={"symbol": ("circle", "square", "triangle-up", "diamond")[place], "size": 6},
            text=[
                labels[k] + (f": {format_bytes(y)}" if chart.is_bytes else "")
                for k, y in zip(at, up, strict=True)
            ],
            showlegend=False,
            row=place // 2 + 1,
            col=place % 2 + 1,
        )
        figure.add_scatter(
            x=failed,
            y=[0] * len(failed),
            mode="markers",
            marker={"symbol": "x", "size": 8, "color": "#888888"},
            text=[f"{labels[k]}: {swept.points[k].problem}" for k in failed],
            showlegend=False,
            row=place // 2 + 1,
            col=place % 2 + 1,
        )
        if chart.is_bytes:
            ticks = _byte_ticks(max(up, default=0))
            figure.update_yaxes(row=place // 2 + 1, col=place % 2 + 1, **ticks)
    marks = swept.marks(9)
    ends = [-0.2, len(swept) - 0.8]  # the same range for charts without values
    figure.update_xaxes(tickvals=list(marks), ticktext=list(marks.values()), range=ends)
    figure.update_xaxes(title_text=swept.argument, row=2)
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(template=THEME, height=520, margin={"t": 50, "r": 20, "b": 50, "l": 60})
    return figure


def _runs(results: Any) -> None:
    how = "pass lists of results, or of arrays: {'Monte Carlo': [program.execute(seed=0)]}."
    for one in expect_type(results, (list, tuple), "a list of results", how):
        expect_type(one, (Mapping, np.ndarray), "a result", how)


def _side_by_side(titles: list[str], xlabel: str, ylabel: str) -> go.Figure:
    figure = make_subplots(
        rows=1,
        cols=len(titles),
        subplot_titles=titles,
        shared_yaxes=True,
        horizontal_spacing=0.06,
    )
    figure.update_xaxes(title_text=xlabel)
    for column in range(2, len(titles) + 1):  # an axis cannot match itself
        figure.update_xaxes(matches="x", row=1, col=column)
    figure.update_yaxes(title_text=ylabel, row=1, col=1)
    figure.update_layout(
        template=THEME,
        height=430,
        margin={"t": 50, "r": 20, "b": 100, "l": 60},
        legend={"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom"},
    )
    return figure
