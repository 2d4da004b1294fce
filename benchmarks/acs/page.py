"""Write the figures into `docs/explanation/acs-figures.md`: `python -m benchmarks acs`."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.acs import on_gpu
from benchmarks.acs.figures import FIGURES

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "acs-figures.md"
_PLACE = re.compile(r"<!-- ([^>]+) -->\n.*?<!-- / -->", re.S)


def places() -> list[str]:
    """Return the names of the placeholders in the page."""
    return [m[1] for m in _PLACE.finditer(PAGE.read_text())]


def main(*names: str) -> None:
    """Update all figures of the page, or the named ones. The name `gpu` runs the streams on a GPU.

    Raises:
        SystemExit: The page has no placeholder of that name, or an unknown one.
    """
    if names[:1] == ("gpu",):
        return on_gpu.main(*names[1:])
    if sorted(places()) != sorted(FIGURES):
        raise SystemExit(f"{PAGE} has other places than figures: {set(places()) ^ set(FIGURES)}")
    if not {*names} <= {*FIGURES}:
        raise SystemExit(f"figures are {', '.join(FIGURES)}")

    def drawn(place: re.Match[str]) -> str:
        if names and place[1] not in names:
            return place[0]
        return f"<!-- {place[1]} -->\n\n{FIGURES[place[1]]()}\n\n<!-- / -->"

    PAGE.write_text(_PLACE.sub(drawn, PAGE.read_text()))
