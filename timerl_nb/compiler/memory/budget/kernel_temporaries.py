"""Estimate of a kernel's temporary memory, in addition to its operands and results.

XLA fuses elementwise operations into their readers. It stores the operands and results of
contractions, sorts, scans and scatters, and the results of reductions. It also stores random bits,
concatenations, values read by several reductions, and non-arithmetic operands of reductions. A
contraction of a part of a larger array copies this part. A contraction without a sum is an
elementwise product.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import accumulate
from math import prod

from timerl_nb.compiler.ir.operation_attributes import DotAttrs
from timerl_nb.compiler.ir.operation_kinds import LAYOUT, REDUCTIONS
from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op, Read, Tensor, is_sliced
from timerl_nb.compiler.ir.shapes import TensorType
from timerl_nb.compiler.memory.budget import cpu_fusion_rules as rules
from timerl_nb.compiler.memory.budget.cpu_fusion_rules import CONTRACTIONS, FUSED
from timerl_nb.compiler.memory.byte_sizes import Sizes
from timerl_nb.compiler.memory.placement.passed_data import arrays_of, passes_on
from timerl_nb.compiler.symbolic.index_expressions import Slice

_NONE = frozenset[int]()
UNCERTAIN = "libraries compute contractions or XLA computes several results together"
_UNTOLD = 1 << 16  # negligible bytes


def temporaries(
    sizes: Sizes,
    op: Op,
    held: Callable[[Tensor], int] | None = None,
    over: Container[int] = (),
) -> int:
    """Return the peak of temporary bytes within a kernel, under actual bounds.

    Args:
        sizes: the sizes of values.
        op: the operation of the kernel.
        held: returns the number of simultaneously live values of a tensor. None without a plan:
            each tensor then counts as one value.
        over: the results that reuse an operand's memory.
    """
    if not isinstance(op.attrs, DataflowAttrs):
        return 0
    outputs = (k for k, output in enumerate(op.outputs) if output.reduce is None and k not in over)
    alone = frozenset(k for k in outputs if held is None or held((op.id, k)) == 1)
    several = _NONE
    if held is not None:
        reads = ((k, r) for k, r in enumerate(op.inputs) if not is_sliced(r))
        several = frozenset(k for k, read in reads if held(read.tensor) > 1)
    key = op.id, alone, several
    if key not in sizes.temporaries:
        sizes.temporaries[key] = _Body(sizes, op, alone, several).peak()
    return sizes.temporaries[key]


def computes_side_by_side(sizes: Sizes, op: Op) -> bool:
    """Return whether XLA may need far more than the estimate.

    This can happen if it computes several results together.
    """
    if not isinstance(op.attrs, DataflowAttrs) or len(op.attrs.results) < 2:
        return False
    alone = frozenset(k for k, output in enumerate(op.outputs) if output.reduce is None)
    body = _Body(sizes, op, alone, _NONE)
    return body.total() > 1.5 * body.peak() + _UNTOLD


class _Body:
    """The operations within a kernel, and their live ranges in XLA's temporary memory.

    Args:
        sizes: the sizes of values.
        op: the operation of the kernel.
        alone: the results with a buffer for a single value.
        several: the operands with several simultaneously live values.
    """

    def __init__(
        self, sizes: Sizes, op: Op, alone: frozenset[int], several: frozenset[int]
    ) -> None:
        self.sizes, self.op, self.several = sizes, op, several
        self.body: Sequence[Op] = op.attrs.body
        self.ops = {inner.id: inner for inner in self.body}
        self.place = {inner.id: n for n, inner in enumerate(self.body)}
        self.readers: dict[tuple[int, int], list[Op]] = {}
        for inner in self.body:
            for read in inner.inputs:
                self.readers.setdefault((read.source, read.out), []).append(inner)
        self.returned = {source for source, _ in op.attrs.results if source != OPERAND}
        # results computed in their own buffers
        self.carried = {source for k, (source, _) in enumerate(op.attrs.results) if k in alone}
        self.contracting = {k for k, o in self.ops.items() if contracts(sizes, op, o, self.type_of)}
        self.removed = rules.find_inverse_transposes(self.body)
        sums = [one for one in self.body if one.kind in REDUCTIONS]
        # reductions in loops of XLA, and operations that read arrays
        self.looping = {one.id for one in sums if one.kind == "prod" or one.dtype != "f32"}
        self.reading = {one.id for one in sums} - self.looping
        self.stored: set[int] = set()
        self.reduced: set[int] = set()  # operations computed within a reduction
        self.narrow: dict[int, int] = {}  # elements read by reductions, by operation
        self.until: dict[int, int] = {}  # the position of each operation's last reader
        self.taken: set[int] = set()  # operands of contractions
        self.roots: dict[int, frozenset[int]] = {}  # stored readers of each operation
        self.ends: dict[int, frozenset[int]] = {}  # the same, with stored elementwise operations
        self.views: dict[int, frozenset[int]] = {}  # the positions at which readers look
        self.repeated: list[tuple[Op, Op]] = []  # operands stored in a reader's shape
        for inner in reversed(self.body):
            self._place(inner, self.readers.get((inner.id, 0), ()))

    def type_of(self, read: Read) -> TensorType:
        if read.source == OPERAND:
            return self.sizes.pdg.read_type(self.op.inputs[read.out])
        return self.ops[read.source].outputs[read.out].type

    def _count(self, inner: Op) -> int:
        return prod(self.sizes.shape(self.op, inner.shape))

    def _last_reader(self, readers: Iterable[Op], least: int) -> int:
        """Return the position of the last reader, or of the array into which it is fused."""
        return max(
            (
                self.place[o.id]
                if o.id in self.stored or o.id in self.returned
                else self.until[o.id]
                for o in readers
            ),
            default=least,
        )

    def _feeds(self, readers: Iterable[Op]) -> bool:
        return any(
            one.id in self.contracting or (one.kind in LAYOUT and one.id in self.taken)
            for one in readers
        )

    def _place(self, inner: Op, readers: Sequence[Op]) -> None:
        """Record whether an operation is stored, and its last use; its readers are already done."""
        key, is_returned = inner.id, inner.id in self.returned
        self.until[key] = (
            len(self.body) if is_returned else self._last_reader(readers, self.place[key])
        )
        if self._feeds(readers):
            self.taken.add(key)
        is_reduced = any(o.id in self.reduced or o.kind in REDUCTIONS for o in readers)
        if is_reduced and not is_returned:
            self._reduce(inner, readers)
        roots, ends = ([found[o.id] for o in readers] for found in (self.roots, self.ends))
        self.ends[key] = _NONE.union(*ends)
        self.views[key] = _NONE.union(*(self.views[o.id] for o in readers))
        self._repeat(inner, readers)
        is_operand = is_reduced and inner.kind in FUSED and key not in self.reduced
        is_shared = key in self.reduced and len(self.ends[key]) > max(map(len, ends), default=0)
        together = _NONE.union(*roots)
        if is_operand or self._is_stored(inner, readers, roots, is_shared=is_shared):
            self.stored.add(key)
        if (is_operand or is_shared) and not is_returned:
            if self.looping.isdisjoint(self.ends[key]):  # other readers recompute it
                storing = [o for o in readers if not self.reading.isdisjoint(self.ends[o.id])]
                self.until[key] = self._last_reader(storing or readers, self.place[key])
        if key in self.stored:
            is_library = key in self.reduced and inner.kind in rules.EXPENSIVE
            if inner.kind not in rules.POSITIONS and (inner.kind not in FUSED or is_library):
                self.reading.add(key)
            # readers of a stored elementwise value read memory
            together = _NONE if inner.kind in FUSED else frozenset({key})
        if key in self.stored or inner.kind in rules.VIEWS:
            self.views[key] = frozenset({key})
        if key in self.stored or is_returned:
            self.ends[key] = frozenset({key})
        self.roots[key] = together

    def _reduce(self, inner: Op, readers: Sequence[Op]) -> None:
        """Record whether the library for reductions computes an operation within its reader."""
        count = self._count(inner)
        # A reduction is part of another one if no operation in between repeats its result.
        if all(
            o.kind in REDUCTIONS
            or self.narrow.get(o.id) == count
            or (o.kind == "expand" and o.id in self.narrow)
            for o in readers
        ):
            self.narrow[inner.id] = count
        is_nested = inner.kind in REDUCTIONS and inner.dtype == "f32" and len(readers) == 1
        if (
            (is_nested and inner.id in self.narrow)
            or inner.id in self.removed
            or rules.is_arithmetic(inner, readers, self.ops, self.type_of)
        ):
            self.reduced.add(inner.id)

    def _repeat(self, inner: Op, readers: Sequence[Op]) -> None:
        """Record whether XLA stores an operand once for all readers, in their larger shape."""
        count = self._count(inner)
        by_shape: dict[tuple[object, ...], list[Op]] = {}
        for one in readers:
            if self._count(one) > count and not rules.is_rescaling(one, self.ops):
                by_shape.setdefault(tuple(one.shape), []).append(one)
        for found in by_shape.values():
            reader = next((one for one in found if one.id in self.reduced), None)
            if reader is not None and len({self.ends[one.id] for one in found}) > 1:
                self.repeated.append((inner, reader))

    def _is_stored(
        self,
        inner: Op,
        readers: Sequence[Op],
        roots: Sequence[frozenset[int]],
        *,
        is_shared: bool,
    ) -> bool:
        together = _NONE.union(*roots)
        if inner.kind == "rng" and (together or rules.is_looped(self.sizes, self.op, inner)):
            return True
        if inner.kind in rules.EXPENSIVE and len(self.views[inner.id]) > 1:
            return True
        is_split = len(together) > max(map(len, roots), default=0)
        if (is_shared or is_split) and rules.is_computed(inner):
            return True
        if inner.kind in REDUCTIONS and inner.id in self.reduced:
            return False
        return rules.is_stored(self.sizes, self.op, inner, readers, self.contracting)

    def peak(self) -> int:
        """Return the peak of stored bytes."""
        change = [0] * (len(self.body) + 2)
        for nbytes, first, last in self._live_intervals():
            change[first] += nbytes
            change[last + 1] -= nbytes
        return max(accumulate(change))

    def total(self) -> int:
        """Return the bytes of all stored arrays."""
        return sum(nbytes for nbytes, _, _ in self._live_intervals())

    def _live_intervals(self) -> Iterator[tuple[int, int, int]]:
        """Yield the bytes of each stored array, and the positions of its first and last use."""
        sizes, op, place = self.sizes, self.op, self.place
        free = dict.fromkeys(self.carried.intersection(place), -1)
        for inner in (one for one in self.body if one.id in self.stored):
            now, is_carried = place[inner.id], inner.id in self.carried
            nbytes = rules.stored_bytes(sizes, op, inner, self.readers.get((inner.id, 0), ()))
            if not is_carried and not self._is_made_in_result(inner, nbytes, free):
                yield nbytes, now, self.until[inner.id]
            is_alone = bool(inner.inputs) and inner.inputs[0].source in self.stored
            how = {"is_alone": is_alone, "is_carried": is_carried}
            yield rules.workspace_bytes(sizes, op, inner, self.type_of, **how), now, now
        for inner, reader in self.repeated:
            nbytes = sizes.type_bytes(op, reader.outputs[0].type)
            first = place[reader.id]
            yield nbytes, first, max(first, self.until[inner.id])
        for slot, read in enumerate(op.inputs):
            readers = self.readers.get((OPERAND, slot), ())
            if self._feeds(readers) and _is_cut(sizes, op, read, is_one=slot not in self.several):
                yield (
                    sizes.span(op, read) * sizes.point_bytes(read),
                    0,
                    self._last_reader(readers, 0),
                )

    def _is_made_in_result(self, inner: Op, nbytes: int, free: dict[int, int]) -> bool:
        """Return whether XLA computes an operation in the memory of a later result.

        Args:
            inner: the operation.
            nbytes: its bytes.
            free: the last use of each result's memory for such operations; modified.
        """
        for key, used in free.items():
            one = self.ops[key]
            room = self.sizes.type_bytes(self.op, one.outputs[0].type)
            fits = room >= nbytes if one.kind == "concat" else room == nbytes
            is_over = self.until[inner.id] <= self.place[key]
            if used < self.place[inner.id] and fits and is_over and rules.takes_memory(one, inner):
                free[key] = self.until[inner.id]
                return True
        return False


def contracts(sizes: Sizes, op: Op, inner: Op, kind: Callable[[Read], TensorType]) -> bool:
    """Return whether an operation is a contraction with several products per value.

    Args:
        sizes: the sizes of values.
        op: the kernel of the operation, or the operation itself.
        inner: the operation.
        kind: returns the type of a read.
    """
    if inner.kind not in CONTRACTIONS or not isinstance(inner.attrs, DotAttrs):
        return inner.kind in CONTRACTIONS
    labels = zip((inner.attrs.left, inner.attrs.right), inner.inputs, strict=True)
    shapes = ((axes, sizes.shape(op, kind(read).shape)) for axes, read in labels)
    sized = (pair for axes, shape in shapes for pair in zip(axes, shape, strict=True))
    return any(n > 1 for axis, n in sized if axis not in inner.attrs.out)


def calls_libraries(op: Op) -> bool:
    """Return whether libraries or functions of the user compute a part.

    Their own memory is unknown.
    """
    body = op.attrs.body if isinstance(op.attrs, DataflowAttrs) else ()
    return any(inner.kind in (*CONTRACTIONS, "jaxed") for inner in body)


def constants(ops: Iterable[Op]) -> int:
    """Return the bytes of the given arrays in kernels, without duplicates.

    A kernel of given data alone holds no array in addition to its results.
    """
    return sum(value.array.nbytes for value in arrays_of(op for op in ops if not passes_on(op)))


def _is_cut(sizes: Sizes, op: Op, read: Read, *, is_one: bool) -> bool:
    """Return whether an operand is only a part of the stored values of its tensor.

    The outermost dimension of the kernel counts as one point.
    """
    dims, turns = sizes.pdg.dims, op.domain[:1]
    pairs = zip(sizes.pdg.output(read).domain, read.index, strict=True)
    there = (
        dims[d].count(sizes.bounds) for d, e in pairs if isinstance(e, Slice) or d not in turns
    )
    if prod(there) <= sizes.span(op, read):
        return False
    return is_sliced(read) or not is_one
