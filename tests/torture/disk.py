"""Failing disk: counts file-system calls, and makes selected ones fail."""

from __future__ import annotations

import builtins
import errno
import io
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

CODES: Final = tuple(
    errno.errorcode[code] for code in (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES)
)
# deletions: their failure loses no data
REMOVING: Final = "remove"


class Disk:
    """File system below a folder.

    Args:
        folder: Only calls on paths inside are counted.
        fails: Index of the failing call; None for none.
        code: Name of the error.
        onward: All later calls fail, too.

    Attributes:
        calls: The calls in order: `write .manifest.json.0f…`.
    """

    def __init__(
        self, folder: Path, fails: int | None = None, code: str = "EIO", *, onward: bool = False
    ) -> None:
        self._folder, self._fails, self._onward = str(folder), fails, onward
        self._code = getattr(errno, code)
        self._opened: dict[int, str] = {}
        self.calls: list[str] = []

    @property
    def has_failed(self) -> bool:
        return self._fails is not None and len(self.calls) > self._fails

    def ask(self, kind: str, path: Any) -> None:
        """Count a call, and raise if it must fail."""
        text = os.fspath(path)
        if not isinstance(text, str) or not text.startswith(self._folder):
            return
        self.calls.append(f"{kind} {os.path.basename(text)}")
        k = len(self.calls) - 1
        if self._fails is not None and (k == self._fails or (self._onward and k > self._fails)):
            raise OSError(self._code, os.strerror(self._code), text)

    @contextmanager
    def spinning(self) -> Iterator[None]:
        """Route all file-system calls of this process through it."""
        plain, named = builtins.open, os.open
        disk = self

        class Raw(io.FileIO):
            def write(self, part: Any, /) -> int:
                disk.ask("write", self.name)
                return super().write(part)

        def opened(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
            if mode in ("xb", "wb", "ab") and not isinstance(file, int):
                if "opener" not in more:  # it calls `os` itself
                    disk.ask("open", file)
                is_buffered = more.pop("buffering", -1) != 0
                raw = Raw(file, mode, **more)
                return io.BufferedWriter(raw) if is_buffered else raw
            return plain(file, mode, *args, **more)

        def open_(path: Any, *args: Any, **more: Any) -> int:
            disk.ask("open", path)
            descriptor = named(path, *args, **more)
            disk._opened[descriptor] = str(path)
            return descriptor

        sync = os.fsync

        def fsync(file: Any) -> None:
            disk.ask("fsync", disk._opened.get(file, ""))
            sync(file)

        def first(kind: str, name: str) -> Any:
            call: Callable[..., Any] = getattr(os, name)

            def asked(path: Any, *args: Any, **more: Any) -> Any:
                if not (kind == "mkdir" and os.path.isdir(path)):  # nothing to create
                    disk.ask(kind, path)
                return call(path, *args, **more)

            return patch.object(os, name, asked)

        with (
            patch.object(builtins, "open", opened),
            patch.object(os, "open", open_),
            patch.object(os, "fsync", fsync),
            first("rename", "replace"),
            first("mkdir", "mkdir"),
            first(REMOVING, "unlink"),
        ):
            yield


@contextmanager
def full(most: int) -> Iterator[None]:
    """Limit the size of files of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
