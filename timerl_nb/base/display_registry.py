"""The one way artifacts show themselves.

An artifact has a text, a DOT graph, a JSON value and `find`; this mix-in adds the notebook
representation, drawn by whoever registered a picture for the type (`show/` does). A picture that
fails never breaks a cell: the text remains.
"""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Picture = Callable[[Any], str]
_PICTURES: dict[type, Picture] = {}


def register_picture(artifact: type, picture: Picture) -> None:
    """Draw every instance of `artifact` with `picture`, a function from the value to SVG text."""
    _PICTURES[artifact] = picture


def finder(what: str | int) -> Callable[[str], bool]:
    """Whether a text in lower case has something to do with `what`: an id, or any text."""
    text = f"%{what}" if isinstance(what, int) else str(what).lower()
    if re.fullmatch(r"%\d+", text):  # %1 is not found in %12
        pattern = re.compile(rf"{text}(?!\d)")
        return lambda part: pattern.search(part) is not None
    return lambda part: text in part


def bundle(shown: object, text: str, draw: Callable[[], str]) -> dict[str, object]:
    """What a notebook shows: a text, and its picture, if it can be drawn."""
    found: dict[str, object] = {"text/plain": text}
    try:
        found["image/svg+xml"] = draw()
    except Exception as error:  # a failure to draw must leave the text
        warnings.warn(f"{type(shown).__name__} could not be drawn: {error!r}", stacklevel=3)
    return found


class Displayed(ABC):
    """A value that a notebook shows as a text and a picture."""

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def to_svg(self) -> str:
        """The picture."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> Mapping[str, object]:
        return bundle(self, str(self), self.to_svg)


class Inspectable(Displayed):
    """A value that prints, draws, serialises and can be searched."""

    @abstractmethod
    def to_dot(self) -> str:
        """A Graphviz graph of the artifact."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The artifact as plain JSON values; ids are the same in every stage."""

    def found_by(self) -> Iterable[tuple[str, Sequence[str]]]:
        """Each line of the text, with what it can be found by besides."""
        return ((line, ()) for line in str(self).splitlines())

    def find(self, what: str | int) -> Sequence[str]:
        """The lines of the text that contain something or have to do with it, ignoring case.

        Args:
            what: any text; or of an operation its id (`12` or `"%12"`), kind, name, region, place
                (`"train.py:12"`) or line of the program.
        """
        has = finder(what)
        return [
            line
            for line, about in self.found_by()
            if any(has(part.lower()) for part in (line, *about))
        ]

    def to_svg(self) -> str:
        """The artifact's picture, as it appears in a notebook."""
        for cls in type(self).__mro__:
            if cls in _PICTURES:
                return _PICTURES[cls](self)
        raise LookupError(f"no picture is registered for {type(self).__name__}")
