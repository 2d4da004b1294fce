"""A little SVG: shapes, text and plots, always escaped, on a background of their own."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

# Okabe and Ito's colours for all kinds of colour vision.
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
VERMILION, SKY, YELLOW, GREY = "#D55E00", "#56B4E9", "#B8A800", "#777777"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, YELLOW, GREY)
INK, FAINT, PAPER = "#222222", "#888888", "#ffffff"

LINE = 17  # pixels per line of text
GLYPH = 7.25  # pixels per character of monospaced text


class Svg:
    """An SVG element under construction; coordinates in pixels from the top left."""

    def __init__(self, width: float, height: float, title: str = "") -> None:
        self.width, self.height = width, height
        self._parts: list[str] = []
        self._title = title

    def add(self, markup: str) -> None:
        self._parts.append(markup)

    def rect(self, x: float, y: float, w: float, h: float, fill: str, *, tip: str = "") -> None:
        inside = f"<title>{escape(tip)}</title>" if tip else ""
        self.add(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(w, 0):.1f}" height="{max(h, 0):.1f}" '
            f'fill="{fill}">{inside}</rect>'
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str = FAINT, dash: str = ""
    ) -> None:
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{stroke}"{dashed}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        fill: str = INK,
        size: int = 12,
        anchor: str = "start",
        mono: bool = False,
        bold: bool = False,
    ) -> None:
        family = "ui-monospace, Menlo, Consolas, monospace" if mono else "sans-serif"
        weight = ' font-weight="600"' if bold else ""
        space = ' xml:space="preserve"' if mono else ""
        self.add(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" font-size="{size}" '
            f'font-family="{family}" text-anchor="{anchor}"{weight}{space}>{escape(text)}</text>'
        )

    def path(self, d: str, fill: str, *, tip: str = "", opacity: float = 1.0) -> None:
        inside = f"<title>{escape(tip)}</title>" if tip else ""
        self.add(f'<path d="{d}" fill="{fill}" fill-opacity="{opacity}">{inside}</path>')

    def __str__(self) -> str:
        title = f"<title>{escape(self._title)}</title>" if self._title else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:.0f}" '
            f'height="{self.height:.0f}" viewBox="0 0 {self.width:.0f} {self.height:.0f}" '
            f'role="img">{title}<rect width="100%" height="100%" fill="{PAPER}"/>'
            + "".join(self._parts)
            + "</svg>"
        )


def text_picture(text: str, most: int = 1000) -> str:
    """Lines of plain text, of which `most` are shown."""
    lines = text.splitlines() or [""]
    if len(lines) > most:
        lines = [*lines[: most - 1], f"… and {len(lines) - most + 1:,} lines more"]
    svg = Svg(24 + GLYPH * max(map(len, lines)), 16 + LINE * len(lines))
    for k, line in enumerate(lines):
        svg.text(12, 12 + LINE * (k + 0.6), line, mono=True)
    return str(svg)


def ticks(low: float, high: float, count: int = 5, base: int = 10) -> list[float]:
    """Round numbers between two ends; round for binary units with `base=1024`."""
    if high <= low:
        return [low]
    raw, unit = (high - low) / count, 1.0
    while base == 1024 and raw / unit >= 1024:
        unit *= 1024
    power = 10.0 ** floor(log10(raw / unit)) * unit
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first = ceil(low / step)
    return [n * step + 0.0 for n in range(first, floor(high / step + 1e-9) + 1)]


def human_bytes(n: float) -> str:
    """12.3 KiB."""
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


class Axes:
    """A plotting area inside an `Svg`: data coordinates, ticks and labels."""

    def __init__(
        self,
        svg: Svg,
        box: tuple[float, float, float, float],
        x: tuple[float, float],
        y: tuple[float, float],
    ) -> None:
        self.svg, self.box = svg, box
        self._x, self._y = x, (y[0], y[1] if y[1] > y[0] else y[0] + 1)
        if self._x[1] <= self._x[0]:
            self._x = (self._x[0], self._x[0] + 1)

    def px(self, x: float) -> float:
        left, _, width, _ = self.box
        return left + (x - self._x[0]) / (self._x[1] - self._x[0]) * width

    def py(self, y: float) -> float:
        _, top, _, height = self.box
        return top + height - (y - self._y[0]) / (self._y[1] - self._y[0]) * height

    def frame(self, xlabel: str, ylabel: str, *, as_bytes: bool = False) -> None:
        """The axes, drawn over the data."""
        left, top, width, height = self.box
        svg = self.svg
        for value in ticks(*self._y, base=1024 if as_bytes else 10):
            y = self.py(value)
            svg.line(left - 4, y, left, y, FAINT)
            shown = human_bytes(value) if as_bytes else f"{value:g}"
            svg.text(left - 7, y + 4, shown, size=10, anchor="end", fill=FAINT)
        for value in ticks(*self._x):
            x = self.px(value)
            svg.line(x, top + height, x, top + height + 4, FAINT)
            svg.text(x, top + height + 15, f"{value:,g}", size=10, anchor="middle", fill=FAINT)
        svg.line(left, top + height, left + width, top + height)
        svg.line(left, top, left, top + height)
        svg.text(left + width / 2, top + height + 31, xlabel, size=11, anchor="middle")
        svg.text(left, top - 8, ylabel, size=11)


def beside(pictures: Sequence[str], titles: Sequence[str] = (), gap: float = 16) -> str:
    """Several SVG pictures in a row, as one."""
    sizes = [_size(picture) for picture in pictures]
    head = 24 if titles else 0
    width = sum(w for w, _ in sizes) + gap * (len(sizes) - 1)
    whole = Svg(width, max((h for _, h in sizes), default=0) + head)
    x = 0.0
    for k, picture in enumerate(pictures):
        if titles:
            whole.text(x + 6, 16, titles[k], size=13, bold=True)
        inner = picture[picture.index("<svg") + len("<svg") :]
        whole.add(f'<svg x="{x:.0f}" y="{head}"{inner}')
        x += sizes[k][0] + gap
    return str(whole)


def stacked(pictures: Sequence[str], gap: float = 12) -> str:
    """Several SVG pictures below each other, as one."""
    sizes = [_size(picture) for picture in pictures]
    height = sum(h for _, h in sizes) + gap * (len(sizes) - 1)
    whole = Svg(max((w for w, _ in sizes), default=0), height)
    y = 0.0
    for (_, h), picture in zip(sizes, pictures, strict=True):
        inner = picture[picture.index("<svg") + len("<svg") :]
        whole.add(f'<svg x="0" y="{y:.0f}"{inner}')
        y += h + gap
    return str(whole)


def _size(picture: str) -> tuple[float, float]:
    """Width and height of an SVG element in pixels."""
    head = picture[picture.index("<svg") : picture.index(">", picture.index("<svg"))]
    found: list[float] = []
    for name in ("width", "height"):
        value = head.split(f'{name}="', 1)[1].split('"', 1)[0]
        scale = 4 / 3 if value.endswith("pt") else 1.0
        found.append(float(value.removesuffix("pt").removesuffix("px")) * scale)
    return found[0], found[1]
