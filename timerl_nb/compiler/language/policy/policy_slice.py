"""The policy of a program: the slice of its graph between an environment's observation and its action.

The slice is written once more as a graph without dimensions (`PolicyGraph`). A read of the current
step becomes a read of an input. A read of an earlier step becomes a read of the policy's state.
Values shared by all environments become weights or frozen values. The kernels' rules evaluate the
graph, or `written` writes it into another program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from timerl_nb.base.errors import OptionError, Origin, TimeRLError
from timerl_nb.compiler.ir.dependence_graph import Pdg, at_own_point
from timerl_nb.compiler.ir.host.host_functions import UdfAttrs
from timerl_nb.compiler.ir.host.iteration_io import Given
from timerl_nb.compiler.ir.operation_attributes import (
    AxesAttrs,
    AxisAttrs,
    CheckpointAttrs,
    ConstArray,
    ConstAttrs,
    OutputAttrs,
    RngAttrs,
    ShapeAttrs,
)
from timerl_nb.compiler.ir.operation_kinds import REDUCTIONS
from timerl_nb.compiler.ir.operations import Op, Read, Tensor, reached_from
from timerl_nb.compiler.ir.reference.evaluation_rules import identity
from timerl_nb.compiler.ir.shapes import NUMPY, DType, TensorType
from timerl_nb.compiler.language.indexing.recurrence_initialization import (
    initial_branch,
    previous_branches,
)
from timerl_nb.compiler.language.policy.environment_and_action_record import (
    FROZEN,
    Actor,
    Draw,
    Played,
    call_network,
)
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import (
    RecurrentTensor,
    broadcast_to,
    constant,
    elementwise,
    tensor_of,
)
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import (
    And,
    Atom,
    Cmp,
    Cond,
    Div,
    Extremum,
    Lin,
    Mod,
    Or,
    Slice,
    Sym,
    const,
    sym,
)
from timerl_nb.compiler.symbolic.substitution import subst_cond

How = Literal["mode", "sample", "explore"]
Arrays = Mapping[str, RecurrentTensor]
STEPS: Final = "steps"  # the counter of an episode's steps
_LATE: Final = 1 << 20  # represents the last iteration in comparisons of conditions
_NOISE, _WEIGHTS, _SEEN = "noise", "weights", "seen"


@dataclass(frozen=True)
class State:
    """A tensor of a policy's state.

    Attributes:
        op_id: the operation of its value at the current step.
        first: its value at an episode's first step; made of weights and frozen values alone.
        after: its value at the next step.
    """

    op_id: int
    first: Read
    after: Read


@dataclass(frozen=True)
class PolicyGraph:
    """A policy as a graph without dimensions, from an environment's outputs to an action.

    Attributes:
        inputs: the operations that represent outputs of the environment, by name: "obs", and others
            such as "reward" if the policy reads them.
        weights: the operations that represent the parameters, by name.
        frozen: the operations that represent values of the last iteration, by name.
        indices: the operations that represent dimensions and bounds at the last iteration, by name.
        state: the policy's state between steps, by name.
        made: "action"; "log_prob" if it is drawn from a distribution; "value" of a critic.
        draws: whether the action depends on random bits.
        unlikely: the line of random bits without a most likely value; None if all have one.
        origin: the line of the program's environment step.
    """

    pdg: Pdg
    inputs: Mapping[str, int]
    weights: Mapping[str, int]
    frozen: Mapping[str, int]
    indices: Mapping[str, int]
    state: Mapping[str, State]
    made: Mapping[str, Read]
    draws: bool
    unlikely: Origin | None
    origin: Origin

    @property
    def given(self) -> dict[str, int]:
        """Operations that represent values shared by all environments, by name."""
        return {**self.weights, **self.frozen, **self.indices}

    def shape_of(self, op_id: int) -> tuple[int, ...]:
        """The concrete shape of an operation's value."""
        return tuple(n for n in self.pdg[op_id].shape if isinstance(n, int))


# --- writing a policy into a program --------------------------------------------------------------


def copy_operations(
    graph: PolicyGraph, to: Context, bound: Mapping[int, RecurrentTensor], domain: Domain
) -> Callable[[Read], RecurrentTensor]:
    """Write a policy's operations into a context.

    Args:
        bound: the tensors for the operations that represent inputs, weights, values and state.
        domain: the dimensions of independent draws.

    Returns:
        the tensor for each of the graph's reads.
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
    """A tensor at every point of a domain, broadcast if necessary."""
    if x.domain == domain:
        return x
    merge = x.ctx.open_merge(x.type, domain, x.op.label)
    x.ctx.add_branch(merge.id, x.read)
    return tensor_of(x.ctx, merge)


@dataclass
class InProgram:
    """A policy written into a program: first its action, then its state after the step.

    Args:
        graph: the policy.
        given: its weights, frozen values and indices, by name.
        o: the observation, at every step.
        time: the dimensions of steps, the last one fastest.
    """

    graph: PolicyGraph
    given: Arrays
    o: RecurrentTensor
    time: Domain

    def __post_init__(self) -> None:
        graph, ctx, domain = self.graph, self.o.ctx, self.o.domain
        # rewards and flags come from the previous step
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
        """Write the next state, from results of the policy and the environment.

        Args:
            step: the result of the environment's step.
            restarts: after its end an episode is followed by another at the next step.

        Raises:
            OptionError: an input of the policy is no output of the environment.
        """
        ctx = self.o.ctx
        for name, x in self._came.items():
            shown = getattr(step, name, None)
            if not isinstance(shown, RecurrentTensor) or shown.type != x.type:
                raise OptionError(
                    f"the policy reads {name!r}, which this environment does not show.",
                    origin=self.graph.origin,
                    hint=f"call the policy itself: policy(observation, {name}=…).",
                )
            nothing = broadcast_to(constant(ctx, 0, x.dtype), x.shape)
            self._follows(x, nothing, shown, step if restarts else None)
        for name, x in self._state.items():
            one = self.graph.state[name]
            self._follows(x, self._of(one.first), self._of(one.after), step if restarts else None)

    def _follows(
        self, x: RecurrentTensor, first: RecurrentTensor, after: RecurrentTensor, step: Any
    ) -> None:
        ctx, domain = x.ctx, x.domain
        if step is not None and not step.endless:
            done = step.done.reshape((1,) * x.rank)
            after = elementwise("where", [done, first, after])
        after = after if after.domain == domain else broadcast_over(after, domain)
        ctx.add_branch(x.read.source, initial_branch(first.settled(), self.time))
        for read in previous_branches(after.settled(), self.time):
            ctx.add_branch(x.read.source, read)


# --- the slice of a program -----------------------------------------------------------------------


class _Missing(Exception):
    """A value to be written first."""

    def __init__(self, node: _Node) -> None:
        self.node = node


@dataclass(frozen=True)
class _Node:
    """An output of an operation, `ago` steps before the current one; at an episode's first step."""

    source: int
    out: int
    ago: int = 0
    start: bool = False


