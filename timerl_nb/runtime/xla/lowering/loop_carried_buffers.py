"""Liveness of buffers in the loop nest: reads, writes, and carried buffers.

A loop carries the buffers that one iteration writes and a later iteration, or the code after the loop, reads.
A buffer that every iteration overwrites first is not carried. A buffer is local if all its values are
written and read within one iteration of an outermost loop.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from timerl_nb.compiler.ir.analysis.resolved_reads import tensors
from timerl_nb.compiler.ir.host.iteration_io import is_iteration_output
from timerl_nb.compiler.ir.operation_attributes import BoundAttrs
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.loops.loop_nodes import (
    Deallocate,
    Execute,
    Fetch,
    Guard,
    If,
    Loop,
    Node,
    Offload,
    Sequence,
    children,
)
from timerl_nb.compiler.memory.liveness.value_lifetimes import ValueLiveRanges
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.buffer_layout import Layout
from timerl_nb.compiler.scheduling.statements import Operand
from timerl_nb.compiler.symbolic.array_evaluation import values

# If the bytes of all buffers exceed the planned peak by at most this fraction (1/8), buffers need not share
# memory. Buffers with several slots are then not local, which avoids creating them in every iteration. The
# exception is a buffer handed out in every iteration: it must be copied if it persists, but not if it is local.
_SHARED = 8

Names = frozenset[str]
_NONE: Names = frozenset()


def length_buffer(bound: str) -> str:
    """Return the name of the buffer with the values of a dynamic bound."""
    return f"lengths of {bound}"


class Flow:
    """Liveness of the buffers in one loop nest.

    Args:
        root: Root of the loop nest.
        plan: Memory plan.
        layout: Buffer layout.

    Attributes:
        local: Names of the buffers without values between iterations of outermost loops.
        after: Names of the buffers with outputs.
        lengths: Names of the buffers with the values of dynamic bounds.
    """

    def __init__(self, root: Node, plan: MemoryPlan, layout: Layout) -> None:
        self.plan, self.pdg, self.layout = plan, plan.pdg, layout
        self.statements = plan.statements
        self._writes: dict[int, Names] = {}
        self._carried: dict[int, Names] = {}
        self._live: dict[int, Names] = {}
        self._next: dict[int, Names] = {}
        self._touched: dict[int, Names] = {}
        self.lengths: Names = frozenset(length_buffer(dim.bound) for dim in self.pdg.dims.dynamic)
        self._nodes: list[Node] = []  # references, to keep the ids above unique
        outer = root.parts if isinstance(root, Sequence) else (root,)
        self._outer = [n for n in outer if isinstance(n, Loop)]
        within = {loop.counter: _within_turns(plan, layout, loop) for loop in self._outer}
        found = (within[loop.counter] & self.accessed(loop) for loop in self._outer)
        given = {layout.home_of(tensor).buffer.name for tensor in layout.input_arrays}
        self.local = _NONE.union(*found) - self._shared_buffers(outer) - given
        if layout.nbytes <= plan.peak + plan.peak // _SHARED:
            handed_out = self._handed_out_buffers()
            self.local = frozenset(
                n for n in self.local if n in handed_out or not layout.buffers[n].axes
            )
        self.after = self._output_buffers()
        self._record_liveness(root, self.after)

    def _shared_buffers(self, outer: tuple[Node, ...]) -> Names:
        """Return buffers shared by an outermost loop and other code, as isl may move code out of the loop."""
        found: set[str] = set()
        seen: set[str] = set()
        for part in outer:
            touched = self.accessed(part)
            found |= touched & seen if isinstance(part, Loop) else touched
            seen |= touched
        return frozenset(found)

    def writes(self, node: Node) -> Names:
        """Return the buffers changed by a node."""
        if id(node) not in self._writes:
            self._nodes.append(node)
            self._writes[id(node)] = self._written_buffers(node)
        return self._writes[id(node)]

    def loop_carried(self, loop: Loop) -> Names:
        """Return the carried buffers of a loop, including its results."""
        return self._carried[id(loop)]

    def live_in(self, node: Node) -> Names:
        """Return the live buffers before a node."""
        return self._live[id(node)]

    def live_out(self, node: Node) -> Names:
        """Return the live buffers after a node."""
        return self._next[id(node)]

    def live_between(self, node: Execute) -> Names:
        """Return the live buffers between an operation's reads and its writes."""
        after = self.live_out(node)
        return (
            after
            if node.guard is not None
            else after - self._overwritten_buffers(self.pdg[node.op_id])
        )

    def accessed(self, node: Node) -> Names:
        """Return the buffers read or changed by a node."""
        if id(node) not in self._touched:
            self._nodes.append(node)
            found = self.writes(node).union(*map(self.accessed, children(node)))
            if isinstance(node, Execute):
                found |= self.reads(self.pdg[node.op_id])
            if isinstance(node, Offload):
                found |= self._moved_buffers(node)
            found |= self.lengths  # guards read the dynamic bounds
            self._touched[id(node)] = found
        return self._touched[id(node)]

    def _written_buffers(self, node: Node) -> Names:
        if isinstance(node, Execute):
            op = self.pdg[node.op_id]
            if isinstance(op.attrs, BoundAttrs):
                return frozenset({length_buffer(self.pdg.dims[op.attrs.dim].bound)})
            outs = ((op.id, k) for k in range(len(op.outputs)))
            made = (tensor for tensor in outs if tensor not in self.layout.input_arrays)
            homes = (home for tensor in made for home in self.layout.homes[tensor])
            return frozenset(home.buffer.name for home in homes)
        if isinstance(node, Deallocate):
            return frozenset(
                self.layout.home_of(t).buffer.name
                for t in self.plan.lifetimes[node.lifetime].tensors
                if self.pdg[t[0]].outputs[t[1]].reduce is not None
            )
        if isinstance(node, Fetch):
            return self._moved_buffers(node)
        return frozenset().union(*(self.writes(part) for part in children(node)))

    def _moved_buffers(self, node: Offload | Fetch) -> Names:
        """Return the buffers of values copied by an offload or fetch."""
        moved = self.plan.swapped_tensors(node.lifetime)
        return frozenset(self.layout.home_of(tensor).buffer.name for tensor in moved)

    # --- reading ---------------------------------------------------------------------------------

    def reads(self, op: Op) -> Names:
        """Return the buffers read by an operation, including its accumulators."""
        found: set[str] = set()
        for slot, operand in enumerate(self.statements.of_op(op.id).operands):
            latest = self.layout.latest.get((op.id, slot), {})
            behind = self._operand_buffers(operand)
            found |= {latest[n].buffer.name if n in latest else n for n in behind}
        for k, output in enumerate(op.outputs):
            if output.reduce is not None:
                found.add(self.layout.home_of((op.id, k)).buffer.name)
        if isinstance(op.attrs, BoundAttrs):
            found.add(length_buffer(self.pdg.dims[op.attrs.dim].bound))
        return frozenset(found.union(map(length_buffer, self.pdg.dims.lengths(op.domain))))

    def _operand_buffers(self, operand: Operand) -> set[str]:
        found = tensors(self.pdg, operand.read, self.layout.merges)
        homes = (self.layout.merges.get(k) or self.layout.home_of((k, out)) for k, out in found)
        return {home.buffer.name for home in homes}

    def _output_buffers(self) -> Names:
        """Return the buffers with outputs."""
        outputs = self.statements.outputs
        found = {name for one in outputs for o in one.operands for name in self._operand_buffers(o)}
        return self.lengths.union(found)

    def _handed_out_buffers(self) -> Names:
        """Return the buffers read by the outputs of each iteration."""
        return _NONE.union(*(self.reads(op) for op in self.pdg if is_iteration_output(op)))

    # --- liveness --------------------------------------------------------------------------------

    def _record_liveness(self, node: Node, after: Names) -> Names:
        """Compute and record the live buffers before a node, from the live buffers after it."""
        self._nodes.append(node)
        found = self._propagate_liveness(node, after)
        self._live[id(node)], self._next[id(node)] = found, after
        return found

    def _propagate_liveness(self, node: Node, after: Names) -> Names:
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                after = self._record_liveness(part, after)
            return after
        if isinstance(node, If):
            other = after if node.other is None else self._record_liveness(node.other, after)
            return self._record_liveness(node.then, after) | other
        if isinstance(node, Loop):
            return self._solve_loop_liveness(node, after)
        asked = _guard_buffers(node.guard)
        if isinstance(node, Execute):
            op = self.pdg[node.op_id]
            if node.guard is None:
                after -= self._overwritten_buffers(op)
            return after | self.reads(op) | asked
        moved = (
            self._moved_buffers(node) if isinstance(node, Offload | Fetch) else self.writes(node)
        )
        return after | moved | asked

    def _solve_loop_liveness(self, loop: Loop, after: Names) -> Names:
        asked = _guard_buffers(loop.turns)
        needed: Names = _NONE
        while True:
            found = self._record_liveness(loop.body, after | needed | asked)
            if any(loop is one for one in self._outer):
                found -= self.local
            if found <= needed:
                break
            needed |= found
        self._carried[id(loop)] = self.writes(loop.body) & (needed | after)
        return after | needed

    def _overwritten_buffers(self, op: Op) -> Names:
        """Return the buffers overwritten completely by an operation."""
        if isinstance(op.attrs, BoundAttrs):
            return _NONE
        homes = [
            home
            for k, output in enumerate(op.outputs)
            if output.reduce is None and (op.id, k) not in self.layout.input_arrays
            for home in self.layout.homes[op.id, k]
        ]
        return frozenset(home.buffer.name for home in homes if not home.buffer.axes)


