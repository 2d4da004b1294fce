"""Trial schedules: which operations share a loop with those that must run one by one.

Vectorising over t takes an operation out of the loop over t. Where isl would have run it in the loop
that acts, it had better stay: memory then does not grow with T. A trial fuses and schedules the
graph as it is, in some 30 ms, and looks (polyhedral.md §8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from weakref import WeakKeyDictionary

from timerl_nb.errors import ScheduleError
from timerl_nb.ir.pdg import Pdg
from timerl_nb.ir.rewrite import chain, unchanged
from timerl_nb.passes.accumulate import Accumulate
from timerl_nb.passes.contract import Contract
from timerl_nb.passes.cycles import cycles_of
from timerl_nb.passes.fuse import Fuse
from timerl_nb.passes.vectorize import Vectorize
from timerl_nb.schedule.constraints import Constraints, statement_name
from timerl_nb.schedule.solve import find_schedule
from timerl_nb.symbolic.domain import Dim
from timerl_nb.symbolic.expr import Lin


class Trials:
    """Answers, for graphs, which operations to keep symbolic; each graph is tried once."""

    def __init__(self, ceiling: int) -> None:
        self._ceiling = ceiling
        self._tried: WeakKeyDictionary[Pdg, _Trial] = WeakKeyDictionary()

    def keep(self, pdg: Pdg, dim: Dim) -> Iterable[int]:
        """The operations that run in one loop over `dim` with operations that run one by one."""
        sequential = cycles_of(pdg, dim.name).sequential
        if not sequential:
            return ()
        trial = self._tried.get(pdg)
        if trial is None:
            trial = self._tried[pdg] = _Trial(pdg, self._ceiling)
        return trial.sharing(pdg, dim, sequential)


class _Trial:
    """One graph, fused and scheduled without vectorising along sequential dimensions."""

    def __init__(self, pdg: Pdg, ceiling: int) -> None:
        free = tuple(d.name for d in pdg.dims if not cycles_of(pdg, d.name).sequential)
        total = unchanged(pdg)
        for one in (Vectorize(free), Accumulate(), Contract(), Fuse()):
            total = chain(total, one.run(total.pdg))
        self._ids: Mapping[int, tuple[int, ...]] = total.ids
        self._loops: dict[int, list[tuple[int, Lin]]] = {}
        constraints = Constraints(total.pdg)
        try:
            schedule = find_schedule(constraints, ceiling)
        except ScheduleError:
            return  # compiling the program itself will say so
        loops = schedule.loops()
        self._loops = {op.id: loops[statement_name(op)] for op in constraints.ops.values()}

    def _over(self, op_id: int, dim: Dim) -> set[int]:
        """The loops over a dimension around what became of an operation."""
        return {
            loop
            for new in self._ids.get(op_id, ())
            for loop, position in self._loops.get(new, [])
            if dim.name in position.symbols
        }

    def sharing(self, pdg: Pdg, dim: Dim, sequential: Iterable[int]) -> set[int]:
        taken = {loop for op_id in sequential for loop in self._over(op_id, dim)}
        kept = {op.id for op in pdg if self._over(op.id, dim) & taken}
        for op_id in reversed(pdg.order):
            # what has no statement of its own, constants and layout, goes with its readers
            alone = not any(new in self._loops for new in self._ids.get(op_id, ()))
            if alone and any(reader in kept for reader, _ in pdg.readers[op_id]):
                kept.add(op_id)
        return kept
