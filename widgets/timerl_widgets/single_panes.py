"""Single panes of the explorer as widgets: `LoopView`, `IterationSpaceView`, `MemoryTimeline`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import traitlets

from timerl_nb import show
from timerl_nb.show.widget_api import Program, a_program
from timerl_widgets.bundles import module
from timerl_widgets.view_messages import NOTHING, pack_view
from timerl_widgets.widget import Widget


class Pane(Widget):
    """One view. Clicks and keys change `selected`.

    Attributes:
        selected: the ids of the selected operations; assign to select from Python.
    """

    written = frozenset({"selected"})

    view = traitlets.Dict().tag(sync=True)
    lineage = traitlets.Dict().tag(sync=True)
    selected = traitlets.List(traitlets.Int()).tag(sync=True)

    def __init__(self, shown: Any, kind: Any) -> None:
        given = isinstance(shown, kind)
        lineage = None if given else show.Lineage.from_program(a_program(shown))
        self.drawn: show.View = shown if given else kind.from_program(shown)
        view = pack_view(self.drawn)
        self._ids = frozenset(_ids(view["json"]))
        super().__init__(view=view, lineage=pack_view(lineage) if lineage else NOTHING)

    @traitlets.validate("selected")
    def _validate_selected(self, proposal: dict[str, Any]) -> list[int]:
        """Return the operations of the view without duplicates: pages are not trusted."""
        return [k for k in dict.fromkeys(proposal["value"]) if k in self._ids]


class LoopView(Pane):
    """Loop nest with folding and selection."""

    _esm = module("loop_view")

    def __init__(self, shown: Program | show.LoopView) -> None:
        """Show a program's loop nest, or an existing view."""
        super().__init__(shown, show.LoopView)


class IterationSpaceView(Pane):
    """Iteration space with a time slider."""

    _esm = module("iteration_space_view")

    def __init__(self, shown: Program | show.IterationSpaceView) -> None:
        """Show a turn of a program, or an existing view."""
        super().__init__(shown, show.IterationSpaceView)


class MemoryTimeline(Pane):
    """Predicted live bytes by tensor."""

    _esm = module("memory_timeline")

    def __init__(self, shown: Program | show.MemoryView) -> None:
        """Show the memory during a turn of a program, or an existing view."""
        super().__init__(shown, show.MemoryView)


def _ids(value: object) -> Iterator[int]:
    """Yield all operation ids in a view's values."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            if key in ("op_ids", "inside"):
                yield from one
            else:
                yield from _ids(one)
    elif isinstance(value, list):
        for one in value:
            yield from _ids(one)
