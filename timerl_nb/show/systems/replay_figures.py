"""Plotly figures of a sum tree's draw, and of device assignments."""

from __future__ import annotations

from typing import Literal

import numpy as np
import plotly.graph_objects as go

from timerl_nb.base.errors import OptionError
from timerl_nb.base.text_formatting import format_milliseconds
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.compose.primitive_latency_table import Links, Table
from timerl_nb.compose.setting_sweep import Sweep
from timerl_nb.replay.prioritization.sum_tree import SumTree
from timerl_nb.replay.storage.replay_buffer import Replay
from timerl_nb.show.colours import GREY, lighten_colour, operation_colour
from timerl_nb.show.comparison.plotly_figures import THEME
from timerl_nb.show.systems.assignment_view import MappingCell, MappingView


def tree(buffer: Replay | SumTree, share: float = 0.5) -> go.Figure:
    """Plot the path of a draw through a sum tree: the chosen group in each level, with widths in proportion to
    the sums.

    Args:
        buffer: a replay buffer with priorities, or a sum tree.
        share: the draw as a fraction of the total priority, from 0 to 1.

    Returns:
        A Plotly figure.

    Raises:
        OptionError: the buffer has no priorities, all are zero, or `share` is out of range.

    Example:
        >>> sum_tree = trl.replay.SumTree(100)
        >>> sum_tree.update(np.arange(100), np.ones(100))
        >>> figure = trl.show.tree(sum_tree, share=0.5)
        >>> figure.layout.title.text
        'at 0.5 of 100: entry 50'
    """
    found = (
        buffer.tree
        if isinstance(buffer, Replay)
        else expect_type(
            buffer, SumTree, "a sum tree", "trl.Replay(…, priority=…), or trl.replay.SumTree(…)."
        )
    )
    if not 0 <= number("share", share) <= 1:
        raise OptionError(f"share={share!r} is out of range.", hint="choose a number from 0 to 1.")
    if not found.total:
        raise OptionError(
            "no entry can be drawn: all priorities are zero.", hint="insert rows first."
        )
    figure = go.Figure()
    steps = found.path(share)
    for depth, (first, sums, chosen, left) in enumerate(steps):
        widths = np.asarray(sums) / sum(sums)
        colour = operation_colour(depth)
        colours = [colour if k == chosen else lighten_colour(colour) for k in range(len(sums))]
        name = "root" if depth == 0 else f"level {depth}"
        last = depth == len(steps) - 1
        of = [f"{'entry' if last else 'group'} {first + k:,}" for k in range(len(sums))]
        figure.add_trace(
            go.Bar(
                x=widths,
                y=[f"{name}, from {first:,}"] * len(sums),
                base=np.cumsum(widths) - widths,
                orientation="h",
                width=0.5,
                marker={
                    "color": colours,
                    "line": {"width": 1, "color": GREY},
                },
                text=[f"{x:.3g}" for x in sums],
                insidetextanchor="middle",
                customdata=of,
                hovertemplate="%{customdata}: %{text}<extra></extra>",
                showlegend=False,
            )
        )
        figure.add_trace(
            go.Scatter(
                x=[left / sum(sums)],
                y=[f"{name}, from {first:,}"],
                mode="markers",
                marker={"symbol": "line-ns-open", "size": 30, "color": "black", "line_width": 2},
                hovertemplate=f"the draw: {left:.6g} of {sum(sums):.6g}<extra></extra>",
                showlegend=False,
            )
        )
    first, _, chosen, _ = steps[-1]
    figure.update_layout(
        template=THEME,
        title=f"at {share:.4g} of {found.total:.6g}: entry {first + chosen:,}",
        xaxis_title="share of the group's sum",
        yaxis={"autorange": "reversed", "automargin": True},
        barmode="overlay",
    )
    return figure


def mapping(table: Table, links: Links, form: Literal["prose", "published"] = "prose") -> go.Figure:
    """Plot the assignments of replay manager and learner to devices as a heat map of rows learned per second.

    A star marks the chosen assignment, hatching marks modelled times. Hovering over a cell shows the terms of
    Eq. 6.

    Args:
        table, links, form: as in `trl.compose.choose`.

    Returns:
        A Plotly figure.

    Raises:
        CallError: `table` is not a table of latencies.

    Example:
        >>> algorithms = {"8": trl.replay.Dqn("CartPole-v1", hidden=(8,))}
        >>> small = dict(inserted=4, actors=0, capacity=100, rounds=2)
        >>> sweep = trl.compose.sweep(algorithms, ["CPU"], batch=[4], **small)
        >>> (table, links), = sweep.tables.values()
        >>> figure = trl.show.mapping(table, links)
    """
    expect_type(
        table, Table, "a table of latencies", "trl.compose.measure(…) gives one, with its links."
    )
    view = MappingView.from_sweep(Sweep.from_table(table, links), form=form)
    cells = [
        view.cells[k : k + len(view.devices)] for k in range(0, len(view.cells), len(view.devices))
    ]
    figure = go.Figure(
        go.Heatmap(
            x=view.devices,
            y=view.devices,
            z=[[one.speed for one in row] for row in cells],
            text=[[_terms(one) for one in row] for row in cells],
            hovertemplate="%{text}<extra></extra>",
            colorscale="Viridis",
            colorbar={"title": "rows/s"},
            xgap=2,
            ygap=2,
        )
    )
    for kind, symbol, ones in (
        ("modelled", "hash-open", [one for one in view.cells if one.is_modelled]),
        ("chosen", "star", [one for one in view.cells if one.is_chosen]),
        ("cannot be", "x-thin-open", [one for one in view.cells if one.why_not]),
    ):
        figure.add_trace(
            go.Scatter(
                x=[one.manager for one in ones],
                y=[one.learner for one in ones],
                mode="markers",
                name=kind,
                marker={"symbol": symbol, "size": 22 if kind == "chosen" else 12, "color": "white"},
                hoverinfo="skip",
            )
        )
    figure.update_layout(
        template=THEME,
        title=f"chosen: {view.summary}",
        xaxis_title="replay manager on",
        yaxis_title="learner on",
        legend={"bgcolor": "rgba(128, 128, 128, 0.5)"},
    )
    return figure


def _terms(one: MappingCell) -> str:
    """Return the terms of Eq. 6 as text."""
    where = f"replay on {one.manager}, learner on {one.learner}"
    if one.seconds is None:
        return f"{where}: {one.why_not}"
    lines = [f"{term.name}: {format_milliseconds(term.seconds, '.4g')}" for term in one.terms]
    lines += [f"T = {format_milliseconds(one.seconds, '.4g')}{', modelled' * one.is_modelled}"]
    return "<br>".join([where, *lines, f"{one.speed:,.0f} rows a second"])
