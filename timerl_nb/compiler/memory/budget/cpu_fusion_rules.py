"""Rules for the values that XLA stores within a kernel on a CPU, derived from its buffer
assignments.

XLA calls a library for float32 reductions. The library computes arithmetic within the reduction,
and reads every other operand from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from math import prod

from timerl_nb.compiler.ir.operation_attributes import ConstAttrs
from timerl_nb.compiler.ir.operation_kinds import ELEMENTWISE, LAYOUT, REDUCTIONS
from timerl_nb.compiler.ir.operations import Op, Read
from timerl_nb.compiler.ir.random_bits import MOST_LOOPED
from timerl_nb.compiler.ir.shapes import HALF, NUMPY, TensorType
from timerl_nb.compiler.memory.byte_sizes import Sizes

TypeOf = Callable[[Read], TensorType]

CONTRACTIONS = ("dot", "conv")
FUSED = ELEMENTWISE | LAYOUT | {"gather", "merge", "rng", "value"}
# XLA computes these once, and stores them for readers at several positions.
EXPENSIVE = frozenset(
    ["exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh", "sigmoid", "erf", "erf_inv"]
)
POSITIONS = frozenset({"argmax", "argmin"})  # XLA fuses elementwise operations into these
VIEWS = frozenset({"reindex", "gather"})
_SCANS = frozenset({"linear_scan", "sliding_sum"})
_EXTREMA = frozenset({"sliding_max", "sliding_min"})
_SCATTERS = frozenset({"scatter_add", "scatter_set"})
_READS_STORED = _SCANS | _EXTREMA | _SCATTERS | {"argsort"}
# Elementwise operations that the library for float32 reductions does not compute.
_STORED_FIRST = frozenset(["sin", "cos", "atan2", "erf_inv", "floordiv", "mod", "where", "unit"])
_ARITHMETIC = ELEMENTWISE - _STORED_FIRST | {"value", "reshape", "transpose", "expand"}
_BYTES = frozenset({"i8", "u8"})
_PART = 16  # length of the parts in which XLA computes running extrema
_ROUNDS = 8  # number of arrays for the rounds of random bits, as reported by XLA on a CPU


def is_looped(sizes: Sizes, op: Op, inner: Op) -> bool:
    """Return whether XLA may generate the random bits in a loop, and always stores them."""
    return inner.kind == "rng" and prod(sizes.shape(op, inner.shape)) <= MOST_LOOPED


def find_recomputed_draws(body: Sequence[Op]) -> frozenset[int]:
    """Return the draws that only `argmax` and `argmin` read.

    XLA would fuse such a draw into its reader, and compute each number many times.
    """
    found: set[int] = set()
    ends: dict[
        int, set[str]
    ] = {}  # kinds of the first readers that XLA does not fuse with an operation
    for inner in reversed(body):
        kinds = ends.get(inner.id, set[str]())
        if inner.kind == "rng" and kinds and kinds <= POSITIONS:
            found.add(inner.id)
        for read in inner.inputs:
            ends.setdefault(read.source, set()).update(
                kinds if inner.kind in FUSED and kinds else {inner.kind}
            )
    return frozenset(found)


def is_computed(inner: Op) -> bool:
    return not isinstance(inner.attrs, ConstAttrs)


def find_inverse_transposes(body: Sequence[Op]) -> set[int]:
    """Return transposes with a later inverse after only elementwise operations.

    XLA removes both.
    """
    found: set[int] = set()
    before: dict[int, Op] = {}  # by operation, the transpose of its operands
    for inner in body:
        first = next((before[r.source] for r in inner.inputs if r.source in before), None)
        if inner.kind == "transpose":
            perm = inner.attrs.perm
            if first is not None and all(perm[k] == n for n, k in enumerate(first.attrs.perm)):
                found |= {first.id, inner.id}
            else:
                before[inner.id] = inner
        elif first is not None and inner.kind in ELEMENTWISE:
            before[inner.id] = first
    return found


def is_arithmetic(inner: Op, readers: Sequence[Op], ops: Mapping[int, Op], type_of: TypeOf) -> bool:
    """Return whether the library for reductions computes an operation that a reduction reads.

    Args:
        inner: the operation.
        readers: its readers.
        ops: the operations of the same kernel.
        type_of: returns the type of a read.
    """
    if inner.kind == "cast":
        source = type_of(inner.inputs[0]).dtype
        if "f32" not in (source, inner.dtype) or source in HALF:
            return False
        return bool(_BYTES & {source, inner.dtype}) or _is_given(inner.inputs[0], ops)
    if inner.kind == "transpose" and any(one.kind not in REDUCTIONS for one in readers):
        return False
    if inner.kind == "mul" and any(_is_selection(read, ops, type_of) for read in inner.inputs):
        return False
    return inner.kind in _ARITHMETIC and inner.dtype == "f32" and not _is_clamp(inner, ops)


def _is_given(read: Read, ops: Mapping[int, Op]) -> bool:
    return read.source not in ops or ops[read.source].kind in ("const", "data")


def _is_selection(read: Read, ops: Mapping[int, Op], type_of: TypeOf) -> bool:
    """Return whether a read is a condition cast to 0 or 1.

    XLA turns multiplication by it into a selection.
    """
    source = ops.get(read.source)
    if source is None or source.kind != "cast":
        return False
    return type_of(source.inputs[0]).dtype == "bool" and not _is_given(source.inputs[0], ops)


def _is_clamp(inner: Op, ops: Mapping[int, Op]) -> bool:
    """Return whether an operation and its operand clamp a value between two constants.

    XLA fuses both.
    """
    kinds = [ops[read.source].kind if read.source in ops else "" for read in inner.inputs]
    other = {"min2": "max2", "max2": "min2"}.get(inner.kind)
    if other not in kinds or "const" not in kinds:
        return False
    inside = ops[inner.inputs[kinds.index(other)].source]
    return any(read.source in ops and ops[read.source].kind == "const" for read in inside.inputs)


def is_rescaling(reader: Op, ops: Mapping[int, Op]) -> bool:
    """Return whether a reader multiplies random numbers.

    Drawing them already includes a multiplication.
    """
    sources = (ops[read.source] for read in reader.inputs if read.source in ops)
    return reader.kind == "mul" and any(one.kind == "unit" for one in sources)


def takes_memory(result: Op, operand: Op) -> bool:
    """Return whether XLA computes an operand of a result in the result's memory."""
    if (operand.kind not in FUSED and operand.kind not in REDUCTIONS) or not is_computed(operand):
        return False
    if result.kind in _SCANS:
        return result.attrs.axis == 0
    if result.kind == "scatter_set":
        return result.inputs[0].source == operand.id
    return result.kind in FUSED or (result.kind == "concat" and operand.kind == "rng")


