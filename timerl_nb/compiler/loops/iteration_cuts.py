"""Cuts of a run between two iterations of an outermost loop, for saving and resuming."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.loops.dynamic_termination import guard
from timerl_nb.compiler.loops.loop_nodes import Ast, Execute, If, Loop, Node, subtree_nodes
from timerl_nb.compiler.loops.loop_nodes import Sequence as Block
from timerl_nb.compiler.memory.liveness.live_between_iterations import LivePoints, Time
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.scheduling.dependence_constraints import Use
from timerl_nb.compiler.scheduling.statements import statement_name
from timerl_nb.compiler.symbolic.array_evaluation import values
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import const, sym

Executed = tuple[int, tuple[int, ...]]  # an operation and one of its points


@dataclass(frozen=True)
class Cut:
    """Position after an iteration of an outermost loop.

    Attributes:
        part: the number of the loop in the sequence of outermost nodes.
        turn: the value of its counter.
    """

    part: int
    turn: int


class Cuts:
    """The possible cuts of a run, and the live values at each.

    Args:
        ast: the loop nest.
        plan: the memory plan.
        loops: the outermost loops that run one iteration at a time.

    Attributes:
        plan: the memory plan of the nest.
    """

    def __init__(self, ast: Ast, plan: MemoryPlan, loops: Sequence[Loop]) -> None:
        self._ast, self.plan, self._pdg = ast, plan, plan.pdg
        self._parts = list(parts_of(ast.root))
        self._loops = [k for k, part in enumerate(self._parts) if any(part is x for x in loops)]
        self._times = plan.clock.schedule.times()
        self._live = self._points(lambda _: True)
        self._through: dict[int, LivePoints] = {}

    def _points(self, counts: Callable[[Use], bool]) -> LivePoints:
        plan = self.plan
        return LivePoints(plan.constraints, plan.clock.schedule, plan.bounds, counts)

    @property
    def why_none(self) -> str:
        """The reason why a run cannot be cut; "" if it can."""
        loops = [self._loop(part) for part in self._loops]
        if self.ends_early or not all(loop.first.is_const and loop.last.is_const for loop in loops):
            return "the number of iterations of its outermost loop is unknown before the run"
        return "" if loops else "no outermost loop is divided into several calls"

    @property
    def ends_early(self) -> bool:
        """Whether a dynamic bound ends every outermost loop that could be cut."""
        some = [self._loop(part) for part in self._loops]
        some = some or [part for part in self._parts if isinstance(part, Loop)]
        return any(loop.turns is not None for loop in some)

    @property
    def is_coarse(self) -> bool:
        """Whether the longest outermost loop runs in one call, so that it cannot be cut."""
        loops = {
            k: count_of(part)
            for k, part in enumerate(self._parts)
            if isinstance(part, Loop) and part.first.is_const and part.last.is_const
        }
        return bool(loops) and max(loops, key=lambda k: loops[k]) not in self._loops

    def cut_after(self, turns: int) -> Cut | None:
        """Return the cut after a positive number of iterations.

        It is None in a loop that only frees values, since dead values still exist there.
        """
        for part in self._loops:
            loop = self._loop(part)
            count = count_of(loop)
            if turns <= count:
                runs = any(isinstance(node, Execute) for node in subtree_nodes(loop))
                return Cut(part, loop.first.const + loop.step * (turns - 1)) if runs else None
            turns -= count
        return None

    @property
    def last_extendable_turn(self) -> int:
        """The last number of iterations after which a run of more iterations has the same state.

        It is within the longest loop, before the first iteration at the last point of the outermost dimension. 0 if
        there is none.
        """
        if self.why_none:
            return 0
        counts = [count_of(self._loop(part)) for part in self._loops]
        longest = counts.index(max(counts))
        later = self._iterations_after_last_point(self._loop(self._loops[longest]))
        return 0 if later is None else max(0, sum(counts[: longest + 1]) - 1 - later)

    def _iterations_after_last_point(self, loop: Loop) -> int | None:
        """Return the number of iterations after the first one at the last point of the outermost dimension.

        A loop has such iterations if its statements have different offsets, for example `S(i)` and `R(i - 1)`. None
        if the loop is not over the outermost dimension.
        """
        around = self.plan.clock.schedule.loops()
        later: list[int] = []
        for node in subtree_nodes(loop):
            if not isinstance(node, Execute):
                continue
            op = self._pdg[node.op_id]
            outer = {d for _, at in around[statement_name(op)][:1] for d in at.symbols}
            for d, e in zip(op.domain, node.point, strict=True):
                if d in outer and e.symbols == {loop.counter}:
                    reached = evaluate(e, {loop.counter: loop.last.const})
                    extra = reached - (self._pdg.dims[d].count(self.plan.bounds) - 1)
                    later.append(max(0, -(-extra // loop.step)))
        return max(later, default=None)

    def turns(self, cut: Cut) -> int | None:
        """Return the number of iterations before a cut; None for an impossible cut."""
        before = [count_of(self._loop(part)) for part in self._loops if part < cut.part]
        if cut.part not in self._loops:
            return None
        loop = self._loop(cut.part)
        place, beside = divmod(cut.turn - loop.first.const, loop.step)
        return sum(before) + place + 1 if not beside and 0 <= place < count_of(loop) else None

    def live(self, cut: Cut | None) -> dict[Tensor, Array]:
        """Return the live points of each tensor at a cut, or at the end; tensors without any are omitted."""
        return self._live_at_cut(self._live, cut)

    def live_through(
        self, cut: Cut | None, merge: int, joined: Container[int]
    ) -> dict[Tensor, Array]:
        """Return the points live at a cut because of reads through a merge, the first of `joined` on their
        way.
        """

        def counts(use: Use) -> bool:
            return next((k for k in use.through if k in joined), None) == merge

        if merge not in self._through:
            self._through[merge] = self._points(counts)
        return self._live_at_cut(self._through[merge], cut)

    def _live_at_cut(self, live: LivePoints, cut: Cut | None) -> dict[Tensor, Array]:
        if cut is None:
            return live.at_end()
        time = self._time(cut)
        return {} if time is None else live.live_at(time)

    def birth_times(self, tensor: Tensor, points: Array) -> Array:
        """Return the times of production, or of the last accumulation, as rows that compare
        lexicographically.
        """
        op, bounds = self._pdg[tensor[0]], self.plan.bounds
        env: dict[str, Any] = {d: self._pdg.dims[d].count(bounds) - 1 for d in op.domain}
        env |= dict(zip(op.outputs[tensor[1]].domain, points.T, strict=True))
        times = [values(e, {**env, **bounds}) for e in self._times[statement_name(op)]]
        return np.stack([np.broadcast_to(time, len(points)) for time in times], axis=1)

    def existing_points(self, tensor: Tensor, points: Array, lengths: Mapping[str, Array]) -> Array:
        """Return the points within the dynamic bounds, if there are any.

        Args:
            tensor: the tensor.
            points: the points to filter.
            lengths: known values of the bounds, by name.
        """
        op = self._pdg[tensor[0]]
        domain = op.outputs[tensor[1]].domain
        exists = guard(self._pdg.dims, op.domain, op.where, tuple(map(sym, op.domain)))
        if exists is None or not lengths or domain != op.domain:
            return points
        env: dict[str, Any] = {**self.plan.bounds, **dict(zip(domain, points.T, strict=True))}
        for name, at in exists.lengths:
            env[name] = lengths[name][tuple(values(e, env) for e in at or ())]
        return points[np.broadcast_to(values(exists.cond, env), len(points))]

    def swapped_out(self, cut: Cut | None, tensor: Tensor, points: Array) -> Array:
        """Return the mask of values on the host at a cut."""
        plan, none = self.plan, np.zeros(len(points), np.bool_)
        if tensor not in plan.swaps.tensors:
            return none
        store, clock = plan.stores[tensor], plan.clock
        life = plan.lifetimes[store.lifetime]
        if store.traits.has_rows:
            points = np.delete(points, store.position, axis=1)
        codes, time = clock.codes(life.domain, points), len(clock)
        if cut is not None and (last := self.last_executed(cut)) is not None:
            name = statement_name(self._pdg[last[0]])
            time = int(clock.rank(name, np.array([last[1]]))[0]) + 1
        gaps = [s.away for s in plan.swaps.all if tensor in s.tensors]
        gone = [gap.codes[(gap.used < time) & (time <= gap.back)] for gap in gaps]
        return np.isin(codes, np.concatenate(gone)) if gone else none

    def last_executed(self, cut: Cut) -> Executed | None:
        """Return the last execution before a cut, with dynamic bounds at their ceilings; None if there is
        none.
        """
        loop = self._loop(cut.part)
        turns = range(cut.turn, loop.first.const - 1, -loop.step)
        ahead = (_last(loop.body, {loop.counter: turn}) for turn in turns)
        parts = (_last(part, {}) for part in reversed(self._parts[: cut.part]))
        return next((found for found in chain(ahead, parts) if found), None)

    def remaining_nest(self, cut: Cut | None) -> Ast:
        """Return the nest after a cut; empty at the end."""
        if cut is None:
            return self._ast.with_root(Block(()))
        loop = self.loop(cut)
        first = const(cut.turn + loop.step)
        begins = replace(loop, first=first)
        shown = {id(begins): replace(self._ast.display_node(loop), first=first)}
        return self._ast.with_root(Block((begins, *self._parts[cut.part + 1 :])), shown)

    def loop(self, cut: Cut) -> Loop:
        """Return the loop of a cut."""
        return self._loop(cut.part)

    def _loop(self, part: int) -> Loop:
        loop = self._parts[part]
        assert isinstance(loop, Loop)
        return loop

    def _time(self, cut: Cut) -> Time | None:
        """Return the end time of the last iteration before a cut, up to the loop's own time component.

        isl may have moved a part of the last iteration behind the loop; common components include that
        part.
        """
        after = replace(cut, turn=cut.turn + self._loop(cut.part).step)
        here, then = self._end(cut), None if self.turns(after) is None else self._end(after)
        if here is None or then is None or here == then:
            return here
        differ = next(k for k, (a, b) in enumerate(zip(here, then, strict=True)) if a != b)
        return here[: differ + 1]

    def _end(self, cut: Cut) -> Time | None:
        """Return the time of the last execution before a cut."""
        found = self.last_executed(cut)
        if found is None:
            return None
        op = self._pdg[found[0]]
        env = {**self.plan.bounds, **dict(zip(op.domain, found[1], strict=True))}
        return tuple(evaluate(e, env) for e in self._times[statement_name(op)])


def parts_of(root: Node) -> Iterator[Node]:
    """Yield the outermost nodes of a nest, in order."""
    if isinstance(root, Block):
        for part in root.parts:
            yield from parts_of(part)
    else:
        yield root


def count_of(loop: Loop) -> int:
    """Return the number of iterations of a loop with constant ends."""
    return max(0, (loop.last.const - loop.first.const) // loop.step + 1)


def _last(node: Node, env: Mapping[str, int]) -> Executed | None:
    if isinstance(node, Execute):
        return node.op_id, tuple(evaluate(e, env) for e in node.point)
    if isinstance(node, Block):
        return next((found for p in reversed(node.parts) if (found := _last(p, env))), None)
    if isinstance(node, If):
        branch = node.then if evaluate(node.cond, env) else node.other
        return None if branch is None else _last(branch, env)
    if isinstance(node, Loop):
        first, last = evaluate(node.first, env), evaluate(node.last, env)
        turns = reversed(range(first, last + 1, node.step))
        inner = (_last(node.body, {**env, node.counter: k}) for k in turns)
        return next((found for found in inner if found), None)
    return None
