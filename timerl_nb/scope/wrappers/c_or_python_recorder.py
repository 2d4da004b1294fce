"""Choice of the recorder: the C extension if installation has built it, else Python."""

from __future__ import annotations

from typing import Any

from timerl_nb.base.c_extensions import load_extension
from timerl_nb.scope.wrappers import python_recorder


def _load_recorder() -> Any:
    """Return the C recorder, or the Python recorder if the extension is missing or out of date."""
    return load_extension("timerl_nb.scope.wrappers._tap", "recorder") or python_recorder


module: Any = _load_recorder()
