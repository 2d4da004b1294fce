"""What a compiled call launches, computes and moves, counted in XLA's optimised HLO."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final

# What names values, or says when others are ready, and runs nothing.
_NAMES: Final = frozenset(
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
# What lays values out anew, or writes them down, and computes nothing.
_LAYOUT: Final = _NAMES | frozenset(
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
_ONE_KERNEL: Final = 'xla_cpu_small_call="true"'


@dataclass(frozen=True)
class Work:
    """What a call does, or a part of it.

    Attributes:
        launches: kernels, library calls and copies that XLA starts one after the other.
        products: multiplications and additions of contractions.
        elements: elements that other arithmetic makes; of reductions and sorts, those that it looks at.
        nbytes: what all launches read and write, in bytes; of what they change in place, the slice.
        is_exact: False where a loop of which XLA does not know how often it turns counts as one turn, or
            where branches differ: the one with the most launches counts.
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


def work(text: str) -> Work:
    """What a call does, by the text of its optimised HLO.

    A launch is an instruction that XLA starts by itself, once for each turn of the loops around it: a
    fusion, a contraction, a custom call, a sort, a copy, a collective. None are parameters, constants,
    tuples and bitcasts; loops, conditions and calls, whose contents are; and the conditions of loops whose turns are
    known, which nothing asks. A call that XLA makes one kernel of, loops and all, is one launch.
    """
    found = [(bool(m[1]), m[2], _Computation(m[3])) for m in _COMPUTATION.finditer(text)]
    (entry,) = (one for is_entry, _, one in found if is_entry)
    return _Counting({name: one for _, name, one in found}).of(entry)


@dataclass(frozen=True)
class _Instruction:
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
        """The types and shapes of what it makes."""
        found = _ARRAY.findall(self.type)
        return [(dtype, [int(n) for n in dims.split(",") if n]) for dtype, dims in found]

    @property
    def shape(self) -> Sequence[int]:
        return self.arrays[0][1]

    @cached_property
    def elements(self) -> int:
        return sum(prod(shape) for _, shape in self.arrays)

    @cached_property
    def nbytes(self) -> int:
        return sum(prod(shape) * _bits(dtype) // 8 for dtype, shape in self.arrays)

    def called(self, role: str) -> str:
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


class _Computation(Mapping[str, _Instruction]):
    """The instructions of a computation, by name."""

    def __init__(self, text: str) -> None:
        found = _INSTRUCTION.finditer(text)
        self._all = {m[2]: _Instruction(m[2], m[4], m[3], m[5], bool(m[1])) for m in found}

    def __getitem__(self, name: str) -> _Instruction:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def root(self) -> _Instruction:
        return next(x for x in self.values() if x.is_root)

    def read(self, name: str) -> int:
        """The bytes that a fusion reads of one of its parameters."""
        total = 0
        for user in (x for x in self.values() if name in x.operands):
            if user.kind in ("dynamic-slice", "slice"):
                total += user.nbytes
            elif user.kind in ("bitcast", "get-tuple-element"):
                total += self.read(user.name)
            elif user.kind != "dynamic-update-slice" or name != user.operands[0]:
                return self[name].nbytes
        return min(total, self[name].nbytes)

    def written(self, one: _Instruction) -> int:
        """The bytes that a fusion writes of what it returns: of what it changes in place, the slice."""
        if one.kind == "tuple":
            return sum(self.written(self[name]) for name in one.operands)
        if one.kind == "bitcast":
            return self.written(self[one.operands[0]])
        if one.kind == "dynamic-update-slice":
            return self[one.operands[1]].nbytes
        return one.nbytes


class _Counting:
    def __init__(self, computations: Mapping[str, _Computation]) -> None:
        self._computations = computations

    def of(self, computation: _Computation) -> Work:
        """All that a computation runs."""
        return sum((self._run(one, computation) for one in computation.values()), Work())

    def _called(self, one: _Instruction, role: str) -> Work:
        return self.of(self._computations[one.called(role)])

    def _run(self, one: _Instruction, around: _Computation) -> Work:
        if one.kind in _NAMES:
            return Work()
        if one.kind == "while":
            if one.turns is not None:
                return self._called(one, "body") * one.turns
            asked = self._called(one, "condition")
            return self._called(one, "body") + asked + Work(is_exact=False)
        if one.kind == "conditional":
            ways = [self.of(self._computations[name]) for name in one.branches]
            most = max(ways, key=lambda way: way.launches)
            return most + Work(is_exact=all(way.launches == most.launches for way in ways))
        if one.kind == "call":
            inner = self._called(one, "to_apply")
            if _ONE_KERNEL not in one.rest:
                return inner
            return Work(1, inner.products, inner.elements, _touched(one, around), inner.is_exact)
        return Work(1, *self._arithmetic(one, around), self._moved(one, around))

    def _arithmetic(self, one: _Instruction, around: _Computation) -> tuple[int, int]:
        """Products and elements of an instruction, or of those that are fused in it."""
        if one.kind == "fusion":
            inner = self._computations[one.called("calls")]
            found = [self._arithmetic(each, inner) for each in inner.values()]
            return sum(p for p, _ in found), sum(e for _, e in found)
        if one.kind == "dot":
            dims = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", one.rest)
            left = around[one.operands[0]].shape
            contracted = [left[int(k)] for k in dims[1].split(",") if k] if dims else []
            return 2 * one.elements * prod(contracted), 0
        if one.kind == "convolution":
            labels = re.search(r"dim_labels=\w+_(\w+)->", one.rest)
            assert labels is not None
            kernel = around[one.operands[1]].shape
            return 2 * one.elements * prod(kernel) // kernel[labels[1].index("o")], 0
        if one.kind in _LAYOUT:
            return 0, 0
        if one.kind in ("reduce", "reduce-window", "sort"):
            return 0, sum(around[name].elements for name in one.operands)
        return 0, one.elements

    def _moved(self, one: _Instruction, around: _Computation) -> int:
        """The bytes that a launch reads and writes."""
        if one.kind == "dynamic-slice":
            return 2 * one.nbytes
        if one.kind == "dynamic-update-slice":
            return 2 * around[one.operands[1]].nbytes
        if one.kind != "fusion":
            return _touched(one, around)
        inner = self._computations[one.called("calls")]
        read = sum(inner.read(x.name) for x in inner.values() if x.kind == "parameter")
        return read + inner.written(inner.root)


def _touched(one: _Instruction, around: _Computation) -> int:
    return one.nbytes + sum(around[name].nbytes for name in one.operands)


def _bits(dtype: str) -> int:
    found = re.search(r"\d+", dtype)
    return 8 if dtype == "pred" else int(found[0]) if found else 0
