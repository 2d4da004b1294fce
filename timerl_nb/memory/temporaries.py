"""What a kernel stores while it runs, beside its operands and results: estimated, before XLA has seen it.

XLA fuses what is computed element by element, and reads its results where they are used. It stores what
contractions take and give, and what reductions, scans and sorts give; what a contraction takes from a
larger array is copied out of it first. Few random bits are made in a loop that holds several arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import prod

from timerl_nb.ir.attrs import ConstAttrs
from timerl_nb.ir.kinds import ELEMENTWISE, LAYOUT
from timerl_nb.ir.ops import OPERAND, DataflowAttrs, Op, Read
from timerl_nb.ir.randomness import MOST_LOOPED
from timerl_nb.memory.sizes import Sizes
from timerl_nb.symbolic.expr import Slice

CONTRACTIONS = ("dot", "conv")
FUSED = ELEMENTWISE | LAYOUT | {"concat", "gather", "merge", "rng", "value"}
_ROUNDS = 8  # arrays that hold the rounds of random bits beside these, as XLA states it on a CPU


def temporaries(sizes: Sizes, op: Op) -> int:
    """The most bytes of values within a kernel that are stored at once, under actual bounds."""
    if not isinstance(op.attrs, DataflowAttrs):
        return 0
    body = op.attrs.body
    place = {inner.id: n for n, inner in enumerate(body)}
    end = len(body)
    readers: dict[tuple[int, int], list[Op]] = {}
    for inner in body:
        for read in inner.inputs:
            readers.setdefault((read.source, read.out), []).append(inner)
    returned = {source for source, _ in op.attrs.results if source != OPERAND}
    looped = {inner.id for inner in body if _is_looped(sizes, op, inner)}
    stored: set[int] = set()
    until: dict[int, int] = {}  # where each is read last, through what is fused
    taken: set[int] = set()  # what a contraction takes as it is

    def last(found: Sequence[Op], least: int) -> int:
        ends = (place[one.id] if one.id in stored else until[one.id] for one in found)
        return max(ends, default=least)

    def feeds(found: Sequence[Op]) -> bool:
        return any(u.kind in CONTRACTIONS or (u.kind in LAYOUT and u.id in taken) for u in found)

    for inner in reversed(body):
        found = readers.get((inner.id, 0), ())
        until[inner.id] = end if inner.id in returned else last(found, place[inner.id])
        if feeds(found):
            taken.add(inner.id)
        if inner.id in looped or _is_stored(inner, found):
            stored.add(inner.id)
    change = [0] * (end + 2)

    def keep(nbytes: int, first: int, last: int) -> None:
        change[first] += nbytes
        change[last + 1] -= nbytes

    for inner in body:
        if inner.id in stored:
            nbytes = sizes.type_bytes(op, inner.outputs[0].type)
            keep(nbytes, place[inner.id], until[inner.id])
            if inner.id in looped:
                keep(_ROUNDS * nbytes, place[inner.id], place[inner.id])
    for slot, read in enumerate(op.inputs):
        found = readers.get((OPERAND, slot), ())
        if feeds(found) and _is_cut(sizes, op, read):
            keep(sizes.span(op, read) * sizes.point_bytes(read), 0, last(found, 0))
    return max(accumulate(change))


def calls_libraries(op: Op) -> bool:
    """Whether libraries, or functions of the user's, compute some of it: nobody states their own memory."""
    body = op.attrs.body if isinstance(op.attrs, DataflowAttrs) else ()
    return any(inner.kind in (*CONTRACTIONS, "jaxed") for inner in body)


def constants(ops: Iterable[Op]) -> int:
    """Bytes of the arrays that kernels were given, each once."""
    bodies = (op.attrs.body for op in ops if isinstance(op.attrs, DataflowAttrs))
    found = (inner.attrs for body in bodies for inner in body)
    values = dict.fromkeys(attrs.value for attrs in found if isinstance(attrs, ConstAttrs))
    return sum(value.array.nbytes for value in values)


def _is_cut(sizes: Sizes, op: Op, read: Read) -> bool:
    """Whether an operand is a part of what is there of its tensor: in turns, of one turn alone."""
    dims, turns = sizes.pdg.dims, op.domain[:1]
    pairs = zip(sizes.pdg.output(read).domain, read.index, strict=True)
    there = (
        dims[d].count(sizes.bounds) for d, e in pairs if isinstance(e, Slice) or d not in turns
    )
    return prod(there) > sizes.span(op, read)


def _is_looped(sizes: Sizes, op: Op, inner: Op) -> bool:
    """Whether it makes random bits in a loop."""
    return inner.kind == "rng" and prod(sizes.shape(op, inner.shape)) <= MOST_LOOPED


def _is_stored(inner: Op, readers: Sequence[Op]) -> bool:
    if isinstance(inner.attrs, ConstAttrs):
        return False
    if inner.kind not in FUSED:
        return True
    return any(reader.kind in CONTRACTIONS for reader in readers)
