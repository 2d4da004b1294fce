"""NumPy's functions of tensors and indices, translated to this library's operators, functions and methods.

`np.exp(x)` calls `x.exp()`, `array * x` calls `x.__rmul__(array)`, `np.where(c, x, y)` calls `trl.where`. A
function without a counterpart is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.language.foreign_names import close
from timerl_nb.compiler.language.inputs.tensor_sources import concat, maximum, minimum, stack, where
from timerl_nb.compiler.language.opaque_value import Opaque, register_numpy
from timerl_nb.compiler.language.operations import numpy_style_functions
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand

# ufunc -> the operator's method, and its reflected method
_OPERATORS: Final[Mapping[str, tuple[str, str]]] = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"),
    "power": ("__pow__", "__rpow__"),
    "matmul": ("__matmul__", "__rmatmul__"),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "left_shift": ("__lshift__", "__rlshift__"),
    "right_shift": ("__rshift__", "__rrshift__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
}
# methods with another name; all others have NumPy's name
_METHODS: Final[Mapping[str, str]] = {
    "absolute": "abs",
    "fabs": "abs",
    "negative": "__neg__",
    "positive": "__pos__",
    "invert": "__invert__",
    "rint": "round",
    "around": "round",
    "amax": "max",
    "amin": "min",
    "ravel": "flatten",
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "maximum": maximum,
    "minimum": minimum,
    "where": where,
    "concatenate": concat,
    "stack": stack,
    "hstack": numpy_style_functions.hstack,
    "vstack": numpy_style_functions.vstack,
    "outer": numpy_style_functions.outer,
    "einsum": numpy_style_functions.einsum,
    "logical_and": numpy_style_functions.logical_and,
    "logical_or": numpy_style_functions.logical_or,
    "logical_xor": numpy_style_functions.logical_xor,
    "float_power": lambda x, y: operand(None, x).floating() ** y,
    "dot": lambda x, y: _operator("matmul", (x, y)),
    "arctan2": lambda y, x: _method("atan2", (y, x), {}),
}
# functions with the axis as NumPy's second argument
_ALONG: Final = frozenset(
    {"sum", "prod", "mean", "max", "min", "amax", "amin", "any", "all", "std", "var"}
)
# Functions that join all axes by default: name -> the number of arguments before the axis.
_FLAT: Final = {"argmax": 1, "argmin": 1, "cumsum": 1, "cumprod": 1, "take": 2}


def _ufunc(ufunc: Any, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    name = ufunc.__name__
    # NumPy passes its scalars as arrays of rank 0
    inputs = [x[()] if isinstance(x, np.ndarray) else x for x in inputs]
    if method != "__call__" or options:
        asked = (
            f"np.{name}.{method}"
            if method != "__call__"
            else f"np.{name}(…, {', '.join(options)}=…)"
        )
        raise ShapeError(
            f"{asked} takes no recurrent tensors.",
            hint="call the function without these arguments; to reduce, write x.sum(axis=…) or the like.",
        )
    if name in _OPERATORS:
        return _operator(name, inputs)
    return _dispatch_call(name, tuple(inputs), {})


def _function(function: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    name = function.__name__
    if name == "put":
        raise ShapeError(
            "np.put writes into an array, but tensors are immutable.",
            hint="write y = x.put(at, value, axis).",
        )
    if name in _ALONG and len(args) == 2:
        args, options = args[:1], {"axis": args[1], **options}
    if len(args) == _FLAT.get(name) and "axis" not in options:
        x = operand(None, args[0])
        args = (x if x.rank == 1 else x.flatten(), *args[1:])
    return _dispatch_call(name, args, options)


def _dispatch_call(name: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](*args, **options)
    own = _METHODS.get(name, name)
    if args and isinstance(args[0], RecurrentTensor) and hasattr(type(args[0]), own):
        return _method(own, args, options)
    known = [*_FUNCTIONS, *_METHODS, *(n for n in dir(RecurrentTensor) if n[0] != "_")]
    hint = close(name, known) if args and isinstance(args[0], RecurrentTensor) else ""
    raise ShapeError(
        f"np.{name} takes no recurrent tensors and no indices here.",
        hint=hint or "convert an index to a tensor: trl.value(t).exp().",
    )


def _method(name: str, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    found = getattr(args[0], name)
    return found(*args[1:], **options) if callable(found) else found


def _operator(name: str, inputs: Sequence[Any]) -> Any:
    left, right = inputs
    direct, reflected = _OPERATORS[name]
    found: Any = NotImplemented
    if isinstance(left, Opaque) and hasattr(type(left), direct):
        found = getattr(left, direct)(right)
    if found is NotImplemented and isinstance(right, Opaque) and hasattr(type(right), reflected):
        found = getattr(right, reflected)(left)
    if found is NotImplemented:
        raise ShapeError(
            f"np.{name} does not take {left!r} and {right!r}.", hint="give tensors and numbers."
        )
    return found


register_numpy(_ufunc, _function)
