"""Conversion of a saved state into a state of the resuming program.

Values are matched by tensor names. If the program runs another graph than the one that saved the state
(other options or another memory budget), source lines, element types and points must match as well.
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
from timerl_nb.runtime.state.resumable_state import RunState, Saved, StoredValues
from timerl_nb.runtime.state.run_folder import Manifest

# Offsets of the turn to try: another schedule may be one iteration ahead or behind.
_NEAR: Final = (0, -1, 1)


class Resuming:
    """Finds a point for a program to resume at.

    Args:
        path: Run folder.
        manifest: Description of the saved run.
        saved: The saved arrays.
        cuts: Possible starting points in the loop nest of this program.
        how: Executor and options of this program, in words.
        same: Whether this program runs the same graph as the saved run.
    """

    def __init__(
        self, path: Path, manifest: Manifest, saved: Saved, cuts: Cuts, how: str, *, same: bool
    ) -> None:
        self._path, self._manifest, self._saved, self._cuts = path, manifest, saved, cuts
        self._how, self._same = how, same
        self._tensors = {name: tensor for tensor, name in cuts.plan.names.items()}

    def state(self) -> RunState:
        """Return the state to resume from.

        Raises:
            ExecutionError: No point of this program has the same live values as the saved state.
        """
        manifest, saved = self._manifest, self._saved
        first = ""
        for cut in self._candidates():
            differs = self._find_mismatch(cut)
            if not differs:
                values = {self._tensors[name]: held for name, held in saved.values.items()}
                turn = manifest.turn if cut is None else self._cuts.turns(cut)
                assert turn is not None
                names = [d.bound for d in self._cuts.plan.pdg.dims.dynamic]
                found = ((name, saved.lengths.get(name, saved.lengths.get(""))) for name in names)
                lengths = {name: held for name, held in found if held is not None}
                return RunState(manifest.seed, turn, cut, values, lengths, tuple(saved.resources))
            first = first or differs
        what = first or "it was saved inside a loop that this program does not run turn by turn"
        raise ExecutionError(
            f"this program cannot resume the run in {self._path}: {what}.",
            evidence=[f"the run was saved by: {manifest.how}", f"this program is: {self._how}"],
            hint="compile with the options of the saved run.",
        )

    def _candidates(self) -> Iterator[Cut | None]:
        """Yield the points at which the program may have the same live values as the saved state."""
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
        """Describe the first difference between the live and the saved values; "" if there is none."""
        plan, saved = self._cuts.plan, self._saved.values
        live = {plan.names[tensor]: points for tensor, points in self._cuts.live(cut).items()}
        ends = bool(plan.pdg.dims.dynamic)  # with a dynamic bound, some points may not exist
        for name, points in live.items():
            if name not in saved:
                if not ends:
                    return f"{name} is needed here{_where(points)}, but was not saved"
            elif not (
                _is_subset(saved[name][0], points) and (ends or len(points) == len(saved[name][0]))
            ):
                return (
                    f"{name} is needed here{_where(points)}, but was saved{_where(saved[name][0])}"
                )
        for name, held in saved.items():
            if name not in live:
                return f"{name} was saved{_where(held[0])}, but is not needed here"
            if other := self._describe_mismatch(name, self._tensors[name], held):
                return other
        return ""

    def _describe_mismatch(self, name: str, tensor: Tensor, held: StoredValues) -> str:
        """Describe a difference in shape, element type or source line; "" if there is none."""
        plan, (_, values) = self._cuts.plan, held
        op = plan.pdg[tensor[0]]
        kind = op.outputs[tensor[1]].type
        shape, dtype = plan.sizes.shape(op, kind.shape), NUMPY[kind.dtype]
        if (values.shape[1:], values.dtype) != (shape, dtype):
            was = f"{values.dtype}{list(values.shape[1:])}"
            return f"{name} is {dtype}{list(shape)} here, but was saved as {was}"
        line, here = self._manifest.lines.get(name, ""), plan.origin(tensor).text
        if not self._same and line != here:
            return f"{name} comes from the line {here!r} here, but was saved from {line!r}"
        return ""


def _is_subset(some: Array, points: Array) -> bool:
    """Return whether all rows of `some` are rows of `points`."""
    if some.shape[1:] != points.shape[1:]:
        return False
    known = set(map(tuple, points.tolist()))
    return all(tuple(row) in known for row in some.tolist())


def _where(points: Array) -> str:
    """Return text such as ` at (0, 3) and 7 more points`."""
    if not len(points):
        return " nowhere"
    rows = np.unique(points, axis=0) if points.shape[1] else points
    at = f" at ({', '.join(map(str, rows[0].tolist()))})"
    return at + (f" and {len(points) - 1:,} more points" if len(points) > 1 else "")
