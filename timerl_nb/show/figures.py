"""Plotly figures: programs side by side with locked axes, and learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from timerl_nb.driver.program import Program, a_program
from timerl_nb.errors import OptionError
from timerl_nb.frontend.foreign import taken
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.memory.timeline import Timeline
from timerl_nb.show.colours import GREY, SERIES, of_statements, of_tensors, tensor
from timerl_nb.show.compare import by_title
from timerl_nb.show.space import Statement, statement_of
from timerl_nb.show.sweeping import SweepView
from timerl_nb.show.text import human_bytes
from timerl_nb.show.turn import main_dimension, outer_dimensions

_SYMBOLS = {"triangle": "triangle-up"}
# Figures are drawn on what is behind them, light or dark: a grey that is read on both.
_GREY, _GRID = "#808080", "rgba(128, 128, 128, 0.3)"
_AXIS = {"gridcolor": _GRID, "zerolinecolor": _GRID, "linecolor": _GREY}
_THEME = go.layout.Template(
    layout={
        "paper_bgcolor": "rgba(0, 0, 0, 0)",
        "plot_bgcolor": "rgba(0, 0, 0, 0)",
        "font": {"color": _GREY},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
)
_GATHERED = "gathered operands"
_DASHES = ("solid", "dash", "dot", "dashdot")


def iteration_space(
    programs: Mapping[str, Program], dim: str | None = None, iteration: int = 1
) -> go.Figure:
    """Time across, one dimension up, for one iteration of each program; axes are locked together.

    Args:
        programs: by title.
        dim: the dimension that goes up; the innermost by default.
        iteration: the value at which the dimensions of the loops around it are held.
    """
    by_title(programs, a_program)
    figure = _side_by_side(list(programs), "time (order of execution)", dim or "")
    legend, numbers = _Legend(), of_statements(*(p.schedule for p in programs.values()))
    for column, program in enumerate(programs.values(), start=1):
        schedule = program.schedule
        up = dim or main_dimension(schedule)
        if up is None:
            raise OptionError("a program without dimensions has no iteration space.")
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
    """One line of the legend for each title in all parts of a figure."""

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
    """Predicted live bytes over time, stacked by tensor; axes are locked together."""
    by_title(programs, a_program)
    plans = {name: program.memory for name, program in programs.items()}
    peaks = [
        (f"{n}: peak {human_bytes(p.peak)}", *p.saved_by, *_turns_shown(p))
        for n, p in plans.items()
    ]
    titles = [peak + "<br>" + ", ".join(ways) if ways else peak for peak, *ways in peaks]
    figure = _side_by_side(titles, "time (executed points)", "live bytes, predicted")
    legend = _Legend()
    numbers = of_tensors(*(p.memory for p in programs.values()))
    for column, program in enumerate(programs.values(), start=1):
        line = program.memory.point_by_point
        step = max(1, len(line.time) // 1500)
        starts = np.arange(0, len(line.time), step)
        for name, values in _top_series(line, limit):
            fill = tensor(numbers[name]) if name in numbers else GREY
            title = name if name in numbers or name == _GATHERED else "others"
            figure.add_trace(
                go.Scatter(
                    x=starts,
                    y=np.maximum.reduceat(values, starts),
                    mode="lines",
                    stackgroup="live",
                    line={"width": 0.5, "color": fill},
                    **legend(title),
                ),
                row=1,
                col=column,
            )
    return figure


def _turns_shown(plan: MemoryPlan) -> list[str]:
    """Which turns of a long run are drawn, where these are not all."""
    if plan.fold is None:
        return []
    few = plan.clock.bounds[plan.fold.dim.bound]
    return [f"{few} turns, which say what all {plan.fold.turns:,} do"]


def _top_series(line: Timeline, limit: int) -> list[tuple[str, np.ndarray]]:
    """The tensors with the largest use of memory, the rest as one, and what is gathered."""
    gathered = line.transient
    ranked = sorted(
        line.by_tensor.items(), key=lambda item: (-float(item[1].max(initial=0)), item[0])
    )
    shown = list(ranked[:limit])
    if len(ranked) > limit:
        rest = sum((v for _, v in ranked[limit:]), np.zeros_like(gathered))
        shown.append((f"{len(ranked) - limit} others", rest))
    if gathered.any():
        shown.append((_GATHERED, gathered))
    return shown


def learning_curves(
    runs: Mapping[str, Sequence[Any]], output: str = "return", goal: float | None = None
) -> go.Figure:
    """One line per run and the median of each group over iterations.

    Args:
        runs: results, or arrays over iterations, by the name of their group.
        output: which output of a result to plot.
        goal: a value to mark.
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
        template=_THEME,
        xaxis_title="iteration",
        yaxis_title=output,
        height=380,
        margin={"t": 30, "r": 20, "b": 50, "l": 60},
    )
    return figure


def sweep(swept: SweepView) -> go.Figure:
    """Peak, launches, compile time and measured time of a sweep's programs, over its argument.

    A point stands where its value does in the list. What could not be compiled has a cross at the
    bottom, which says why.
    """
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
                labels[k] + (f": {human_bytes(y)}" if chart.is_bytes else "")
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
    marks = swept.marks(9)
    ends = [-0.2, len(swept) - 0.8]  # also where nothing is known
    figure.update_xaxes(tickvals=list(marks), ticktext=list(marks.values()), range=ends)
    figure.update_xaxes(title_text=swept.argument, row=2)
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(template=_THEME, height=520, margin={"t": 50, "r": 20, "b": 50, "l": 60})
    return figure


def _runs(results: Any) -> None:
    how = "pass lists of results, or of arrays: {'Monte Carlo': [program.execute(seed=0)]}."
    for one in taken(results, (list, tuple), "a list of results", how):
        taken(one, (Mapping, np.ndarray), "a result", how)


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
        template=_THEME,
        height=430,
        margin={"t": 50, "r": 20, "b": 100, "l": 60},
        legend={"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom"},
    )
    return figure
