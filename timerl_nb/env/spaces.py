"""What observations and actions look like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from timerl_nb.compiler.language.argument_checks import element_type, number


@dataclass(frozen=True)
class Box:
    """Arrays of numbers between two bounds, kept in their element type: frames as "u8"."""

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
    """One of the integers 0 to n - 1."""

    n: int
    shape: tuple[int, ...] = ()
    dtype: str = "i32"


@dataclass(frozen=True)
class MultiDiscrete:
    """Several integers at once, each from 0 to a size of its own less 1."""

    sizes: tuple[int, ...]
    dtype: str = "i32"

    @property
    def shape(self) -> tuple[int]:
        return (len(self.sizes),)
