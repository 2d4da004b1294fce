"""Estimate of a kernel's temporary memory, besides its operands and results.

XLA fuses elementwise operations into their readers. It stores the operands and results of
contractions, sorts, scans and scatters, and the results of reductions. It also stores the source of a
gather, random bits, concatenations, and values read by several reductions. A contraction copies a part
of a larger array. A contraction without a sum is an elementwise product.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from itertools import accumulate
from math import prod

from timerl_nb.compiler.ir.operation_attributes import ConstAttrs, DotAttrs
from timerl_nb.compiler.ir.operation_kinds import ELEMENTWISE, LAYOUT
from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op, Read, Tensor, is_sliced
from timerl_nb.compiler.ir.random_bits import MOST_LOOPED
from timerl_nb.compiler.ir.shapes import TensorType
from timerl_nb.compiler.memory.byte_sizes import Sizes
from timerl_nb.compiler.memory.placement.passed_data import arrays_of, passes_on
from timerl_nb.compiler.symbolic.index_expressions import Slice

CONTRACTIONS = ("dot", "conv")
FUSED = ELEMENTWISE | LAYOUT | {"gather", "merge", "rng", "value"}
# Kinds that read their operands from memory; a gather only the first one.
_READS_STORED = frozenset(
    {"argsort", "linear_scan", "sliding_sum", "sliding_max", "scatter_add", "scatter_set"}
)
# XLA's temporary arrays of the result's size for these kinds, on a CPU.
_WORKSPACE = {"linear_scan": 1, "sliding_sum": 1, "scatter_add": 1, "scatter_set": 1}
_ROUNDS = 8  # arrays that hold the rounds of random bits beside these, as XLA states it on a CPU


def temporaries(
    sizes: Sizes,
    op: Op,
    held: Callable[[Tensor], int] | None = None,
    over: Container[int] = (),
) -> int:
    """The most bytes of values within a kernel that are stored at once, under actual bounds.

    Args:
        held: how many values of a tensor there are at once; None where no plan says, and each
            counts as if it were alone.
        over: the results that take an operand's memory over.
    """
    if not isinstance(op.attrs, DataflowAttrs):
        return 0
    body = op.attrs.body
    place = {inner.id: n for n, inner in enumerate(body)}
    end = len(body)
    readers: dict[tuple[int, int], list[Op]] = {}
    for inner in body:
        for read in inner.inputs:
            readers.setdefault((read.source, read.out), []).append(inner)
    results = [(one, source) for one, (source, _) in enumerate(op.attrs.results)]
    returned = {source for _, source in results if source != OPERAND}
    alone = (one for one in results if op.outputs[one[0]].reduce is None and one[0] not in over)
    # what is made where it is carried
    carried = {source for one, source in alone if held is None or held((op.id, one)) == 1}
    looped = {inner.id for inner in body if _is_looped(sizes, op, inner)}
    made = {inner.id: inner.outputs for inner in body}

    def kind(read: Read) -> TensorType:
        if read.source == OPERAND:
            return sizes.pdg.read_type(op.inputs[read.out])
        return made[read.source][read.out].type

    contracting = {inner.id for inner in body if contracts(sizes, op, inner, kind)}
    stored: set[int] = set()
    until: dict[int, int] = {}  # where each is read last, through what is fused
    taken: set[int] = set()  # what a contraction takes as it is

    def last(found: Sequence[Op], least: int) -> int:
        ends = (place[one.id] if one.id in stored else until[one.id] for one in found)
        return max(ends, default=least)

    def feeds(found: Sequence[Op]) -> bool:
        return any(u.id in contracting or (u.kind in LAYOUT and u.id in taken) for u in found)

    roots: dict[int, frozenset[int]] = {}  # the stored operations into which each one is fused
    for inner in reversed(body):
        found = readers.get((inner.id, 0), ())
        until[inner.id] = end if inner.id in returned else last(found, place[inner.id])
        if feeds(found):
            taken.add(inner.id)
        into = [roots[one.id] for one in found]
        together = frozenset[int]().union(*into)
        if (
            inner.id in looped
            or (inner.kind == "rng" and together)
            or (_is_computed(inner) and len(together) > max(map(len, into), default=0))
            or _is_stored(sizes, op, inner, found, contracting)
        ):
            stored.add(inner.id)
        if inner.id in stored:  # readers of a stored elementwise value read memory
            together = frozenset() if inner.kind in FUSED else frozenset({inner.id})
        roots[inner.id] = together
    change = [0] * (end + 2)

    def keep(nbytes: int, first: int, last: int) -> None:
        change[first] += nbytes
        change[last + 1] -= nbytes

    for inner in body:
        if inner.id in stored:
            nbytes = sizes.type_bytes(op, inner.outputs[0].type)
            if inner.id not in carried:
                keep(nbytes, place[inner.id], until[inner.id])
            if inner.id in looped:
                keep(_ROUNDS * nbytes, place[inner.id], place[inner.id])
            keep(_WORKSPACE.get(inner.kind, 0) * nbytes, place[inner.id], place[inner.id])
    for slot, read in enumerate(op.inputs):
        found = readers.get((OPERAND, slot), ())
        if feeds(found) and _is_cut(sizes, op, read, held):
            keep(sizes.span(op, read) * sizes.point_bytes(read), 0, last(found, 0))
    return max(accumulate(change))


def contracts(sizes: Sizes, op: Op, inner: Op, kind: Callable[[Read], TensorType]) -> bool:
    """Whether an operation is a contraction, and adds up more than one product for a value.

    Args:
        op: the kernel that it is in, or itself.
        kind: what a read of it yields.
    """
    if inner.kind not in CONTRACTIONS or not isinstance(inner.attrs, DotAttrs):
        return inner.kind in CONTRACTIONS
    labels = zip((inner.attrs.left, inner.attrs.right), inner.inputs, strict=True)
    shapes = ((axes, sizes.shape(op, kind(read).shape)) for axes, read in labels)
    sized = (pair for axes, shape in shapes for pair in zip(axes, shape, strict=True))
    return any(n > 1 for axis, n in sized if axis not in inner.attrs.out)


def calls_libraries(op: Op) -> bool:
    """Whether libraries, or functions of the user's, compute some of it: nobody states their own memory."""
    body = op.attrs.body if isinstance(op.attrs, DataflowAttrs) else ()
    return any(inner.kind in (*CONTRACTIONS, "jaxed") for inner in body)


