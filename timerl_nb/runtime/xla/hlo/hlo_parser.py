"""Parser of XLA's optimised HLO text: computations, and their instructions in execution order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final

# Instructions without execution: names of values, and waits.
NAMES: Final = frozenset(
    [
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "after-all",
        "opt-barrier",
        "add-dependency",
        "domain",
        "partition-id",
        "replica-id",
        "async-update",
        "async-done",
        "copy-done",
        "all-reduce-done",
        "all-gather-done",
        "collective-permute-done",
        "send-done",
        "recv-done",
    ]
)
_COMPUTATION: Final = re.compile(r"^(ENTRY )?%(\S+) \([^\n]*\{\n(.*?)^\}", re.M | re.S)
_INSTRUCTION: Final = re.compile(
    r"^  (ROOT )?%(\S+) = (\((?:[^()]|\([^()]*\))*\)|\S+) ([\w\-]+)\(([^\n]*)", re.M
)
_ARRAY: Final = re.compile(r"(\w+)\[([\d,]*)\]")
_NAME: Final = re.compile(r"%([\w.\-]+)")
_TURNS: Final = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_BRANCHES: Final = re.compile(
    r"(?:true_computation|false_computation|branch_computations)=(\{[^}]*\}|%[\w.\-]+)"
)
ONE_KERNEL: Final = 'xla_cpu_small_call="true"'


def computations(text: str) -> tuple[Computation, Mapping[str, Computation]]:
    """Return the entry computation, and all computations by name."""
    found = [(bool(m[1]), m[2], Computation(m[3])) for m in _COMPUTATION.finditer(text)]
    (entry,) = (one for is_entry, _, one in found if is_entry)
    return entry, {name: one for _, name, one in found}


@dataclass(frozen=True)
class Instruction:
    """Instruction of a computation. The kinds in `NAMES` execute nothing."""

    name: str
    kind: str
    type: str
    rest: str  # operands and attributes
    is_root: bool

    @cached_property
    def operands(self) -> Sequence[str]:
        return _NAME.findall(self.rest[: self.rest.index(")")])

    @cached_property
    def arrays(self) -> Sequence[tuple[str, Sequence[int]]]:
        """Element types and shapes of the result."""
        found = _ARRAY.findall(self.type)
        return [(dtype, [int(n) for n in dims.split(",") if n]) for dtype, dims in found]

    @property
    def shape(self) -> Sequence[int]:
        return self.arrays[0][1]

    @cached_property
    def elements(self) -> int:
        return sum(prod(shape) for _, shape in self.arrays)

    @cached_property
    def sizes(self) -> Sequence[int]:
        """Bytes of each array of the result."""
        return [prod(shape) * _bits(dtype) // 8 for dtype, shape in self.arrays]

    @property
    def nbytes(self) -> int:
        return sum(self.sizes)

    def called_computation(self, role: str) -> str:
        found = re.search(rf"\b{role}=%([\w.\-]+)", self.rest)
        assert found is not None, f"{self.kind} without {role}"
        return found[1]

    @property
    def branches(self) -> Sequence[str]:
        return [name for text in _BRANCHES.findall(self.rest) for name in _NAME.findall(text)]

    @property
    def turns(self) -> int | None:
        found = _TURNS.search(self.rest)
        return int(found[1]) if found else None


class Computation(Mapping[str, Instruction]):
    """The instructions of a computation, by name."""

    def __init__(self, text: str) -> None:
        found = _INSTRUCTION.finditer(text)
        self._all = {m[2]: Instruction(m[2], m[4], m[3], m[5], bool(m[1])) for m in found}

    def __getitem__(self, name: str) -> Instruction:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def root(self) -> Instruction:
        return next(x for x in self.values() if x.is_root)

    @cached_property
    def needed_elements(self) -> Mapping[str, int]:
        """Computed elements of each instruction in a fusion; slices and gathers need fewer."""
        found = dict.fromkeys(self, 0)
        found[self.root.name] = self.root.elements
        for user in reversed(list(self.values())):
            asked: dict[str, int] = {}
            for index, name in enumerate(user.operands):
                asked[name] = max(
                    asked.get(name, 0), self._needed_elements(user, index, found[user.name])
                )
            for name, count in asked.items():
                found[name] = min(self[name].elements, found[name] + count)
        return found

    def _needed_elements(self, user: Instruction, index: int, needed: int) -> int:
        """Return the computed elements of an operand for `needed` elements of its user."""
        operand = self[user.operands[index]]
        if user.kind in ("slice", "dynamic-slice", "gather") and not index:
            return min(operand.elements, needed)
        if operand.name in self.in_place_operands(user):
            return 0
        if user.kind == "tuple" or operand.elements != user.elements:
            return operand.elements
        return needed

    def in_place_operands(self, one: Instruction) -> Sequence[str]:
        """Return the operands updated in place; a fusion does not compute these."""
        count = {"dynamic-update-slice": 1, "scatter": len(one.operands) // 2}.get(one.kind, 0)
        return [name for name in one.operands[:count] if self._is_memory(self[name])]

    def _is_memory(self, one: Instruction) -> bool:
        if one.kind in ("bitcast", "get-tuple-element"):
            return self._is_memory(self[one.operands[0]])
        return one.kind == "parameter" or bool(self.in_place_operands(one))

    def updates(self, one: Instruction) -> Sequence[Instruction]:
        """Return the operands with the new values of an in-place update."""
        if one.kind == "scatter":
            return [self[name] for name in one.operands[len(one.operands) // 2 + 1 :]]
        return [self[one.operands[1]]]

    def bytes_read(self, name: str) -> int:
        """Return the bytes of a parameter read by the fusion."""
        one = self[name]
        return one.nbytes * self.needed_elements[name] // max(1, one.elements)

    def written_sizes(self, one: Instruction) -> Sequence[tuple[int, int]]:
        """Return the written elements and bytes per array; in-place updates count new values."""
        if one.kind == "tuple":
            return [part for name in one.operands for part in self.written_sizes(self[name])]
        if one.kind == "bitcast" and self._is_memory(one):
            return self.written_sizes(self[one.operands[0]])
        if places := self.in_place_operands(one):
            new = self.updates(one)
            before = [part for name in places for part in self._written_before(self[name])]
            elements = sum(x.elements for x in new) + sum(n for n, _ in before)
            return [(elements, sum(x.nbytes for x in new) + sum(n for _, n in before))]
        return [(prod(shape), size) for (_, shape), size in zip(one.arrays, one.sizes, strict=True)]

    def _written_before(self, one: Instruction) -> Sequence[tuple[int, int]]:
        return [] if one.kind in ("parameter", "get-tuple-element") else self.written_sizes(one)


def _bits(dtype: str) -> int:
    found = re.search(r"\d+", dtype)
    return 8 if dtype == "pred" else int(found[0]) if found else 0
