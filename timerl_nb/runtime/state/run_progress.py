"""How far a run is: which points of the outermost loop's dimension are there after so many turns.

The loop nest alone says so: an operation in a turn runs at its counter plus a constant. What is not
of that form counts as not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from timerl_nb.compiler.ir.operations import Op, Read
from timerl_nb.compiler.loops.iteration_cuts import count_of, parts_of
from timerl_nb.compiler.loops.loop_nodes import Ast, Execute, Loop, Node, children
from timerl_nb.compiler.scheduling.statements import Statements
from timerl_nb.compiler.symbolic.index_expressions import Lin, sym


@dataclass(frozen=True)
class _LoopPosition:
    """Where an operation stands: the part of the nest, and its point less the part's counter."""

    part: int
    offset: int | None  # of the outermost dimension; None where it does not vary over it


class RunProgress:
    """What is there after so many turns of a program's outermost loops.

    Args:
        loops: those that are run turn by turn, which others are not; all outermost ones by default.

    Attributes:
        turns: how many there are; None where that is not known.
        outer: the dimension that the outermost loops run along, if it is one.
    """

    def __init__(
        self, statements: Statements, ast: Ast, loops: Iterable[Loop] | None = None
    ) -> None:
        self._statements, self._pdg = statements, statements.pdg
        self._parts = list(parts_of(ast.root))
        all_loops = [part for part in self._parts if isinstance(part, Loop)]
        self._loops = all_loops if loops is None else list(loops)
        self.turns = self._turns()
        self.outer = self._outer() if self.turns is not None else None
        self._places: dict[int, list[_LoopPosition]] = {}
        for k, part in enumerate(self._parts):
            for node in _find_executes(part):
                self._places.setdefault(node.op_id, []).append(
                    _LoopPosition(k, self._offset(part, node))
                )

    @property
    def bound(self) -> str:
        """The name of the outermost dimension's bound."""
        assert self.outer is not None
        return self._pdg.dims[self.outer].bound

    def _turns(self) -> int | None:
        loops = self._loops
        if not loops or not all(loop.first.is_const and loop.last.is_const for loop in loops):
            return None
        return sum(map(count_of, loops))

    def _outer(self) -> str | None:
        """The dimension that moves with the counter of every outermost loop."""
        dims = self._pdg.dims
        found: set[str] = set()
        for loop in self._loops:
            along: set[str] = set()
            for node in _find_executes(loop):
                pairs = zip(self._pdg[node.op_id].domain, node.point, strict=True)
                along |= {d for d, e in pairs if (e - sym(loop.counter)).is_const}
            if loop.step != 1 or loop.turns is not None or len(along) != 1:
                return None
            found |= along
        (outer, *more) = found
        return None if more or dims[outer].step != 1 or dims[outer].over is not None else outer

    def _offset(self, part: Node, node: Execute) -> int | None:
        domain = self._pdg[node.op_id].domain
        if self.outer not in domain:
            return None
        at = node.point[domain.index(self.outer)]
        shift = at - sym(part.counter) if isinstance(part, Loop) else at
        # what moves otherwise is taken to be there at the very end
        return shift.const if shift.is_const else -(1 << 40)

    def points(self, sink: Op, turns: int) -> int:
        """At how many points of the outermost dimension, from 0 on, all that a sink reads is there.

        For a sink that does not vary over that dimension, such as a parameter at its last point: the
        bound under which all that it reads is there.
        """
        if self.outer is None or self.turns is None:
            return 0
        behind = [a for o in self._statements.of_op(sink.id).operands for a in o.accesses]
        if any(access.across for access in behind):
            return 0
        return max(0, min((self._readable_bound(a.read, turns) for a in behind), default=0))

    def _readable_bound(self, read: Read, turns: int) -> int:
        source = self._pdg[read.source]
        domain = source.outputs[read.out].domain
        assert self.outer is not None
        there = self._executed_bound(source.id, turns)
        if self.outer not in domain:
            return there if self.outer not in source.domain else 0
        at = read.index[domain.index(self.outer)]
        if not isinstance(at, Lin):
            return 0
        if (own := at - sym(self.outer)).is_const:
            return there - own.const
        if (last := at - sym(self.bound)).is_const:
            return there - last.const - 1
        return _ALL if at.is_const and at.const < there else 0

    def _executed_bound(self, op_id: int, turns: int) -> int:
        """Below which point of the outermost dimension an operation has run everywhere."""
        part, within = self._locate_part(turns)
        places = self._places.get(op_id, [])
        now = [p for p in places if p.part == part and within]
        before = [p for p in places if p.part < part]
        if any(p.offset is None for p in (*now, *before)):  # in a turn, it may not have run yet
            return 0 if now or len(before) < len(places) else _ALL
        reached = [self._last_point(p, within) for p in now] or [
            self._last_point(p, None) for p in before if p.part == max(q.part for q in before)
        ]
        return min(reached, default=-1) + 1

    def _last_point(self, place: _LoopPosition, turns: int | None) -> int:
        """The last point at which an operation has run after so many turns of its loop, or all."""
        part = self._parts[place.part]
        assert place.offset is not None
        if not isinstance(part, Loop):
            return place.offset
        return place.offset + (part.first.const + turns - 1 if turns else part.last.const)

    def _locate_part(self, turns: int) -> tuple[int, int]:
        """The part of the nest that a run is in after so many turns, and its turns there."""
        last = (0, 0)
        for k, part in enumerate(self._parts):
            if isinstance(part, Loop) and any(part is loop for loop in self._loops):
                last = (k, min(turns, count_of(part)))
                turns -= last[1]
                if turns <= 0:
                    break
        return last


@dataclass(frozen=True)
class SoFar:
    """What is there between two turns of a run, of which `turns` are done.

    The last value of a parameter is there, since the next turn would read it; that of another tensor
    may have made room for others.
    """

    progress: RunProgress
    turns: int

    def points(self, sink: Op) -> int:
        """At how many points of the outermost dimension what a sink reads is there."""
        return self.progress.points(sink, self.turns)

    def bounds(self, sink: Op, bounds: Mapping[str, int]) -> Mapping[str, int] | None:
        """The bounds up to which a sink is there; None where it is not."""
        outer, count = self.progress.outer, self.points(sink)
        if outer is None or not count:
            return {**bounds, self.progress.bound: 0} if outer in sink.domain else None
        if outer not in sink.domain:
            return bounds if count >= _ALL or sink.attrs.role != "output" else None
        name = self.progress.bound
        return {**bounds, name: min(count, bounds[name])}

    def last_bound(self, sink: Op) -> dict[str, int]:
        """The bound, by name, at which a sink reads the last point that is there.

        A sink that varies over the dimension reads no other points than in a whole run.
        """
        count = self.points(sink)
        if self.progress.outer is None or self.progress.outer in sink.domain or count >= _ALL:
            return {}
        return {self.progress.bound: count}


_ALL = 1 << 40  # more than any bound


def _find_executes(node: Node) -> Iterable[Execute]:
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, Execute):
            yield node
        stack += children(node)
