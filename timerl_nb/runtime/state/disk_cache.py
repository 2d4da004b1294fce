"""Cache of results on disk, shared between processes.

The files are in the folder of XLA's compilation cache. Only the user can write to it, so its content is
trusted. A key covers all inputs of a result, including the source code of this library. Unreadable
entries are recomputed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from timerl_nb.base.atomic_files import write_whole
from timerl_nb.runtime.jax_backend.xla_compilation_cache import MOST, our_folder

_SUFFIX = "-cache"  # the removal of old files looks for this suffix
_PACKAGE = Path(__file__).parents[2]


class DiskCache:
    """Results by key, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, key: str) -> bytes | None:
        """Return a result; None if it is absent or incomplete."""
        path = self._path(key)
        try:
            whole = path.read_bytes()
        except OSError:
            return None
        check, payload = whole[:32], whole[32:]
        if hashlib.sha256(payload).digest() != check:
            return None
        with suppress(OSError):
            os.utime(path)  # recently used files are removed last
        return payload

    def has(self, key: str) -> bool:
        """Whether a file for the key exists; its content may be incomplete."""
        return self._path(key).exists()

    def write(self, key: str, payload: bytes) -> None:
        """Store a result in one step. Errors are ignored."""
        if len(payload) > MOST // 16:
            return
        whole = (
            hashlib.sha256(payload).digest() + payload
        )  # the checksum detects partial files: no sync
        with suppress(OSError):
            write_whole(self._path(key), whole, private=True, synced=False)

    def _path(self, key: str) -> Path:
        return self.folder / f"timerl-{key}{_SUFFIX}"


@dataclass(frozen=True)
class CacheEntry:
    """One JSON value in a disk cache. Without a cache it is always absent.

    Attributes:
        cache: None if nothing is cached.
        make_key: returns the key; called only with a cache.
    """

    cache: DiskCache | None
    make_key: Callable[[], str]

    @cached_property
    def _key(self) -> str:
        return self.make_key()

    def load(self) -> Any:
        """Return the value, None if it is absent."""
        payload = None if self.cache is None else self.cache.load(self._key)
        return None if payload is None else json.loads(payload)

    def write(self, value: object) -> None:
        """Store a value."""
        if self.cache is not None:
            self.cache.write(self._key, json.dumps(value).encode())


def disk_cache() -> DiskCache | None:
    """Return the cache of this process; None if caching is disabled."""
    folder = our_folder()
    return None if folder is None else DiskCache(folder)


def key_of(*parts: object) -> str:
    """Return the key of a result of `parts` and the source code of this library."""
    return hash_texts(map(str, parts), _ourselves())


def hash_texts(texts: Iterable[str], start: bytes = b"") -> str:
    """Return the SHA-256 of a sequence of texts; each is preceded by its length."""
    found = hashlib.sha256(start)
    for text in texts:
        found.update(f"{len(text)};{text}".encode())
    return found.hexdigest()


@cache
def _ourselves() -> bytes:
    """Return a digest of the library's source code, its dependencies' versions, and the machine."""
    found = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        found.update(f"{path.relative_to(_PACKAGE)};".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    names = ("jax", "jaxlib", "numpy", "islpy")
    found.update(repr((sys.version, [version(name) for name in names], _machine())).encode())
    return found.digest()


def _machine() -> str:
    """Return the features of the CPU: machine code depends on them, and machines may share the folder."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()}"
