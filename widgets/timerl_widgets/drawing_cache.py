"""Cache of an explorer's compiled programs with their views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from timerl_nb.show.widget_api import At, CompileObserver, Lru, Program
from timerl_widgets.drawing import Drawing
from timerl_widgets.family_position import FamilyPosition, key

POINTS: Final = 4_000_000  # executed points of all cached programs
MOST: Final = 48  # maximal number of cached programs

Key = tuple[object, ...]


class DrawingCache:
    """Cache of programs of one graph or family, by options, bounds and position."""

    def __init__(self, place: FamilyPosition, first: Program) -> None:
        self._drawings: Lru[Key, Drawing] = Lru(POINTS, _weight)
        self._position, self._first = place, first

    def get_drawing(self, drawing: Drawing) -> Drawing:
        """Return the cached views of a program at the current position, or add these."""
        return self._drawings.get(_key(drawing.program, {}, self._position.at), lambda: drawing)

    def changed(self, program: Program, options: Mapping[str, Any], at: At) -> Drawing | None:
        """Return the cached program with changed options at a position, or None.

        Raises:
            OptionError: an option does not exist, or its value is invalid.
        """
        return self._drawings.lookup(_key(program, options, at))

    def has_program(self, program: Program, at: At) -> bool:
        """Return whether the program of a position is cached."""
        return _key(program, {}, at) in self._drawings

    def get_or_compile(
        self, program: Program, options: Mapping[str, Any], at: At, observer: CompileObserver
    ) -> Drawing:
        """Return the program with changed options at a position, compiled if it is not cached."""

        def compile_drawing() -> Drawing:
            return Drawing(self._position.program(program, options, at, observer), self._first)

        return self._drawings.get(_key(program, options, at), compile_drawing)

    def __len__(self) -> int:
        return len(self._drawings)


def _key(program: Program, options: Mapping[str, Any], at: At) -> Key:
    return program.options.with_(**options), *program.bounds.items(), *key(at)


def _weight(drawing: Drawing) -> int:
    return max(len(drawing.program.memory.clock), POINTS // MOST)
