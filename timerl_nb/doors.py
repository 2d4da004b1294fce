"""Doors in a program to the parts above it, which it does not import: they come and open them.

`program.explore()` is what the widgets have opened under the name "explore"; `show` opens others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from timerl_nb.errors import MissingPartError

_OPEN: dict[str, Callable[..., Any]] = {}
# The module that opens a door when it is imported.
_BY: Final[Mapping[str, str]] = {"explore": "timerl_widgets", "export_html": "timerl_nb.show"}


def open_door(name: str, function: Callable[..., Any]) -> None:
    """Let the method `name` of a program call `function` with the program and its arguments."""
    _OPEN[name] = function


def door(name: str) -> Callable[..., Any]:
    """What has been opened under a name; the part that opens it is imported if need be.

    Raises:
        MissingPartError: that part is not installed, or cannot be imported.
    """
    if name not in _OPEN:
        part = _BY[name]
        try:
            importlib.import_module(part)
        except ImportError as error:
            raise MissingPartError(
                f"program.{name}() needs {part}, which cannot be imported: {error}.",
                hint=f"install the project with its widgets, and try `import {part}`.",
            ) from error
    if name not in _OPEN:
        raise MissingPartError(
            f"{_BY[name]} as it is installed has no program.{name}().",
            hint="install the project and its widgets at the same version.",
        )
    return _OPEN[name]
