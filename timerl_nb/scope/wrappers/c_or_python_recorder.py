"""Choice of the recorder: the C extension if installation has built it, else Python."""

from __future__ import annotations

import importlib
import zlib
from pathlib import Path
from typing import Any

from timerl_nb.base.errors import warn
from timerl_nb.scope.wrappers import python_recorder


def _load_recorder() -> Any:
    """Return the C recorder, or the Python recorder if the extension is missing or out of date."""
    try:
        found: Any = importlib.import_module("timerl_nb.scope.wrappers._tap")
    except ImportError:
        return python_recorder
    source = Path(__file__).with_name("_tap.c")
    if source.exists() and getattr(found, "SOURCE", None) != zlib.crc32(source.read_bytes()):
        warn(
            "the C recorder was built from an older source; the slower Python recorder is used.",
            hint="install the project again (make setup).",
        )
        return python_recorder
    return found


module: Any = _load_recorder()
