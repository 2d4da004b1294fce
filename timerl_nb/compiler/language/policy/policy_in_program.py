"""Use of an extracted policy inside another program: its action, then its next state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.ir.operation_attributes import RngAttrs
from timerl_nb.compiler.ir.operations import Read
from timerl_nb.compiler.language.indexing.recurrence_initialization import (
    initial_branch,
    previous_branches,
)
from timerl_nb.compiler.language.policy.policy_graph import PolicyGraph
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import (
    RecurrentTensor,
    broadcast_to,
    constant,
    elementwise,
    tensor_of,
)
from timerl_nb.compiler.symbolic.dimensions import Domain


def copy_operations(
    graph: PolicyGraph, to: Context, bound: Mapping[int, RecurrentTensor], domain: Domain
) -> Callable[[Read], RecurrentTensor]:
    """Write a policy's operations into a context.

    Args:
        bound: the tensors of inputs, weights, frozen values and state, by operation.
        domain: the dimensions of independent draws.

    Returns:
        a function from the graph's reads to tensors.
    """
    made: dict[int, RecurrentTensor] = dict(bound)
    for op_id in graph.pdg.order:
        if op_id in made:
            continue
        op = graph.pdg[op_id]
        attrs = op.attrs
        if isinstance(attrs, RngAttrs):
            attrs = RngAttrs(to.next_stream(), domain, attrs.shape)
        reads = [made[read.source].read for read in op.inputs]
        made[op_id] = tensor_of(to, to.add(op.kind, reads, attrs, label=op.label, origin=op.origin))
    return lambda read: made[read.source]


def broadcast_over(x: RecurrentTensor, domain: Domain) -> RecurrentTensor:
    """Return a tensor at every point of a domain, broadcast if necessary."""
    if x.domain == domain:
        return x
    merge = x.ctx.open_merge(x.type, domain, x.op.label)
    x.ctx.add_branch(merge.id, x.read)
    return tensor_of(x.ctx, merge)


@dataclass
class InProgram:
    """Policy written into a program: first its action, then its state after the step.

    Args:
        graph: the policy.
        given: its weights, frozen values and indices, by name.
        o: the observation, at every step.
        time: the dimensions of steps, the last one fastest.
    """

    graph: PolicyGraph
    given: Mapping[str, RecurrentTensor]
    o: RecurrentTensor
    time: Domain

    def __post_init__(self) -> None:
        graph, ctx, domain = self.graph, self.o.ctx, self.o.domain
        # Rewards and flags are those of the previous step.
        self._came = {n: self._declare_carried(n, k) for n, k in graph.inputs.items() if n != "obs"}
        self._state = {n: self._declare_carried(n, s.op_id) for n, s in graph.state.items()}
        bound = {k: self.given[name] for name, k in graph.given.items()}
        bound |= {graph.inputs[n]: x for n, x in self._came.items()}
        bound |= {graph.state[n].op_id: x for n, x in self._state.items()}
        if "obs" in graph.inputs:
            bound[graph.inputs["obs"]] = self.o
        self._of = copy_operations(graph, ctx, bound, domain)
        self.made = {
            name: broadcast_over(self._of(read), domain) for name, read in graph.made.items()
        }

    def _declare_carried(self, name: str, op_id: int) -> RecurrentTensor:
        merge = self.o.ctx.open_merge(self.graph.pdg[op_id].type, self.o.domain, name)
        return tensor_of(self.o.ctx, merge)

    def goes_on(self, step: Any, *, restarts: bool) -> None:
        """Write the next state from the results of the policy and of the environment.

        Args:
            step: the result of the environment's step.
            restarts: whether the step after an episode's end begins another episode.

        Raises:
            OptionError: the environment does not return an input of the policy.
        """
        ctx = self.o.ctx
        for name, x in self._came.items():
            first, after = step.shown.get(name, (None, None))
            if after is not None and after.type == x.type:
                carry_state(x, first, after, self.time, None)  # it belongs to the next observation
                continue
            shown = getattr(step, name, None)
            if not isinstance(shown, RecurrentTensor) or shown.type != x.type:
                raise OptionError(
                    f"the policy reads {name!r}, but this environment does not return it.",
                    origin=self.graph.origin,
                    hint=f"call the policy directly: policy(observation, {name}=…).",
                )
            nothing = broadcast_to(constant(ctx, 0, x.dtype), x.shape)
            carry_state(x, nothing, shown, self.time, step if restarts else None)
        for name, x in self._state.items():
            one = self.graph.state[name]
            first, after = self._of(one.first), self._of(one.after)
            carry_state(x, first, after, self.time, step if restarts else None)

    @property
    def state(self) -> Mapping[str, RecurrentTensor]:
        """The state before each step, by name."""
        return self._state


def carry_state(
    x: RecurrentTensor, first: RecurrentTensor, after: RecurrentTensor, time: Domain, step: Any
) -> None:
    """Define a state by its first value and its value after each step.

    Args:
        x: the undefined state, at every step.
        first: its value at the first step of an episode.
        after: its value after a step.
        time: the dimensions of steps, the last one fastest.
        step: the result of the environment's step, whose end of an episode restarts the state; None if
            nothing does.
    """
    ctx, domain = x.ctx, x.domain
    if step is not None and not step.endless:
        done = step.done.reshape((1,) * x.rank)
        after = elementwise("where", [done, first, after])
    after = after if after.domain == domain else broadcast_over(after, domain)
    ctx.add_branch(x.read.source, initial_branch(first.settled(), time))
    for read in previous_branches(after.settled(), time):
        ctx.add_branch(x.read.source, read)
