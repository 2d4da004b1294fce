"""What was saved of a run as the state of a program that is to go on with it.

Values are found by the names of their tensors, whatever held them. Where the graph that runs is another
(other options, another budget), they must besides be of the same line, type and points.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.loops.iteration_cuts import Cut, Cuts
from timerl_nb.runtime.state.resumable_state import Held, RunState, Saved
from timerl_nb.runtime.state.run_folder import Manifest

# Turns by which a run under another schedule may be further.
_NEAR: Final = (0, -1, 1)


class Resuming:
    """Finds where a program can go on.

    Args:
        how: how it runs its graph, in words.
        same: whether that graph is the one that was saved.
    """

    def __init__(
        self, path: Path, manifest: Manifest, saved: Saved, cuts: Cuts, how: str, *, same: bool
    ) -> None:
        self._path, self._manifest, self._saved, self._cuts = path, manifest, saved, cuts
        self._how, self._same = how, same
        self._tensors = {name: tensor for tensor, name in cuts.plan.names.items()}

    def state(self) -> RunState:
        """The state to go on from.

        Raises:
            ExecutionError: the program has no turn at whose end the same points live.
        """
        manifest, saved = self._manifest, self._saved
        first = ""
        for cut in self._candidates():
            differs = self._find_mismatch(cut)
            if not differs:
                values = {self._tensors[name]: held for name, held in saved.values.items()}
                turn = manifest.turn if cut is None else self._cuts.turns(cut)
                assert turn is not None
                return RunState(
                    manifest.seed, turn, cut, values, saved.lengths, tuple(saved.resources)
                )
            first = first or differs
        what = first or "it was saved within a loop of which this program makes no single turns"
        raise ExecutionError(
            f"the run in {self._path} cannot go on so: {what}.",
            evidence=[f"it was saved by: {manifest.how}", f"this program is: {self._how}"],
            hint="compile with the options that it was begun with.",
        )

    def _candidates(self) -> Iterator[Cut | None]:
        """Where the program may have come to what was saved."""
        cut, cuts = self._manifest.cut, self._cuts
        if cut is None:
            yield None
            return
        done = cuts.turns(cut)
        if done is not None:
            yield cut
        if not self._same or done is None:
            near = (
                cuts.cut_after(self._manifest.turn + k)
                for k in _NEAR
                if self._manifest.turn + k > 0
            )
            yield from (one for one in near if one is not None)

    def _find_mismatch(self, cut: Cut | None) -> str:
        """What does not agree with what lives at a cut; nothing where all does."""
        plan, saved = self._cuts.plan, self._saved.values
        live = {plan.names[tensor]: points for tensor, points in self._cuts.live(cut).items()}
        ends = plan.pdg.dims.dynamic is not None  # where points may never have run
        for name, points in live.items():
            if name not in saved:
                if not ends:
                    return f"{name} lives here{_where(points)}, and was not saved"
            elif not (
                _is_subset(saved[name][0], points) and (ends or len(points) == len(saved[name][0]))
            ):
                return f"{name} lives here{_where(points)}, and was saved{_where(saved[name][0])}"
        for name, held in saved.items():
            if name not in live:
                return f"{name} was saved{_where(held[0])}, and does not live here"
            if other := self._describe_mismatch(name, self._tensors[name], held):
                return other
        return ""

    def _describe_mismatch(self, name: str, tensor: Tensor, held: Held) -> str:
        """How values that were saved are not those of a tensor."""
        plan, (_, values) = self._cuts.plan, held
        op = plan.pdg[tensor[0]]
        kind = op.outputs[tensor[1]].type
        shape, dtype = plan.sizes.shape(op, kind.shape), NUMPY[kind.dtype]
        if (values.shape[1:], values.dtype) != (shape, dtype):
            was = f"{values.dtype}{list(values.shape[1:])}"
            return f"{name} is {dtype}{list(shape)} here, and was saved as {was}"
        line, here = self._manifest.lines.get(name, ""), plan.origin(tensor).text
        if not self._same and line != here:
            return f"{name} is of the line {here!r} here, and was of {line!r}"
        return ""


def _is_subset(some: Array, points: Array) -> bool:
    """Whether some points are among others."""
    if some.shape[1:] != points.shape[1:]:
        return False
    known = set(map(tuple, points.tolist()))
    return all(tuple(row) in known for row in some.tolist())


def _where(points: Array) -> str:
    """` at (0, 3) and 7 more points`."""
    if not len(points):
        return " nowhere"
    rows = np.unique(points, axis=0) if points.shape[1] else points
    at = f" at ({', '.join(map(str, rows[0].tolist()))})"
    return at + (f" and {len(points) - 1:,} more points" if len(points) > 1 else "")
