"""Base classes of displayed values, and the registry of functions that draw them.

An artifact has a text, a DOT graph, a JSON value and `find`. `show` registers a drawing function per type.
If drawing fails, a notebook shows the text alone.
"""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Picture = Callable[[Any], str]
_PICTURES: dict[type, Picture] = {}


def register_picture(artifact: type, picture: Picture) -> None:
    """Register the function that draws instances of `artifact` as SVG text."""
    _PICTURES[artifact] = picture


def finder(what: str | int) -> Callable[[str], bool]:
    """Return a predicate for lower-case texts that contain `what`: an operation's id, or any text."""
    text = f"%{what}" if isinstance(what, int) else str(what).lower()
    if re.fullmatch(r"%\d+", text):  # %1 must not match %12
        pattern = re.compile(rf"{text}(?!\d)")
        return lambda part: pattern.search(part) is not None
    return lambda part: text in part


def bundle(shown: object, text: str, draw: Callable[[], str]) -> dict[str, object]:
    """Return the notebook representation: a text, and a picture if drawing succeeds."""
    found: dict[str, object] = {"text/plain": text}
    try:
        found["image/svg+xml"] = draw()
    except Exception as error:  # a failed drawing must not hide the text
        warnings.warn(f"{type(shown).__name__} could not be drawn: {error!r}", stacklevel=3)
    return found


class Displayed(ABC):
    """A value with a text and a picture for notebooks."""

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def to_svg(self) -> str:
        """Return the picture as SVG text."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> Mapping[str, object]:
        return bundle(self, str(self), self.to_svg)


class Inspectable(Displayed):
    """A compiler artifact with a text, a picture, a JSON value and a search."""

    @abstractmethod
    def to_dot(self) -> str:
        """Return a Graphviz graph of the artifact."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the artifact as plain JSON values; operation ids are equal in every stage."""

    def searchable_lines(self) -> Iterable[tuple[str, Sequence[str]]]:
        """Yield each line of the text, with further search keys of the line."""
        return ((line, ()) for line in str(self).splitlines())

    def find(self, what: str | int) -> Sequence[str]:
        """Return the matching lines of the text; upper and lower case are equal.

        Args:
            what: any text, or a property of an operation: id (`12` or `"%12"`), kind, name, region, source
                location (`"train.py:12"`) or source line.
        """
        has = finder(what)
        return [
            line
            for line, about in self.searchable_lines()
            if any(has(part.lower()) for part in (line, *about))
        ]

    def to_svg(self) -> str:
        """Return the artifact's picture, as a notebook shows it."""
        for cls in type(self).__mro__:
            if cls in _PICTURES:
                return _PICTURES[cls](self)
        raise LookupError(f"no picture is registered for {type(self).__name__}")


def list_public(names: str = "", *, hidden: str = "") -> Callable[[type[T]], type[T]]:
    """Return a class decorator that restricts `dir()` of an instance to the public interface.

    Args:
        names: the listed attributes, separated by spaces, beside the special methods; by default all.
        hidden: attributes for the library's own modules, which are not listed.
    """

    def decorate(cls: type[T]) -> type[T]:
        special = [name for name in dir(cls) if name.startswith("__")]
        chosen, omitted = names.split(), frozenset(hidden.split())

        def listed(self: object) -> list[str]:
            found = [*special, *chosen] if chosen else object.__dir__(self)
            return sorted(set(found) - omitted)

        type.__setattr__(cls, "__dir__", listed)
        return cls

    return decorate
