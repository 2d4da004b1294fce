"""SVG of figures 22, 25 and 27: speedups over the sweep, with the paper's means for comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

PATH = Path(__file__).parents[2] / "docs" / "pictures" / "acs.svg"
COLOURS = {"acs-sw": "#c2410c", "events": "#a16207", "acs-hw": "#1d4ed8", "graph": "#64748b"}
WIDTH, HEIGHT, LEFT, TOP = 250, 190, 34, 28
LOWEST, HIGHEST = 0.5, 3.0

Line = Sequence[tuple[float, float]]  # µs per block, speedup


def _x(us: float, ends: tuple[float, float]) -> float:
    low, high = map(math.log, ends)
    return LEFT + (WIDTH - LEFT - 8) * (math.log(us) - low) / (high - low)


def _y(speedup: float) -> float:
    low, high = math.log(LOWEST), math.log(HIGHEST)
    share = (math.log(min(max(speedup, LOWEST), HIGHEST)) - low) / (high - low)
    return TOP + (HEIGHT - TOP - 30) * (1 - share)


def _panel(title: str, lines: Mapping[str, Line], means: Mapping[str, float | None]) -> str:
    xs = [us for line in lines.values() for us, _ in line]
    ends = min(xs), max(xs)
    parts = [f'<text x="{LEFT}" y="16" font-weight="bold">{title}</text>']
    for tick in (0.5, 1.0, 2.0, 3.0):
        y = _y(tick)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}" stroke="#cbd5e1"/>'
        )
        parts.append(f'<text x="{LEFT - 5}" y="{y + 3:.1f}" text-anchor="end">{tick:g}</text>')
    for us in ends:
        anchor = "start" if us == ends[0] else "end"
        parts.append(
            f'<text x="{_x(us, ends):.1f}" y="{HEIGHT - 14}" text-anchor="{anchor}">{us:.3g} µs</text>'
        )
    for how, line in lines.items():
        points = " ".join(f"{_x(us, ends):.1f},{_y(speedup):.1f}" for us, speedup in line)
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[how]}" stroke-width="2"/>'
        )
        said = means.get(how)
        if said is not None:
            y = _y(said)
            parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}" stroke="{COLOURS[how]}" stroke-dasharray="4 4"/>'
            )
    return "".join(parts)


def draw(panels: Mapping[str, tuple[Mapping[str, Line], Mapping[str, float | None]]]) -> str:
    """Draw an SVG with a panel per kind of workload: solid lines for simulated means, dashed ones for the paper's."""
    key = "".join(
        f'<text x="{LEFT + 80 * k}" y="{HEIGHT + 10}" fill="{colour}">{how}</text>'
        for k, (how, colour) in enumerate(COLOURS.items())
    )
    note = f'<text x="{LEFT + 340}" y="{HEIGHT + 10}">dashed: the paper’s mean; across: µs a block</text>'
    drawn = "".join(
        f'<g transform="translate({k * WIDTH} 0)">{_panel(title, *panel)}</g>'
        for k, (title, panel) in enumerate(panels.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * len(panels)}" height="{HEIGHT + 20}" '
        f'font-family="sans-serif" font-size="10"><rect width="100%" height="100%" fill="white"/>{drawn}{key}{note}</svg>\n'
    )
