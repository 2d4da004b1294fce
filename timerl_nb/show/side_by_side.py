"""Pictures of several artifacts side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.show.offline_rendering import arrange_pictures


@runtime_checkable
class Drawable(Protocol):
    """Object with a picture: artifacts of stages, and views."""

    def to_svg(self) -> str: ...


class Picture:
    """SVG picture with a notebook representation."""

    def __init__(self, svg: str, text: str) -> None:
        self.svg, self.text = svg, text

    def to_svg(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"image/svg+xml": self.svg, "text/plain": self.text}


def by_title(shown: Any, check: Callable[[Any], object]) -> None:
    """Check a mapping from titles to objects.

    Raises:
        CallError: it is not a mapping, or `check` rejects an object.
        OptionError: it is empty.
    """
    for one in expect_type(
        shown, Mapping, "a mapping by title", "pass {title: …, other: …}."
    ).values():
        check(one)
    if not shown:
        raise OptionError("the mapping of titles is empty.", hint="pass {title: …, other: …}.")


def side_by_side(artifacts: Mapping[str, Drawable]) -> Picture:
    """Draw several artifacts in a row, each under its title.

    Args:
        artifacts: artifacts of stages or views, by title.

    Returns:
        A picture that notebooks display; `to_svg()` returns its SVG text.

    Raises:
        CallError: the argument is not a mapping, or an object has no picture.
        OptionError: the mapping is empty.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> a, b = ctx.compile({B: 1, I: 1, T: 4}), ctx.compile({B: 1, I: 1, T: 8})
        >>> picture = trl.show.side_by_side({"T = 4": a.ast, "T = 8": b.ast})
        >>> picture.to_svg().startswith("<svg")
        True
    """
    by_title(artifacts, _drawable)
    svg = arrange_pictures([[(title, x.to_svg()) for title, x in artifacts.items()]])
    text = "\n\n".join(f"{title}:\n{x}" for title, x in artifacts.items())
    return Picture(svg, text)


def _drawable(artifact: Any) -> None:
    how = "pass {title: program.ast, …}, or other artifacts of stages."
    expect_type(artifact, Drawable, "an artifact that draws itself", how)
