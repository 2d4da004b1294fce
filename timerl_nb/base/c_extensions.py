"""Optional C extensions: installation builds them where a C compiler exists."""

from __future__ import annotations

import importlib
import zlib
from pathlib import Path
from typing import Any

from timerl_nb.base.errors import warn


def load_extension(name: str, what: str) -> Any:
    """Return a C extension; None if it is missing or was built from another source.

    Args:
        name: the full name of the module.
        what: the part of the library that the extension implements, for the warning.
    """
    try:
        found: Any = importlib.import_module(name)
    except ImportError:
        return None
    source = Path(__file__).parents[2].joinpath(*name.split(".")).with_suffix(".c")
    if source.exists() and getattr(found, "SOURCE", None) != zlib.crc32(source.read_bytes()):
        warn(
            f"the C {what} was built from an older source; the slower Python {what} is used.",
            hint="install the project again (make setup).",
        )
        return None
    return found
