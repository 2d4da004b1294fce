"""Progress of a run: the known points of the outermost dimension after each iteration.

The loop nest determines it: in an iteration, an operation runs at the loop's counter plus a constant.
Operations of another form count as unknown until the end.
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
    """Position of an operation: the part of the nest, and the distance of its point from the counter."""

    part: int
    offset: (
        int | None
    )  # along the outermost dimension; None if the operation does not vary along it


class RunProgress:
    """Known points after each iteration of a program's outermost loops.

    Args:
        statements: Statements of the program.
        ast: Loop nest.
        loops: Loops with a stop after each iteration; all outermost loops by default.

    Attributes:
        turns: Total number of iterations; None if unknown.
        outer: Common dimension of all outermost loops; None if there is none.
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
        """Name of the bound of the outermost dimension."""
        assert self.outer is not None
        return self._pdg.dims[self.outer].bound

    def _turns(self) -> int | None:
        loops = self._loops
        if not loops or not all(loop.first.is_const and loop.last.is_const for loop in loops):
            return None
        return sum(map(count_of, loops))

    def _outer(self) -> str | None:
        """Return the common dimension of all outermost loops."""
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
        # an operation that advances otherwise is assumed to finish at the very end
        return shift.const if shift.is_const else -(1 << 40)

    def points(self, sink: Op, turns: int) -> int:
        """Return the number of leading points of the outermost dimension at which a sink is known.

        A sink is known at a point if all values that it reads exist. For a sink that does not vary along
        the dimension, such as a parameter at its last point: the bound for which it would be known.
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
        """Return the bound below which an operation has run at all points of the outermost dimension."""
        part, within = self._locate_part(turns)
        places = self._places.get(op_id, [])
        now = [p for p in places if p.part == part and within]
        before = [p for p in places if p.part < part]
        if any(p.offset is None for p in (*now, *before)):  # it may run later in the iteration
            return 0 if now or len(before) < len(places) else _ALL
        reached = [self._last_point(p, within) for p in now] or [
            self._last_point(p, None) for p in before if p.part == max(q.part for q in before)
        ]
        return min(reached, default=-1) + 1

    def _last_point(self, place: _LoopPosition, turns: int | None) -> int:
        """Return the last point of an operation after some iterations of its loop, or after all of them."""
        part = self._parts[place.part]
        assert place.offset is not None
        if not isinstance(part, Loop):
            return place.offset
        return place.offset + (part.first.const + turns - 1 if turns else part.last.const)

    def _locate_part(self, turns: int) -> tuple[int, int]:
        """Return the part of the nest that a run has reached, and its completed iterations."""
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
    """Known values of a run after `turns` iterations.

    The last value of a parameter is known, as the next iteration would read it. Values of other tensors
    may be overwritten.
    """

    progress: RunProgress
    turns: int

    def points(self, sink: Op) -> int:
        """Return the number of leading points of the outermost dimension at which a sink is known."""
        return self.progress.points(sink, self.turns)

    def bounds(self, sink: Op, bounds: Mapping[str, int]) -> Mapping[str, int] | None:
        """Return the bounds up to which a sink is known; None if it is unknown."""
        outer, count = self.progress.outer, self.points(sink)
        if outer is None or not count:
            return {**bounds, self.progress.bound: 0} if outer in sink.domain else None
        if outer not in sink.domain:
            return bounds if count >= _ALL or sink.attrs.role != "output" else None
        name = self.progress.bound
        return {**bounds, name: min(count, bounds[name])}

    def last_bound(self, sink: Op) -> dict[str, int]:
        """Return the bound, by name, at which a sink reads the last known point.

        A sink that varies along the dimension reads the same points as in a complete run.
        """
        count = self.points(sink)
        if self.progress.outer is None or self.progress.outer in sink.domain or count >= _ALL:
            return {}
        return {self.progress.bound: count}


_ALL = 1 << 40  # above every bound


def _find_executes(node: Node) -> Iterable[Execute]:
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, Execute):
            yield node
        stack += children(node)
