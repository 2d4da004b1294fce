"""The base of all widgets: what a page may write of their state is named, all else is refused."""

from __future__ import annotations

from typing import Any, ClassVar

import anywidget


class Widget(anywidget.AnyWidget):
    """A widget whose page writes the traits that it names, and no others.

    A page's module (`_esm`) runs wherever the widget is shown, so that whoever may write it could run
    anything there; and a view that the page has changed would no longer be of the program.

    Attributes:
        written: the names of the traits that the page may write.
    """

    written: ClassVar[frozenset[str]] = frozenset()

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what a page sends of what it may write; of the rest it is told what is so."""
        super().set_state({k: value for k, value in sync_data.items() if k in self.written})
        refused = [k for k in sync_data if k not in self.written and k in self.keys]
        if refused:
            self.send_state(refused)
