"""The base of all widgets: what a page may write of their state is named, all else is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import anywidget

from timerl_nb.show.widget_api import bundle


class Widget(anywidget.AnyWidget):
    """A widget whose page writes the traits that it names, and no others.

    A page's module (`_esm`) runs wherever the widget is shown, so that whoever may write it could run
    anything there; and a view that the page has changed would no longer be of the program.

    Attributes:
        written: the names of the traits that the page may write.
    """

    written: ClassVar[frozenset[str]] = frozenset()
    drawn: Any

    def _shown_as(self) -> tuple[str, Callable[[], str] | None]:
        """The text of the widget, and a function that draws it."""
        return str(self.drawn), self.drawn.to_svg

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The live widget, and the same picture as SVG for pages where nothing runs."""
        made = super()._repr_mimebundle_(**options)
        own, metadata = made if isinstance(made, tuple) else (made or {}, {})
        text, draw = self._shown_as()
        return {**own, **(bundle(self, text, draw) if draw else {"text/plain": text})}, metadata

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what a page sends of what it may write; of the rest it is told what is so."""
        super().set_state({k: value for k, value in sync_data.items() if k in self.written})
        refused = [k for k in sync_data if k not in self.written and k in self.keys]
        if refused:
            self.send_state(refused)
