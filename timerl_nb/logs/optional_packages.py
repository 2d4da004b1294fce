"""Import of optional packages at first use."""

from __future__ import annotations

import importlib
from typing import Any, Final

from timerl_nb.base.errors import MissingPartError

LOG_FOLDER: Final = "; log=folder needs no package"


def part(module: str, extra: str, name: str, instead: str = "") -> Any:
    """Import a module that one of our extras installs.

    Args:
        module: the module.
        extra: the extra.
        name: the function of ours that needs it.
        instead: an alternative without the package, as a part of the remedy.

    Raises:
        MissingPartError: it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPartError(
            f"{name} needs the package {module.partition('.')[0]}, which cannot be imported: {error}.",
            hint=f"install it: pip install 'timerl-nb[{extra}]'{instead}.",
        ) from error
