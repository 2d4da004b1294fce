"""Search for the origin of the first NaN in a run.

Each kernel checks its results up to their true lengths. If one has a NaN, the kernel is recomputed
operation by operation, and the NaN is traced back to its source. The branch that a `where` does not
select is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import ExecutionError, Origin
from timerl_nb.compiler.ir.names import Names
from timerl_nb.compiler.ir.operation_kinds import ELEMENTWISE
from timerl_nb.compiler.ir.operations import OPERAND, Op, Tensor
from timerl_nb.compiler.ir.shapes import Shape
from timerl_nb.compiler.symbolic.dimensions import Dims
from timerl_nb.compiler.symbolic.index_expressions import Lin
from timerl_nb.runtime.fused_kernel import Kernel, RecomputedValues

Element = tuple[int, ...]
_SOURCES: Final = ("const", "data")
_DOMAIN_HINT: Final = (
    "keep its operands in the domain of the operation, for example trl.where(x > 0, x, 1.0).log()."
)
_GRADIENT_HINT: Final = (
    "trl.where(x > 0, x.log(), 0.0) keeps NaN out of the value, but not out of the gradient. "
    "Select the argument instead: trl.where(x > 0, x, 1.0).log()."
)


def add_nan_check(kernel: Kernel, names: Names) -> Callable[..., Any]:
    """Return the kernel's function with a NaN check. It takes no donated arrays."""
    kinds = {op.id: op.kind for op in kernel.body}
    made_here = [kinds.get(op_id, _SOURCES[0]) not in _SOURCES for op_id, _ in kernel.results]

    def copy(arrays: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(x if x is None else kernel.engine.snapshot(x) for x in arrays)

    def run_checked(*args: Any) -> Any:
        *others, slots, blocks = args  # PyTorch writes into accumulators and blocks
        made, found = kernel.run_with_nan_check(*others, copy(slots), copy(blocks))
        numbers = np.flatnonzero(kernel.engine.to_numpy(found) & np.array(made_here))
        if len(numbers):
            raise _Search(kernel, kernel.recompute(*args), names).error(int(numbers[0]))
        return made

    return run_checked


def check_host(op: Op, point: Mapping[str, int], made: Sequence[Array], dims: Dims) -> None:
    """Check the results of a function on the host for NaN.

    Raises:
        ExecutionError: A result contains NaN.
    """
    for k, (x, output) in enumerate(zip(made, op.outputs, strict=True)):
        nans = _nan_indices(x)
        if len(nans):
            where = _describe_point(dims, point, output.type.shape, nans[0])
            several = f" in its output {k}" if len(op.outputs) > 1 else ""
            raise ExecutionError(
                f"{op.label or op.kind} returns the first NaN{several}{where}.",
                origin=op.origin,
                hint="it is a function on the host: check its arguments at this point.",
            )


class _Search:
    """Search for the source of a NaN in the recomputed values of a kernel."""

    def __init__(self, kernel: Kernel, recomputed: RecomputedValues, names: Names) -> None:
        self._kernel, self._recomputed, self._names = kernel, recomputed, names
        self._ops = {op.id: op for op in kernel.body}

    def error(self, result: int) -> ExecutionError:
        """Return the error for the source of the NaN in a result."""
        tensor = self._kernel.results[result]
        if not len(_nan_indices(self._value(tensor))):  # the sum of infinities with opposite signs
            op, out = self._ops[tensor[0]], self._kernel.op.outputs[result]
            return ExecutionError(
                f"the first NaN is made by the accumulation of {self._names[op.id]} ({out.reduce or op.kind})"
                f"{self._describe_element((), ())}.",
                origin=op.origin,
                others=_gradient_line(op),
                evidence=f"the accumulated values are {_describe_array(self._value(tensor))}, without NaN.",
                hint="keep the values finite: infinities of opposite sign add up to NaN.",
            )
        at = _first_nan(self._value(tensor))
        while (behind := self._find_nan_source(tensor, at)) is not None:
            if behind[0][0] == OPERAND:
                return self._input_nan_error(tensor, at, behind[0])
            tensor, at = behind
        op = self._ops[tensor[0]]
        if op.kind in _SOURCES:
            return ExecutionError(
                f"the first NaN is in the constant {self._names[op.id]}{self._describe_element(op.shape, at)}.",
                origin=op.origin,
                others=_gradient_line(op),
                hint="remove the NaN from the data, or from the computation with constants.",
            )
        return ExecutionError(
            f"the first NaN is made by {self._names[op.id]} ({op.kind}){self._describe_element(op.shape, at)}.",
            origin=op.origin,
            others=_gradient_line(op),
            evidence=self._operands(op, at),
            hint=_GRADIENT_HINT if op.origin.gradient_of else _DOMAIN_HINT,
        )

    def _input_nan_error(self, tensor: Tensor, at: Element, source: Tensor) -> ExecutionError:
        """Return the error for a NaN from another operation."""
        op, pdg = self._ops[tensor[0]], self._kernel.pdg
        read = self._kernel.op.inputs[source[1]]
        return ExecutionError(
            f"{self._names[op.id]} ({op.kind}) reads a NaN{self._describe_element(op.shape, at)}.",
            origin=op.origin,
            others={**_gradient_line(op), "the NaN comes from": pdg[read.source].origin},
            hint="check the values at the second line.",
        )

    def _find_nan_source(self, tensor: Tensor, at: Element) -> tuple[Tensor, Element] | None:
        """Return the operand element with the source of a NaN; None if this operation creates the NaN."""
        op = self._ops[tensor[0]]
        reads = [read.tensor for read in op.inputs] if op.kind not in _SOURCES else []
        if op.kind == "where":
            condition, first, second = reads
            chosen = self._value(condition)[self._element_of_operand(condition, at)]
            reads = [first if chosen else second]
        elsewhere: list[tuple[Tensor, Element]] = []
        for read in reads:
            nans = _nan_indices(self._value(read))
            if len(nans):
                own = self._element_of_operand(read, at) if op.kind in ELEMENTWISE else None
                if own is not None and (nans == own).all(axis=1).any():
                    return read, own
                elsewhere.append((read, tuple(map(int, nans[0]))))
        return elsewhere[0] if elsewhere else None

    def _element_of_operand(self, tensor: Tensor, at: Element) -> Element:
        """Return the operand element for element `at` of an elementwise result."""
        shape = self._value(tensor).shape
        return tuple(
            0 if n == 1 else k for k, n in zip(at[len(at) - len(shape) :], shape, strict=True)
        )

    def _value(self, tensor: Tensor) -> Array:
        """Return a value, cut to its true lengths."""
        return self._kernel.engine.to_numpy(self._recomputed.values[tensor])[
            tuple(map(slice, self._recomputed.lengths[tensor]))
        ]

    def _operands(self, op: Op, at: Element) -> list[str]:
        """Describe the operands: the corresponding elements for elementwise operations, else ranges."""
        parts: list[str] = []
        for read in op.inputs:
            x, name = self._value(read.tensor), self._tensor_name(read.tensor)
            if op.kind in ELEMENTWISE:
                parts.append(f"{name} is {x[self._element_of_operand(read.tensor, at)]} there")
            else:
                parts.append(f"{name} is {_describe_array(x)}")
        return parts

    def _tensor_name(self, tensor: Tensor) -> str:
        if tensor[0] != OPERAND:
            return self._names[tensor[0]]
        read = self._kernel.op.inputs[tensor[1]]
        return self._names.output(read.source, read.out)

    def _describe_element(self, shape: Shape, at: Sequence[int]) -> str:
        return _describe_point(self._kernel.pdg.dims, self._recomputed.point, shape, at)


def _gradient_line(op: Op) -> dict[str, Origin]:
    of = op.origin.gradient_of
    return {} if of is None else {"it belongs to the gradient of": of}


def _describe_point(dims: Dims, point: Mapping[str, int], shape: Shape, at: Sequence[int]) -> str:
    """Return text like ` at i = 3, b = 2, element (0,)`. A dimension's axis is identified by its length."""
    found = {
        d: f"{d} = {k}" if dims[d].step == 1 else _describe_block(dims, d, k)
        for d, k in point.items()
    }
    along = {dim.bound: dim.name for dim in dims}
    rest: list[int] = []
    for size, k in zip(shape, at, strict=True):
        symbol = size.as_symbol if isinstance(size, Lin) else None
        name = along.get(symbol or "")
        if name is None or name in found:
            rest.append(int(k))
        else:
            found[name] = f"{name} = {k}"
    parts = [found[d] for d in dims.names if d in found]
    parts += [f"element {tuple(rest)}"] if rest else []
    return f" at {', '.join(parts)}" if parts else ""


def _describe_block(dims: Dims, name: str, k: int) -> str:
    """Describe the points of a tile."""
    step = dims[name].step
    return f"{name} from {k * step} on ({step} at a time)"


def _first_nan(x: Array) -> Element:
    """Return the index of the first NaN."""
    return tuple(map(int, _nan_indices(x)[0]))


def _nan_indices(x: Any) -> Array:
    """Return the indices of all NaNs, one per row; empty for integers and booleans."""
    array = np.asarray(x)
    if array.dtype.kind in "iub":
        return np.zeros((0, array.ndim), np.intp)
    return np.argwhere(np.isnan(np.asarray(array, np.float64)))


def _describe_array(x: Any) -> str:
    array = np.asarray(x)
    if array.size == 1:
        return str(array.reshape(())[()])
    if not array.size:
        return "empty"
    return f"between {array.min()} and {array.max()}, shape {list(array.shape)}"