@dataclass
class _Slot:
    """A tensor of the state in progress."""

    x: RecurrentTensor
    first: RecurrentTensor
    after: _Node | RecurrentTensor
    name: str


class Slicer:
    """The slices of one program, in all three ways of acting.

    Args:
        ctx: the program; operations to describe draws are added to it for a moment.
        played: the environment's use.
    """

    def __init__(self, ctx: Context, played: Played) -> None:
        self._ctx, self._played = ctx, played
        self._graphs: dict[How, PolicyGraph] = {}
        self._reads: dict[str, Read] = {}
        self.passing: set[str] = set()  # the dimensions of iterations and steps

    def graph(self, how: How) -> PolicyGraph:
        """The policy by the most likely action, by draws, or exactly as in the program.

        Raises:
            OptionError: the program has no such slice; the line says where.
        """
        if how not in self._graphs:
            with self._ctx.described():
                source = _Source(self._ctx, self._played)
                self._graphs[how] = _Writer(source, how).graph()
                self._reads |= source.frozen_reads
                self.passing = {*source.iterations, *self._played.time}
        return self._graphs[how]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an observation."""
        return tuple(self._played.space.shape)

    @property
    def dtype(self) -> DType:
        """Of an observation."""
        return self._played.space.dtype

    @property
    def origin(self) -> Origin:
        """The line of the environment's step."""
        return self._played.origin

    def frozen(self, graph: PolicyGraph) -> dict[str, RecurrentTensor]:
        """The program's tensors whose last values a graph's frozen values are."""
        return {name: RecurrentTensor(self._ctx, self._reads[name]) for name in graph.frozen}


