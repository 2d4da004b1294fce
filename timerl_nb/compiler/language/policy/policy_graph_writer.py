"""Translation of a program's policy into a graph without dimensions.

A read of the current step becomes a read of an input, and a read of an earlier step a read of the policy's
state. Values shared by all environments become weights or frozen values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.ir.dependence_graph import Pdg, at_own_point
from timerl_nb.compiler.ir.host.host_functions import UdfAttrs
from timerl_nb.compiler.ir.host.iteration_io import Given
from timerl_nb.compiler.ir.operation_attributes import AxesAttrs, AxisAttrs, RngAttrs, ShapeAttrs
from timerl_nb.compiler.ir.operation_kinds import REDUCTIONS
from timerl_nb.compiler.ir.operations import Op, Read, Tensor, reached_from
from timerl_nb.compiler.ir.reference.evaluation_rules import identity
from timerl_nb.compiler.ir.shapes import NUMPY, TensorType
from timerl_nb.compiler.language.policy.policy_cone import (
    NOISE,
    SEEN,
    WEIGHTS,
    PolicyCone,
    truth_value,
)
from timerl_nb.compiler.language.policy.policy_graph import How, PolicyGraph, State
from timerl_nb.compiler.language.policy.policy_graph_builder import GraphBuilder, Node, Slot
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, broadcast_to
from timerl_nb.compiler.symbolic.index_expressions import (
    And,
    Cmp,
    Cond,
    Extremum,
    Lin,
    Slice,
    const,
    sym,
)
from timerl_nb.compiler.symbolic.substitution import subst_cond

_LATE: Final = 1 << 20  # represents the last iteration in comparisons of conditions


class Missing(Exception):
    """Request to write another value first."""

    def __init__(self, node: Node) -> None:
        self.node = node


class PolicyWriter(GraphBuilder):
    """Writer of one policy as a graph without dimensions."""

    def __init__(self, source: PolicyCone, how: How) -> None:
        super().__init__(source)
        self.how = how
        self.memo: dict[Node, RecurrentTensor] = {}
        self.weights: dict[str, RecurrentTensor] = {}
        self.frozen: dict[str, RecurrentTensor] = {}
        self.drawn: dict[Tensor, None] = {}

    # --- graph -------------------------------------------------------------------------------

    def graph(self) -> PolicyGraph:
        source, played = self.source, self.source.played
        action = self.source.played.action
        if not source.acting & {WEIGHTS, SEEN}:
            op = source.op(action.source)
            raise OptionError(
                "the program has no policy: its actions depend neither on the environment's outputs "
                "nor on weights.",
                origin=op.origin,
                others={"the environment is stepped at": played.origin},
                hint="define the policy by ctx.policy(network, o, act).",
            )
        made = {"action": self._current_value(action)}
        made |= self._extra_outputs()
        self._close()
        return self._prune({name: x.read for name, x in made.items()})

    def _extra_outputs(self) -> dict[str, RecurrentTensor]:
        """Return the log-probability of the drawn action, and the critic's value."""
        source, found = self.source, dict[str, RecurrentTensor]()
        mine = [t for t in self.drawn if not source.is_noise(t[0]) or WEIGHTS not in source.acting]
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
            except Missing as missing:
                self._demand(missing.node)

    def _demand(self, wanted: Node) -> None:
        stack, begun = [wanted], set[Node]()
        while stack:
            node = stack[-1]
            if node in self.memo:
                stack.pop()
                continue
            try:
                self.memo[node] = self._value(node)
            except Missing as missing:
                if missing.node in begun:
                    raise self._unsupported_error(
                        self.source.op(node.source), "needs its own value at the same step"
                    ) from None
                begun.add(node)
                stack.append(missing.node)

    def _need(self, node: Node) -> RecurrentTensor:
        if node not in self.memo:
            raise Missing(node)
        return self.memo[node]

    def _close(self) -> None:
        """Write the next value of each state tensor; this may add state."""
        while True:
            slot = next((s for s in self.slots.values() if isinstance(s.after, Node)), None)
            if slot is None:
                return
            node = slot.after
            assert isinstance(node, Node)
            self._demand(node)
            slot.after = self.memo[node]

    def _prune(self, made: dict[str, Read]) -> PolicyGraph:
        """Return the graph with the operations that the results need, directly or through a state."""
        pdg = self.to.snapshot()
        slots = {s.x.read.source: s for s in self.slots.values()}
        needed: dict[int, None] = {}
        live: dict[int, Slot] = {}
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

    def _value(self, node: Node) -> RecurrentTensor:
        """Return the value of an operation of the program as a tensor of the policy's graph.

        The operation is copied, replaced by an input or a constant, or read from an earlier step.
        """
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
                    op, f"contains data that vary over ({', '.join(op.attrs.dims)})"
                )
            return self._add("data", [], op.attrs, op)
        if isinstance(op.attrs, UdfAttrs):
            return self._add_given_input(op, node)
        if op.kind == "udf" or not op.outputs:
            raise self._unsupported_error(op, "runs on the host")
        symbols = {s for e in op.attrs.exprs for s in e.symbols} - set(op.attrs.bound_dims)
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

    def _add_given_input(self, op: Op, node: Node) -> RecurrentTensor:
        """Add an input for input data of the program, such as a mask of actions."""
        if not isinstance(op.attrs.function, Given) and op.attrs.resource is None:
            raise self._unsupported_error(
                op,
                "is a function on the host",
                "write it with tensors, or as a JAX function: trl.jaxed(function, o).",
            )
        name = op.outputs[node.out].label or op.label or op.attrs.name
        return self._input(self.inputs, name, op.outputs[node.out].type, op)

    # --- random draws ------------------------------------------------------------------------

    def _resolve_draw(self, tensor: Tensor, node: Node) -> RecurrentTensor | None:
        source = self.source
        noise = source.is_noise(node.source) and WEIGHTS in source.acting
        if self.how == "explore" or (self.how == "sample" and not noise):
            if node.ago == 0:
                self.drawn[tensor] = None
            return None
        mode = source.modes.get(tensor)
        return None if mode is None else self._read(mode, node.ago, start=node.start)

    def _draws_from(self, op: Op) -> bool:
        return self.how == "explore" or (self.how == "sample" and self._is_own(op.id))

    def _without_exploration(self, op: Op) -> int | None:
        """Return the policy's branch if random bits alone choose between the branches."""
        flags = self.source.flags
        cond, *choices = (r.source for r in op.inputs)
        of = flags.get(cond, frozenset())
        if NOISE not in of or WEIGHTS in of or self._is_own(cond):
            return None
        for what in (WEIGHTS, SEEN):
            has = [what in flags.get(k, frozenset()) for k in choices]
            if has[0] != has[1]:
                return 1 if has[0] else 2
        return None

    def _is_own(self, k: int) -> bool:
        bits = [j for j in self.source.operations_behind(k) if self.source.op(j).kind == "rng"]
        return bool(self.source.own.intersection(bits))

    def _random(self, op: Op, node: Node) -> RecurrentTensor:
        """Draw bits at each step; the bits of a whole episode are drawn at its first step."""
        attrs = RngAttrs(op.attrs.stream, (), op.attrs.shape)
        fresh = self._add("rng", [], attrs, op)
        if self.source.now in op.attrs.dims or node.start:
            return fresh
        return self._hold(("episode", op.id), op.label or f"bits{op.id}", op.type, fresh, 0, op)

    # --- branches ----------------------------------------------------------------------------

    def _merge(self, op: Op, node: Node) -> RecurrentTensor:
        """Return the value of a merge in the policy's iteration.

        At the first step of an episode, this is the branch of the initial value, and later one of the other branches.
        """
        source, ago = self.source, node.ago
        time = {d: const(0) for d in source.played.time}
        begun = [r for r in op.inputs if truth_value(subst_cond(r.cond, time)) is True]
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
            if truth_value(cond) is False or self._is_first_only(cond):
                continue
            rest.append((cond, self._read(read, ago, start=False), read))
        if not rest:
            if first is None:
                raise self._unsupported_error(op, "has no value at the last iteration")
            return first
        *others, (_, value, read) = rest
        plain = all(x.read == value.read for _, x, _ in others)
        if first is not None and not plain and source.now in op.domain:
            # the branch covers the first step itself
            at_first = [x for c, x, _ in rest if truth_value(subst_cond(c, {source.now: const(0)}))]
            if at_first and at_first[0].read == first.read:
                first = None
        if not plain:
            for cond, x, _ in reversed(others):
                value = self._where(self._condition(cond, ago, op), x, value)
        if first is None or first.read == value.read:
            return value
        if plain and ago == 0 and self._is_static(first):
            found = next((s for s in self.slots.values() if s.x.read == value.read), None)
            if found is not None and isinstance(found.after, Node):
                return self._slot(
                    ("branch", op.id), op.label or found.name, op.type, found.after, first, op
                )
        return self._where(self._begins(ago), first, value)

    def _may_begin(self, cond: Cond, time: Mapping[str, Lin]) -> bool:
        zero = {**time, **{d: const(0) for d in self.source.iterations}}
        return truth_value(subst_cond(cond, zero)) is True

    def _is_first_only(self, cond: Cond) -> bool:
        """Test whether a condition is true only at the first step of an iteration."""
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
        """Return the tensor of a read, `ago` steps earlier.

        Args:
            fill: the reduction of a window's axis; the window may begin before the episode.
        """
        source = self.source
        read = source.ctx.same_statistic.get(read.tensor, read)
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
            return self._need(Node(read.source, read.out, 0, start))
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
                op, f"is read at {source.now} = {entry}, not a fixed number of steps earlier"
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
        """Stack consecutive steps, oldest first; steps before the episode are identities of the reduction."""
        now = sym(self.source.now)
        oldest, newest = now - entry.lo, now - (entry.hi - 1)
        most = oldest.const if oldest.is_const else self._clamped_offset(entry.lo)
        if most is None or not newest.is_const or (fill is None and not oldest.is_const):
            raise self._unsupported_error(
                op,
                f"is read at {entry}, whose length varies",
                f"use a window of fixed length: {op.label or 'x'}.window(4, over={self.source.now}).",
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
        """Return the number c of steps in max(t - c, 0)."""
        if len(entry.terms) == 1 and entry.const == 0 and entry.terms[0][1] == 1:
            atom = entry.terms[0][0]
            if isinstance(atom, Extremum) and atom.which == "max" and len(atom.args) == 2:
                consts = [a for a in atom.args if a.is_const]
                moving = [sym(self.source.now) - a for a in atom.args if not a.is_const]
                if consts and consts[0].const == 0 and moving and moving[0].is_const:
                    return moving[0].const if moving[0].const >= 0 else None
        return None

    def _availability_lag(self, read: Read) -> int:
        """Return the number of steps after which a tensor is known."""
        return 1 if read.tensor in self.source.came else self.source.avail[read.source]

    def _value_steps_ago(self, read: Read, op: Op, ago: int, *, start: bool) -> RecurrentTensor:
        """Return a tensor `ago` steps earlier."""
        known, kind = self._availability_lag(read), op.outputs[read.out].type
        if ago < known:
            when = "a later step" if ago < 0 else "this step"
            raise self._unsupported_error(
                op, f"is read at {when}, but unknown when the action is chosen"
            )
        if ago > known:
            after = Node(read.source, read.out, ago - 1)
            name = self.source.came.get(read.tensor) or op.label or f"{op.kind}{op.id}"
            return self._slot(("ago", *read.tensor, ago), name, kind, after, None, op)
        if read.tensor in self.source.came:
            return self._input(self.inputs, self.source.came[read.tensor], kind, op)
        return self._need(Node(read.source, read.out, ago, start))

    def _first_step_value(
        self, name: str, kind: TensorType, op: Op, *, start: bool
    ) -> RecurrentTensor:
        """Return an input's value at the episode's first step."""
        now = self._input(self.inputs, name, kind, op)
        if start:
            return now
        return self._hold(("first", name), f"first {name}", kind, now, 0, op)

    def _latch_value(self, read: Read, op: Op, when: int) -> RecurrentTensor:
        """Return a tensor at a given step of the episode."""
        now = self._value_steps_ago(read, op, 0, start=False)
        name, kind = op.label or f"{op.kind}{op.id}", op.outputs[read.out].type
        return self._hold(("at", *read.tensor, when), name, kind, now, when, op)

    def _stack(self, parts: Sequence[RecurrentTensor], op: Op) -> RecurrentTensor:
        rows = [self._add("reshape", [x], ShapeAttrs((1, *x.shape)), op) for x in parts]
        return self._add("concat", rows, AxisAttrs(0), op)

    def _weight(self, read: Read, op: Op) -> RecurrentTensor:
        p = self.source.parameters[read.source]
        entries = dict(zip(op.outputs[0].domain, read.index, strict=True))
        along = [entries[d] for d in p.update_dims if d in entries]
        if any(isinstance(e, Slice) for e in entries.values()):
            raise self._unsupported_error(
                op, f"is read at {', '.join(map(str, read.index))}, at several iterations"
            )
        if along and all(isinstance(e, Lin) and e.is_const for e in along):
            return self._frozen_input(read, op)
        return self._input(self.weights, p.name, p.type, op)

    def _frozen_input(self, read: Read, op: Op) -> RecurrentTensor:
        """Return a value of the last iteration."""
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
