"""Construction of a policy's graph: operations, inputs, state, index expressions as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from timerl_nb.base.errors import OptionError
from timerl_nb.compiler.ir.operation_attributes import ConstArray, ConstAttrs
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import NUMPY, TensorType
from timerl_nb.compiler.language.policy.policy_cone import PolicyCone
from timerl_nb.compiler.language.program_context import Context
from timerl_nb.compiler.language.recurrent_tensor import (
    RecurrentTensor,
    constant,
    elementwise,
    tensor_of,
)
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
    Sym,
)

STEPS: Final = "steps"  # name of the counter of an episode's steps


@dataclass(frozen=True)
class Node:
    """Output of an operation `ago` steps earlier; `start` selects an episode's first step."""

    source: int
    out: int
    ago: int = 0
    start: bool = False


@dataclass
class Slot:
    """State tensor under construction."""

    x: RecurrentTensor
    first: RecurrentTensor
    after: Node | RecurrentTensor
    name: str


class GraphBuilder:
    """Builder that adds each operation, input and state tensor of a policy's graph once.

    Args:
        source: the program's operations behind its action.
    """

    def __init__(self, source: PolicyCone) -> None:
        self.source = source
        self.to = Context()
        self.same: dict[Any, RecurrentTensor] = {}
        self.inputs: dict[str, RecurrentTensor] = {}
        self.indices: dict[str, RecurrentTensor] = {}
        self.slots: dict[Any, Slot] = {}
        self.reader: Op | None = None  # the current operation, for errors

    def _add(
        self, kind: str, xs: Sequence[RecurrentTensor], attrs: Any, like: Op
    ) -> RecurrentTensor:
        """Add an operation, or return the equal one added earlier."""
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
                raise self._unsupported_error(like, f"has the varying shape {kind}")
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
            self.slots[key] = Slot(x, begin, x if after is None else after, name)
        return self.slots[key].x

    def _hold(
        self, key: Any, name: str, kind: TensorType, now: RecurrentTensor, when: int, like: Op
    ) -> RecurrentTensor:
        """Return a tensor's value at a given step of the episode, stored as state."""
        x = self._slot(key, name, kind, None, None, like)
        held = self.slots[key].after = self._where(self._begins(when), now, x)
        return held

    def _steps(self) -> RecurrentTensor:
        """Return the number of earlier steps in the episode."""
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
            f"the policy of this program cannot be extracted: {op.name} {why}.",
            origin=(self.reader or op).origin,
            others={"the environment is stepped at": self.source.played.origin},
            hint=hint
            or "define the policy by ctx.policy(network, o, act): act(network, o) returns a distribution "
            "or an action.",
        )

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
        """Return an expression as a tensor; a `guard` compares steps of the episode."""
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
            raise self._unsupported_error(op, f"depends on {name}, the number of the environment")
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
