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
from timerl_nb.compiler.ir.operation_kinds import ELEMENTWISE, LAYOUT, REDUCTIONS
from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op, Read, Tensor, is_sliced
from timerl_nb.compiler.ir.random_bits import MOST_LOOPED
from timerl_nb.compiler.ir.shapes import TensorType
from timerl_nb.compiler.memory.byte_sizes import Sizes
from timerl_nb.compiler.memory.placement.passed_data import arrays_of, passes_on
from timerl_nb.compiler.symbolic.index_expressions import Slice

CONTRACTIONS = ("dot", "conv")
FUSED = ELEMENTWISE | LAYOUT | {"gather", "merge", "rng", "value"}
_SCANS = frozenset({"linear_scan", "sliding_sum"})
_EXTREMA = frozenset({"sliding_max", "sliding_min"})
_SCATTERS = frozenset({"scatter_add", "scatter_set"})
# Kinds that read their operands from memory.
_READS_STORED = _SCANS | _EXTREMA | _SCATTERS | {"argsort"}
# Float32 arithmetic that XLA computes inside a reduction on a CPU; it stores any other operand.
_REDUCED = frozenset(
    [
        "abs",
        "add",
        "copy",
        "detach",
        "div",
        "erf",
        "exp",
        "expm1",
        "floor",
        "log",
        "log1p",
        "max2",
        "min2",
        "mul",
        "neg",
        "pow",
        "round",
        "sigmoid",
        "sign",
        "sqrt",
        "sub",
        "tanh",
        "value",
        "reshape",
        "transpose",
        "expand",
    ]
)
_POSITIONS = frozenset({"argmax", "argmin"})  # XLA fuses random bits into these
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
    positions = {inner.id for inner in body if inner.kind in _POSITIONS}
    narrow: dict[int, int] = {}  # by operation, elements that reductions read as they are
    reduced: set[int] = set()  # what reductions compute themselves
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
        is_reduced = any(one.id in reduced or one.kind in REDUCTIONS for one in found)
        if is_reduced and inner.id not in returned:
            count = prod(sizes.shape(op, inner.shape))
            # a reduction is part of another one where nothing repeats its result in between
            if all(o.kind in REDUCTIONS or narrow.get(o.id) == count for o in found):
                narrow[inner.id] = count
            nested = inner.kind in REDUCTIONS and inner.dtype == "f32" and len(found) == 1
            if nested and inner.id in narrow or _is_reduced(inner, found):
                reduced.add(inner.id)
        into = [roots[one.id] for one in found]
        together = frozenset[int]().union(*into)
        if (
            inner.id in looped
            or (inner.kind == "rng" and not together <= positions)
            or (is_reduced and inner.kind in FUSED and inner.id not in reduced)
            or (_is_computed(inner) and len(together) > max(map(len, into), default=0))
            or (inner.kind not in REDUCTIONS or inner.id not in reduced)
            and _is_stored(sizes, op, inner, found, contracting)
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
            is_alone = inner.inputs[0].source in stored if inner.inputs else False
            copies = _workspace(inner, is_alone=is_alone, is_carried=inner.id in carried)
            keep(copies * nbytes, place[inner.id], place[inner.id])
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


def _is_reduced(inner: Op, readers: Sequence[Op]) -> bool:
    """Whether XLA computes an operation within the reduction that reads it, on a CPU."""
    if inner.kind == "transpose" and any(one.kind not in REDUCTIONS for one in readers):
        return False
    return inner.kind in _REDUCED and inner.dtype == "f32"


def _workspace(inner: Op, *, is_alone: bool, is_carried: bool) -> int:
    """XLA's temporary arrays of the result's size besides it, on a CPU.

    Args:
        is_alone: the first operand is stored within the kernel, so that it may be overwritten.
        is_carried: the result is made where it is carried.
    """
    if inner.kind in _SCANS:  # a scan along an inner axis first copies its operand
        return 1 + (not is_alone and inner.attrs.axis > 0)
    if inner.kind == "argsort":  # positions are sorted along with a copy of the values
        return int(not is_alone)
    if inner.kind in _SCATTERS:
        return int(not is_alone and not is_carried)
    return int(inner.kind in _EXTREMA)


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
        or (reader.kind == "concat" and inner.kind == "reindex")
        for reader in readers
    )
