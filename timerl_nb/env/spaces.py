"""What observations and actions look like."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Box:
    """Floating-point arrays between two bounds."""

    low: float
    high: float
    shape: tuple[int, ...] = ()
    dtype: str = "f32"


@dataclass(frozen=True)
class Discrete:
    """One of the integers 0 to n - 1."""

    n: int
    shape: tuple[int, ...] = ()
    dtype: str = "i32"
