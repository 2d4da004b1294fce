"""Packing of view-models as traits: JSON with separate binary buffers, which the page inserts again."""

from __future__ import annotations

from typing import Any

from timerl_nb.show import View

ViewMessage = dict[str, Any]
NOTHING: ViewMessage = {}


def pack_view(view: View, **more: Any) -> ViewMessage:
    """Return a view as `{"json": …, "buffers": […]}`, with additional JSON fields. Widgets send buffers as
    bytes.
    """
    json, buffers = view.to_message()
    return {"json": json | more, "buffers": buffers}
