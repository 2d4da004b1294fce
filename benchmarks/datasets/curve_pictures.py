"""Pictures of the learning curves for the pages of `docs/algorithms`."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.line_chart import Curve, Panel, Point, draw

ROOT: Final = Path(__file__).parents[2]
PICTURES: Final = ROOT / "docs" / "pictures"


def picture(names: Sequence[str]) -> str:
    """Return an SVG with one diagram per curve file of `datasets/curves`, one line per seed."""
    return draw([_panel(name) for name in names])


def write(*names: str) -> None:
    """Write a picture `learning-NAME.svg` for each name."""
    for name in names:
        path = PICTURES / f"learning-{name}.svg"
        path.write_text(picture([name]), encoding="utf-8")


def _panel(name: str) -> Panel:
    lines: dict[str, list[Point]] = defaultdict(list)
    with (ROOT / "datasets" / "curves" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            lines[f"seed {row['seed']}"].append((float(row["steps"]), float(row["return"])))
    curves = [Curve(seed, points) for seed, points in lines.items()]
    axes = {"x": "environment steps", "y": "mean return"}
    return Panel(name, **axes, curves=curves, is_log_x=False, is_log_y=False)
