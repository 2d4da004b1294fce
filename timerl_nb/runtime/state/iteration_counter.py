"""How a loop without an end counts, where numbers have 32 bits.

Index expressions and conditions see turns come back, a multiple of the program's period earlier, so far
from the beginning that none of them can tell. Draws see the turn itself, in two words of 32 bits.
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

_BEFORE: Final = 1 << 30  # no turn up to this one is seen again
_MOST: Final = 1 << 29  # of a period, so that what is seen has 31 bits
_MASK: Final = 0xFFFFFFFF


class TurnCounter:
    """The turns of a program without an end.

    Args:
        layout: of XLA's buffers, where it is they that hold values.

    Raises:
        BoundsError: its turns come back too late, or never.
    """

    def __init__(self, plan: MemoryPlan, layout: Layout | None = None) -> None:
        dim = plan.pdg.dims.endless
        assert dim is not None
        self.dim = dim.name
        if plan.fold is None or plan.fold.dim.name != dim.name:
            raise BoundsError(
                f"{dim.bound} is endless, and the turns of {dim.name} are not those of the outermost loop, "
                "one like the other: what memory they need is not known.",
                hint=f"let no other dimension run around {dim.name}, and let what is read along it be so many "
                f"turns back, or at {dim.name} modulo a number.",
            )
        self._period = lcm(plan.fold.period, *_moduli(plan, layout))
        if self._period > _MOST:
            raise BoundsError(
                f"{dim.bound} is endless, and its turns are alike after {self._period:,} of them only.",
                hint=f"choose numbers with common factors for what happens every so many {dim.name}.",
            )
        self._number = next((op for op in _inner(plan) if _is_number(op, dim.name)), None)

    def to_31_bits(self, turn: int) -> int:
        """The turn that stands for one, in 31 bits.

        Raises:
            ExecutionError: the program computes with the number of the turn, which has too many bits.
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
            hint=f"use {self.dim} modulo a number, or carry a count of your own that saturates.",
        )

    def words(self, turn: int) -> tuple[Any, ...]:
        """A turn as draws take it: what is seen of it, and its low and high word."""
        found = self.to_31_bits(turn), turn & _MASK, turn >> 32
        return tuple(np.array([word], np.uint32) for word in found)


def _inner(plan: MemoryPlan) -> Iterator[Op]:
    for op in plan.pdg:
        yield from op.body or (op,)


def _is_number(op: Op, name: str) -> bool:
    """Whether an operation makes a number of a dimension, of which its remainder is not enough."""
    return op.kind == "value" and isinstance(op.attrs.expr, Lin) and _grows(op.attrs.expr, name)


def _grows(e: Lin, name: str) -> bool:
    return any(name in atom.symbols and not isinstance(atom, Mod) for atom, _ in e.terms)


def _moduli(plan: MemoryPlan, layout: Layout | None) -> Iterator[int]:
    """The numbers modulo which something is computed, or buffers are written."""
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
