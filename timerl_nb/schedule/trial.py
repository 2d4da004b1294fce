"""Trial schedules: which operations share a loop with those that must run one by one.

Vectorising over t takes an operation out of the loop over t. Where isl would have run it in the loop
that acts, it had better stay: memory then does not grow with T. A trial fuses and schedules the
graph as it is, in some 30 ms, and looks (polyhedral.md §8). What would stay without letting more
memory go than it fills is vectorised all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Final

from timerl_nb.errors import CeilingError, ScheduleError, warn
from timerl_nb.ir.ops import DataflowAttrs, Op
from timerl_nb.ir.pdg import Pdg
from timerl_nb.ir.rewrite import Rewritten, chain, unchanged
from timerl_nb.ir.shapes import NUMPY, TensorType
from timerl_nb.lru import Lru
from timerl_nb.passes.accumulate import Accumulate
from timerl_nb.passes.contract import Contract
from timerl_nb.passes.core import Pass
from timerl_nb.passes.dependence_cycles import cycles_of
from timerl_nb.passes.fuse import Fuse
from timerl_nb.passes.recompute import renewable
from timerl_nb.passes.vectorize import Vectorize
from timerl_nb.schedule.constraints import Constraints
from timerl_nb.schedule.solve import find_schedule
from timerl_nb.symbolic.domain import Dim
from timerl_nb.symbolic.expr import Lin
from timerl_nb.symbolic.polyhedra import Set
from timerl_nb.symbolic.scheduling import ScheduleTree

# What fills so small a part of its operands is worth keeping if they then need not be kept.
_LITTLE: Final = 8

Scheduled = tuple[Constraints, ScheduleTree]

MOST: Final = 16  # graphs whose schedules are remembered


class Trials:
    """The work of a program's compilations and their trials, and what these say about loops.

    What a trial has made of a graph is there when the compilation itself comes to it, and what one
    compilation has made when the next one, with other options, comes to the same graph.
    """

    def __init__(self, ceiling: int, *, again: bool = False) -> None:
        self._ceiling, self.again = ceiling, again
        self.complete = True  # no trial was given up
        self._tried: Lru[Pdg, _Trial] = Lru(MOST)
        self._made: Lru[tuple[Pass, Pdg], Rewritten] = Lru(8 * MOST)
        self._schedules: Lru[Pdg, Scheduled] = Lru(MOST)

    def run(self, one: Pass, pdg: Pdg) -> Rewritten:
        """What a pass makes of a graph."""
        return self._made.get((one, pdg), lambda: one.run(pdg))

    def has_run(self, one: Pass, pdg: Pdg) -> bool:
        """Whether it is known what a pass makes of a graph."""
        return self._made.known((one, pdg)) is not None

    def known(self, pdg: Pdg) -> Scheduled | None:
        """The schedule of a fused graph, if a trial has found it."""
        return self._schedules.known(pdg)

    def scheduled(self, pdg: Pdg) -> Scheduled:
        """The schedule of a fused graph.

        Raises:
            ScheduleError: there is none, or isl reached its ceiling.
        """

        def found() -> Scheduled:
            constraints = Constraints(pdg)
            return constraints, find_schedule(constraints, self._ceiling)

        return self._schedules.get(pdg, found)

    def keep(self, pdg: Pdg, dim: Dim, /, apart: frozenset[int] = frozenset()) -> Iterable[int]:
        """The operations that run in one loop over `dim` with operations that run one by one.

        Those in `apart` do not count among the latter: they need not run one by one.
        """
        sequential = cycles_of(pdg, dim.name).sequential - apart
        if not sequential:
            return ()
        trial = self._tried.get(pdg, lambda: _Trial(pdg, self))
        return trial.sharing(pdg, dim, sequential)


class _Trial:
    """One graph, fused and scheduled without vectorising along sequential dimensions."""

    def __init__(self, pdg: Pdg, trials: Trials) -> None:
        free = tuple(d.name for d in pdg.dims if not cycles_of(pdg, d.name).sequential)
        total = unchanged(pdg)
        for one in (Vectorize(free), Accumulate(), Contract(), Fuse()):
            total = chain(total, trials.run(one, total.pdg))
        self._again = trials.again
        self._ids: Mapping[int, tuple[int, ...]] = total.ids
        self._loops: dict[int, list[tuple[int, Lin]]] = {}
        try:
            self._constraints, schedule = trials.scheduled(total.pdg)
        except CeilingError as error:
            trials.complete = False
            warn(
                f"a trial schedule was given up ({error.what}) Whatever can be vectorised is, and "
                "memory may grow with the bounds."
            )
            return
        except ScheduleError:
            return  # compiling the program itself will say so
        loops = schedule.loops()
        self._loops = {s.id: loops[s.name] for s in self._constraints.statements}

    def sharing(self, pdg: Pdg, dim: Dim, sequential: Iterable[int]) -> set[int]:
        if not self._loops:
            return set()
        core = {new for op_id in sequential for new in self._ids.get(op_id, ())}
        taken = {loop for new in core for loop in self._over(new, dim)}
        inside = {new for new in self._loops if self._over(new, dim) & taken}
        self._drop_idle(dim, inside, core, renewable(pdg, dim) if self._again else frozenset())
        kept = {op.id for op in pdg if not inside.isdisjoint(self._ids.get(op.id, ()))}
        for op_id in reversed(pdg.order):
            # what has no statement of its own, constants and layout, goes with its readers
            alone = not any(new in self._loops for new in self._ids.get(op_id, ()))
            if alone and any(reader in kept for reader, _ in pdg.readers[op_id]):
                kept.add(op_id)
        return kept

    def _over(self, statement: int, dim: Dim) -> set[int]:
        """The loops over a dimension around a statement."""
        found = self._loops.get(statement, [])
        return {loop for loop, position in found if dim.name in position.symbols}

    def _drop_idle(self, dim: Dim, inside: set[int], core: set[int], again: frozenset[int]) -> None:
        """Drop statements whose results, kept for later, fill what they let go or more.

        With them go those that need their results, where these are there after the loop only. What
        fills little stays where its operands need not be kept if they are computed `again`.
        """
        uses = self._constraints.uses
        readers: dict[tuple[int, int], set[int]] = {
            key: {-1}
            for key, points in self._constraints.kept.items()
            if not _is_one_point(points, dim)
        }
        reads: dict[int, set[tuple[int, int]]] = {}
        for use in uses:
            readers.setdefault(use.tensor, set()).add(use.reader)
            reads.setdefault(use.reader, set()).add(use.tensor)

        def along(source: int, out: int) -> int:
            """The bytes of one point of a value that has one for each point of the dimension."""
            output = self._constraints.pdg[source].outputs[out]
            return _nominal_bytes(output.type) if dim.name in output.domain else 0

        def is_idle(statement: int) -> bool:
            made = {(statement, k) for k in range(len(self._constraints.pdg[statement].outputs))}
            let_go = filled = perhaps = 0
            for key in made | {key for key in reads.get(statement, ()) if key[0] in inside}:
                if readers.get(key, set()) <= inside:
                    let_go += along(*key)
                elif key in made:
                    filled += along(*key)
                elif _made_by(self._constraints.pdg[key[0]], key[1]) in again:
                    perhaps += along(*key)
            return filled >= let_go + perhaps // _LITTLE

        after = _depending({k: {key[0] for key in reads.get(k, ())} for k in inside}, core)
        dropped: set[int] = set()

        def is_late(statement: int) -> bool:
            """Whether it needs what, as a batch, is there when the loop is done."""
            return any(key[0] in dropped & after for key in reads.get(statement, ()))

        while idle := {k for k in inside - core if is_idle(k) or is_late(k)}:
            inside -= idle
            dropped |= idle


def _made_by(statement: Op, out: int) -> int:
    """The operation that makes an output of a statement."""
    if isinstance(statement.attrs, DataflowAttrs):
        return statement.attrs.results[out][0]
    return statement.id


def _depending(reads: Mapping[int, set[int]], core: set[int]) -> set[int]:
    """The statements that need one of `core`, directly or through each other."""
    found: set[int] = set()
    while more := {
        k for k, sources in reads.items() if k not in found and sources & (core | found)
    }:
        found |= more
    return found


def _is_one_point(points: Set, dim: Dim) -> bool:
    """Whether of all points of the dimension just one is in the set."""
    if dim.name not in points.domain:
        return True
    first, last = points.bounds(dim.name)
    return first is last


def _nominal_bytes(kind: TensorType) -> int:
    """Bytes, with a guess for lengths that only the bounds will tell."""
    return prod(s if isinstance(s, int) else 64 for s in kind.shape) * NUMPY[kind.dtype].itemsize
