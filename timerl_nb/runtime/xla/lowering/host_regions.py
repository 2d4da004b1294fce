"""Division of a loop nest into calls to XLA and work on the host.

The code between two operations on the host is one call, including loops without such operations. The host
runs the loops around its operations. A call first stores the results of the preceding operation on the
host, and finally returns the operands of the next one. These operations never access buffers.

The host also copies values between buffers and its memory. Code movable across such
a copy is part of the call before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, Final

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_attributes import BoundAttrs
from timerl_nb.compiler.ir.operations import DataflowAttrs
from timerl_nb.compiler.loops.loop_nodes import (
    Deallocate,
    Execute,
    Fetch,
    Guard,
    If,
    Loop,
    Node,
    Offload,
    Transfer,
    children,
    is_repeated,
    subtree_nodes,
)
from timerl_nb.compiler.loops.loop_nodes import Sequence as Block
from timerl_nb.compiler.symbolic.expression_evaluation import compile_python, python_source
from timerl_nb.compiler.symbolic.index_expressions import Entry, Slice
from timerl_nb.runtime.xla.lowering.loop_carried_buffers import Flow, Names

# Reason for execution on the host, by kind of operation.
HOSTED: Final[Mapping[str, str]] = {
    "udf": "a Python function",
    "call": "a Python function",
    "checkpoint": "it writes a file",
}


@dataclass(frozen=True)
class Call:
    """Part of the loop nest, as one jitted function.

    Attributes:
        number: Number of the call, from 1.
        node: Code of the call. For a repeated loop, each call runs one iteration, or `fuse` iterations.
        changed: Donated buffers.
        constant: Other argument buffers.
        made: Returned buffers.
        counters: Counters of the loops on the host around it.
        given: Preceding host operation; the call first stores its results. None if there is none.
        next_host_operation: Next host operation; the call also returns its operands. None if there is none.
        fuse: Iterations of an outermost loop per call.
    """

    number: int
    node: Node
    changed: Names
    constant: Names
    made: Names
    counters: tuple[str, ...] = ()
    given: Execute | None = None
    next_host_operation: Execute | None = None
    fuse: int = 1

    @cached_property
    def loop(self) -> Loop | None:
        """Loop with one call per iteration or group of iterations; None if one call runs it completely."""
        repeated = not self.counters and is_repeated(self.node, self.fuse)
        return self.node if isinstance(self.node, Loop) and repeated else None


@dataclass(frozen=True)
class HostOperation:
    """Operation that runs on the host."""

    node: Execute
    counters: tuple[str, ...]

    @cached_property
    def point(self) -> Any:
        """Function from the counters' values to the point."""
        text = "".join(f"{python_source(e)}, " for e in self.node.point)
        return compile_python(f"({text})", self.counters)


@dataclass(frozen=True)
class HostTransfer:
    """Copy of values to the host or back, or deallocation on the host."""

    node: Transfer
    counters: tuple[str, ...]

    @cached_property
    def points(self) -> Any:
        """Function from the counters' values, and the dynamic bounds of its guard, to the points."""
        node = self.node
        names = self.counters if node.guard is None else (*self.counters, *node.guard.names)
        text = "".join(f"{_range_source(entry)}, " for entry in node.point)
        ranges = compile_python(f"({text})", names)
        return lambda *at: product(*ranges(*at))


@dataclass(frozen=True)
class HostControlFlow:
    """Loop or condition with host work inside, so the host runs it."""

    node: Loop | If | Guard
    counters: tuple[str, ...]
    parts: tuple[Part, ...]
    other: tuple[Part, ...] = ()

    @cached_property
    def condition_function(self) -> Any:
        """Function from the counters' values to the truth of the condition."""
        assert isinstance(self.node, If)
        return compile_python(python_source(self.node.cond), self.counters)


Part = Call | HostOperation | HostTransfer | HostControlFlow


