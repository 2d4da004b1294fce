"""Artifacts beside each other in one picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.show.offline_rendering import arrange_pictures


@runtime_checkable
class Drawable(Protocol):
    """What has a picture: artifacts of stages, and views."""

    def to_svg(self) -> str: ...


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


def by_title(shown: Any, check: Callable[[Any], object]) -> None:
    """Check each of what is shown side by side, by title.

    Raises:
        CallError: there are no titles, or `check` does not take what is under one.
        OptionError: there is nothing to show.
    """
    for one in expect_type(
        shown, Mapping, "a mapping by title", "pass {title: …, other: …}."
    ).values():
        check(one)
    if not shown:
        raise OptionError("there is nothing to show.", hint="pass {title: …, other: …}.")


def side_by_side(artifacts: Mapping[str, Drawable]) -> Picture:
    """Several artifacts in a row, each under its title: `{"Monte Carlo": a.ast, "n-step": b.ast}`."""
    by_title(artifacts, _drawable)
    svg = arrange_pictures([[(title, x.to_svg()) for title, x in artifacts.items()]])
    text = "\n\n".join(f"{title}:\n{x}" for title, x in artifacts.items())
    return Picture(svg, text)


def _drawable(artifact: Any) -> None:
    how = "pass {title: program.ast, …}, or other artifacts of stages."
    expect_type(artifact, Drawable, "an artifact that draws itself", how)
