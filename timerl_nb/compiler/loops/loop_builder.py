"""Construction of the loop nest from a schedule with deallocations and swaps, under actual bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq

from timerl_nb.compiler.ir.graph_text import about
from timerl_nb.compiler.ir.operations import Op, Tensor
from timerl_nb.compiler.isl.ast_generation import Scan
from timerl_nb.compiler.isl.isl_scheduler import ScheduleTree
from timerl_nb.compiler.isl.sets_and_relations import Point
from timerl_nb.compiler.loops.counter_names import shown_nodes
from timerl_nb.compiler.loops.dynamic_termination import guard, with_ends
from timerl_nb.compiler.loops.loop_nodes import (
    Ast,
    Deallocate,
    Execute,
    Fetch,
    If,
    Loop,
    Node,
    Offload,
    Sequence,
    Transfer,
)
from timerl_nb.compiler.loops.range_instructions import tidy
from timerl_nb.compiler.loops.unbounded_loops import without_last_turn
from timerl_nb.compiler.memory.budget.swapping import NO_SWAPS, Swaps, leave_name, return_name
from timerl_nb.compiler.memory.liveness.last_uses import Lifetime, free_calls, free_name
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.symbolic.dimensions import Dims
from timerl_nb.compiler.symbolic.index_expressions import TRUE, Cond, Lin


class _Builder:
    """Makes nodes from isl's scan, with flat sequences."""

    def __init__(
        self,
        dims: Dims,
        ops: Mapping[str, Op],
        transfers: Mapping[str, tuple[type[Transfer], Lifetime]],
    ) -> None:
        self._dims, self._ops, self._transfers = dims, ops, transfers

    def loop(self, depth: int, counter: str, first: Lin, last: Lin, step: int, body: Node) -> Node:
        return Loop(depth, counter, first, last, step, body)

    def branch(self, cond: Cond, then: Node, other: Node | None) -> Node:
        return If(cond, then, other)

    def sequence(self, parts: Seq[Node]) -> Node:
        flat: list[Node] = []
        for part in parts:
            flat += part.parts if isinstance(part, Sequence) else (part,)
        return flat[0] if len(flat) == 1 else Sequence(tuple(flat))

    def call(self, name: str, point: tuple[Lin, ...]) -> Node:
        if name in self._ops:
            op = self._ops[name]
            return Execute(op.id, point, guard(self._dims, op.domain, op.where, point))
        kind, life = self._transfers[name]
        return kind(life.name, point, guard(self._dims, life.domain, TRUE, point))


def build_ast(
    constraints: Constraints,
    schedule: ScheduleTree,
    lifetimes: Iterable[Lifetime],
    bounds: Point,
    tensors: Mapping[Tensor, str],
    swaps: Swaps = NO_SWAPS,
) -> Ast:
    """Return the loops that run the schedule and free every value after its last read.

    Swapped values are fetched before a read and offloaded after one, before any deallocation.

    Args:
        constraints: the dependences.
        schedule: the schedule.
        lifetimes: the lifetimes of values.
        bounds: actual bounds.
        tensors: the names of tensors.
        swaps: the swaps.
    """
    lives = tuple(lifetimes)
    transfers: dict[str, tuple[type[Transfer], Lifetime]] = {}
    for life in lives:
        transfers[free_name(life)] = (Deallocate, life)
        transfers[leave_name(life.name)] = (Offload, life)
        transfers[return_name(life.name)] = (Fetch, life)
    grafted = schedule.graft_calls(
        swaps.fetch_calls(), [*swaps.offload_calls(), *free_calls(lives)]
    )
    builder = _Builder(constraints.pdg.dims, constraints.statements.ops, transfers)
    scan = Scan(grafted, bounds, builder)
    pdg = constraints.pdg

    def name_of(some: Iterable[Tensor]) -> str:
        return ", ".join(tensors[tensor] for tensor in some)

    moved = {swap.lifetime: name_of(swap.tensors) for swap in swaps.all}
    values = {life.name: name_of(life.tensors) for life in lives}
    known = {op.id: about(op) for op in constraints.statements.ops.values()}
    nest = tidy(scan.root)
    if pdg.dims.dynamic:
        nest = with_ends(nest)
    if pdg.dims.endless is not None:
        nest = without_last_turn(nest)
    names = pdg.names.statements
    guarded = sorted(names[constraints.statements.ops[name].id] for name in scan.guarded)
    shown = shown_nodes(nest, {op.id: op.domain for op in pdg})
    return Ast(nest, names, values, moved, known, guarded, shown)