def constants(ops: Iterable[Op]) -> int:
    """Bytes of the given arrays that kernels compute with, each once.

    A kernel that does nothing but to pass on given data holds no array besides its results.
    """
    return sum(value.array.nbytes for value in arrays_of(op for op in ops if not passes_on(op)))


def _is_cut(sizes: Sizes, op: Op, read: Read, held: Callable[[Tensor], int] | None) -> bool:
    """Whether an operand is a part of what is there of its tensor: in turns, of one turn alone."""
    dims, turns = sizes.pdg.dims, op.domain[:1]
    pairs = zip(sizes.pdg.output(read).domain, read.index, strict=True)
    there = (
        dims[d].count(sizes.bounds) for d, e in pairs if isinstance(e, Slice) or d not in turns
    )
    if prod(there) <= sizes.span(op, read):
        return False
    return is_sliced(read) or (held is not None and held(read.tensor) > 1)


def _is_looped(sizes: Sizes, op: Op, inner: Op) -> bool:
    """Whether it makes random bits in a loop."""
    return inner.kind == "rng" and prod(sizes.shape(op, inner.shape)) <= MOST_LOOPED


def _is_computed(inner: Op) -> bool:
    return not isinstance(inner.attrs, ConstAttrs)


def _is_stored(
    sizes: Sizes, op: Op, inner: Op, readers: Sequence[Op], contracting: Container[int]
) -> bool:
    if isinstance(inner.attrs, ConstAttrs):
        whole = sizes.type_bytes(op, inner.outputs[0].type) == inner.attrs.value.array.nbytes
        return not whole and any(reader.id in contracting for reader in readers)
    if inner.kind not in FUSED:
        return inner.kind not in CONTRACTIONS or inner.id in contracting
    return any(
        reader.id in contracting
        or reader.kind in _READS_STORED
        or (reader.kind == "gather" and reader.inputs[0].source == inner.id)
        for reader in readers
    )
