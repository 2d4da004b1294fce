"""Entry points of a program, or a recording, into the parts above it, which it does not import: they register them.

`program.explore()` is what the widgets have registered as "program.explore"; `show` registers others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from timerl_nb.base.errors import MissingPartError

_REGISTERED: dict[str, Callable[..., Any]] = {}
# The module that registers an entry point when it is imported.
_BY: Final[Mapping[str, str]] = {
    "collector.explore": "timerl_widgets",
    "compose.explore": "timerl_widgets",
    "program.collector": "timerl_nb.collecting.policies.training_program_policy",
    "program.evaluate": "timerl_nb.rl",
    "program.explore": "timerl_widgets",
    "program.export_html": "timerl_nb.show",
    "program.policy": "timerl_nb.rl",
    "program.scope": "timerl_nb.scope.recording.recorded_program_run",
    "recording.explore": "timerl_widgets",
    "recording.figure": "timerl_nb.show.recording.recording_figures",
    "recording.view": "timerl_nb.show.recording.recording_figures",
    "streams.explore": "timerl_widgets",
    "streams.picture": "timerl_nb.show.systems.stream_view",
    "streams.view": "timerl_nb.show.systems.stream_view",
    "streams.ways": "timerl_nb.streams.strategies",
}


def register_entry_point(name: str, function: Callable[..., Any]) -> None:
    """Let a method, `program.explore` say, call `function` with the program and its arguments."""
    _REGISTERED[name] = function


def entry_point(name: str) -> Callable[..., Any]:
    """What is registered under a name; the part that registers it is imported if need be.

    Raises:
        MissingPartError: that part is not installed, or cannot be imported.
    """
    if name not in _REGISTERED:
        part = _BY[name]
        try:
            importlib.import_module(part)
        except ImportError as error:
            raise MissingPartError(
                f"{name}() needs {part}, which cannot be imported: {error}.",
                hint=f"install the project with its widgets, and try `import {part}`.",
            ) from error
    if name not in _REGISTERED:
        raise MissingPartError(
            f"{_BY[name]} as it is installed has no {name}().",
            hint="install the project and its widgets at the same version.",
        )
    return _REGISTERED[name]
