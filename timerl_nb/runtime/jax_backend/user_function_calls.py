"""User-defined JAX functions inside a kernel: mapped over axes, and called once for all their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any

import jax
import jax.numpy as jnp

from timerl_nb.base.errors import ExecutionError
from timerl_nb.compiler.ir.operation_attributes import Along, JaxedAttrs, PureFunction
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.runtime.jax_backend import arrays_and_devices as backend
from timerl_nb.runtime.jax_backend.trace_context_and_masks import Called, JaxArray, Scope
from timerl_nb.runtime.jax_backend.unrolled_key_draws import with_unrolled_draws


def evaluate_jax_function(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    """Return one result of a user function. Its other results are stored for later operations."""
    attrs: JaxedAttrs = op.attrs
    value = _values(scope, op, attrs.function, attrs.along, args)[attrs.out]
    shape, dtype = scope.shape(op.shape), NUMPY[attrs.type.dtype]
    if (value.shape, value.dtype) != (shape, dtype):
        own = [*value.shape[len(attrs.axes) :]]
        raise ExecutionError(
            f"{attrs.name} returned {value.dtype}{own} as value {attrs.out}, but it is declared as "
            f"{dtype.name}{[*shape[len(attrs.axes) :]]}.",
            origin=op.origin,
            hint="return arrays of the declared shapes, or correct out=.",
        )
    return value


def total(scope: Scope, x: JaxArray, axes: Sequence[int]) -> JaxArray | None:
    """Return the sum of a function's result over axes, if a single call can compute it.

    Gradients of shared operands, such as weights, are computed this way. Otherwise each point would store
    its own gradient before the sum.
    """
    made = next((one for one in scope.called.values() if any(x is y for y in one.values)), None)
    if made is None:
        return None
    out = next(k for k, y in enumerate(made.values) if y is x)
    function, along = made.function, made.along
    inside: list[int] = []
    for axis in reversed(range(len(along))):
        one = function.sum_over_axis(out, along[axis]) if axis in axes else None
        if one is not None:
            function, inside = one, [axis, *inside]
    if not inside:
        return None
    outside = [axis for axis in range(len(along)) if axis not in inside]
    args = [_in_front(y, k, along, [*outside, *inside]) for k, y in enumerate(made.args)]
    left = _values(scope, made.op, function, tuple(along[axis] for axis in outside), args)[out]
    rest = tuple(k for k, axis in enumerate(outside) if axis in axes)
    return left.sum(rest) if rest else left


def _in_front(x: JaxArray, k: int, along: Along, order: Sequence[int]) -> JaxArray:
    """Move the axes of `along` to the front of operand `k`, in a given order."""
    mine = [axis for axis in range(len(along)) if along[axis][k]]
    to = [mine.index(axis) for axis in order if along[axis][k]]
    if to == sorted(to):
        return x
    return jnp.transpose(x, [*to, *range(len(to), x.ndim)])


def _values(
    scope: Scope, op: Op, function: PureFunction, along: Along, args: Sequence[JaxArray]
) -> tuple[JaxArray, ...]:
    key = (function, along, tuple(map(id, args)))
    if key not in scope.called:  # `Called` refers to the arguments, so their ids stay unique
        made = _call_vmapped(_with_fast_draws(scope, function), along, op, args)
        scope.called[key] = Called(op, function, along, tuple(args), made)
    return scope.called[key].values


def _with_fast_draws(scope: Scope, function: PureFunction) -> Callable[..., Any]:
    """Return a function with faster random draws, where its speed matters more than compile time."""
    if scope.once or scope.division is not None or backend.is_accelerated():
        return function
    return with_unrolled_draws(function)


def _call_vmapped(
    function: Callable[..., Any], along: Along, op: Op, args: Sequence[JaxArray]
) -> tuple[JaxArray, ...]:
    attrs: JaxedAttrs = op.attrs
    f = function
    for has in reversed(along):  # the first axis is the outermost
        f = jax.vmap(f, in_axes=tuple(0 if one else None for one in has))
    try:
        return f(*args)
    except Exception as error:
        *_, frame = extract_tb(error.__traceback__)
        raise ExecutionError(
            f"{attrs.name} cannot run in a kernel: {type(error).__name__}: {first_line(error)}",
            origin=op.origin,
            evidence=f"raised at {Path(frame.filename).name}:{frame.lineno}: {frame.line}",
            hint="write it with operations that have a batching rule for jax.vmap, or call it on the host by "
            "trl.udf.",
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip().splitlines() or [""])[0]
