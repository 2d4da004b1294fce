"""Plotly figures: programs side by side with locked axes, and learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from timerl_nb.errors import OptionError
from timerl_nb.program import Program
from timerl_nb.show.pictures import top_series
from timerl_nb.show.svg import SERIES, human_bytes
from timerl_nb.show.turn import main_dimension, outer_dimensions

_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross", "x")
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
    figure = _side_by_side(list(programs), "time (order of execution)", dim or "")
    looks = _Looks()
    for column, program in enumerate(programs.values(), start=1):
        schedule = program.schedule
        up = dim or main_dimension(schedule)
        if up is None:
            raise OptionError("a program without dimensions has no iteration space.")
        dims = schedule.constraints.pdg.dims
        fixed = {
            d: min(iteration, dims[d].count(schedule.bounds) - 1)
            for d in outer_dimensions(schedule, up)
        }
        for statement in schedule.points(**fixed):
            trace = _statement(statement, up, dims[up].count(schedule.bounds), looks)
            figure.add_trace(trace, row=1, col=column)
        figure.update_yaxes(title_text=up, row=1, col=1)
    return figure


class _Looks:
    """One colour for each name in all parts of a figure, and one line of the legend for each title."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._titles: set[str] = set()

    def __call__(self, name: str, title: str = "") -> tuple[int, dict[str, Any]]:
        """The number of a name, and how its trace stands in the legend."""
        title = title or name
        k = self._names.setdefault(name, len(self._names))
        first = title not in self._titles
        self._titles.add(title)
        return k, {"name": title, "legendgroup": title, "showlegend": first}


def _statement(statement: Any, up: str, size: int, looks: _Looks) -> go.Scatter | go.Scattergl:
    if up in statement.coordinates:
        k, named = looks(statement.name)
        keep = np.unique(np.linspace(0, len(statement) - 1, min(len(statement), 1500)).astype(int))
        return go.Scattergl(
            x=statement.time[keep],
            y=statement.coordinates[up][keep],
            mode="markers",
            marker={
                "color": SERIES[k % len(SERIES)],
                "symbol": _SYMBOLS[k % len(_SYMBOLS)],
                "size": 6 if len(keep) <= 100 else 4,
            },
            **named,
        )
    k, named = looks(statement.name, f"{statement.name} (once)")
    x = np.repeat(statement.time, 3).astype(float)
    y = np.tile([0.0, float(size), np.nan], len(statement.time))
    line = {"color": SERIES[k % len(SERIES)], "width": 4}
    return go.Scatter(x=x, y=y, mode="lines", line=line, **named)


def memory_timeline(programs: Mapping[str, Program], limit: int = 6) -> go.Figure:
    """Predicted live bytes over time, stacked by tensor; axes are locked together."""
    peaks = [f"{name}: peak {human_bytes(p.memory.peak)}" for name, p in programs.items()]
    figure = _side_by_side(peaks, "time (executed points)", "live bytes, predicted")
    looks = _Looks()
    for column, program in enumerate(programs.values(), start=1):
        line = program.memory.timeline()
        step = max(1, len(line.time) // 1500)
        starts = np.arange(0, len(line.time), step)
        for name, values in top_series(line, limit):
            k, named = looks("others" if name.endswith(" others") else name)
            figure.add_trace(
                go.Scatter(
                    x=starts,
                    y=np.maximum.reduceat(values, starts),
                    mode="lines",
                    stackgroup="live",
                    line={"width": 0.5, "color": SERIES[k % len(SERIES)]},
                    **named,
                ),
                row=1,
                col=column,
            )
    return figure


def learning_curves(
    runs: Mapping[str, Sequence[Any]], output: str = "return", goal: float | None = None
) -> go.Figure:
    """One line per run and the median of each group over iterations.

    Args:
        runs: results, or arrays over iterations, by the name of their group.
        output: which output of a result to plot.
        goal: a value to mark.
    """
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
        template="plotly_white",
        xaxis_title="iteration",
        yaxis_title=output,
        height=380,
        margin={"t": 30, "r": 20, "b": 50, "l": 60},
    )
    return figure


def _side_by_side(titles: list[str], xlabel: str, ylabel: str) -> go.Figure:
    if not titles:
        raise OptionError("there is no program to show.", hint="pass {title: program, …}.")
    figure = make_subplots(
        rows=1,
        cols=len(titles),
        subplot_titles=titles,
        shared_yaxes=True,
        horizontal_spacing=0.06,
    )
    figure.update_xaxes(title_text=xlabel, matches="x")
    figure.update_yaxes(title_text=ylabel, row=1, col=1)
    figure.update_layout(
        template="plotly_white",
        height=400,
        margin={"t": 50, "r": 20, "b": 50, "l": 60},
        legend={"orientation": "h", "y": -0.2},
    )
    return figure
