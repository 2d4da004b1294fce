"""Methods of public objects with an implementation in a higher layer, imported at the first call.

For example, `program.explore()` calls `timerl_widgets.Explorer`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from timerl_nb.base.errors import MissingPartError

_FUNCTIONS: Final[Mapping[str, str]] = {
    "collector.explore": "timerl_widgets:StrategiesExplorer",
    "compose.explore": "timerl_widgets:MappingExplorer",
    "program.collector": "timerl_nb.collecting.policies.training_program_policy:collector",
    "program.evaluate": "timerl_nb.rl:evaluated",
    "program.explore": "timerl_widgets:Explorer",
    "program.export_html": "timerl_nb.show:export_html",
    "program.policy": "timerl_nb.rl.exported_policy:learnt",
    "program.scope": "timerl_nb.scope.recording.recorded_program_run:scope",
    "recording.explore": "timerl_widgets:ScopeView",
    "recording.figure": "timerl_nb.show.recording.recording_figures:scope_figure",
    "recording.launches": "timerl_nb.show.recording.recorded_launches:recorded_run",
    "recording.view": "timerl_nb.show.recording.recording_view:ScopeView.from_recording",
    "streams.explore": "timerl_widgets:StreamView",
    "streams.layout": "timerl_nb.show.graph.graph_layout:layout_svg",
    "streams.view": "timerl_nb.show.systems.stream_view:StreamView.from_reports",
    "streams.strategies": "timerl_nb.streams.strategies:STRATEGIES",
}


def entry_point(name: str) -> Any:
    """Import and return a function of the table.

    Raises:
        MissingPartError: the package is not installed, or its import fails.
    """
    part, _, function = _FUNCTIONS[name].partition(":")
    try:
        module = importlib.import_module(part)
    except ImportError as error:
        raise MissingPartError(
            f"{name}() needs {part}, which cannot be imported: {error}.",
            hint=f"install the project with its widgets, and check `import {part}`.",
        ) from error
    try:
        return attrgetter(function)(module)
    except AttributeError:
        raise MissingPartError(
            f"the installed version of {part} has no {name}().",
            hint="install the same version of the project and its widgets.",
        ) from None
