"""From a schedule with its frees to the loop AST, under actual bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq

from timerl_nb.loops.nodes import Ast, Deallocate, Execute, If, Loop, Node, Sequence
from timerl_nb.loops.tidy import tidy
from timerl_nb.memory.lifetimes import Lifetime, Tensor, free_calls, free_name
from timerl_nb.schedule.constraints import Constraints
from timerl_nb.schedule.names import statement_names
from timerl_nb.symbolic.expr import Cond, Lin
from timerl_nb.symbolic.polyhedra import Point
from timerl_nb.symbolic.scheduling import ScheduleTree


class _Builder:
    """Makes AST nodes of isl's scan; sequences are flat."""

    def __init__(self, ops: Mapping[str, int], frees: Mapping[str, str]) -> None:
        self._ops, self._frees = ops, frees

    def loop(self, counter: str, first: Lin, last: Lin, step: int, body: Node) -> Node:
        return Loop(counter, first, last, step, body)

    def branch(self, cond: Cond, then: Node, other: Node | None) -> Node:
        return If(cond, then, other)

    def sequence(self, parts: Seq[Node]) -> Node:
        flat: list[Node] = []
        for part in parts:
            flat += part.parts if isinstance(part, Sequence) else (part,)
        return flat[0] if len(flat) == 1 else Sequence(tuple(flat))

    def call(self, name: str, point: tuple[Lin, ...]) -> Node:
        if name in self._ops:
            return Execute(self._ops[name], point)
        return Deallocate(self._frees[name], point)


def build_ast(
    constraints: Constraints,
    schedule: ScheduleTree,
    lifetimes: Iterable[Lifetime],
    bounds: Point,
    tensors: Mapping[Tensor, str],
) -> Ast:
    """The loops that run the schedule and free every value behind its last reader.

    Args:
        tensors: what tensors are called.
    """
    lives = tuple(lifetimes)
    ops = {name: op.id for name, op in constraints.ops.items()}
    builder = _Builder(ops, {free_name(life): life.name for life in lives})
    root = schedule.with_calls_after(free_calls(lives)).scan(bounds, builder)
    pdg = constraints.pdg
    values = {life.name: ", ".join(tensors[tensor] for tensor in life.tensors) for life in lives}
    return Ast(tidy(root), statement_names(pdg), values)
