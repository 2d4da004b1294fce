"""Work of a compiled call (launches, operations, bytes), counted in XLA's optimised HLO."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Final

from timerl_nb.runtime.xla.hlo.hlo_parser import (
    NAMES,
    ONE_KERNEL,
    Computation,
    Instruction,
    computations,
)

# Instructions with an in-place update. XLA copies the operand first if it is still needed.
IN_PLACE: Final = frozenset(["dynamic-update-slice", "scatter"])
# Instructions for layout changes and copies, without arithmetic.
_LAYOUT: Final = NAMES | frozenset(
    [
        "broadcast",
        "reshape",
        "transpose",
        "slice",
        "dynamic-slice",
        "dynamic-update-slice",
        "concatenate",
        "copy",
        "copy-start",
        "iota",
        "pad",
        "gather",
        "reverse",
        "custom-call",
    ]
)


@dataclass(frozen=True)
class Work:
    """Work of a call, or of a part of it.

    Attributes:
        launches: Kernels, library calls and copies started by XLA.
        products: Multiplications and additions of contractions.
        elements: Elements computed by other arithmetic; for reductions and sorts, their input elements.
        nbytes: Bytes read and written by all launches. Slices, gathers and in-place updates count only
            the elements that they access.
        is_exact: False if a loop with an unknown number of iterations counts as one iteration, or if
            branches differ and the one with the most launches counts.
    """

    launches: int = 0
    products: int = 0
    elements: int = 0
    nbytes: int = 0
    is_exact: bool = True

    def __add__(self, other: Work) -> Work:
        return Work(
            self.launches + other.launches,
            self.products + other.products,
            self.elements + other.elements,
            self.nbytes + other.nbytes,
            self.is_exact and other.is_exact,
        )

    def __mul__(self, times: int) -> Work:
        return Work(
            self.launches * times,
            self.products * times,
            self.elements * times,
            self.nbytes * times,
            self.is_exact,
        )


def work(text: str, turns: int | None = None) -> Work:
    """Count the work of a call in the text of its optimised HLO.

    A launch is an instruction that XLA starts separately: a fusion, contraction, custom call, sort, copy or
    collective. It counts once per iteration of the loops around it. Parameters, constants, tuples and
    bitcasts are not launches. Loops, conditionals and calls count by their contents. The condition of a loop
    with a known number of iterations is never evaluated, so it does not count. A call that XLA compiles
    to a single kernel, including its loops, is one launch.

    Args:
        text: The text of the HLO.
        turns: The number of iterations of a loop in the entry computation if XLA does not know it.
    """
    entry, named = computations(text)
    open_loops = (x for x in entry.values() if x.kind == "while" and x.turns is None)
    known = {} if turns is None else {loop.called_computation("body"): turns for loop in open_loops}
    return Counting(named, known).count_computation(entry)


class Counting:
    """Counter of the work in named computations.

    Args:
        named: The computations.
        turns: Iterations of loops of which XLA does not know the length, by the name of the body.
    """

    def __init__(
        self, named: Mapping[str, Computation], turns: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        self._computations, self._turns = named, turns

    def count_computation(self, computation: Computation) -> Work:
        """Return the total work of a computation."""
        return sum(
            (self._instruction_work(one, computation) for one in computation.values()), Work()
        )

    def _callee_work(self, one: Instruction, role: str) -> Work:
        return self.count_computation(self._computations[one.called_computation(role)])

    def _instruction_work(self, one: Instruction, around: Computation) -> Work:
        if one.kind in NAMES:
            return Work()
        if one.kind == "while":
            turns = self._turns.get(one.called_computation("body"), one.turns)
            if turns is not None:
                return self._callee_work(one, "body") * turns
            asked = self._callee_work(one, "condition")
            return self._callee_work(one, "body") + asked + Work(is_exact=False)
        if one.kind == "conditional":
            branches = [self.count_computation(self._computations[name]) for name in one.branches]
            most = max(branches, key=lambda branch: branch.launches)
            return most + Work(
                is_exact=all(branch.launches == most.launches for branch in branches)
            )
        if one.kind == "call" and ONE_KERNEL not in one.rest:
            return self._callee_work(one, "to_apply")
        return self.launch(one, around)

    def launch(self, one: Instruction, around: Computation) -> Work:
        """Return the work of one launch."""
        if one.kind == "call":
            inner = self._callee_work(one, "to_apply")
            return Work(
                1, inner.products, inner.elements, _count_full_bytes(one, around), inner.is_exact
            )
        return Work(1, *self._arithmetic(one, around), self._count_moved_bytes(one, around))

    def count_written_elements(self, one: Instruction, around: Computation) -> int:
        """Return the number of elements written to the largest result; in-place updates count new values."""
        if one.kind == "fusion":
            inner = self._computations[one.called_computation("calls")]
            return max((n for n, _ in inner.written_sizes(inner.root)), default=1)
        if one.kind in IN_PLACE:
            return sum(new.elements for new in around.updates(one))
        return max((prod(shape) for _, shape in one.arrays), default=1)

    def _arithmetic(
        self, one: Instruction, around: Computation, needed: int | None = None
    ) -> tuple[int, int]:
        """Return the products and elements of an instruction, or of its fused computation.

        Args:
            one: The instruction.
            around: Its computation.
            needed: Computed elements of its result in a fusion; all by default.
        """
        if one.kind == "fusion":
            inner = self._computations[one.called_computation("calls")]
            found = [
                self._arithmetic(each, inner, inner.needed_elements[each.name])
                for each in inner.values()
            ]
            return sum(p for p, _ in found), sum(e for _, e in found)
        made = one.elements if needed is None else needed
        if one.kind == "dot":
            dims = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", one.rest)
            left = around[one.operands[0]].shape
            contracted = [left[int(k)] for k in dims[1].split(",") if k] if dims else []
            return 2 * made * prod(contracted), 0
        if one.kind == "convolution":
            labels = re.search(r"dim_labels=\w+_(\w+)->", one.rest)
            assert labels is not None
            kernel = around[one.operands[1]].shape
            return 2 * made * prod(kernel) // kernel[labels[1].index("o")], 0
        if one.kind in _LAYOUT:
            return 0, 0
        if one.kind == "scatter":
            return 0, sum(new.elements for new in around.updates(one))
        if one.kind in ("reduce", "reduce-window", "sort"):
            looked_at = sum(around[name].elements for name in one.operands)
            return 0, looked_at * made // max(1, one.elements)
        return 0, made

    def _count_moved_bytes(self, one: Instruction, around: Computation) -> int:
        """Return the bytes read and written by a launch."""
        if one.kind in ("slice", "dynamic-slice"):
            return 2 * one.nbytes
        if one.kind == "gather":
            return 2 * one.nbytes + around[one.operands[1]].nbytes
        if one.kind in IN_PLACE:
            indices = around[one.operands[len(one.operands) // 2]].nbytes
            new = 2 * sum(new.nbytes for new in around.updates(one))
            return new + (indices if one.kind == "scatter" else 0)
        if one.kind != "fusion":
            return _count_full_bytes(one, around)
        inner = self._computations[one.called_computation("calls")]
        read = sum(inner.bytes_read(x.name) for x in inner.values() if x.kind == "parameter")
        return read + sum(size for _, size in inner.written_sizes(inner.root))


def _count_full_bytes(one: Instruction, around: Computation) -> int:
    return one.nbytes + sum(around[name].nbytes for name in one.operands)
