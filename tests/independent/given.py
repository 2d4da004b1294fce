"""Common inputs of both forms of a program: arrays by seed, and host functions."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def uniform(seed: int, *shape: int) -> Array:
    """Return distinct float32 numbers of magnitude about one."""
    return np.random.default_rng(seed).uniform(-1.5, 1.5, shape).astype(np.float32)


def integers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.int32)


def booleans(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)


def wave(x: Any) -> Any:
    """Elementwise host function of a user."""
    return np.asarray(np.sin(3 * np.asarray(x)) + 0.25, np.asarray(x).dtype)


def twin(x: Any, y: Any) -> Any:
    """Host function of two arrays of one shape."""
    return np.asarray(np.asarray(x) * 0.5 - np.cos(y), np.asarray(x).dtype)
