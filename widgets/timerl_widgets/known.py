"""The programs that an explorer has compiled, with their views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from timerl_nb.program import Program
from timerl_nb.recent import Recent
from timerl_widgets.drawing import Drawing

POINTS: Final = 4_000_000  # executed points of the programs that are kept,
MOST: Final = 32  # which are so many at most

See = Callable[[Any], None]  # is called with every stage that is compiled
Key = tuple[object, ...]


class Known:
    """The latest programs of one graph, by options and bounds."""

    def __init__(self) -> None:
        self._held: Recent[Key, Drawing] = Recent(POINTS, _weight)

    def of(self, program: Program) -> Drawing:
        """A program with its views."""
        return self._held.get(_key(program, {}), lambda: Drawing(program))

    def changed(self, program: Program, options: Mapping[str, Any]) -> Drawing | None:
        """A program with some options changed, if that is known.

        Raises:
            OptionError: there is no such option, or it does not take that value.
        """
        return self._held.known(_key(program, options))

    def compiled(self, program: Program, options: Mapping[str, Any], see: See) -> Drawing:
        """A program with some options changed, compiled if it is not known."""

        def made() -> Drawing:
            return Drawing(program.again(options=options, see=see, tell=False))

        return self._held.get(_key(program, options), made)

    def __len__(self) -> int:
        return len(self._held)


def _key(program: Program, options: Mapping[str, Any]) -> Key:
    return program.options.with_(**options), *program.bounds.items()


def _weight(drawing: Drawing) -> int:
    return max(len(drawing.program.memory.clock), POINTS // MOST)
