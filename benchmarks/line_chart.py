"""Line charts as SVG: panels of curves, with marks that tell measured, predicted and published values apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

Point = tuple[float, float]
COLOURS: Final = (
    "#1d4ed8",
    "#c2410c",
    "#15803d",
    "#7e22ce",
    "#a16207",
    "#0e7490",
    "#be123c",
    "#64748b",
)
DASHES: Final = {"measured": "", "predicted": "6 4", "published": "2 3"}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 330, 250, 54, 30, 40, 12
_PER_ROW: Final = 3
_LINE: Final = 16


@dataclass(frozen=True)
class Curve:
    """A curve of one system; `source` is `measured` (solid), `predicted` (dashed) or `published` (dotted)."""

    system: str
    points: Sequence[Point]
    source: str = "measured"


@dataclass(frozen=True)
class Panel:
    """One diagram.

    Attributes:
        title, x, y: Title, and labels of the axes with units.
        limits: Horizontal lines by label.
        is_log_x, is_log_y: Logarithmic axes.
    """

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    limits: Mapping[str, float] = field(default_factory=dict)
    is_log_x: bool = True
    is_log_y: bool = True


def draw(panels: Sequence[Panel]) -> str:
    """Return an SVG of panels in rows of three, with one legend."""
    systems = list(dict.fromkeys(c.system for panel in panels for c in panel.curves))
    colours = {system: COLOURS[k % len(COLOURS)] for k, system in enumerate(systems)}
    columns = min(_PER_ROW, len(panels))
    rows = math.ceil(len(panels) / columns)
    parts = [
        f'<g transform="translate({k % columns * WIDTH} {k // columns * HEIGHT})">{_panel(panel, colours)}</g>'
        for k, panel in enumerate(panels)
    ]
    sources = [s for s in DASHES if any(c.source == s for p in panels for c in p.curves)]
    legend, lines = _legend(colours, sources, columns * WIDTH)
    height = rows * HEIGHT + (lines + 1) * _LINE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * WIDTH}" height="{height}" '
        f'viewBox="0 0 {columns * WIDTH} {height}" font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}'
        f'<g transform="translate(0 {rows * HEIGHT + 4})">{legend}</g></svg>\n'
    )


def _legend(colours: Mapping[str, str], sources: Sequence[str], width: int) -> tuple[str, int]:
    parts, x, line = [], 10, 1
    keys = [(system, colour, "") for system, colour in colours.items()]
    if sources != ["measured"]:
        keys += [(source, "#334155", DASHES[source]) for source in sources]
    for label, colour, dash in keys:
        needs = 40 + 7 * len(label)
        if x + needs > width:
            x, line = 10, line + 1
        y = line * _LINE
        parts.append(
            f'<line x1="{x}" x2="{x + 22}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{dash}"/><text x="{x + 27}" y="{y}">{escape(label)}</text>'
        )
        x += needs
    return "".join(parts), line


class _Scale:
    """Positions and ticks of one axis."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, is_log: bool) -> None:
        kept = [v for v in values if math.isfinite(v) and (v > 0 or not is_log)]
        low, high = min(kept, default=1.0), max(kept, default=2.0)
        if not is_log:
            low = min(low, 0.0)
        if low == high:
            low, high = (low / 2, high * 2) if is_log else (low - 1, high + 1)
        self.is_log, self.low, self.high, self.start, self.end = is_log, low, high, start, end

    def __call__(self, value: float) -> float:
        move = math.log if self.is_log else float
        low, high = move(self.low), move(self.high)
        return self.start + (move(value) - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if not self.is_log:
            rough = (self.high - self.low) / 5
            unit = 10 ** math.floor(math.log10(rough))
            step = next(k * unit for k in (1, 2, 5, 10) if k * unit >= rough)
            count = int(self.high / step)
            return [k * step for k in range(int(math.ceil(self.low / step)), count + 1)]
        low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        tens = [10.0**k for k in range(low, high + 1) if self.low <= 10.0**k <= self.high]
        while len(tens) > 6:
            tens = tens[::2]
        return tens if len(tens) > 1 else [self.low, self.high]


def _panel(panel: Panel, colours: Mapping[str, str]) -> str:
    points = [point for curve in panel.curves for point in curve.points]
    x = _Scale([a for a, _ in points], LEFT, WIDTH - RIGHT, is_log=panel.is_log_x)
    ys = [*(b for _, b in points), *panel.limits.values()]
    y = _Scale(ys, HEIGHT - BOTTOM, TOP, is_log=panel.is_log_y)
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts = [
        f'<text x="{LEFT}" y="16" font-weight="bold">{escape(panel.title)}</text>',
        f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(panel.x)}</text>',
        f'<text x="{LEFT}" y="{TOP - 3}" fill="#475569" font-size="10">{escape(panel.y)}</text>',
    ]
    for tick in y.ticks():
        at = y(tick)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#e2e8f0"/>'
            f'<text x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{_short(tick)}</text>'
        )
    ticks = sorted({a for a, _ in points}) if panel.is_log_x else x.ticks()
    for tick in ticks:
        parts.append(
            f'<text x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{_short(tick)}</text>'
        )
    for label, value in panel.limits.items():
        at = y(value)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#dc2626"/>'
            f'<text x="{WIDTH - RIGHT}" y="{at - 4:.1f}" text-anchor="end" fill="#dc2626">{escape(label)}</text>'
        )
    return "".join([*parts, *(_curve(c, x, y, colours[c.system]) for c in panel.curves)])


def _curve(curve: Curve, x: _Scale, y: _Scale, colour: str) -> str:
    kept = [(a, b) for a, b in curve.points if math.isfinite(b) and (b > 0 or not y.is_log)]
    places = [(x(a), y(b)) for a, b in kept]
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    marks = places if len(places) <= 12 else []
    dots = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{colour}"/>' for a, b in marks)
    return (
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2" '
        f'stroke-dasharray="{DASHES[curve.source]}"/>{dots}'
    )


def _short(value: float) -> str:
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"