class _Source:
    """A program, looked at from its action."""

    def __init__(self, ctx: Context, played: Played) -> None:
        self.ctx, self.played = ctx, played
        self.space: Dims = ctx.space
        self.now = played.time[-1]
        self.first = {tensor: name for name, tensor in reversed([*played.first.items()])}
        self.came = {tensor: name for name, tensor in reversed([*played.came.items()])}
        self.parameters: dict[int, Any] = {**ctx.parameters, **ctx.after_update}
        self.draws: dict[Tensor, Draw] = {}
        self.modes: dict[Tensor, Read] = {}
        self.log_probs: dict[Tensor, RecurrentTensor] = {}
        self.values: dict[Tensor, RecurrentTensor] = {}
        self.frozen_reads: dict[str, Read] = {}
        self._frozen: dict[int, bool] = {}
        cone = self._cone(played.action.source)
        for tensor, draw in ctx.draws.items():
            if tensor[0] in cone:
                self._describe(tensor, draw)
        for tensor, value in list(ctx.critics.items()):
            if tensor[0] in cone:
                self.values[tensor] = value()
        made = [*self.modes.values(), *(x.read for x in self.log_probs.values())]
        made += [x.read for x in self.values.values()]
        self.ops: dict[int, Op] = {k: ctx[k] for k in ctx.op_ids}
        self.cone = {
            k: self.ops[k] for k in self._cone(played.action.source, *(r.source for r in made))
        }
        self.flags = self._flags()
        self.acting = self.flags[played.action.source]
        self.own = self._own_draws()
        self._find_dimensions()
        self.avail = self._avail()

    def _describe(self, tensor: Tensor, draw: Draw) -> None:
        x = tensor_of(self.ctx, self.ctx[tensor[0]], tensor[1])
        self.draws[tensor] = draw
        with suppress(TimeRLError):  # a distribution may have none
            self.modes[tensor] = draw.mode().read
        with suppress(TimeRLError):
            self.log_probs[tensor] = draw.log_prob(x)

    def op(self, k: int) -> Op:
        return self.ops[k]

    # --- dependence --------------------------------------------------------------------------

    def _onward(self, k: int) -> Iterable[int]:
        """The operands of an operation; empty for the environment's outputs and for parameters."""
        if k in self.parameters:
            return ()
        return [
            r.source
            for r in self.ctx[k].inputs
            if r.tensor not in self.came and r.tensor not in self.first
        ]

    def _cone(self, *starts: int) -> dict[int, None]:
        return reached_from(starts, self._onward)

    def _flags(self) -> dict[int, frozenset[str]]:
        """Dependences of each operation: on random bits, weights, outputs of the environment."""
        readers: dict[int, list[int]] = {k: [] for k in self.cone}
        self.readers = readers
        found: dict[int, set[str]] = {k: set() for k in self.cone}
        for k, op in self.cone.items():
            if op.kind == "rng":
                found[k].add(_NOISE)
            if k in self.parameters:
                found[k].add(_WEIGHTS)
                continue
            for read in op.inputs:
                if read.tensor in self.came or read.tensor in self.first:
                    found[k].add(_SEEN)
                else:
                    readers[read.source].append(k)
        work = [k for k in self.cone if found[k]]
        while work:
            k = work.pop()
            for reader in readers[k]:
                if not found[k] <= found[reader]:
                    found[reader] |= found[k]
                    work.append(reader)
        return {k: frozenset(x) for k, x in found.items()}

    def is_noise(self, k: int) -> bool:
        return self.flags[k] == {_NOISE}

    def _own_draws(self) -> set[int]:
        """The random bits of the policy itself: others are exploration on top of it."""
        own: set[int] = set()
        for tensor, draw in self.draws.items():
            if not self.is_noise(tensor[0]) or _WEIGHTS not in self.acting:
                own |= draw.inside
        for op in self.cone.values():
            if op.kind in ("mul", "div", "lt", "le") or (op.kind == "argmax" and self._adds(op)):
                sides = [r.source for r in (self._adds(op) or op).inputs if r.source in self.flags]
                noise = [k for k in sides if self.is_noise(k)]
                if noise and any(_WEIGHTS in self.flags[k] for k in sides):
                    own |= set(self._cone(*noise))
        return own

    def _adds(self, op: Op) -> Op | None:
        """The operand of an argmax if it is a sum, such as logits and Gumbel numbers."""
        source = self.cone.get(op.inputs[0].source) if op.kind == "argmax" else None
        return source if source is not None and source.kind == "add" else None

    # --- dimensions --------------------------------------------------------------------------

    def _find_dimensions(self) -> None:
        """Tell the dimensions of iterations from those of environments."""
        played = self.played
        found: set[str] = set(played.time[:-1])
        params = [k for k in self.cone if k in self.parameters]
        for k in params:
            found |= set(self.cone[k].outputs[0].domain)
        if not params and len(played.domain) > 1:
            found.add(played.domain[-1])
        self.iterations = found
        self.instances = [d for d in played.domain if d not in found]

    def is_shared(self, domain: Domain) -> bool:
        """Whether all environments have the same value, in a program of several."""
        return not set(domain) & set(self.instances)

    def is_frozen(self, op: Op) -> bool:
        """Whether all environments share an operation's value, and iterations change it."""
        if op.id not in self._frozen:
            self._frozen[op.id] = self._makes_frozen(op)
        return self._frozen[op.id]

    def _makes_frozen(self, op: Op) -> bool:
        domain = op.outputs[0].domain if op.outputs else op.domain
        if not self.is_shared(domain) or op.id in self.parameters:
            return False
        if op.kind == "merge":
            return self._is_statistic(op, domain)
        if self.now in domain and self.now not in self.iterations:
            return False
        if op.kind in ("rng", "data", "udf"):
            return self.now not in domain and (op.kind == "rng" or bool(domain))
        outside = {*self.instances, self.now}
        return self.now not in domain and any(
            outside & set(self.ops[r.source].outputs[r.out].domain) for r in op.inputs
        )

    def _is_statistic(self, op: Op, domain: Domain) -> bool:
        if self.now not in domain:
            return True
        again = self._circle(op)
        if self.instances:
            return bool(again) or _SEEN in self.flags[op.id]
        if not again or self._restarts(op):
            return False
        kinds = {self.ops[k].kind for k in again}
        moved = kinds <= {"merge", "concat", "reindex", "where", "copy", "detach", "reshape"}
        learnt = any(r.source in self.parameters for k in again for r in self.ops[k].inputs)
        ends = {n for k in again for r in self.ops[k].inputs if (n := self.came.get(r.tensor))}
        return not (moved or learnt or ends & {"terminated", "truncated", "alive"})

    def _circle(self, op: Op) -> set[int]:
        """The operations of a tensor's recurrence."""
        ahead = self._cone(*self._onward(op.id))
        if op.id not in ahead:
            return set()
        behind = reached_from([op.id], lambda k: self.readers.get(k, ()))
        return ahead.keys() & behind.keys()

    def _restarts(self, op: Op) -> bool:
        return any(
            r.cond.symbols == {self.now} and _holds(subst_cond(r.cond, {self.now: const(0)}))
            for r in op.inputs
        )

    # --- time --------------------------------------------------------------------------------

    def back(self, read: Read, domain: Domain) -> int:
        """Age in steps of the latest point of a read; 0 if it names no step."""
        if self.now not in domain:
            return 0
        if self.is_step_before(read, domain):
            return 1
        entry = read.index[domain.index(self.now)]
        last = entry.hi - 1 if isinstance(entry, Slice) else entry
        apart = sym(self.now) - last
        return apart.const if apart.is_const else 0

    def is_step_before(self, read: Read, domain: Domain) -> bool:
        """Whether a read is of the last step of the iteration before."""
        *outer, last = self.played.time
        if not outer or last not in domain:
            return False
        entries = dict(zip(domain, read.index, strict=True))
        return any(
            entries.get(d) == sym(d) - 1
            and all(entries.get(e) == self.space[e].size - 1 for e in (*outer[k + 1 :], last))
            for k, d in enumerate(outer)
        )

    def _avail(self) -> dict[int, int]:
        """Return the delay of each value in steps: 1 if it needs the result of a step."""
        found = dict.fromkeys(self.cone, 0)
        for _ in range(len(found) + 1):
            changed = False
            for k, op in self.cone.items():
                if k in self.parameters:
                    continue
                for read in op.inputs:
                    domain = self.ops[read.source].outputs[read.out].domain
                    if read.tensor in self.came:
                        after = 1
                    elif read.tensor in self.first:
                        after = 0
                    else:
                        after = found[read.source]
                    after -= self.back(read, domain)
                    if after > found[k] and after < 4:
                        found[k], changed = after, True
            if not changed:
                break
        return found

    @cached_property
    def depth(self) -> int:
        """How many steps back the slice looks."""
        backs = [
            self.back(r, self.ops[r.source].outputs[r.out].domain)
            for op in self.cone.values()
            for r in op.inputs
        ]
        return max([1, *backs])


