"""View-models as traits: JSON with binary buffers beside it, which the page puts back in place."""

from __future__ import annotations

from typing import Any

from timerl_nb.show import View

Packed = dict[str, Any]
NOTHING: Packed = {}


def packed(view: View, **more: Any) -> Packed:
    """A view as `{"json": …, "buffers": […]}`, with more in its JSON; widgets send buffers as bytes."""
    json, buffers = view.to_message()
    return {"json": json | more, "buffers": buffers}
