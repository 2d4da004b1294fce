"""The type of NumPy arrays in annotations, and the conversion of arrays from and to the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from timerl_nb.base.errors import Origin, ShapeError, TimeRLError, warn

Array = np.ndarray[Any, np.dtype[Any]]


def convert_array(
    what: str,
    x: Any,
    kind: np.dtype[Any],
    *,
    error: type[TimeRLError] = ShapeError,
    hint: str = "",
    origin: Origin | None = None,
) -> Array:
    """Return values as an array of an element type, none of which may become another value.

    Booleans fit into all types, integers into integers that hold them and into floats, floats into floats;
    zeros and ones fit into booleans. Rounding to a narrower float is silent. A warning tells of finite
    numbers that become infinite.

    Args:
        what: the name of the values in messages.
        x: any array-like value of NumPy.
        kind: the element type.
        error: the class of the error.
        hint: the remedy for a type that does not fit.
        origin: the line that errors name; by default the current one.

    Raises:
        TimeRLError: `x` is no array of numbers, or its type or values do not fit.
    """
    if x.__class__ is np.ndarray and x.dtype == kind:
        return x
    array = numbers_of(what, x, error=error, origin=origin)
    if wrong := misfit(array, kind):
        raise error(
            f"{what}: {wrong}.",
            hint=hint or f"{kind.name} is needed: convert the values, or choose a wider type.",
            origin=origin,
        )
    return narrow_array(what, array, kind, origin=origin)


def numbers_of(
    what: str, x: Any, *, error: type[TimeRLError] = ShapeError, origin: Origin | None = None
) -> Array:
    """Return a real array of anything that NumPy takes as one.

    Raises:
        TimeRLError: it is ragged, or of text, times, objects or complex numbers.
    """
    array = as_array(x)
    if not is_real(array.dtype):
        name = type(x).__name__ if array.dtype == object else array.dtype.name
        if any(isinstance(one, int) and not -(2**63) <= one < 2**64 for one in array.flat):
            name = "integers of more than 64 bits"
        raise error(
            f"{what} must be an array of numbers, not {name}.",
            hint="give an array of booleans, integers or floating-point numbers.",
            origin=origin,
        )
    return array


def as_array(x: Any) -> Array:
    """Return anything as an array, PyTorch's tensors among it; an empty one of objects if it is ragged."""
    try:
        return np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)
    except (TypeError, ValueError, OverflowError):
        return np.zeros(0, object)


def indices(what: str, x: Any, size: int | None = None) -> Array:
    """Return positions as i64; booleans are masks, not positions, and fractions are refused.

    Args:
        size: the number of positions, if they are to be checked.

    Raises:
        ShapeError: they are of another type, or lie outside.
    """
    array = x if x.__class__ is np.ndarray else numbers_of(what, x)
    if array.dtype == np.int64:
        found = array
    elif array.dtype.kind in "iu":
        if wrong := misfit(array, np.dtype(np.int64)):
            raise ShapeError(f"{what}: {wrong}.", hint="positions count from 0 on.")
        found = array.astype(np.int64)
    elif not array.size and array.dtype == np.float64 and x.__class__ is not np.ndarray:
        found = array.astype(np.int64)  # an empty list
    else:
        raise ShapeError(
            f"{what} must be integers, not {array.dtype.name}.",
            hint="np.flatnonzero(mask) makes indices of booleans."
            if array.dtype == np.bool_
            else "x.astype(np.int64) rounds fractions towards zero.",
        )
    if size is not None and found.size and not (found.min() >= 0 and found.max() < size):
        wrong = int(found[(found < 0) | (found >= size)].flat[0])
        raise ShapeError(f"{what}: {wrong} is outside the range 0 to {size - 1}.")
    return found


def is_real(kind: np.dtype[Any]) -> bool:
    """Whether an element type is of booleans, integers or floats, bfloat16 among them."""
    return kind.kind in "biuf" or (kind.kind == "V" and np.can_cast(kind, np.float32))


def misfit(x: Any, kind: np.dtype[Any]) -> str:
    """Return why values do not fit into an element type; "" if they do.

    Types decide where they can. Values are looked at only if the target is narrower.
    """
    if x.dtype == kind or np.can_cast(x.dtype, kind):
        return ""
    if not is_real(x.dtype) or (kind.kind in "biu" and x.dtype.kind not in "iu"):
        return f"{x.dtype.name} does not fit into {kind.name}"
    if kind.kind not in "biu" or not x.size:
        return ""
    low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    values = np.asarray(x)
    least, most = int(values.min()), int(values.max())
    if low <= least and most <= high:
        return ""
    return f"integers that do not fit into {kind.name}, such as {least if least < low else most}"


def narrow_array(what: str, x: Any, kind: np.dtype[Any], origin: Origin | None = None) -> Any:
    """Return values as another element type that they fit; warn of finite ones that become infinite.

    Arrays of JAX stay arrays of JAX.
    """
    if x.dtype == kind or np.can_cast(x.dtype, kind):
        return x if x.dtype == kind else x.astype(kind)
    with np.errstate(over="ignore"):
        made = x.astype(kind)
    if kind.kind not in "biu":
        infinite = np.isinf(np.asarray(made))
        if infinite.any() and np.isfinite(np.asarray(x)[infinite]).any():
            warn(  # without the number, so a loop is warned of once
                f"{what}: there are numbers that {kind.name} does not hold: they become infinite.",
                hint="scale the values, or take their logarithm.",
                origin=origin,
            )
    return made
