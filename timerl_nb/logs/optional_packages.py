"""Optional packages, found when they are asked for."""

from __future__ import annotations

import importlib
from typing import Any

from timerl_nb.base.errors import MissingPartError


def part(module: str, extra: str) -> Any:
    """A module of a package that an extra of ours installs.

    Raises:
        MissingPartError: it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPartError(
            f"trl.logs.{extra} needs the package {extra}, which cannot be imported: {error}.",
            hint=f"pip install 'timerl-nb[{extra}]'; log=folder needs nothing.",
        ) from error
