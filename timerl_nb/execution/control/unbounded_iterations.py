"""Iteration over the turns of a program with an unbounded outermost loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.host.iteration_io import TurnByTurn
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.state.resumable_state import RunState

# Creates a run, its supply of inputs, and the dictionary of its outputs. Arguments: the turn to start
# at, and the state to resume from; None starts from the beginning.
Again = Callable[[int, RunState | None], tuple[RunProtocol, TurnByTurn | None, dict[str, Any]]]


class Turns(Iterator[dict[str, Any]]):
    """Outputs of each turn by name; the next turn runs when `next()` asks for it.

    A *turn* is one iteration of the outermost loop. Memory use does not grow with the number of turns,
    and later turns do not change earlier outputs.

    Args:
        run: The run, not started yet.
        supply: Source of the inputs; the iteration ends with them.
        made: Dictionary that the run fills with the outputs of each turn.
        finish: Called when the run is over, however it ends.
        turn: Number of completed turns.
        taken: Conversion of each output; to a NumPy array by default.
        again: Creates a run that starts at an earlier turn; None if turns are never repeated.

    Attributes:
        turn: Number of completed turns.

    Example:
        >>> x = trl.tensor((), domain=(i,))
        >>> x[0], x[i + 1] = trl.constant(1.0), x * 0.5
        >>> ctx.output("x", x)
        >>> turns = ctx.compile({B: 1, I: trl.endless, T: 1}).turns()
        >>> for outputs in turns:
        ...     if turns.turn == 3:
        ...         print(float(outputs["x"]))
        ...         turns.close()
        0.25
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
        self._steps: Iterator[int] | None = None  # exists even if an interrupt ends `__init__`
        self._finish, self._taken, self._again = finish, taken, again
        self._snapshot: tuple[int, Callable[[], RunState] | None] | None = None
        self._begin(run, supply, made, turn)

    def _begin(
        self, run: RunProtocol, supply: TurnByTurn | None, made: dict[str, Any], turn: int
    ) -> None:
        self._made, self._supply, self.turn = made, supply, turn
        # index of the last turn that ran: the run skips turns without work
        self._reached = turn - 1
        self._run = run
        self._steps = run.turns()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, Array]:
        """Run the next turn, and return its outputs.

        Raises:
            StopIteration: The run is closed, or the inputs have ended.
            ExecutionError: The turn failed, or an input has the wrong shape or element type. After a
                wrong input, the run continues with the next one.
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
        """Copy the operands of the next turn, for its repetition by `rewind`."""
        if self._snapshot is None or self._snapshot[0] != self.turn:
            self._snapshot = self.turn, self._run.snapshot_stores(self.turn) if self.turn else None

    def rewind(self) -> None:
        """Return to the turn of the last `save_operands`, also after an interrupt. It runs next."""
        assert self._again is not None and self._snapshot is not None
        turn, held = self._snapshot
        run, supply, made = self._again(turn, None if held is None else held())
        before = self._run
        self._begin(run, supply, made, turn)
        before.release()

    def close(self) -> None:
        """End the run, and free its memory. Outputs returned earlier stay valid."""
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
