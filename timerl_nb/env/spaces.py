"""Spaces of observations and actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from timerl_nb.compiler.language.argument_checks import element_type, number


@dataclass(frozen=True)
class Box:
    """Arrays of numbers between two bounds, in an element type such as "f32", or "u8" for frames.

    Args:
        low, high: the bounds of all elements.
        shape: the shape.
        dtype: the element type.

    Raises:
        ShapeError: a bound is not a number, or there is no such element type.

    Example:
        >>> trl.env.Box(0, 255, (84, 84), "u8")
        Box(low=0, high=255, shape=(84, 84), dtype='u8')
    """

    low: float
    high: float
    shape: tuple[int, ...] = ()
    dtype: Any = "f32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", element_type(self.dtype))
        for name in ("low", "high"):
            number(f"the bound {name}", getattr(self, name), "give one bound for all elements.")


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