def _guard_buffers(guard: Guard | None) -> Names:
    return _NONE if guard is None else frozenset(map(length_buffer, guard.names))


def _within_turns(plan: MemoryPlan, layout: Layout, outer: Loop) -> Names:
    """Return the buffers with values written and last read in the same iteration of an outermost loop.

    The depth of `outer` in the schedule may be above 0, as the nest has no loop for a single iteration.
    """
    clock, depth = plan.clock, outer.depth
    end = len(clock)
    loop, turn = np.full(end + 1, -1), np.full(end + 1, -1)
    for name, around in clock.schedule.loops().items():
        if len(around) > depth:
            number, at = around[depth]
            points = clock.points[name]
            env = clock.env(clock.schedule.statements[name].domain, points)
            loop[clock.ranks[name]] = number
            turn[clock.ranks[name]] = np.broadcast_to(values(at, env), len(points))

    @cache  # many tensors have the same lifetimes
    def is_inside(lives: ValueLiveRanges) -> bool:
        born, last = lives.born, lives.last
        same = (loop[born] == loop[last]) & (turn[born] == turn[last])
        return bool((same & (loop[last] >= 0)).all())

    held: dict[str, list[ValueLiveRanges]] = {}
    for tensor, homes in layout.homes.items():
        for home in homes:
            held.setdefault(home.buffer.name, []).append(plan.spans[tensor].lives)
    return frozenset(name for name, lives in held.items() if all(map(is_inside, lives)))
