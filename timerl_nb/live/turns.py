"""The turns of a run without an end, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from timerl_nb.arrays import Array
from timerl_nb.ir.turns import TurnByTurn
from timerl_nb.runtime.run_protocol import RunProtocol


class Turns(Iterator[dict[str, Any]]):
    """What each turn hands out, by name, as it is asked for.

    Memory does not depend on how many turns there are. The run goes on when the next turn is asked for, and
    what was handed out before stays as it is.

    Args:
        run: which has not begun.
        supply: brings what is given to the run, until there is no more.
        finish: is called when the run is over, however it ends.
        taken: makes of an array of the run's what is handed out; NumPy's, by default.

    Attributes:
        turn: how many turns are done.
    """

    def __init__(
        self,
        run: RunProtocol,
        supply: TurnByTurn | None,
        finish: Callable[[], object],
        turn: int = 0,
        taken: Callable[[Any], Any] = np.asarray,
    ) -> None:
        self._run, self._supply, self._finish, self._taken = run, supply, finish, taken
        self.turn = turn
        # which of the loop's turns has run last: some have nothing to do, and are passed over
        self._reached = turn - 1
        self._steps: Iterator[int] | None = run.turns()
        # the run does not know of us, so that it ends with us
        made = self._made = dict[str, Any]()
        run.host.hand = lambda _, values: made.update(values)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, Array]:
        """The next turn's outputs.

        Raises:
            StopIteration: the run was closed, or no more is given.
            ExecutionError: the turn failed, or what was given for it is of another shape or type. In the
                latter case the run goes on with the next that is given.
        """
        if self._steps is None:
            raise StopIteration
        if self._supply is not None and not self._supply.reaches(self.turn):
            self.close()
            raise StopIteration
        try:
            while self._reached < self.turn:
                self._reached = next(self._steps)
        except BaseException as error:
            self._end(error)
            raise
        self.turn += 1
        if self._reached >= self.turn:
            return {}
        made = {name: self._taken(x) for name, x in self._made.items()}
        self._made.clear()
        return made

    def close(self) -> None:
        """End the run, and let go of all it holds; what was handed out stays."""
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if self._steps is None:
            return
        self._steps = None
        self._made.clear()
        try:
            self._run.release(error)
        finally:
            self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._steps is None else "open"
        return f"Turns({self.turn:,} done, {state})"
