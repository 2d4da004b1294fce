"""What writes lanes and taps functions: in C, where that was built as the project was installed, or in Python."""

from __future__ import annotations

import importlib
import zlib
from pathlib import Path
from typing import Any

from timerl_nb.base.errors import warn
from timerl_nb.scope.wrappers import python_recorder


def _load_recorder() -> Any:
    """The one in C; the one in Python where it was not built, or of another source than is here now."""
    try:
        found: Any = importlib.import_module("timerl_nb.scope.wrappers._tap")
    except ImportError:
        return python_recorder
    source = Path(__file__).with_name("_tap.c")
    if source.exists() and getattr(found, "SOURCE", None) != zlib.crc32(source.read_bytes()):
        warn(
            "the recorder in C was built from an older source: the one in Python is used, which is slower.",
            hint="install the project again (make setup).",
        )
        return python_recorder
    return found


module: Any = _load_recorder()
