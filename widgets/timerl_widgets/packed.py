"""View-models as traits: JSON with binary buffers beside it, which the page puts back in place."""

from __future__ import annotations

from typing import Any

from timerl_nb.show import View
from timerl_nb.show.view import message

Packed = dict[str, Any]
NOTHING: Packed = {}


def packed(view: View | dict[str, Any]) -> Packed:
    """A view (or the values of one) as `{"json": …, "buffers": […]}`; widgets send buffers as bytes."""
    values = view.values() if isinstance(view, View) else view
    json, buffers = message(values)
    return {"json": json, "buffers": buffers}
