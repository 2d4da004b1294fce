"""The explorer's panes as widgets of their own: `LoopView`, `IterationSpaceView`, `MemoryTimeline`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import traitlets

from timerl_nb import show
from timerl_nb.program import Program
from timerl_widgets.bundles import module
from timerl_widgets.packed import NOTHING, packed
from timerl_widgets.widget import Widget


class Pane(Widget):
    """One view: click, or use the keyboard, and `selected` follows.

    Attributes:
        selected: the ids of the selected operations; set it to select from Python.
    """

    written = frozenset({"selected"})

    view = traitlets.Dict().tag(sync=True)
    lineage = traitlets.Dict().tag(sync=True)
    selected = traitlets.List(traitlets.Int()).tag(sync=True)

    def __init__(self, drawn: show.View, lineage: show.Lineage | None) -> None:
        self.drawn = drawn
        values = drawn.values()
        self._ids = frozenset(_ids(values))
        super().__init__(view=packed(values), lineage=packed(lineage) if lineage else NOTHING)

    @traitlets.validate("selected")
    def _known(self, proposal: dict[str, Any]) -> list[int]:
        """Only operations of the view, each once: what a page sends is data, not to be trusted."""
        return [k for k in dict.fromkeys(proposal["value"]) if k in self._ids]

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return with_picture(
            super()._repr_mimebundle_(**options), str(self.drawn), self.drawn.to_svg()
        )


class LoopView(Pane):
    """A loop nest to fold and to select in."""

    _esm = module("loop_view")

    def __init__(self, shown: Program | show.LoopView) -> None:
        """Show a program's loop nest, or a view of it."""
        if isinstance(shown, Program):
            super().__init__(show.LoopView.of(shown), show.Lineage.of(shown))
        else:
            super().__init__(shown, None)


class IterationSpaceView(Pane):
    """Which operation runs when, and where; with a scrubber."""

    _esm = module("iteration_space_view")

    def __init__(self, shown: Program | show.IterationSpaceView) -> None:
        """Show a turn of a program, or a view of another one."""
        if isinstance(shown, Program):
            super().__init__(show.IterationSpaceView.of(shown), show.Lineage.of(shown))
        else:
            super().__init__(shown, None)


class MemoryTimeline(Pane):
    """Predicted live bytes by tensor."""

    _esm = module("memory_timeline")

    def __init__(self, shown: Program | show.MemoryView) -> None:
        """Show the memory of a turn of a program, or a view of another one."""
        if isinstance(shown, Program):
            super().__init__(show.MemoryView.of(shown), show.Lineage.of(shown))
        else:
            super().__init__(shown, None)


def with_picture(made: Any, text: str, svg: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A widget's output with the same picture as SVG, for pages where nothing runs."""
    bundle, metadata = made if isinstance(made, tuple) else (made or {}, {})
    return {**bundle, "text/plain": text, "image/svg+xml": svg}, metadata


def _ids(value: object) -> Iterator[int]:
    """All operation ids in a view's values."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            if key in ("op_ids", "inside"):
                yield from one
            else:
                yield from _ids(one)
    elif isinstance(value, list):
        for one in value:
            yield from _ids(one)
