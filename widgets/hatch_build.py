"""Lets hatch build the widgets' bundles before it packs or installs the project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.append(str(Path(__file__).parent))  # hatch loads this file by its path

import bundle


class BundleHook(BuildHookInterface[Any]):
    """Builds what is not fresh; asks for a Node from PyPI where the machine has none."""

    def dependencies(self) -> list[str]:
        return [] if bundle.is_fresh() or bundle.has_npm() else [bundle.NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not bundle.is_fresh():
            bundle.build()