def _holds(cond: Cond) -> bool | None:
    """Whether a condition holds; None if it depends on symbols."""
    if isinstance(cond, Cmp):
        if not cond.arg.is_const:
            return None
        value = cond.arg.const
        return {">=": value >= 0, "==": value == 0, "!=": value != 0}[cond.rel]
    parts = [_holds(one) for one in cond.args]
    if isinstance(cond, And):
        return False if False in parts else None if None in parts else True
    return True if True in parts else None if None in parts else False


class _Writer:
    """Writes one policy of a program without dimensions."""

    def __init__(self, source: _Source, how: How) -> None:
        self.source, self.how = source, how
        self.to = Context()
        self.memo: dict[_Node, RecurrentTensor] = {}
        self.same: dict[Any, RecurrentTensor] = {}
        self.inputs: dict[str, RecurrentTensor] = {}
        self.weights: dict[str, RecurrentTensor] = {}
        self.frozen: dict[str, RecurrentTensor] = {}
        self.indices: dict[str, RecurrentTensor] = {}
        self.slots: dict[Any, _Slot] = {}
        self.drawn: dict[Tensor, None] = {}
        self.reader: Op | None = None  # the operation being written

    # --- the whole ---------------------------------------------------------------------------

    def graph(self) -> PolicyGraph:
        source, played = self.source, self.source.played
        action = self.source.played.action
        if not source.acting & {_WEIGHTS, _SEEN}:
            op = source.op(action.source)
            raise OptionError(
                "the program has no policy: its actions depend neither on what the environment shows "
                "nor on weights.",
                origin=op.origin,
                others={"the environment is stepped at": played.origin},
                hint="ctx.policy(network, o, act) names another way to act.",
            )
        made = {"action": self._current_value(action)}
        made |= self._extra_outputs()
        self._close()
        return self._prune({name: x.read for name, x in made.items()})

    def _extra_outputs(self) -> dict[str, RecurrentTensor]:
        """The log-probability of the drawn action, and the value of the critic."""
        source, found = self.source, dict[str, RecurrentTensor]()
        mine = [t for t in self.drawn if not source.is_noise(t[0]) or _WEIGHTS not in source.acting]
        if self.how != "mode" and mine and all(t in source.log_probs for t in mine):
            parts = [self._current_value(source.log_probs[t].read) for t in mine]
            if len(parts) > 1:
                parts = [x.sum() for x in parts]
            found["log_prob"] = sum(parts[1:], parts[0])
        now = {(node.source, node.out) for node in self.memo if node.ago == 0}
        values = {x.read: x for t, x in source.values.items() if t in now}
        if len(values) == 1 and self.how != "mode":
            found["value"] = self._current_value(next(iter(values)))
        return found

    def _current_value(self, read: Read) -> RecurrentTensor:
        """Return the tensor of a read at the current step."""
        while True:
            try:
                return self._read(read, 0, start=False)
            except _Missing as missing:
                self._demand(missing.node)

    def _demand(self, wanted: _Node) -> None:
        stack, begun = [wanted], set[_Node]()
        while stack:
            node = stack[-1]
            if node in self.memo:
                stack.pop()
                continue
            try:
                self.memo[node] = self._value(node)
            except _Missing as missing:
                if missing.node in begun:
                    raise self._unsupported_error(
                        self.source.op(node.source), "needs its own value at the same step"
                    ) from None
                begun.add(node)
                stack.append(missing.node)

    def _need(self, node: _Node) -> RecurrentTensor:
        if node not in self.memo:
            raise _Missing(node)
        return self.memo[node]

    def _close(self) -> None:
        """Write the next value of each state tensor; this may add state."""
        while True:
            slot = next((s for s in self.slots.values() if isinstance(s.after, _Node)), None)
            if slot is None:
                return
            node = slot.after
            assert isinstance(node, _Node)
            self._demand(node)
            slot.after = self.memo[node]

    def _prune(self, made: dict[str, Read]) -> PolicyGraph:
        pdg = self.to.snapshot()
        slots = {s.x.read.source: s for s in self.slots.values()}
        needed: dict[int, None] = {}
        live: dict[int, _Slot] = {}
        todo = [read.source for read in made.values()]
        while todo:
            needed |= reached_from(todo, lambda k: pdg[k].sources)
            fresh = [k for k in needed if k in slots and k not in live]
            live |= {k: slots[k] for k in fresh}
            todo = [x.read.source for k in fresh for x in (slots[k].first, slots[k].after)]  # type: ignore[union-attr]
        kept = Pdg(self.to.space, {k: pdg[k] for k in pdg.order if k in needed})

        def used(some: Mapping[str, RecurrentTensor]) -> dict[str, int]:
            return {name: x.read.source for name, x in some.items() if x.read.source in needed}

        state: dict[str, State] = {}
        for k, slot in live.items():
            assert isinstance(slot.after, RecurrentTensor)
            name, count = slot.name, 2
            while name in state:
                name, count = f"{slot.name}.{count}", count + 1
            state[name] = State(k, slot.first.read, slot.after.read)
        wanted = reached_from([made["action"].source], lambda k: kept[k].sources)
        wanted |= reached_from([s.after.source for s in state.values()], lambda k: kept[k].sources)
        chance = [k for k in wanted if kept[k].kind == "rng"]
        return PolicyGraph(
            kept,
            used(self.inputs),
            used(self.weights),
            used(self.frozen),
            used(self.indices),
            state,
            made,
            bool(chance),
            kept[chance[0]].origin if chance else None,
            self.source.played.origin,
        )

    # --- operations --------------------------------------------------------------------------

    def _add(
        self, kind: str, xs: Sequence[RecurrentTensor], attrs: Any, like: Op
    ) -> RecurrentTensor:
        """An operation, once however often it is written."""
        key = kind, tuple(x.read for x in xs), attrs
        if key not in self.same:
            reads = [x.read for x in xs]
            made = self.to.add(kind, reads, attrs, label=like.label, origin=like.origin)
            self.same[key] = tensor_of(self.to, made)
        return self.same[key]

    def _const(self, value: Any, dtype: str, shape: Sequence[Any] = ()) -> RecurrentTensor:
        array = ConstArray(np.full(tuple(shape), value, NUMPY[dtype]))
        key = "const", (), ConstAttrs(array)
        if key not in self.same:
            self.same[key] = constant(self.to, array.array, dtype)
        return self.same[key]

    def _input(
        self, some: dict[str, RecurrentTensor], name: str, kind: TensorType, like: Op
    ) -> RecurrentTensor:
        if name not in some:
            shape = [n for n in kind.shape if isinstance(n, int)]
            if len(shape) < len(kind.shape):
                raise self._unsupported_error(like, f"has the shape {kind}, which varies")
            array = ConstArray(np.zeros(shape, NUMPY[kind.dtype]))
            op = self.to.add("data", [], ConstAttrs(array), label=name, origin=like.origin)
            some[name] = tensor_of(self.to, op)
        return some[name]

    def _slot(
        self, key: Any, name: str, kind: TensorType, after: Any, first: Any, like: Op
    ) -> RecurrentTensor:
        if key not in self.slots:
            x = self._input({}, name, kind, like)
            begin = self._const(0, kind.dtype, kind.shape) if first is None else first
            self.slots[key] = _Slot(x, begin, x if after is None else after, name)
        return self.slots[key].x

    def _steps(self) -> RecurrentTensor:
        """How many steps of the episode came before the current one."""
        if STEPS not in self.slots:
            origin = self.source.op(self.source.played.action.source)
            x = self._slot(STEPS, STEPS, TensorType((), "i32"), None, None, origin)
            self.slots[STEPS].after = x + self._const(1, "i32")
        return self.slots[STEPS].x

    def _begins(self, ago: int) -> RecurrentTensor:
        return self._pair("eq", self._steps(), self._const(ago, "i32"))

    def _pair(self, kind: str, *xs: RecurrentTensor) -> RecurrentTensor:
        key = kind, tuple(x.read for x in xs), "pair"
        if key not in self.same:
            self.same[key] = elementwise(kind, xs)
        return self.same[key]

    def _where(
        self, cond: RecurrentTensor, x: RecurrentTensor, y: RecurrentTensor
    ) -> RecurrentTensor:
        return x if x.read == y.read else self._pair("where", cond, x, y)

    def _unsupported_error(self, op: Op, why: str, hint: str = "") -> OptionError:
        return OptionError(
            f"the policy of this program cannot be taken out of it: {op.name} {why}.",
            origin=(self.reader or op).origin,
            others={"the environment is stepped at": self.source.played.origin},
            hint=hint
            or "ctx.policy(network, o, act) says how to act: act(network, o) returns a distribution "
            "or an action.",
        )

    def _value(self, node: _Node) -> RecurrentTensor:
        source = self.source
        op = self.reader = source.op(node.source)
        tensor = node.source, node.out
        own = at_own_point(op.id, op.outputs[node.out], node.out)
        if tensor in source.came or node.ago > self._availability_lag(own):
            return self._value_steps_ago(own, op, node.ago, start=False)
        if tensor in source.draws:
            found = self._resolve_draw(tensor, node)
            if found is not None:
                return found
        if op.kind == "merge":
            return self._merge(op, node)
        if op.kind == "rng":
            return self._random(op, node)
        if op.kind == "unit" and not self._draws_from(op):
            return self._const(0.5, op.dtype, op.shape)  # the median
        if op.kind == "where" and self.how != "explore":
            chosen = self._without_exploration(op)
            if chosen is not None:
                x = self._read(op.inputs[chosen], node.ago, start=node.start)
                return x if x.shape == op.shape else broadcast_to(x, op.shape)
        if op.kind == "value":
            return self._index(op.attrs.expr, node.ago, op, is_first=node.start)
        if op.kind == "data":
            if op.attrs.dims:
                raise self._unsupported_error(
                    op, f"is given data that vary over ({', '.join(op.attrs.dims)})"
                )
            return self._add("data", [], op.attrs, op)
        if isinstance(op.attrs, UdfAttrs):
            return self._add_given_input(op, node)
        if op.kind == "udf" or not op.outputs:
            raise self._unsupported_error(op, "runs on the host")
        symbols = {s for e in op.attrs.exprs for s in e.symbols} - set(op.attrs.own)
        if symbols or any(isinstance(n, Lin) for n in op.shape):
            raise self._unsupported_error(
                op,
                f"has positions or sizes that vary with {', '.join(sorted(symbols)) or 'a bound'}",
            )
        attrs, fill = op.attrs, None
        if isinstance(attrs, AxesAttrs):
            attrs = AxesAttrs(attrs.axes)
            fill = op.kind if op.kind in REDUCTIONS and 0 in attrs.axes else None
        xs = [self._read(read, node.ago, start=node.start, fill=fill) for read in op.inputs]
        return self._add(op.kind, xs, attrs, op)

    def _add_given_input(self, op: Op, node: _Node) -> RecurrentTensor:
        """Make an input of given data, such as a mask of actions."""
        if not isinstance(op.attrs.function, Given) and op.attrs.resource is None:
            raise self._unsupported_error(
                op,
                "is a function on the host",
                "write it in tensors, or as a function of JAX: trl.jaxed(function, o).",
            )
        name = op.outputs[node.out].label or op.label or op.attrs.name
        return self._input(self.inputs, name, op.outputs[node.out].type, op)

    # --- chance ------------------------------------------------------------------------------

    def _resolve_draw(self, tensor: Tensor, node: _Node) -> RecurrentTensor | None:
        source = self.source
        noise = source.is_noise(node.source) and _WEIGHTS in source.acting
        if self.how == "explore" or (self.how == "sample" and not noise):
            if node.ago == 0:
                self.drawn[tensor] = None
            return None
        mode = source.modes.get(tensor)
        return None if mode is None else self._read(mode, node.ago, start=node.start)

    def _draws_from(self, op: Op) -> bool:
        if self.how == "explore":
            return True
        bits = [k for k in self.source._cone(op.id) if self.source.op(k).kind == "rng"]
        return self.how == "sample" and bool(self.source.own.intersection(bits))

    def _without_exploration(self, op: Op) -> int | None:
        """Return the policy's branch if random bits alone choose between the branches."""
        flags = self.source.flags
        cond, *choices = (r.source for r in op.inputs)
        of = flags.get(cond, frozenset())
        if _NOISE not in of or _WEIGHTS in of or self._is_own(cond):
            return None
        for what in (_WEIGHTS, _SEEN):
            has = [what in flags.get(k, frozenset()) for k in choices]
            if has[0] != has[1]:
                return 1 if has[0] else 2
        return None

    def _is_own(self, k: int) -> bool:
        bits = [j for j in self.source._cone(k) if self.source.op(j).kind == "rng"]
        return bool(self.source.own.intersection(bits))

    def _random(self, op: Op, node: _Node) -> RecurrentTensor:
        """Fresh bits at each step; an episode's are drawn at its first step."""
        attrs = RngAttrs(op.attrs.stream, (), op.attrs.shape)
        fresh = self._add("rng", [], attrs, op)
        if self.source.now in op.attrs.dims or node.start:
            return fresh
        key = "episode", op.id
        x = self._slot(key, op.label or f"bits{op.id}", op.type, None, None, op)
        held = self._where(self._begins(0), fresh, x)
        self.slots[key].after = held
        return held

    # --- branches ----------------------------------------------------------------------------

    def _merge(self, op: Op, node: _Node) -> RecurrentTensor:
        source, ago = self.source, node.ago
        time = {d: const(0) for d in source.played.time}
        begun = [r for r in op.inputs if _holds(subst_cond(r.cond, time)) is True]
        only_noise = self.how == "mode" or not self._is_own(op.id)
        if self.how != "explore" and source.is_noise(op.id) and only_noise and begun:
            return self._read(begun[0], ago, start=True)
        late = {d: const(_LATE) for d in source.iterations if d != source.now}
        late |= {source.space[d].bound: const(_LATE + 1) for d in late}
        first = None
        if source.now in op.domain or set(op.domain) & set(source.instances):
            if not begun:
                begun = [r for r in op.inputs if self._may_begin(r.cond, time)]
            if begun:
                first = self._read(begun[0], ago, start=ago == 0)
        if node.start and first is not None:
            return first
        rest: list[tuple[Cond, RecurrentTensor, Read]] = []
        for read in op.inputs:
            cond = subst_cond(read.cond, late)
            if _holds(cond) is False or self._is_first_only(cond):
                continue
            rest.append((cond, self._read(read, ago, start=False), read))
        if not rest:
            if first is None:
                raise self._unsupported_error(op, "has no value at the last iteration")
            return first
        *others, (_, value, read) = rest
        plain = all(x.read == value.read for _, x, _ in others)
        if first is not None and not plain and source.now in op.domain:
            # a branch over the first step says so itself
            at_first = [x for c, x, _ in rest if _holds(subst_cond(c, {source.now: const(0)}))]
            if at_first and at_first[0].read == first.read:
                first = None
        if not plain:
            for cond, x, _ in reversed(others):
                value = self._where(self._condition(cond, ago, op), x, value)
        if first is None or first.read == value.read:
            return value
        if plain and ago == 0 and self._is_static(first):
            found = next((s for s in self.slots.values() if s.x.read == value.read), None)
            if found is not None and isinstance(found.after, _Node):
                return self._slot(
                    ("branch", op.id), op.label or found.name, op.type, found.after, first, op
                )
        return self._where(self._begins(ago), first, value)

    def _may_begin(self, cond: Cond, time: Mapping[str, Lin]) -> bool:
        zero = {**time, **{d: const(0) for d in self.source.iterations}}
        return _holds(subst_cond(cond, zero)) is True

    def _is_first_only(self, cond: Cond) -> bool:
        """Whether a condition holds at the first step of an iteration alone."""
        parts = cond.args if isinstance(cond, And) else (cond,)
        return any(
            isinstance(c, Cmp) and c.rel == "==" and c.arg == sym(self.source.now) for c in parts
        )

    def _is_static(self, x: RecurrentTensor) -> bool:
        needed = reached_from([x.read.source], lambda k: self.to[k].sources)
        moving = {y.read.source for y in self.inputs.values()}
        moving |= {s.x.read.source for s in self.slots.values()}
        return not moving.intersection(needed) and all(self.to[k].kind != "rng" for k in needed)

    # --- reads -------------------------------------------------------------------------------

    def _read(
        self, read: Read, ago: int, *, start: bool, fill: str | None = None
    ) -> RecurrentTensor:
        """Return the tensor of a read, `ago` steps back.

        Args:
            fill: the reduction of a window's axis; the window may begin before the episode.
        """
        source = self.source
        op = source.op(read.source)
        output = op.outputs[read.out]
        domain = output.domain
        if read.source in source.parameters:
            return self._weight(read, op)
        is_outside = read.tensor in source.came or read.tensor in source.first
        if not is_outside and source.is_frozen(op):
            return self._frozen_input(read, op)
        if read.tensor in source.first:
            return self._first_step_value(source.first[read.tensor], output.type, op, start=start)
        before = source.is_step_before(read, domain)
        for d, entry in zip(domain, read.index, strict=True):
            if d == source.now or before and d in source.played.time:
                continue
            if isinstance(entry, Slice) or entry.as_symbol != d:
                other = (
                    "of another environment" if d in source.instances else "of another iteration"
                )
                raise self._unsupported_error(op, f"is read at {d} = {entry}: that is {other}")
        if source.now not in domain:
            return self._need(_Node(read.source, read.out, 0, start))
        if before:
            return self._value_steps_ago(read, op, ago + 1, start=False)
        entry = read.index[domain.index(source.now)]
        now = sym(source.now)
        if isinstance(entry, Slice):
            return self._window(read, op, entry, ago, fill)
        apart = now - entry
        if apart.is_const:
            return self._value_steps_ago(
                read, op, ago + apart.const, start=start and apart.const == 0
            )
        if entry.is_const:
            if start and entry.const == 0:
                return self._value_steps_ago(read, op, ago, start=True)
            return self._latch_value(read, op, entry.const)
        most = self._clamped_offset(entry)
        if most is None:
            raise self._unsupported_error(
                op, f"is read at {source.now} = {entry}, which is no number of steps ago"
            )
        value = self._value_steps_ago(read, op, ago + most, start=False)
        for k in reversed(range(most)):
            if ago + k >= self._availability_lag(read):
                here = self._value_steps_ago(read, op, ago + k, start=False)
                reached = self._pair("le", self._steps(), self._const(k + ago, "i32"))
                value = self._where(reached, here, value)
        return value

    def _window(
        self, read: Read, op: Op, entry: Slice, ago: int, fill: str | None
    ) -> RecurrentTensor:
        """Stack consecutive steps, oldest first; steps before the episode are neutral elements."""
        now = sym(self.source.now)
        oldest, newest = now - entry.lo, now - (entry.hi - 1)
        most = oldest.const if oldest.is_const else self._clamped_offset(entry.lo)
        if most is None or not newest.is_const or (fill is None and not oldest.is_const):
            raise self._unsupported_error(
                op,
                f"is read at {entry}, of a length that varies",
                f"{op.label or 'x'}.window(4, over={self.source.now}) has one length.",
            )
        rows: list[RecurrentTensor] = []
        for k in range(most, newest.const - 1, -1):
            x = self._value_steps_ago(read, op, ago + k, start=False)
            if not oldest.is_const and k > 0:
                assert fill is not None
                neutral = self._const(identity(fill, NUMPY[x.dtype]), x.dtype, x.shape)
                there = self._pair("le", self._const(ago + k, "i32"), self._steps())
                x = self._where(there, x, neutral)
            rows.append(x)
        return self._stack(rows, op)

    def _clamped_offset(self, entry: Lin) -> int | None:
        """The number of steps c of max(t - c, 0)."""
        if len(entry.terms) == 1 and entry.const == 0 and entry.terms[0][1] == 1:
            atom = entry.terms[0][0]
            if isinstance(atom, Extremum) and atom.which == "max" and len(atom.args) == 2:
                consts = [a for a in atom.args if a.is_const]
                moving = [sym(self.source.now) - a for a in atom.args if not a.is_const]
                if consts and consts[0].const == 0 and moving and moving[0].is_const:
                    return moving[0].const if moving[0].const >= 0 else None
        return None

    def _availability_lag(self, read: Read) -> int:
        """From how many steps ago on a tensor is known."""
        return 1 if read.tensor in self.source.came else self.source.avail[read.source]

    def _value_steps_ago(self, read: Read, op: Op, ago: int, *, start: bool) -> RecurrentTensor:
        """A tensor so many steps ago."""
        known, kind = self._availability_lag(read), op.outputs[read.out].type
        if ago < known:
            when = "a later step" if ago < 0 else "this step"
            raise self._unsupported_error(
                op, f"is read as of {when}, which is not known when it acts"
            )
        if ago > known:
            after = _Node(read.source, read.out, ago - 1)
            name = self.source.came.get(read.tensor) or op.label or f"{op.kind}{op.id}"
            return self._slot(("ago", *read.tensor, ago), name, kind, after, None, op)
        if read.tensor in self.source.came:
            return self._input(self.inputs, self.source.came[read.tensor], kind, op)
        return self._need(_Node(read.source, read.out, ago, start))

    def _first_step_value(
        self, name: str, kind: TensorType, op: Op, *, start: bool
    ) -> RecurrentTensor:
        """Return an input's value at the episode's first step."""
        now = self._input(self.inputs, name, kind, op)
        if start:
            return now
        key = "first", name
        x = self._slot(key, f"first {name}", kind, None, None, op)
        held = self._where(self._begins(0), now, x)
        self.slots[key].after = held
        return held

    def _latch_value(self, read: Read, op: Op, when: int) -> RecurrentTensor:
        """A tensor at a given step of the episode."""
        key = "at", *read.tensor, when
        now = self._value_steps_ago(read, op, 0, start=False)
        x = self._slot(
            key, op.label or f"{op.kind}{op.id}", op.outputs[read.out].type, None, None, op
        )
        held = self._where(self._begins(when), now, x)
        self.slots[key].after = held
        return held

    def _stack(self, parts: Sequence[RecurrentTensor], op: Op) -> RecurrentTensor:
        rows = [self._add("reshape", [x], ShapeAttrs((1, *x.shape)), op) for x in parts]
        return self._add("concat", rows, AxisAttrs(0), op)

    def _weight(self, read: Read, op: Op) -> RecurrentTensor:
        p = self.source.parameters[read.source]
        entries = dict(zip(op.outputs[0].domain, read.index, strict=True))
        along = [entries[d] for d in p.along if d in entries]
        if any(isinstance(e, Slice) for e in entries.values()):
            raise self._unsupported_error(
                op, f"is read at {', '.join(map(str, read.index))}, at several iterations"
            )
        if along and all(isinstance(e, Lin) and e.is_const for e in along):
            return self._frozen_input(read, op)
        return self._input(self.weights, p.name, p.type, op)

    def _frozen_input(self, read: Read, op: Op) -> RecurrentTensor:
        """A value of the last iteration."""
        source = self.source
        base = op.label or f"{op.kind}{op.id}"
        own = at_own_point(read.source, op.outputs[read.out], read.out)
        plain = Read(read.source, read.out, read.index)
        name = base if plain == own else f"{base}[{', '.join(map(str, read.index))}]"
        while source.frozen_reads.get(name, plain) != plain:
            name += "'"
        source.frozen_reads[name] = plain
        kind = RecurrentTensor(source.ctx, plain).type
        return self._input(self.frozen, name, kind, op)

    # --- index expressions -------------------------------------------------------------------

    def _index(self, e: Lin | Cond, ago: int, op: Op, *, is_first: bool) -> RecurrentTensor:
        if isinstance(e, Lin):
            return self._lin(e, ago, op, None if not is_first else 0)
        return self._condition(e, ago, op)

    def _condition(self, cond: Cond, ago: int, op: Op) -> RecurrentTensor:
        if isinstance(cond, Cmp):
            x, zero = self._lin(cond.arg, ago, op, ago), self._const(0, "i32")
            if cond.rel == ">=":
                return self._pair("le", zero, x)
            return self._pair("eq" if cond.rel == "==" else "ne", x, zero)
        if not cond.args:
            return self._const(isinstance(cond, And), "bool")
        parts = [self._condition(one, ago, op) for one in cond.args]
        value = parts[0]
        for part in parts[1:]:
            value = self._pair("or" if isinstance(cond, Or) else "and", value, part)
        return value

    def _lin(self, e: Lin, ago: int, op: Op, guard: int | None) -> RecurrentTensor:
        """An expression as a tensor; a `guard` compares steps, and so counts those of the episode."""
        total = self._const(e.const, "i32")
        for atom, factor in e.terms:
            part = self._pair("mul", self._atom(atom, ago, op, guard), self._const(factor, "i32"))
            total = self._pair("add", total, part)
        return total

    def _atom(self, atom: Atom, ago: int, op: Op, guard: int | None) -> RecurrentTensor:
        if isinstance(atom, Sym):
            return self._symbol(atom.name, ago, op, guard)
        if isinstance(atom, Div | Mod):
            inner = self._lin(atom.arg, ago, op, guard)
            return self._pair(
                "floordiv" if isinstance(atom, Div) else "mod", inner, self._const(atom.by, "i32")
            )
        if isinstance(atom, Extremum):
            first, *others = (self._lin(a, ago, op, guard) for a in atom.args)
            for other in others:
                first = self._pair(f"{atom.which}2", first, other)
            return first
        then, other = self._lin(atom.then, ago, op, guard), self._lin(atom.other, ago, op, guard)
        return self._where(self._condition(atom.cond, ago, op), then, other)

    def _symbol(self, name: str, ago: int, op: Op, guard: int | None) -> RecurrentTensor:
        source = self.source
        if name in source.instances:
            raise self._unsupported_error(op, f"depends on {name}, on which environment acts")
        if name == source.now:
            counted = name not in source.iterations
            steps = self._steps() if counted or guard is not None else None
            if steps is not None and ago:
                steps = self._pair("sub", steps, self._const(ago, "i32"))
            if counted:
                assert steps is not None
                return steps
            last = self._input(self.indices, name, TensorType((), "i32"), op)
            if steps is None:
                return last
            early = self._pair("lt", self._steps(), self._const(source.depth, "i32"))
            return self._where(early, steps, last)
        return self._input(self.indices, name, TensorType((), "i32"), op)