@dataclass
class _Draft:
    """Call under construction."""

    given: Execute | None = None
    nodes: list[Node] = field(default_factory=list)
    next_host_operation: Execute | None = None
    closed: bool = False  # no node can be added at its end
    overtaken: Names = frozenset()  # buffers of copies overtaken by later nodes of this call


class Regions:
    """Divides a loop nest.

    Args:
        root: Root of the loop nest.
        pdg: Dependence graph.
        flow: Liveness of buffers.
        fuse: Iterations of an outermost loop per call.

    Attributes:
        parts: Parts of the program, in order.
        calls: All calls.
    """

    def __init__(self, root: Node, pdg: Pdg, flow: Flow, fuse: int = 1) -> None:
        self._pdg, self._flow, self._fuse = pdg, flow, fuse
        self.calls: list[Call] = []
        self.parts = self._divide_nodes([root], (), None)

    def _divide_nodes(
        self, nodes: Iterable[Node], counters: tuple[str, ...], seen: set[str] | None
    ) -> tuple[Part, ...]:
        """Divide consecutive nodes.

        Args:
            nodes: The nodes.
            counters: Counters of the loops around them.
            seen: Buffers accessed so far in an iteration of an outermost loop; None outside of such loops.
        """
        found: list[Part] = []
        for item in self._draft_calls(nodes, counters):
            if isinstance(item, _Draft):
                if (
                    item.given
                    or item.next_host_operation
                    or any(map(self._flow.writes, item.nodes))
                ):
                    found.append(self._call(item, counters, seen))
                continue
            if isinstance(item, Execute):
                found.append(self._on_host(item, counters))
            elif isinstance(item, Transfer):
                found.append(HostTransfer(item, counters))
            else:
                found.append(self._build_control_flow(item, counters))
            if seen is not None and isinstance(found[-1], HostControlFlow | HostTransfer):
                seen |= self._flow.accessed(item)
        return tuple(found)

    def _draft_calls(
        self, nodes: Iterable[Node], counters: tuple[str, ...]
    ) -> list[_Draft | Execute | Transfer | Loop | If]:
        """Return drafts of calls, and the host work between them."""
        found: list[_Draft | Execute | Transfer | Loop | If] = []

        def call_draft_for(node: Node | None = None) -> _Draft:
            """Return the draft for a node, or for the operands of a host operation."""
            overtaken: Names = frozenset()
            for last in reversed(found):
                if isinstance(last, _Draft):
                    if last.closed:
                        break
                    last.overtaken |= overtaken
                    return last
                if node is None or not self._commute(last, node):
                    break
                overtaken |= self._flow.accessed(last)
            new = _Draft()
            found.append(new)
            return new

        for node in _flat(nodes):
            if isinstance(node, Execute) and self._has_host_work(node):
                if node.guard is None and self._flow.statements.of_op(node.op_id).operands:
                    last = call_draft_for()
                    last.next_host_operation, last.closed = node, True
                found.append(node)
                if node.guard is None and self._live_writes(node):
                    found.append(_Draft(given=node))
            elif isinstance(node, Transfer | Loop | If) and self._has_host_work(node):
                found.append(node)
            elif not counters and is_repeated(node, self._fuse):
                found.append(_Draft(nodes=[node], closed=True))
            else:
                call_draft_for(node).nodes.append(node)
        return found

    def _commute(self, last: Node, node: Node) -> bool:
        """Whether a node can run before host work. Only copies of values can be overtaken."""
        if any(isinstance(n, Execute | Loop) for n in subtree_nodes(last)):
            return False
        flow = self._flow
        return not (
            flow.writes(last) & flow.accessed(node) or flow.accessed(last) & flow.writes(node)
        )

    def _on_host(self, node: Execute, counters: tuple[str, ...]) -> HostOperation | HostControlFlow:
        if node.guard is None:
            return HostOperation(node, counters)
        next_host_operation, given = _Draft(next_host_operation=node), _Draft(given=node)
        parts: list[Part] = [HostOperation(node, counters)]
        if self._flow.statements.of_op(node.op_id).operands:
            parts.insert(0, self._call(next_host_operation, counters, None))
        if self._live_writes(node):
            parts.append(self._call(given, counters, None))
        return HostControlFlow(node.guard, counters, tuple(parts))

    def _build_control_flow(self, node: Loop | If, counters: tuple[str, ...]) -> HostControlFlow:
        if isinstance(node, Loop):
            turn: set[str] | None = None if counters else set()
            inner = (*counters, node.counter)
            return HostControlFlow(node, counters, self._divide_nodes([node.body], inner, turn))
        other = () if node.other is None else self._divide_nodes([node.other], counters, None)
        return HostControlFlow(
            node, counters, self._divide_nodes([node.then], counters, None), other
        )

    def _call(self, draft: _Draft, counters: tuple[str, ...], seen: set[str] | None) -> Call:
        flow, nodes = self._flow, draft.nodes
        node = nodes[0] if len(nodes) == 1 else Block(tuple(nodes))
        number = len(self.calls) + 1
        before, after = self._live_before(draft), self._live_after(draft)
        if not counters and is_repeated(node, self._fuse):
            assert isinstance(node, Loop)
            kept = flow.loop_carried(node)
            call = Call(number, node, kept, before - kept, kept, fuse=self._fuse)
        else:
            writes, touched = self._accessed_buffers(draft)
            if seen is not None:
                before -= flow.local - seen  # this call creates them
                seen |= touched
            kept = writes & (after | before | draft.overtaken)
            taken, constant = kept & before, (before & touched) - kept
            call = Call(
                number,
                node,
                taken,
                constant,
                kept,
                counters,
                draft.given,
                draft.next_host_operation,
            )
        self.calls.append(call)
        return call

    def _live_before(self, draft: _Draft) -> Names:
        if draft.given is not None:
            return self._flow.live_between(draft.given)
        first = draft.nodes[0] if draft.nodes else draft.next_host_operation
        assert first is not None
        return self._flow.live_in(first)

    def _live_after(self, draft: _Draft) -> Names:
        if draft.next_host_operation is not None:
            return self._flow.live_between(draft.next_host_operation)
        last = draft.nodes[-1] if draft.nodes else draft.given
        assert last is not None
        return self._flow.live_out(last)

    def _accessed_buffers(self, draft: _Draft) -> tuple[Names, Names]:
        """Return the changed buffers of a call, and all accessed buffers."""
        flow = self._flow
        writes: Names = frozenset().union(*map(flow.writes, draft.nodes))
        touched: Names = flow.lengths.union(*map(flow.accessed, draft.nodes))
        if draft.given is not None:
            writes |= self._live_writes(draft.given)
        if draft.next_host_operation is not None:
            touched |= flow.reads(self._pdg[draft.next_host_operation.op_id])
        return writes, touched | writes

    def _live_writes(self, node: Execute) -> Names:
        """Return the buffers for results of an operation that are read later."""
        return self._flow.writes(node) & self._flow.live_out(node)

    def _has_host_work(self, node: Node) -> bool:
        """Whether a node is or contains host work."""
        if isinstance(node, Execute):
            return not isinstance(self._pdg[node.op_id].attrs, DataflowAttrs | BoundAttrs)
        if isinstance(node, Deallocate):
            return node.lifetime in self._flow.plan.swaps.absences
        if isinstance(node, Offload | Fetch):
            return True
        return any(map(self._has_host_work, children(node)))


def _range_source(entry: Entry) -> str:
    if isinstance(entry, Slice):
        return f"range({python_source(entry.lo)}, {python_source(entry.hi)})"
    return f"({python_source(entry)},)"


def _flat(nodes: Iterable[Node]) -> Sequence[Node]:
    """Return nodes with sequences expanded."""
    found: list[Node] = []
    for node in nodes:
        found += _flat(node.parts) if isinstance(node, Block) else [node]
    return found
