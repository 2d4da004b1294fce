"""Trial schedules: the operations that share a loop with sequential operations.

A sequential operation, such as a step of an environment, runs in a loop over t. Vectorising over t
moves an operation out of this loop. If isl would run the operation inside, it should stay there,
because memory then does not grow with T. A trial fuses and schedules the graph without vectorising
it, in some 30 ms, and finds such operations. An operation is vectorised nevertheless if it frees
less memory than it occupies.
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

# A result this many times smaller than its operands is worth storing instead of them.
_LITTLE: Final = 8

Scheduled = tuple[Constraints, ScheduleTree]

MOST: Final = 16  # number of trials in the cache
SEARCHED: Final = 64  # schedules in the cache; a search compiles the same graphs again


class Trials:
    """Shared cache of a program's compilations and trials: passes, schedules and shared loops.

    A compilation reuses the results of its trials, and of earlier compilations with other options.
    """

    def __init__(self, ceiling: int, *, recompute: bool = False) -> None:
        self._ceiling, self.recompute = ceiling, recompute
        self.complete = True  # False after a trial that reached isl's limit
        self._tried: Lru[Pdg, _Trial] = Lru(MOST)
        self._acting: WeakKeyDictionary[Pdg, Acting] = WeakKeyDictionary()
        self._rewritten: Lru[tuple[Pass, Pdg], Rewritten] = Lru(8 * SEARCHED)
        self._schedules: Lru[Pdg, Scheduled] = Lru(SEARCHED)

    def run(self, one: Pass, pdg: Pdg) -> Rewritten:
        """Return the result of a pass on a graph, cached."""
        return self._rewritten.get((one, pdg), lambda: self._run(one, pdg))

    def has_run(self, one: Pass, pdg: Pdg) -> bool:
        """Return whether the result of a pass on a graph is in the cache."""
        return self._rewritten.lookup((one, pdg)) is not None

    def lookup(self, pdg: Pdg) -> Scheduled | None:
        """Return the cached schedule of a fused graph, or None."""
        return self._schedules.lookup(pdg)

    def schedule(self, pdg: Pdg) -> Scheduled:
        """Return the schedule of a fused graph, cached.

        Raises:
            ScheduleError: no order exists.
            CeilingError: isl reached its limit.
        """

        def compute_schedule() -> Scheduled:
            constraints = Constraints(pdg)
            return constraints, find_schedule(constraints, self._ceiling)

        return self._schedules.get(pdg, compute_schedule)

    def _run(self, one: Pass, pdg: Pdg) -> Rewritten:
        """Run a pass, and tell it the operations in sequential loops if it asks for them."""
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
        """Return the graph with recurrences lifted, except those in sequential loops.

        Lifting is optional. A recurrence in the opposite direction to all sequential operations
        cannot share their loop.
        """
        core = {d: cycles_of(pdg, d.name).sequential for d in lift.candidate_dims(pdg)}
        groups: dict[Dim, list[frozenset[int]]] = {}
        for d in core:
            found, _ = lift.recurrences(pdg, d)
            core[d] -= frozenset[int]().union(*(one.members for one in found))
            directions = _directions(pdg, d, core[d])
            groups[d] = [one.members for one in found if one.reverse in directions]

        def lift_except(stay: Mapping[Dim, Iterable[frozenset[int]]]) -> Rewritten:
            acting = Acting.from_loops(
                {d.name: frozenset[int]().union(*of) for d, of in stay.items()}
            )
            told = replace(lift, acting=acting)
            return self._rewritten.get((told, pdg), lambda: told.run(pdg))

        first = lift_except(groups)
        for d in groups:
            if groups[d]:
                on = {new for old in core[d] for new in first.ids[old]}
                loop = self._operations_sharing_loop(first.pdg, d, on)
                groups[d] = [group for group in groups[d] if group & loop]
        return lift_except(groups)

    def _find_acting(self, pdg: Pdg) -> Acting:
        """Return the operations in sequential loops, for all dimensions, from one trial."""
        core = {d: cycles_of(pdg, d.name).sequential for d in pdg.dims}
        return Acting.from_loops(
            {d.name: self._operations_sharing_loop(pdg, d, ids) for d, ids in core.items() if ids}
        )

    def _operations_sharing_loop(self, pdg: Pdg, dim: Dim, core: Iterable[int]) -> frozenset[int]:
        return self._tried.get(pdg, lambda: _Trial(pdg, self)).operations_sharing_loop(dim, core)


def _directions(pdg: Pdg, dim: Dim, core: frozenset[int]) -> frozenset[bool]:
    """Return the directions of dependences along a dimension between sequential operations."""
    loops = [loop for loop in cycles_of(pdg, dim.name).loops if loop & core]
    if not core <= frozenset[int]().union(*loops):  # some of them wait for the end of the dimension
        return frozenset((True, False))
    return frozenset[bool]().union(*(directions(pdg, loop, dim.name) for loop in loops))


class _Trial:
    """A graph fused and scheduled without vectorising along sequential dimensions."""

    def __init__(self, pdg: Pdg, trials: Trials) -> None:
        free = tuple(d.name for d in pdg.dims if not cycles_of(pdg, d.name).sequential)
        total = identity_rewrite(pdg)
        for one in (Vectorize(free), Accumulate(), Contract(), Fuse()):
            total = chain(total, trials.run(one, total.pdg))
        self._pdg, self._recompute = pdg, trials.recompute
        self._ids: Mapping[int, tuple[int, ...]] = total.ids
        self._loops: dict[int, list[tuple[int, Lin]]] = {}
        try:
            self._constraints, schedule = trials.schedule(total.pdg)
        except CeilingError as error:
            trials.complete = False
            warn(
                f"a trial schedule failed ({error.what}) The compiler therefore vectorises all "
                "operations that it can, and memory may grow with the bounds.",
                hint="raise trl.Options(isl_operations=…), or keep fuse=True.",
            )
            return
        except ScheduleError:
            return  # the compilation itself will report it
        loops = schedule.loops()
        self._loops = {s.id: loops[s.name] for s in self._constraints.statements}

    def operations_sharing_loop(self, dim: Dim, sequential: Iterable[int]) -> frozenset[int]:
        """Return the operations in a loop over a dimension with a `sequential` operation."""
        if not self._loops:
            return frozenset()
        pdg = self._pdg
        core = {new for op_id in sequential for new in self._ids[op_id]}
        taken = {loop for new in core for loop in self._loops_over(new, dim)}
        inside = {new for new in self._loops if self._loops_over(new, dim) & taken}
        self._drop_idle(dim, inside, core, renewable(pdg, dim) if self._recompute else frozenset())
        kept = {k for k, became in self._ids.items() if not inside.isdisjoint(became)}
        # Operations without a statement (constants and layout) follow their readers.
        alone = {k for k, became in self._ids.items() if self._loops.keys().isdisjoint(became)}
        return with_operands(pdg, kept, alone)

    def _loops_over(self, statement: int, dim: Dim) -> set[int]:
        """Return the loops over a dimension around a statement."""
        found = self._loops.get(statement, [])
        return {loop for loop, position in found if dim.name in position.symbols}

    def _drop_idle(
        self, dim: Dim, inside: set[int], core: set[int], recomputable: frozenset[int]
    ) -> None:
        """Remove statements from `inside` if their stored results need no more memory.

        The memory of a statement's stored results is compared with the memory that the statement
        frees. Statements are removed as well if they need the complete results after the loop. A
        small result stays if its operands can be recomputed and need not be stored.

        Args:
            dim: the dimension of the loop.
            inside: the statements in the loop; modified.
            core: the sequential statements, never removed.
            recomputable: operations that can be recomputed.
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
            """Return the bytes of an output per point of the dimension."""
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
                elif _made_by(self._constraints.pdg[key[0]], key[1]) in recomputable:
                    perhaps += bytes_per_point(*key)
            return filled >= let_go + perhaps // _LITTLE

        after = _depending({k: {key[0] for key in reads.get(k, ())} for k in inside}, core)
        dropped: set[int] = set()

        def is_late(statement: int) -> bool:
            """Return whether the statement needs a complete result, known only after the loop."""
            return any(key[0] in dropped & after for key in reads.get(statement, ()))

        while idle := {k for k in inside - core if is_idle(k) or is_late(k)}:
            inside -= idle
            dropped |= idle


def _made_by(statement: Op, out: int) -> int:
    """Return the operation that computes an output of a statement."""
    if isinstance(statement.attrs, DataflowAttrs):
        return statement.attrs.results[out][0]
    return statement.id


def _depending(reads: Mapping[int, set[int]], core: set[int]) -> set[int]:
    """Return the statements that depend on one of `core`, directly or not."""
    found: set[int] = set()
    while more := {
        k for k, sources in reads.items() if k not in found and sources & (core | found)
    }:
        found |= more
    return found


def _is_one_point(points: Set, dim: Dim) -> bool:
    """Return whether the set contains only one point of the dimension."""
    if dim.name not in points.domain:
        return True
    first, last = points.bounds(dim.name)
    return first is last


def _nominal_bytes(kind: TensorType) -> int:
    """Return the bytes of a value, with a guess for lengths that depend on the bounds."""
    return prod(s if isinstance(s, int) else 64 for s in kind.shape) * NUMPY[kind.dtype].itemsize
