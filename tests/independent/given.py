"""What both writings of a program start from: arrays by seed, and functions of the host."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def uniform(seed: int, *shape: int) -> Array:
    """Numbers of about one, none of them twice, as float32."""
    return np.random.default_rng(seed).uniform(-1.5, 1.5, shape).astype(np.float32)


def integers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.int32)


def booleans(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)


def wave(x: Any) -> Any:
    """A user's function of the host: element by element."""
    return np.asarray(np.sin(3 * np.asarray(x)) + 0.25, np.asarray(x).dtype)


def twin(x: Any, y: Any) -> Any:
    """A user's function of two arrays of one shape."""
    return np.asarray(np.asarray(x) * 0.5 - np.cos(y), np.asarray(x).dtype)