def is_stored(
    sizes: Sizes, op: Op, inner: Op, readers: Sequence[Op], contracting: Container[int]
) -> bool:
    """Return whether XLA stores an operation because of its kind, or because of a reader's."""
    if isinstance(inner.attrs, ConstAttrs):
        whole = sizes.type_bytes(op, inner.outputs[0].type) == inner.attrs.value.array.nbytes
        return not whole and any(reader.id in contracting for reader in readers)
    if inner.kind not in FUSED:
        return inner.kind not in CONTRACTIONS or inner.id in contracting
    return any(
        reader.id in contracting
        or reader.kind in _READS_STORED
        or (reader.kind == "concat" and (inner.kind == "reindex" or inner.kind in EXPENSIVE))
        for reader in readers
    )


def stored_bytes(sizes: Sizes, op: Op, inner: Op, readers: Sequence[Op]) -> int:
    """Return the bytes of a stored operation. XLA casts the operand of an integer sum first."""
    nbytes = sizes.type_bytes(op, inner.outputs[0].type)
    if any(one.kind == "sum" and one.dtype == "i32" for one in readers):
        nbytes *= max(1, 4 // NUMPY[inner.dtype].itemsize)
    return nbytes


def workspace_bytes(
    sizes: Sizes, op: Op, inner: Op, type_of: TypeOf, *, is_alone: bool, is_carried: bool
) -> int:
    """Return the bytes of XLA's temporary arrays for an operation, without its result.

    Args:
        is_alone: whether the first operand is stored within the kernel, so that it may be
            overwritten.
        is_carried: whether the result is computed in its final buffer.
    """
    nbytes = sizes.type_bytes(op, inner.outputs[0].type)
    if inner.kind in _SCANS:  # a scan along an inner axis first copies its operand
        return nbytes * (1 + (not is_alone and inner.attrs.axis > 0))
    if inner.kind == "argsort":  # positions are sorted along with a copy of the values
        return nbytes * (not is_alone)
    if inner.kind in _SCATTERS:
        copies = not is_alone and not is_carried
        return nbytes * copies + _position_bytes(sizes, op, inner, type_of)
    if inner.kind in _EXTREMA:  # an axis is padded to whole parts
        is_padded = sizes.capacity(op, inner.shape[inner.attrs.axis]) % _PART > 0
        return nbytes * (is_padded + (is_carried and not is_alone))
    return _ROUNDS * nbytes if is_looped(sizes, op, inner) else 0


def _position_bytes(sizes: Sizes, op: Op, inner: Op, type_of: TypeOf) -> int:
    """Return the bytes of a scatter's positions in several rows.

    XLA stores one position per axis.
    """
    both = sum(label in inner.attrs.out for label in inner.attrs.right)
    shape = sizes.shape(op, type_of(inner.inputs[-1]).shape)
    return (both + 1) * prod(shape) * 4 if both else 0
