"""What writes lanes and taps functions: in C, where that was built as the project was installed, or in Python."""

from __future__ import annotations

import importlib
from typing import Any

from timerl_nb.scope import pure

try:
    module: Any = importlib.import_module("timerl_nb.scope._tap")
except ImportError:
    module = pure
