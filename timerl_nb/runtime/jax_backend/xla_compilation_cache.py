"""Persistent cache of XLA's compilations, shared between processes.

It is JAX's cache in a folder of TimeRL-nb. If the user has set a folder in JAX, that setting stays
unchanged. The folder contains machine code that JAX loads, so only the user may write to it.
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

MOST: Final = 1 << 30  # maximum bytes in the folder


def use_cache() -> None:
    """Enable JAX's persistent cache, unless the user has configured it."""
    folder = cache_folder()
    theirs = jax.config.values["jax_compilation_cache_dir"]
    if folder is not None and theirs is None:
        _use(folder)


def our_folder() -> Path | None:
    """Return the folder of the cache, if JAX uses ours and nobody else may write to it."""
    use_cache()
    folder = cache_folder()
    used = jax.config.values["jax_compilation_cache_dir"]
    if folder is None or used != str(folder) or _distrust_reason(folder):
        return None
    return folder


@cache
def _use(folder: Path) -> None:
    """Enable the cache in a folder; warn once if that is impossible."""
    why = _prepare_folder(folder)
    if why:
        warnings.warn(
            f"{folder} {why}, so programs are compiled again in every process. "
            "Set TIMERL_CACHE to another folder, or to 0 to disable the cache.",
            stacklevel=2,
        )
        return
    # cache small functions, too: there are many, and each compiles more slowly than it loads
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_compilation_cache_dir", str(folder))


def _prepare_folder(folder: Path) -> str:
    """Create the folder and delete old files; return the reason if it cannot be used."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _shrink(folder)
    except OSError as error:
        return f"cannot be used ({error.strerror})"
    return _distrust_reason(folder)


def _distrust_reason(folder: Path) -> str:
    """Return the reason why a folder is not safe to load from; "" if it is safe."""
    try:
        about = folder.stat()
    except OSError as error:
        return f"cannot be used ({error.strerror})"
    if hasattr(os, "getuid") and about.st_uid != os.getuid():
        return "belongs to another user"
    if about.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        return "can be written by other users"
    return "" if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else "cannot be written"


def _shrink(folder: Path) -> None:
    """Delete the least recently used files above the size limit."""
    held = 0
    for _, size, path in sorted(_entries(folder), reverse=True):
        held += size
        if held > MOST:
            path.unlink(missing_ok=True)


def _entries(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield the last use and the size of each file, including abandoned temporary files."""
    for path in folder.glob("*-cache*"):
        try:
            about = path.stat()
        except FileNotFoundError:  # another process has deleted it
            continue
        yield max(about.st_atime, about.st_mtime), about.st_size, path
