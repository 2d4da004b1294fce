"""Trial schedules: which operations share a loop with those that must run one by one.

Vectorising over t takes an operation out of the loop over t. Where isl would have run it in the loop
that acts, it had better stay: memory then does not grow with T. A trial fuses and schedules the
graph as it is, in some 30 ms, and looks (polyhedral.md §8). What would stay without letting more
memory go than it fills is vectorised all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Final
from weakref import WeakKeyDictionary

from timerl_nb.base.errors import CeilingError, ScheduleError, warn
from timerl_nb.base.lru_cache import Lru
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Rewritten, chain, identity_rewrite
from timerl_nb.compiler.ir.operations import DataflowAttrs, Op
from timerl_nb.compiler.ir.shapes import NUMPY, TensorType
from timerl_nb.compiler.isl.isl_scheduler import ScheduleTree
from timerl_nb.compiler.isl.sets_and_relations import Set
from timerl_nb.compiler.passes.fusion.fuse import Fuse
from timerl_nb.compiler.passes.lifting.accumulate_sums import Accumulate
from timerl_nb.compiler.passes.lifting.lift_recurrences import Lift
from timerl_nb.compiler.passes.lifting.sliding_windows import Windows
from timerl_nb.compiler.passes.pass_pipeline import Pass
from timerl_nb.compiler.passes.rematerialization.recompute_at_readers import renewable
from timerl_nb.compiler.passes.simplification.contraction_recognition import Contract
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import cycles_of, directions
from timerl_nb.compiler.passes.vectorization.operations_kept_in_loops import Acting, with_operands
from timerl_nb.compiler.passes.vectorization.vectorize import Vectorize
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.scheduling.schedule_validation import find_schedule
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.compiler.symbolic.index_expressions import Lin

# What fills so small a part of its operands is worth keeping if they then need not be kept.
_LITTLE: Final = 8

Scheduled = tuple[Constraints, ScheduleTree]

MOST: Final = 16  # trials that are remembered
SEARCHED: Final = (
    64  # graphs whose schedules are: those of a search, which another one comes to again
)


class Trials:
    """The work of a program's compilations and their trials, and what these say about loops.

    What a trial has made of a graph is there when the compilation itself comes to it, and what one
    compilation has made when the next one, with other options, comes to the same graph.
    """

    def __init__(self, ceiling: int, *, again: bool = False) -> None:
        self._ceiling, self.again = ceiling, again
        self.complete = True  # no trial was given up
        self._tried: Lru[Pdg, _Trial] = Lru(MOST)
        self._acting: WeakKeyDictionary[Pdg, Acting] = WeakKeyDictionary()
        self._made: Lru[tuple[Pass, Pdg], Rewritten] = Lru(8 * SEARCHED)
        self._schedules: Lru[Pdg, Scheduled] = Lru(SEARCHED)

    def run(self, one: Pass, pdg: Pdg) -> Rewritten:
        """What a pass makes of a graph."""
        return self._made.get((one, pdg), lambda: self._run(one, pdg))

    def has_run(self, one: Pass, pdg: Pdg) -> bool:
        """Whether it is known what a pass makes of a graph."""
        return self._made.lookup((one, pdg)) is not None

    def lookup(self, pdg: Pdg) -> Scheduled | None:
        """The schedule of a fused graph, if a trial has found it."""
        return self._schedules.lookup(pdg)

    def schedule(self, pdg: Pdg) -> Scheduled:
        """The schedule of a fused graph.

        Raises:
            ScheduleError: there is none, or isl reached its ceiling.
        """

        def compute_schedule() -> Scheduled:
            constraints = Constraints(pdg)
            return constraints, find_schedule(constraints, self._ceiling)

        return self._schedules.get(pdg, compute_schedule)

    def _run(self, one: Pass, pdg: Pdg) -> Rewritten:
        """Run a pass; those that ask are told what shares acting's loops."""
        if not isinstance(one, Lift | Vectorize | Windows) or one.acting is None:
            return one.run(pdg)
        if not any(cycles_of(pdg, d.name).sequential for d in one.candidate_dims(pdg)):
            return one.run(pdg)
        if isinstance(one, Lift):
            return self._lift_unless_shared(pdg, one)
        acting = self._acting.get(pdg) or self._find_acting(pdg)
        made = replace(one, acting=acting).run(pdg)
        self._acting[made.pdg] = acting.map_to_rewritten(pdg, made)
        return made

    def _lift_unless_shared(self, pdg: Pdg, lift: Lift) -> Rewritten:
        """The graph with recurrences lifted, unless they share a loop with what must run one by one.

        What could be lifted need not. If it runs against all that must, it cannot share its loop.
        """
        core = {d: cycles_of(pdg, d.name).sequential for d in lift.candidate_dims(pdg)}
        groups: dict[Dim, list[frozenset[int]]] = {}
        for d in core:
            found, _ = lift.recurrences(pdg, d)
            core[d] -= frozenset[int]().union(*(one.members for one in found))
            ways = _directions(pdg, d, core[d])
            groups[d] = [one.members for one in found if one.reverse in ways]

        def lift_except(stay: Mapping[Dim, Iterable[frozenset[int]]]) -> Rewritten:
            acting = Acting.from_loops(
                {d.name: frozenset[int]().union(*of) for d, of in stay.items()}
            )
            told = replace(lift, acting=acting)
            return self._made.get((told, pdg), lambda: told.run(pdg))

        first = lift_except(groups)
        for d in groups:
            if groups[d]:
                on = {new for old in core[d] for new in first.ids[old]}
                loop = self._operations_sharing_loop(first.pdg, d, on)
                groups[d] = [group for group in groups[d] if group & loop]
        return lift_except(groups)

    def _find_acting(self, pdg: Pdg) -> Acting:
        """What shares acting's loops; one trial says it of all dimensions."""
        core = {d: cycles_of(pdg, d.name).sequential for d in pdg.dims}
        return Acting.from_loops(
            {d.name: self._operations_sharing_loop(pdg, d, ids) for d, ids in core.items() if ids}
        )

    def _operations_sharing_loop(self, pdg: Pdg, dim: Dim, core: Iterable[int]) -> frozenset[int]:
        return self._tried.get(pdg, lambda: _Trial(pdg, self)).operations_sharing_loop(dim, core)


