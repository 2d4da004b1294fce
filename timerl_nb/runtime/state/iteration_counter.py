"""Counter of an unbounded loop, in 32-bit integers.

Index expressions and conditions depend on the iteration only modulo a period, once it is large enough. They
receive a smaller equivalent iteration. Random draws receive the true iteration, in two 32-bit words.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm
from typing import Any, Final

import numpy as np

from timerl_nb.base.errors import BoundsError, ExecutionError, Origin
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.buffer_layout import Layout
from timerl_nb.compiler.symbolic.index_expressions import Div, Lin, Mod, Node

_BEFORE: Final = 1 << 30  # iterations below this number are passed unchanged
_MOST: Final = 1 << 29  # maximum period, such that passed iterations fit into 31 bits
_MASK: Final = 0xFFFFFFFF


class TurnCounter:
    """Iterations of a program with an unbounded dimension.

    Args:
        plan: Memory plan.
        layout: Layout of XLA's buffers; None for the interpreter.

    Raises:
        BoundsError: The iterations are not periodic, or their period is too long.
    """

    def __init__(self, plan: MemoryPlan, layout: Layout | None = None) -> None:
        dim = plan.pdg.dims.endless
        assert dim is not None
        self.dim = dim.name
        if plan.fold is None or plan.fold.dim.name != dim.name:
            raise BoundsError(
                f"{dim.bound} is endless, but the turns of {dim.name} do not repeat the same work in the "
                "outermost loop, so the memory of a run is unknown.",
                hint=f"let no other dimension contain the loop over {dim.name}, and read along it only at a fixed "
                f"distance, or at {dim.name} modulo a number.",
            )
        self._period = lcm(plan.fold.period, *_moduli(plan, layout))
        if self._period > _MOST:
            raise BoundsError(
                f"{dim.bound} is endless, but its turns repeat only after {self._period:,} of them.",
                hint=f"choose intervals along {dim.name} with common factors.",
            )
        self._number = next((op for op in _inner(plan) if _is_number(op, dim.name)), None)

    def to_31_bits(self, turn: int) -> int:
        """Return an equivalent iteration of 31 bits.

        Raises:
            ExecutionError: The program computes with the iteration itself, and it has more than 31 bits.
        """
        if turn < _BEFORE:
            return turn
        if self._number is None:
            return _BEFORE + (turn - _BEFORE) % self._period
        if turn >= 1 << 31:
            self._refuse(self._number.origin)
        return turn

    def _refuse(self, origin: Origin) -> None:
        raise ExecutionError(
            f"the value of {self.dim} does not fit into int32 after 2,147,483,648 turns.",
            origin=origin,
            hint=f"use {self.dim} modulo a number, or carry a counter that saturates.",
        )

    def words(self, turn: int) -> tuple[Any, ...]:
        """Return an iteration as three words: the equivalent iteration, the low word and the high word."""
        found = self.to_31_bits(turn), turn & _MASK, turn >> 32
        return tuple(np.array([word], np.uint32) for word in found)


def _inner(plan: MemoryPlan) -> Iterator[Op]:
    for op in plan.pdg:
        yield from op.body or (op,)


def _is_number(op: Op, name: str) -> bool:
    """Whether an operation uses a dimension as a number, and not only modulo something."""
    return op.kind == "value" and isinstance(op.attrs.expr, Lin) and _grows(op.attrs.expr, name)


def _grows(e: Lin, name: str) -> bool:
    return any(name in atom.symbols and not isinstance(atom, Mod) for atom, _ in e.terms)


def _moduli(plan: MemoryPlan, layout: Layout | None) -> Iterator[int]:
    """Yield the divisors in index expressions and buffer positions."""
    for op in _inner(plan):
        for e in op.attrs.exprs:
            yield from _find_divisors(e)
    homes = layout.homes.values() if layout is not None else ()
    for home in (home for several in homes for home in several):
        for e in home.coordinates:
            yield from _find_divisors(e)


def _find_divisors(part: Any) -> Iterator[int]:
    if isinstance(part, Mod | Div):
        yield part.by
    fields = part.fields if isinstance(part, Node) else part
    for one in fields if isinstance(fields, tuple) else ():
        yield from _find_divisors(one)
