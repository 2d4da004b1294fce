"""Array type for annotations, and checked conversion of user values to NumPy arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

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
    """Return values as an array of an element type, and refuse any conversion that would change a value.

    Booleans fit into all types. Integers fit into floats, and into integer types with their range. Floats
    fit into floats: rounding to a narrower float is silent, but a finite number that becomes infinite
    causes a warning. Zeros and ones fit into booleans.

    Args:
        what: the name of the values in messages.
        x: any array-like value.
        kind: the element type.
        error: the class of errors.
        hint: the remedy for values of a wrong type.
        origin: the user's line for errors; by default the current one.

    Raises:
        TimeRLError: `x` is not an array of numbers, or its type or values do not fit.
    """
    if x.__class__ is np.ndarray and x.dtype == kind:
        return x
    array = numbers_of(what, x, error=error, origin=origin)
    if wrong := misfit(array, kind):
        raise error(
            f"{what}: {wrong}.",
            hint=hint or f"convert the values to {kind.name}, or choose a wider type.",
            origin=origin,
        )
    return narrow_array(what, array, kind, origin=origin)


def numbers_of(
    what: str, x: Any, *, error: type[TimeRLError] = ShapeError, origin: Origin | None = None
) -> Array:
    """Return an array-like value as an array of real numbers.

    Raises:
        TimeRLError: it is ragged, or contains text, times, objects or complex numbers.
    """
    array = as_array(x)
    if not is_real(array.dtype):
        name = type(x).__name__ if array.dtype == object else array.dtype.name
        if any(isinstance(one, int) and not -(2**63) <= one < 2**64 for one in array.flat):
            name = "integers of more than 64 bits"
        raise error(
            f"{what} must be an array of numbers, not {name}.",
            hint="pass an array of booleans, integers or floating-point numbers.",
            origin=origin,
        )
    return array


def host_array(x: Any) -> Array:
    """Return an array-like value as a NumPy array; a PyTorch tensor without its gradient, from any device.

    The array may share the memory of `x`.

    Raises:
        TypeError, ValueError: the value is not an array, or its type is unknown to NumPy.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, getattr(torch, "Tensor", ())):
        return np.asarray(x)
    plain = x.detach().cpu().resolve_conj().resolve_neg()
    if plain.dtype is torch.bfloat16:
        return plain.view(torch.int16).numpy().view(bfloat16)
    return plain.numpy()


def as_array(x: Any) -> Array:
    """Return a value as `host_array` does; ragged values give an empty object array."""
    try:
        return host_array(x)
    except (TypeError, ValueError, OverflowError):
        return np.zeros(0, object)


def indices(what: str, x: Any, size: int | None = None) -> Array:
    """Return integer positions as int64.

    Args:
        what: the name of the positions in messages.
        x: positions. Boolean masks and fractions are refused.
        size: the number of valid positions; None for no check.

    Raises:
        ShapeError: the element type is not an integer type, or a position is out of range.
    """
    array = x if x.__class__ is np.ndarray else numbers_of(what, x)
    if array.dtype == np.int64:
        found = array
    elif array.dtype.kind in "iu":
        if wrong := misfit(array, np.dtype(np.int64)):
            raise ShapeError(f"{what}: {wrong}.", hint="pass positions from 0 to the size minus 1.")
        found = array.astype(np.int64)
    elif not array.size and array.dtype == np.float64 and x.__class__ is not np.ndarray:
        found = array.astype(np.int64)  # an empty list
    else:
        raise ShapeError(
            f"{what} must be integers, not {array.dtype.name}.",
            hint="convert a mask to indices by np.flatnonzero(mask)."
            if array.dtype == np.bool_
            else "convert them by x.astype(np.int64), which rounds towards zero.",
        )
    if size is not None and found.size and not (found.min() >= 0 and found.max() < size):
        wrong = int(found[(found < 0) | (found >= size)].flat[0])
        raise ShapeError(
            f"{what}: {wrong} is outside the range 0 to {size - 1}.",
            hint=f"pass positions from 0 to {size - 1}.",
        )
    return found


def is_real(kind: np.dtype[Any]) -> bool:
    """Whether the element type is boolean, integer or floating-point; bfloat16 counts as floating-point."""
    return kind.kind in "biuf" or (kind.kind == "V" and np.can_cast(kind, np.float32))


def misfit(x: Any, kind: np.dtype[Any]) -> str:
    """Return the reason why values do not fit into an element type, or "".

    Values are read only if the target type is narrower.
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
    """Convert values that fit to another element type; JAX arrays stay JAX arrays.

    A warning reports finite numbers that become infinite.
    """
    if x.dtype == kind or np.can_cast(x.dtype, kind):
        return x if x.dtype == kind else x.astype(kind)
    with np.errstate(over="ignore"):
        made = x.astype(kind)
    if kind.kind not in "biu":
        infinite = np.isinf(np.asarray(made))
        if infinite.any() and np.isfinite(np.asarray(x)[infinite]).any():
            warn(  # The message has no number, so a loop causes one warning only.
                f"{what}: some numbers are too large for {kind.name}, and become infinite.",
                hint="scale the values, or take their logarithm.",
                origin=origin,
            )
    return made
