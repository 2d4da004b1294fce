"""Plotly figures of recordings: time by operation and library, transitions, processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import plotly.graph_objects as go

from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.scope import Recording
from timerl_nb.show.colours import GREY
from timerl_nb.show.comparison.plotly_figures import THEME
from timerl_nb.show.recording.recording_view import LIBRARY_KEYS, ScopeKey, ScopeView

OUTSIDE: Final = "outside of operations"
_BESIDE: Final = {
    "cpu": "",
    "both": ", a device busy",
    "gpu": ", for a busy device",
    "untraced": "",
}


def scope_figure(recording: Recording, what: str = "operations") -> go.Figure:
    """Plot a recording, with milliseconds or counts on the x axis.

    Args:
        recording: the recording.
        what: "operations", by library and device; "transitions", the number of calls from one library into
            another; "processes", by library.

    Returns:
        A Plotly figure.

    Raises:
        CallError: the argument is not a recording.
        OptionError: the figure is unknown.
    """
    if what not in _FIGURES:
        raise OptionError(
            f"the figure {what!r} is unknown.", hint=one_of(str(what), list(_FIGURES))
        )
    figure = go.Figure(layout={"template": THEME, "barmode": "stack"})
    _FIGURES[what](ScopeView.from_recording(recording), figure)
    return figure.update_yaxes(autorange="reversed", automargin=True)


def _bars(view: ScopeView, figure: go.Figure, rows: Mapping[int, str], process: bool) -> None:
    """Add a bar for each row, divided by library and device activity."""
    sums: dict[tuple[str, str], dict[int, int]] = {}
    for one in view.times:
        parts = sums.setdefault((one.library, one.used), {})
        at = one.process if process else one.operation
        parts[at] = parts.get(at, 0) + one.ns
    for key in LIBRARY_KEYS:
        for used, beside in _BESIDE.items():
            if (parts := sums.get((key.name, used))) is not None:
                figure.add_bar(
                    name=key.name + beside,
                    orientation="h",
                    y=[rows[k] for k in rows if k in parts],  # without the rows that have no time
                    x=[parts[k] / 1e6 for k in rows if k in parts],
                    marker=_marker(key)
                    | {"line": {"width": 2 * (used in ("both", "gpu")), "color": GREY}},
                )
    figure.update_xaxes(title_text="ms")
    figure.update_yaxes(categoryorder="array", categoryarray=list(rows.values()))


def _marker(key: ScopeKey) -> dict[str, Any]:
    return {"color": key.colour, "pattern": {"shape": key.hatch, "fillmode": "overlay"}}


def _operations(view: ScopeView, figure: go.Figure) -> None:
    ranked = dict.fromkeys(one.operation for one in view.times)
    totals = {k: sum(one.ns for one in view.times if one.operation == k) for k in ranked}
    rows = sorted(totals, key=lambda k: -totals[k])
    names = {k: view.operations[k].name or OUTSIDE for k in rows}
    _bars(view, figure, names, process=False)


def _processes(view: ScopeView, figure: go.Figure) -> None:
    names = {k: f"{one.number} {one.command[:40]}" for k, one in enumerate(view.processes)}
    _bars(view, figure, names, process=True)


def _transitions(view: ScopeView, figure: go.Figure) -> None:
    found: dict[tuple[str, str], dict[str, int]] = {}
    for operation in view.operations:
        for one in operation.transitions:
            found.setdefault((one.left, one.to), {})[operation.name or OUTSIDE] = one.count
    for (left, to), counts in found.items():
        figure.add_bar(
            name=f"{left} → {to}",
            orientation="h",
            y=list(counts),
            x=list(counts.values()),
            marker=_marker(next(key for key in LIBRARY_KEYS if key.name == to)),
        )
    figure.update_xaxes(title_text="times")


_FIGURES: Final[Mapping[str, Callable[[ScopeView, go.Figure], None]]] = {
    "operations": _operations,
    "transitions": _transitions,
    "processes": _processes,
}
