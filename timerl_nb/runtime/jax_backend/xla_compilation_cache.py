"""XLA's compilations on disk: what one process compiled, the next one loads.

The cache is JAX's own, in a folder of ours. Whoever has given JAX a folder keeps it, with its settings.
What lies in such a folder is machine code that JAX loads: only the user may write to it.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import jax

from timerl_nb.base.options import cache_folder

MOST: Final = 1 << 30  # bytes that stay in the folder from one process to the next


def use_cache() -> None:
    """Let JAX find what it has compiled before, and keep what it compiles from now on."""
    folder = cache_folder()
    theirs = jax.config.values["jax_compilation_cache_dir"]
    if folder is not None and theirs is None:
        _use(folder)


def our_folder() -> Path | None:
    """The folder that JAX uses, where it is ours, and nobody else may write to it."""
    use_cache()
    folder = cache_folder()
    used = jax.config.values["jax_compilation_cache_dir"]
    if folder is None or used != str(folder) or _distrust_reason(folder):
        return None
    return folder


@cache
def _use(folder: Path) -> None:
    """Open a folder; where it cannot be used, say so, once."""
    why = _prepare_folder(folder)
    if why:
        warnings.warn(
            f"{folder} {why}: programs are compiled anew in every process. "
            "TIMERL_CACHE names another folder, or switches the cache off with 0.",
            stacklevel=2,
        )
        return
    # small functions count: there are many, and each takes longer to compile than to load
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_compilation_cache_dir", str(folder))


def _prepare_folder(folder: Path) -> str:
    """Make the folder, and take the oldest away where it holds too much; says why it is of no use."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _shrink(folder)
    except OSError as error:
        return f"cannot be used ({error.strerror})"
    return _distrust_reason(folder)


def _distrust_reason(folder: Path) -> str:
    """Why nothing is loaded from a folder; empty where it can be."""
    try:
        about = folder.stat()
    except OSError as error:
        return f"cannot be used ({error.strerror})"
    if hasattr(os, "getuid") and about.st_uid != os.getuid():
        return "belongs to another user"
    if about.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        return "may be written by others"
    return "" if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else "cannot be written"


def _shrink(folder: Path) -> None:
    """Remove what was used longest ago, until the rest is not too much."""
    held = 0
    for _, size, path in sorted(_entries(folder), reverse=True):
        held += size
        if held > MOST:
            path.unlink(missing_ok=True)


def _entries(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """When each file of the cache was used last, and its size; drafts that were left are among them."""
    for path in folder.glob("*-cache*"):
        try:
            about = path.stat()
        except FileNotFoundError:  # another process was faster
            continue
        yield max(about.st_atime, about.st_mtime), about.st_size, path
