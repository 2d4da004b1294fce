"""Packing of view-models as traits: JSON with separate binary buffers, which the page inserts again."""

from __future__ import annotations

from typing import Any

from timerl_nb.show import View

Packed = dict[str, Any]
NOTHING: Packed = {}


def packed(view: View, **more: Any) -> Packed:
    """Return a view as `{"json": …, "buffers": […]}`, with additional JSON fields. Widgets send buffers as
    bytes.
    """
    json, buffers = view.to_message()
    return {"json": json | more, "buffers": buffers}
