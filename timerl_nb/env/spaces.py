"""Spaces of observations and actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.language.argument_checks import element_type, is_number, number
from timerl_nb.compiler.language.foreign_names import explain_constructor


@explain_constructor
@dataclass(frozen=True)
class Box:
    """Arrays of numbers between two bounds, in an element type such as "f32", or "u8" for frames.

    Args:
        low, high: the bounds: one number for all elements, or an array with one for each. Different bounds of the
            elements are stored as a tuple.
        shape: the shape.
        dtype: the element type.

    Raises:
        ShapeError: a bound is not a number, or does not match the shape, or there is no such element type.

    Example:
        >>> trl.env.Box(0, 255, (84, 84), "u8")
        Box(low=0, high=255, shape=(84, 84), dtype='u8')
        >>> trl.env.Box([-1.0, 0.0], 1.0, (2,)).low
        (-1.0, 0.0)
    """

    low: Any
    high: Any
    shape: tuple[int, ...] = ()
    dtype: Any = "f32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", element_type(self.dtype))
        for name in ("low", "high"):
            object.__setattr__(self, name, _bound(name, getattr(self, name), self.shape))


@explain_constructor
@dataclass(frozen=True)
class Discrete:
    """One integer from 0 to n - 1.

    Args:
        n: the number of values.

    Example:
        >>> trl.env.Discrete(2).n
        2
    """

    n: int
    shape: tuple[int, ...] = ()
    dtype: str = "i32"


@explain_constructor
@dataclass(frozen=True)
class MultiDiscrete:
    """Several integers, each from 0 to its size - 1.

    Args:
        sizes: the number of values of each integer.

    Example:
        >>> trl.env.MultiDiscrete((3, 2)).shape
        (2,)
    """

    sizes: tuple[int, ...]
    dtype: str = "i32"

    @property
    def shape(self) -> tuple[int]:
        return (len(self.sizes),)


def _bound(name: str, given: Any, shape: Any) -> Any:
    """Return a bound as a number, or as nested tuples if it differs between elements.

    Raises:
        ShapeError: it is not a number, or an array that does not match the shape.
    """
    hint = "give one bound for all elements, or one for each."
    if is_number(given) or not isinstance(given, list | tuple | np.ndarray):
        number(f"the bound {name}", given, hint)
        return given.item() if isinstance(given, np.generic) else given
    try:
        array = np.broadcast_to(np.asarray(given, np.float64), shape)
    except (TypeError, ValueError):
        raise ShapeError(
            f"the bound {name}={given!r} does not match the shape {shape!r}.", hint=hint
        ) from None
    if np.isnan(array).any() or not array.size:
        raise ShapeError(f"the bound {name}={given!r} is not a number.", hint=hint)
    first = array.flat[0]
    return float(first) if (array == first).all() else _tuples(array.tolist())


def _tuples(x: Any) -> Any:
    return tuple(map(_tuples, x)) if isinstance(x, list) else x


def is_bounded(box: Box) -> bool:
    """Test whether all bounds are finite."""
    return bool(np.isfinite(box.low).all() and np.isfinite(box.high).all())


def half_and_middle(box: Box) -> tuple[Any, Any]:
    """Return the half widths and the middle of a box: numbers, or f32 arrays if the bounds differ between elements."""
    if not isinstance(box.low, tuple) and not isinstance(box.high, tuple):
        return (box.high - box.low) / 2, (box.high + box.low) / 2
    low, high = (np.broadcast_to(x, box.shape) for x in (box.low, box.high))
    return ((high - low) / 2).astype(np.float32), ((high + low) / 2).astype(np.float32)
