"""Results of kernels with given data as their only content.

Such a result needs no copy. In a lowered program its buffer is the given array. The interpreter
slices the value out of the host's array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from timerl_nb.base.array_conversion import Array
from timerl_nb.compiler.ir.operation_attributes import ConstArray, ConstAttrs
from timerl_nb.compiler.ir.operations import DataflowAttrs, Op, Tensor


def passed_on(op: Op, out: int) -> ConstAttrs | None:
    """Return the given data behind a kernel's output; None if the output is computed."""
    if not isinstance(op.attrs, DataflowAttrs) or op.outputs[out].reduce is not None:
        return None
    source, _ = op.attrs.results[out]
    attrs = next((inner.attrs for inner in op.attrs.body if inner.id == source), None)
    return attrs if isinstance(attrs, ConstAttrs) else None


def passes_on(op: Op) -> bool:
    """Return whether a kernel only returns given data."""
    if not isinstance(op.attrs, DataflowAttrs):
        return False
    found = [one.attrs for one in op.attrs.body if isinstance(one.attrs, ConstAttrs)]
    return (
        len(found) == len(op.attrs.body)
        and any(attrs.value.array.size > 1 for attrs in found)
        and all(passed_on(op, out) is not None for out in range(len(op.outputs)))
    )


def arrays_of(ops: Iterable[Op]) -> tuple[ConstArray, ...]:
    """Return the given arrays of kernels, without duplicates."""
    bodies = (op.attrs.body for op in ops if isinstance(op.attrs, DataflowAttrs))
    found = (inner.attrs for body in bodies for inner in body)
    return tuple(dict.fromkeys(one.value for one in found if isinstance(one, ConstAttrs)))


def is_free(op: Op, given: Mapping[Tensor, Array]) -> bool:
    """Return whether an operation needs no kernel, because all its results are given arrays."""
    return passes_on(op) and all((op.id, k) in given for k in range(len(op.outputs)))
