"""Artifacts beside each other in one picture."""

from __future__ import annotations

from collections.abc import Mapping

from timerl_nb.inspectable import Inspectable
from timerl_nb.show.svg import beside


class Picture:
    """An SVG picture that a notebook shows."""

    def __init__(self, svg: str, text: str) -> None:
        self.svg, self.text = svg, text

    def to_svg(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"image/svg+xml": self.svg, "text/plain": self.text}


def side_by_side(artifacts: Mapping[str, Inspectable]) -> Picture:
    """Several artifacts in a row, each under its title: `{"Monte Carlo": a.ast, "n-step": b.ast}`."""
    svg = beside([x.to_svg() for x in artifacts.values()], list(artifacts))
    text = "\n\n".join(f"{title}:\n{x}" for title, x in artifacts.items())
    return Picture(svg, text)
