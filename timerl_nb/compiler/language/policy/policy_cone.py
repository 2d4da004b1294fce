"""Dependence analysis of a program's action.

It classifies the operations behind the action: random bits, weights or outputs of the environment; dimensions of
iterations or of environments; values of one environment or shared by all.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from typing import Any

from timerl_nb.base.errors import TimeRLError
from timerl_nb.compiler.ir.operations import Op, Read, Tensor, reached_from
from timerl_nb.compiler.language.policy.environment_and_action_record import Draw, Played
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, tensor_of
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import And, Cmp, Cond, Slice, const, sym
from timerl_nb.compiler.symbolic.substitution import subst_cond

NOISE, WEIGHTS, SEEN = "noise", "weights", "seen"


class PolicyCone:
    """The operations behind a program's action, with their dependences."""

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
        cone = self.operations_behind(played.action.source)
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
            k: self.ops[k]
            for k in self.operations_behind(played.action.source, *(r.source for r in made))
        }
        self.flags = self._flags()
        self.acting = self.flags[played.action.source]
        self.own = self._own_draws()
        self._find_dimensions()
        self.avail = self._avail()

    def _describe(self, tensor: Tensor, draw: Draw) -> None:
        x = tensor_of(self.ctx, self.ctx[tensor[0]], tensor[1])
        self.draws[tensor] = draw
        with suppress(TimeRLError):  # a distribution may have no mode
            self.modes[tensor] = draw.mode().read
        with suppress(TimeRLError):
            self.log_probs[tensor] = draw.log_prob(x)

    def op(self, k: int) -> Op:
        return self.ops[k]

    # --- dependence --------------------------------------------------------------------------

    def _onward(self, k: int) -> Iterable[int]:
        """Return an operation's operands; none for the environment's outputs and for parameters."""
        if k in self.parameters:
            return ()
        return [
            r.source
            for r in self.ctx[k].inputs
            if r.tensor not in self.came and r.tensor not in self.first
        ]

    def operations_behind(self, *starts: int) -> dict[int, None]:
        """Return the transitive operands of operations, these included."""
        return reached_from(starts, self._onward)

    def _flags(self) -> dict[int, frozenset[str]]:
        """Return each operation's dependences: on random bits, on weights, on outputs of the environment."""
        readers: dict[int, list[int]] = {k: [] for k in self.cone}
        self.readers = readers
        found: dict[int, set[str]] = {k: set() for k in self.cone}
        for k, op in self.cone.items():
            if op.kind == "rng":
                found[k].add(NOISE)
            if k in self.parameters:
                found[k].add(WEIGHTS)
                continue
            for read in op.inputs:
                if read.tensor in self.came or read.tensor in self.first:
                    found[k].add(SEEN)
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
        return self.flags[k] == {NOISE}

    def _own_draws(self) -> set[int]:
        """Return the random bits of the policy itself; other random bits are exploration."""
        own: set[int] = set()
        for tensor, draw in self.draws.items():
            if not self.is_noise(tensor[0]) or WEIGHTS not in self.acting:
                own |= draw.inside
        for op in self.cone.values():
            if op.kind in ("mul", "div", "lt", "le") or (op.kind == "argmax" and self._adds(op)):
                sides = [r.source for r in (self._adds(op) or op).inputs if r.source in self.flags]
                noise = [k for k in sides if self.is_noise(k)]
                if noise and any(WEIGHTS in self.flags[k] for k in sides):
                    own |= set(self.operations_behind(*noise))
        return own

    def _adds(self, op: Op) -> Op | None:
        """Return the operand of an argmax if it is a sum, such as logits plus Gumbel numbers."""
        source = self.cone.get(op.inputs[0].source) if op.kind == "argmax" else None
        return source if source is not None and source.kind == "add" else None

    # --- dimensions --------------------------------------------------------------------------

    def _find_dimensions(self) -> None:
        """Separate the dimensions of iterations from those of environments."""
        played = self.played
        found: set[str] = set(played.time[:-1])
        params = [k for k in self.cone if k in self.parameters]
        for k in params:
            found |= set(self.cone[k].outputs[0].domain)
        for k, out in self.ctx.statistics:
            if k in self.cone:
                found |= set(self.cone[k].outputs[out].domain) - {self.now}
        if not params and len(played.domain) > 1:
            found.add(played.domain[-1])
        self.iterations = found
        self.instances = [d for d in played.domain if d not in found]

    def is_shared(self, domain: Domain) -> bool:
        """Test whether a domain contains no dimension of environments."""
        return not set(domain) & set(self.instances)

    def is_frozen(self, op: Op) -> bool:
        """Test whether all environments share an operation's value, and iterations change it."""
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
        if (
            self.instances
        ):  # a recurrence without them that restarts, such as a counter of steps, is a state
            return SEEN in self.flags[op.id] or (bool(again) and not self._restarts(op))
        if not again or self._restarts(op):
            return False
        kinds = {self.ops[k].kind for k in again}
        moved = kinds <= {"merge", "concat", "reindex", "where", "copy", "detach", "reshape"}
        learnt = any(r.source in self.parameters for k in again for r in self.ops[k].inputs)
        ends = {n for k in again for r in self.ops[k].inputs if (n := self.came.get(r.tensor))}
        return not (moved or learnt or ends & {"terminated", "truncated", "alive"})

    def _circle(self, op: Op) -> set[int]:
        """Return the operations of a tensor's recurrence."""
        ahead = self.operations_behind(*self._onward(op.id))
        if op.id not in ahead:
            return set()
        behind = reached_from([op.id], lambda k: self.readers.get(k, ()))
        return ahead.keys() & behind.keys()

    def _restarts(self, op: Op) -> bool:
        return any(
            r.cond.symbols == {self.now} and truth_value(subst_cond(r.cond, {self.now: const(0)}))
            for r in op.inputs
        )

    # --- time --------------------------------------------------------------------------------

    def back(self, read: Read, domain: Domain) -> int:
        """Return the age in steps of the latest point of a read; 0 if it does not refer to a step."""
        if self.now not in domain:
            return 0
        if self.is_step_before(read, domain):
            return 1
        entry = read.index[domain.index(self.now)]
        last = entry.hi - 1 if isinstance(entry, Slice) else entry
        apart = sym(self.now) - last
        return apart.const if apart.is_const else 0

    def is_step_before(self, read: Read, domain: Domain) -> bool:
        """Test whether a read refers to the last step of the previous iteration."""
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
                    if read.tensor in self.ctx.same_statistic:
                        continue
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
        """The number of earlier steps that the slice reads."""
        backs = [
            self.back(r, self.ops[r.source].outputs[r.out].domain)
            for op in self.cone.values()
            for r in op.inputs
        ]
        return max([1, *backs])


def truth_value(cond: Cond) -> bool | None:
    """Return the truth value of a condition; None if it depends on symbols."""
    if isinstance(cond, Cmp):
        if not cond.arg.is_const:
            return None
        value = cond.arg.const
        return {">=": value >= 0, "==": value == 0, "!=": value != 0}[cond.rel]
    parts = [truth_value(one) for one in cond.args]
    if isinstance(cond, And):
        return False if False in parts else None if None in parts else True
    return True if True in parts else None if None in parts else False