def _directions(pdg: Pdg, dim: Dim, core: frozenset[int]) -> frozenset[bool]:
    """The directions along a dimension in which operations that run one by one need each other."""
    loops = [loop for loop in cycles_of(pdg, dim.name).loops if loop & core]
    if not core <= frozenset[int]().union(*loops):  # some wait for an end
        return frozenset((True, False))
    return frozenset[bool]().union(*(directions(pdg, loop, dim.name) for loop in loops))


class _Trial:
    """One graph, fused and scheduled without vectorising along sequential dimensions."""

    def __init__(self, pdg: Pdg, trials: Trials) -> None:
        free = tuple(d.name for d in pdg.dims if not cycles_of(pdg, d.name).sequential)
        total = identity_rewrite(pdg)
        for one in (Vectorize(free), Accumulate(), Contract(), Fuse()):
            total = chain(total, trials.run(one, total.pdg))
        self._pdg, self._again = pdg, trials.again
        self._ids: Mapping[int, tuple[int, ...]] = total.ids
        self._loops: dict[int, list[tuple[int, Lin]]] = {}
        try:
            self._constraints, schedule = trials.schedule(total.pdg)
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

    def operations_sharing_loop(self, dim: Dim, sequential: Iterable[int]) -> frozenset[int]:
        """The operations that run in one loop over a dimension with some that run one by one."""
        if not self._loops:
            return frozenset()
        pdg = self._pdg
        core = {new for op_id in sequential for new in self._ids[op_id]}
        taken = {loop for new in core for loop in self._loops_over(new, dim)}
        inside = {new for new in self._loops if self._loops_over(new, dim) & taken}
        self._drop_idle(dim, inside, core, renewable(pdg, dim) if self._again else frozenset())
        kept = {k for k, became in self._ids.items() if not inside.isdisjoint(became)}
        # what has no statement of its own, constants and layout, goes with its readers
        alone = {k for k, became in self._ids.items() if self._loops.keys().isdisjoint(became)}
        return with_operands(pdg, kept, alone)

    def _loops_over(self, statement: int, dim: Dim) -> set[int]:
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
            for key, points in self._constraints.returned_points.items()
            if not _is_one_point(points, dim)
        }
        reads: dict[int, set[tuple[int, int]]] = {}
        for use in uses:
            readers.setdefault(use.tensor, set()).add(use.reader)
            reads.setdefault(use.reader, set()).add(use.tensor)

        def bytes_per_point(source: int, out: int) -> int:
            """The bytes of one point of a value that has one for each point of the dimension."""
            output = self._constraints.pdg[source].outputs[out]
            return _nominal_bytes(output.type) if dim.name in output.domain else 0

        def is_idle(statement: int) -> bool:
            made = {(statement, k) for k in range(len(self._constraints.pdg[statement].outputs))}
            let_go = filled = perhaps = 0
            for key in made | {key for key in reads.get(statement, ()) if key[0] in inside}:
                if readers.get(key, set()) <= inside:
                    let_go += bytes_per_point(*key)
                elif key in made:
                    filled += bytes_per_point(*key)
                elif _made_by(self._constraints.pdg[key[0]], key[1]) in again:
                    perhaps += bytes_per_point(*key)
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
