"""Choice of the sum tree's implementation: C if built, else Numba (the extra `replay`), else NumPy."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.c_extensions import load_extension
from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.base.options import cache_folder
from timerl_nb.replay.prioritization import tree_numba, tree_numpy


@dataclass(frozen=True)
class Engine:
    """Implementation of the sum tree's operations; see `tree_numpy` for their meaning."""

    name: str
    change: Callable[[Array, Array, Array, int, int, float, Array, Array], int]
    descend: Callable[[Array, Array, int, Array], Array]


_NUMPY = Engine("numpy", tree_numpy.change, tree_numpy.descend)


@functools.cache
def c_extension() -> Any:
    """Return the C extension, or None; one call of its functions handles a whole batch of rows."""
    return load_extension("timerl_nb.replay.prioritization._replay", "replay buffer")


def _c() -> Engine:
    def descend(sums: Array, starts: Array, shift: int, targets: Array) -> Array:
        left, found = targets.copy(), np.empty(len(targets), np.int64)
        c_extension().descend(sums, starts, shift, left, found)
        return found

    return Engine("c", c_extension().change, descend)


@functools.cache
def _numba() -> Engine:
    """Compile the loops with Numba, cached on disk for later processes."""
    numba: Any = importlib.import_module("numba")
    f, i, whole = numba.float64[::1], numba.int64[::1], numba.int64
    folder = cache_folder()
    before = numba.config.CACHE_DIR
    # Numba reads the folder when it decorates a function; functions of other packages keep theirs
    numba.config.CACHE_DIR = "" if folder is None else str(folder / "numba")
    try:
        compiled: Callable[..., Any] = functools.partial(
            numba.njit, nogil=True, cache=folder is not None
        )
        return Engine(
            "numba",
            compiled(whole(f, f, i, whole, whole, numba.float64, i, f))(tree_numba.change),
            compiled(i(f, i, whole, f))(tree_numba.descend),
        )
    finally:
        numba.config.CACHE_DIR = before


def engine_of(name: str | None) -> Engine:
    """Return the engine with this name; by default the fastest one available.

    Raises:
        OptionError: the name is unknown, the C extension is not built, or Numba is not installed.
    """
    if name is None:
        name = "c" if c_extension() else "numba" if find_spec("numba") else "numpy"
    if name == "c" and c_extension():
        return _c()
    if name == "c":
        raise OptionError(
            "the C extension of the replay buffer was not built.",
            hint="install a C compiler and then the project again, or choose another engine.",
        )
    if name == "numpy":
        return _NUMPY
    if name != "numba":
        raise OptionError(
            f"engine={name!r} is not supported.", hint=one_of(str(name), ["c", "numba", "numpy"])
        )
    if find_spec("numba") is None:
        raise OptionError(
            "Numba is not installed.",
            hint="run pip install 'timerl-nb[replay]', or choose engine='numpy'.",
        )
    return _numba()
