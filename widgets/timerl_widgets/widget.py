"""Base class of all widgets: restricts the state that a page may change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import anywidget

from timerl_nb.show.widget_api import bundle


class Widget(anywidget.AnyWidget):
    """Widget whose page can change only the traits listed in `written`.

    A page's module (`_esm`) runs everywhere the widget is shown, so write access to it would allow running
    any code. A changed view would no longer describe the program.

    Attributes:
        written: the names of the traits that the page may write.
    """

    written: ClassVar[frozenset[str]] = frozenset()
    drawn: Any

    def _shown_as(self) -> tuple[str, Callable[[], str]]:
        """Return the widget's text, and a function that draws it."""
        return str(self.drawn), self.drawn.to_svg

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the live widget, and its picture as SVG for static pages."""
        made = super()._repr_mimebundle_(**options)
        own, metadata = made if isinstance(made, tuple) else (made or {}, {})
        text, draw = self._shown_as()
        return {**own, **bundle(self, text, draw)}, metadata

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Accept the writable traits sent by a page, and send it the current values of the others."""
        super().set_state({k: value for k, value in sync_data.items() if k in self.written})
        refused = [k for k in sync_data if k not in self.written and k in self.keys]
        if refused:
            self.send_state(refused)
