"""`MappingExplorer`: iteration times of all assignments of replay manager and learner to devices."""

from __future__ import annotations

from typing import Any, Literal

import traitlets

from timerl_nb.show.systems.assignment_view import MappingView
from timerl_nb.show.widget_api import Sweep
from timerl_widgets.bundles import module
from timerl_widgets.view_messages import pack_view
from timerl_widgets.widget import Widget


class MappingExplorer(Widget):
    """Grid of all assignments with a slider for each parameter; a star marks the fastest.

    Attributes:
        drawn: the shown view.
        at: the position of each parameter's value; assign to move a slider.
        selected: the devices of replay manager and learner whose terms are shown; empty for the fastest
            assignment.
    """

    _esm = module("mapping_view")
    written = frozenset({"at", "selected"})

    view = traitlets.Dict().tag(sync=True)
    at = traitlets.List(traitlets.Int()).tag(sync=True)
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(self, sweep: Sweep, form: Literal["prose", "published"] = "prose") -> None:
        """Show a sweep at the first values of its parameters.

        Raises:
            CallError: the argument is not a sweep.
            OptionError: the form of the iteration time is unknown.
        """
        self._sweep = sweep
        self._form: Literal["prose", "published"] = form
        self.drawn = MappingView.from_sweep(sweep, (), form)
        super().__init__(view=pack_view(self.drawn), at=[0] * len(self.drawn.settings))

    @traitlets.validate("at")
    def _validate_at(self, proposal: dict[str, Any]) -> list[int]:
        """Return valid positions: pages are not trusted."""
        given, settings = proposal["value"], self.drawn.settings
        if len(given) != len(settings):
            return [one.at for one in settings]
        return [min(max(k, 0), len(one.values) - 1) for k, one in zip(given, settings, strict=True)]

    @traitlets.validate("selected")
    def _validate_selected(self, proposal: dict[str, Any]) -> list[str]:
        """Return the devices of a cell, or an empty list."""
        given = proposal["value"]
        return given if len(given) == 2 and set(given) <= set(self.drawn.devices) else []

    @traitlets.observe("at")
    def _on_at_change(self, change: dict[str, Any]) -> None:
        self.drawn = MappingView.from_sweep(self._sweep, tuple(change["new"]), self._form)
        self.view = pack_view(self.drawn)
