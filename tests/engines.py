"""The engine of interpreted programs in a session of tests (`pytest --engine torch`).

"numpy" is the engine in `tests/numpy_engine.py`, which users cannot choose. "poisoned" is PyTorch with every dead
and every donated array overwritten: programs that read such an array give wrong results.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest

from timerl_nb.base import options as options_module
from timerl_nb.base.options import Options
from timerl_nb.compiler.ir.shapes import dtype_name, is_float
from timerl_nb.runtime import engine
from timerl_nb.runtime.interpreter.interpreter import Run
from timerl_nb.runtime.interpreter.swap_transfers import SwapStore

_CHECK = Options.__post_init__
_NAMESPACE = Run._namespace


def offer_numpy(patch: pytest.MonkeyPatch) -> None:
    """Let `trl.Options` accept `backend="numpy"`."""
    patch.setitem(engine._MODULES, "numpy", "tests.numpy_engine")
    patch.setattr(options_module, "_BACKENDS", (*options_module._BACKENDS, "numpy"))


def use_engine(name: str) -> None:
    """Let programs that the interpreter would run with JAX use another engine.

    Programs with options that only JAX has use JAX.
    """
    if name == "jax":
        return
    if name == "poisoned":
        Run._namespace = poisoned_namespace
    if name == "numpy":
        offer_numpy(pytest.MonkeyPatch())
    mine = "torch" if name == "poisoned" else name

    def check(options: Options) -> None:
        if options.backend not in ("jax", mine):  # the test itself chooses an engine
            return _CHECK(options)
        needs_jax = (
            options.devices != 1,
            options.fuse_iterations != 1,
            options.tile is not False,
            options.tile_kernel is not False,
            options.tune,
        )
        executor = options.executor or os.environ.get("TIMERL_EXECUTOR", "xla")
        backend = mine if executor == "interpret" and not any(needs_jax) else "jax"
        object.__setattr__(options, "backend", backend)
        if backend == mine:
            object.__setattr__(options, "executor", None)
        return _CHECK(options)

    Options.__post_init__ = check


def poison(x: Any) -> None:
    """Overwrite a tensor or an array of NumPy: with NaN, or with other integers."""
    if isinstance(x, np.ndarray):
        x[...] = np.nan if is_float(dtype_name(x.dtype)) else 1
        return
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return
    with torch.inference_mode():
        if x.is_floating_point():
            x.fill_(float("nan"))
        elif x.dtype is torch.uint32:
            x.view(torch.int32).fill_(-(2**30))
        else:
            x.fill_(1)


def _share_memory(x: Any, y: Any) -> bool:
    """Return whether a block and the block with a new row are the same, or two tensors of one memory."""
    if hasattr(x, "untyped_storage") and hasattr(y, "untyped_storage"):
        return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    return x is y


class _Poisoned(dict[Any, Any]):
    """Store whose values are overwritten when they leave it, by deletion, donation or replacement."""

    def __delitem__(self, key: Any) -> None:
        poison(self[key])
        super().__delitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        before = self.get(key)
        if before is not None and not _share_memory(before, value):
            poison(before)
        super().__setitem__(key, value)

    def pop(self, key: Any, *default: Any) -> Any:
        if key in self:
            poison(self[key])
        return super().pop(key, *default)


def poisoned_namespace(run: Any, code: Any) -> dict[str, Any]:
    """Return a program's names, with stores that overwrite discarded values."""
    fresh = {
        id(store): _Poisoned(store)
        for store in run._stores.values()
        if not isinstance(store, SwapStore | _Poisoned)
    }
    run._stores = {tensor: fresh.get(id(s), s) for tensor, s in run._stores.items()}
    run._learning = [fresh.get(id(store), store) for store in run._learning]
    run._shown = [fresh.get(id(store), store) for store in run._shown]
    return _NAMESPACE(run, code)
