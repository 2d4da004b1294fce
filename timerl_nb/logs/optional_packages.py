"""Import of optional packages at first use."""

from __future__ import annotations

import importlib
from typing import Any

from timerl_nb.base.errors import MissingPartError


def part(module: str, extra: str) -> Any:
    """Import a module that one of our extras installs.

    Raises:
        MissingPartError: it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPartError(
            f"trl.logs.{extra} needs the package {extra}, which cannot be imported: {error}.",
            hint=f"install it: pip install 'timerl-nb[{extra}]'; log=folder needs no package.",
        ) from error
