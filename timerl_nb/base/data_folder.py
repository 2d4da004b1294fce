"""Location of the data files: `datasets` of a checkout, or its copy in an installed package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[1]


def data_folder() -> Path:
    """Return the folder of the data files. It may be missing if an installation is incomplete."""
    installed = _PACKAGE / "datasets" / "files"  # `hatch_build.py` puts them into a wheel
    return installed if installed.is_dir() else _PACKAGE.parent / "datasets"
