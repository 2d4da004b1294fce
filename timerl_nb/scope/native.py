"""The recorder in C, where it was built as the project was installed; else the one in Python is used."""

from __future__ import annotations

import importlib
from typing import Any

try:
    module: Any = importlib.import_module("timerl_nb.scope._tap")
except ImportError:
    module = None