def policy_of(ctx: Context) -> Slicer | Actor:
    """How the program of a context acts: by a slice of its graph, or as `ctx.policy` says.

    Raises:
        OptionError: no environment is stepped in it, or several are.
    """
    marked = next((one for one in ctx.policies if one.marked), None)
    found: list[Played] = ctx.played
    if marked is not None:
        if marked.act is not call_network:
            return marked
        names = {p.name for p in getattr(marked.network, "saved", ())}
        found = [one for one in found if names & weights_of(ctx, one)]
        if not found:
            return marked
    elif len(found) > 1:
        learns = [one for one in found if weights_of(ctx, one)]
        found = learns if len(learns) == 1 else found
    if len(found) == 1:
        return Slicer(ctx, found[0])
    if not found:
        raise OptionError(
            "the program does not say what its policy is: it steps no environment.",
            others={"a network is made at": ctx.policies[0].origin} if ctx.policies else {},
            hint="write ctx.policy(network, o, act) in it: o is what an observation looks like, and "
            "act(network, o) returns a distribution or an action.",
        )
    raise OptionError(
        f"the program acts in {len(found)} environments.",
        others={"one is stepped at": found[0].origin, "another at": found[1].origin},
        hint="say in it which network is meant: ctx.policy(dnn).",
    )


