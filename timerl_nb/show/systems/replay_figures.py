"""Plotly figures of a sum tree's draw, and of which primitive runs where."""

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
from timerl_nb.show.colours import GREY, lighten_colour, operation
from timerl_nb.show.comparison.plotly_figures import THEME
from timerl_nb.show.systems.assignment_view import MappingCell, MappingView


def tree(buffer: Replay | SumTree, share: float = 0.5) -> go.Figure:
    """The way of a draw through a sum tree: in each level the group that it comes to, children as wide as their sums.

    Args:
        share: of the whole at which is drawn, from 0 to 1.

    Raises:
        OptionError: the buffer has no priorities, or none that is not zero.
    """
    found = (
        buffer.tree
        if isinstance(buffer, Replay)
        else expect_type(
            buffer, SumTree, "a sum tree", "trl.Replay(…, priority=…), or trl.replay.SumTree(…)."
        )
    )
    if not 0 <= number("share", share) <= 1:
        raise OptionError(f"share={share!r} is none.", hint="0.5 is in the middle.")
    if not found.total:
        raise OptionError("all priorities are zero: nothing is drawn.", hint="insert rows first.")
    figure = go.Figure()
    steps = found.path(share)
    for depth, (first, sums, chosen, left) in enumerate(steps):
        widths = np.asarray(sums) / sum(sums)
        colour = operation(depth)
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
    """Which device has the replay manager, and which the learner: a cell for each assignment, by rows learnt from a second.

    The star is the one that is chosen; what nobody has measured is hatched. Over a cell are the terms of Eq. 6.

    Args:
        table, links, form: as of `trl.compose.choose`.
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
        title=f"chosen: {view.told}",
        xaxis_title="replay manager on",
        yaxis_title="learner on",
        legend={"bgcolor": "rgba(128, 128, 128, 0.5)"},
    )
    return figure


def _terms(one: MappingCell) -> str:
    """Eq. 6, term by term."""
    where = f"replay on {one.manager}, learner on {one.learner}"
    if one.seconds is None:
        return f"{where}: {one.why_not}"
    lines = [f"{term.name}: {format_milliseconds(term.seconds, '.4g')}" for term in one.terms]
    lines += [f"T = {format_milliseconds(one.seconds, '.4g')}{', modelled' * one.is_modelled}"]
    return "<br>".join([where, *lines, f"{one.speed:,.0f} rows a second"])
