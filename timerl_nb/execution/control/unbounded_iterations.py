"""The turns of a run without an end, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.host.iteration_io import TurnByTurn
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.state.resumable_state import RunState

# Makes a run, its supply and the values that its turns hand out, from the beginning or from a state
# after so many turns.
Again = Callable[[int, RunState | None], tuple[RunProtocol, TurnByTurn | None, dict[str, Any]]]


class Turns(Iterator[dict[str, Any]]):
    """What each turn hands out, by name, as it is asked for.

    Memory does not depend on how many turns there are. The run goes on when the next turn is asked for, and
    what was handed out before stays as it is.

    Args:
        run: which has not begun.
        supply: brings what is given to the run, until there is no more.
        made: the values that the run hands out at the end of a turn, by name.
        finish: is called when the run is over, however it ends.
        taken: makes of an array of the run's what is handed out; NumPy's, by default.
        again: makes a run, its supply and its values, that goes on from a state, or begins; None where no turn is
            made twice.

    Attributes:
        turn: how many turns are done.
    """

    def __init__(
        self,
        run: RunProtocol,
        supply: TurnByTurn | None,
        made: dict[str, Any],
        finish: Callable[[], object],
        turn: int = 0,
        taken: Callable[[Any], Any] = np.asarray,
        again: Again | None = None,
    ) -> None:
        self._steps: Iterator[int] | None = None  # also if it is interrupted as it is made
        self._finish, self._taken, self._again = finish, taken, again
        self._held: tuple[int, Callable[[], RunState] | None] | None = None
        self._begin(run, supply, made, turn)

    def _begin(
        self, run: RunProtocol, supply: TurnByTurn | None, made: dict[str, Any], turn: int
    ) -> None:
        self._made, self._supply, self.turn = made, supply, turn
        # which of the loop's turns has run last: some have nothing to do, and are passed over
        self._reached = turn - 1
        self._run = run
        self._steps = run.turns()

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
        if self._supply is not None and not self._supply.fetch_up_to(self.turn):
            self.close()
            raise StopIteration
        try:
            while self._reached < self.turn:
                self._reached = next(self._steps)
        except BaseException as error:
            if self._again is None or isinstance(error, Exception):
                self._end(error)
            raise
        self.turn += 1
        if self._reached >= self.turn:
            return {}
        made = {name: self._taken(x) for name, x in self._made.items()}
        self._made.clear()
        return made

    def save_operands(self) -> None:
        """Copy the next turn's operands, so `back` can repeat it."""
        if self._held is None or self._held[0] != self.turn:
            self._held = self.turn, self._run.snapshot_stores(self.turn) if self.turn else None

    def rewind(self) -> None:
        """Return to the last `hold`, also after an interrupt: that turn comes next."""
        assert self._again is not None and self._held is not None
        turn, held = self._held
        run, supply, made = self._again(turn, None if held is None else held())
        before = self._run
        self._begin(run, supply, made, turn)
        before.release()

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