def weights_of(ctx: Context, played: Played) -> set[str]:
    """The names of the parameters of an environment's actions."""
    inside = {*played.came.values(), *played.first.values()}
    params = {**ctx.parameters, **ctx.after_update}

    def onward(k: int) -> Iterable[int]:
        return () if k in params else [r.source for r in ctx[k].inputs if r.tensor not in inside]

    return {params[k].name for k in reached_from([played.action.source], onward) if k in params}


def return_frozen(ctx: Context) -> None:
    """Let the run return, and save in checkpoints, the policy's values besides parameters."""
    try:
        found = policy_of(ctx)
        if isinstance(found, Actor):
            return
        graph = found.graph("explore")
        frozen = found.frozen(graph)
    except TimeRLError:
        return  # raised as the policy is requested
    if frozen:
        _save_frozen(ctx, set(graph.weights), frozen, found.passing)
    for name, x in frozen.items():
        last = x.at({d: ctx.space[d].size - 1 for d in x.domain if d in found.passing})
        ctx.add("output", [last.read], OutputAttrs(name, "policy", last.domain))


def _save_frozen(ctx: Context, weights: set[str], frozen: Arrays, passing: set[str]) -> None:
    """Let the checkpoints of a policy's weights save its frozen values."""
    for op_id in ctx.op_ids:
        op = ctx[op_id]
        if not isinstance(op.attrs, CheckpointAttrs) or not weights <= set(op.attrs.names):
            continue
        named: dict[str, Read] = {}
        for name, x in frozen.items():
            outside = [d for d in x.domain if d not in op.domain and d in passing]
            last = x.at({d: ctx.space[d].size - 1 for d in outside}).settled()
            if set(last.domain) <= set(op.domain):
                named[f"{FROZEN}{name}"] = last.read
        ctx.save_beside(op_id, named)
