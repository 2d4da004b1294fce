"""The programs that an explorer has compiled, with their views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from timerl_nb.show.widget_api import At, CompileObserver, Lru, Program
from timerl_widgets.drawing import Drawing
from timerl_widgets.place import FamilyPosition, key

POINTS: Final = 4_000_000  # executed points of the programs that are kept,
MOST: Final = 48  # which are so many at most

Key = tuple[object, ...]


class DrawingCache:
    """The latest programs of one graph, or of one family, by options, bounds and position."""

    def __init__(self, place: FamilyPosition, first: Program) -> None:
        self._held: Lru[Key, Drawing] = Lru(POINTS, _weight)
        self._place, self._first = place, first

    def get_drawing(self, drawing: Drawing) -> Drawing:
        """The program of this place with its views, as they are known if they are."""
        return self._held.get(_key(drawing.program, {}, self._place.at), lambda: drawing)

    def changed(self, program: Program, options: Mapping[str, Any], at: At) -> Drawing | None:
        """A program with some options changed, at a position, if that is known.

        Raises:
            OptionError: there is no such option, or it does not take that value.
        """
        return self._held.lookup(_key(program, options, at))

    def has_program(self, program: Program, at: At) -> bool:
        """Whether the program of another position is known."""
        return _key(program, {}, at) in self._held

    def get_or_compile(
        self, program: Program, options: Mapping[str, Any], at: At, observer: CompileObserver
    ) -> Drawing:
        """A program with some options changed, at a position, compiled if it is not known."""

        def compile_drawing() -> Drawing:
            return Drawing(self._place.program(program, options, at, observer), self._first)

        return self._held.get(_key(program, options, at), compile_drawing)

    def __len__(self) -> int:
        return len(self._held)


def _key(program: Program, options: Mapping[str, Any], at: At) -> Key:
    return program.options.with_(**options), *program.bounds.items(), *key(at)


def _weight(drawing: Drawing) -> int:
    return max(len(drawing.program.memory.clock), POINTS // MOST)
