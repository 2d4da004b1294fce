"""JAX functions of the user's own inside a kernel: mapped over axes, and called once for all their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any

import jax

from timerl_nb.errors import ExecutionError
from timerl_nb.ir.attrs import JaxedAttrs
from timerl_nb.ir.ops import Op
from timerl_nb.ir.shapes import NUMPY
from timerl_nb.runtime.backends.jax_scope import JaxArray, Scope


def jaxed(scope: Scope, op: Op, args: Sequence[JaxArray], sizes: Any) -> JaxArray:
    """One value of a function; its other values, of the same operands, are known from then on."""
    attrs: JaxedAttrs = op.attrs
    key = (attrs.function, attrs.along, tuple(map(id, args)))
    if key not in scope.called:  # with the operands, so that no others get their ids
        scope.called[key] = (tuple(args), _called(attrs, op, args))
    value = scope.called[key][1][attrs.out]
    shape, dtype = scope.shape(op.shape), NUMPY[attrs.type.dtype]
    if (value.shape, value.dtype) != (shape, dtype):
        own = [*value.shape[len(attrs.axes) :]]
        raise ExecutionError(
            f"{attrs.name} returned {value.dtype}{own} as value {attrs.out}, which is declared as "
            f"{dtype.name}{[*shape[len(attrs.axes) :]]}.",
            origin=op.origin,
            hint="return arrays of the declared shapes, or declare what it returns in out=.",
        )
    return value


def _called(attrs: JaxedAttrs, op: Op, args: Sequence[JaxArray]) -> tuple[JaxArray, ...]:
    f: Callable[..., Any] = attrs.function
    for has in reversed(attrs.along):  # the first axis is the outermost
        f = jax.vmap(f, in_axes=tuple(0 if one else None for one in has))
    try:
        return f(*args)
    except Exception as error:
        *_, frame = extract_tb(error.__traceback__)
        raise ExecutionError(
            f"{attrs.name} cannot be part of a kernel: {type(error).__name__}: {first_line(error)}",
            origin=op.origin,
            evidence=f"raised at {Path(frame.filename).name}:{frame.lineno}: {frame.line}",
            hint="a JAX function runs for all points together, by jax.vmap, where it can; what has no "
            "rule for that is trl.udf's, on the host.",
        ) from error


def first_line(error: BaseException) -> str:
    """What an error says, without JAX's explanations."""
    return (str(error).strip().splitlines() or [""])[0]
