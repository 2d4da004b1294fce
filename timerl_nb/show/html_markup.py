"""HTML elements as Python functions; text and attributes are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TypeAlias


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


Part: TypeAlias = "str | Markup | Iterable[Part] | None"


def element(name: str, *parts: Part, **attributes: str | bool | None) -> Markup:
    """Return an element, such as `element("a", "text", href="#x")`.

    Text is escaped, `Markup` is not. An underscore at the end of an attribute's name avoids Python keywords.
    The value True makes an attribute without a value.
    """
    shown = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        shown += f" {word}" if value is True else f' {word}="{escape(str(value))}"'
    if name in ("br", "meta", "input"):
        return Markup(f"<{name}{shown}>")
    return Markup(f"<{name}{shown}>{join_parts(parts)}</{name}>")


def join_parts(parts: Part) -> Markup:
    """Concatenate parts, without None."""
    if parts is None:
        return Markup()
    if isinstance(parts, Markup):
        return parts
    if isinstance(parts, str):
        return Markup(escape(parts))
    return Markup("".join(join_parts(part) for part in parts))


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Part]], numbers: Sequence[int] = ()
) -> Markup:
    """Return a table; the columns `numbers` are right-aligned."""
    sides = ["number" if k in numbers else None for k in range(len(heads))]
    head = [element("th", text, class_=side) for text, side in zip(heads, sides, strict=True)]
    body = [
        element("tr", [element("td", part, class_=s) for part, s in zip(row, sides, strict=True)])
        for row in rows
    ]
    return element("table", element("thead", element("tr", head)), element("tbody", body))


def fold(title: Part, *parts: Part, is_open: bool = False) -> Markup:
    """Return a section that opens and closes without a script."""
    return element("details", element("summary", title), *parts, open=is_open)
