"""Files that are written whole or not at all: beside their place first, and then moved there."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, cast
from weakref import WeakSet

from timerl_nb.base.errors import CallError

try:
    import fcntl
except ImportError:  # on Windows
    import msvcrt

    fcntl = None

# the same place for all who ask, behind what is written: Windows lets nobody read one that is held
_BEYOND: Final = 2**31 - 2
_NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_DRAFT: Final = re.compile(r"\..+\.[0-9a-f]{16}")


def user_path(given: str | os.PathLike[str]) -> Path:
    """Return a path as the user means it: `~` is the home folder, `~name` another user's.

    Raises:
        CallError: it is no path.
    """
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
        raise CallError(
            f"{given!r} is no path.", hint='pass a string or a pathlib.Path: "runs/first".'
        )
    path = Path(os.fspath(given))
    try:
        return path.expanduser()
    except RuntimeError:  # a user without a home
        return path


LONGEST_TEXT: Final = 256 << 20  # bytes of a file of names and numbers


def read_regular(
    path: Path, most: int | None = None, *, first: int | None = None, links: bool = True
) -> bytes:
    """Return the content of a regular file.

    A device or a pipe is refused: reading it might never end.

    Args:
        most: the file's largest size in bytes.
        first: read no more than so many bytes, from the file's beginning.
        links: whether the name may be a symbolic link.

    Raises:
        OSError: the file is no regular one, is larger than `most` or the memory, or cannot be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = _open(path, flags if links else flags | _NO_LINK)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is a device or a pipe", str(path))
        if most is not None and found.st_size > most:
            said = f"it has {found.st_size:,} bytes, of which {most:,} are expected at most"
            raise OSError(errno.EFBIG, said, str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(found.st_size if first is None else min(first, found.st_size))
    except MemoryError:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), str(path)) from None
    finally:
        os.close(descriptor)


def _open(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a file as `os.open` does, and name a refused link."""
    try:
        return os.open(path, flags, mode)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & _NO_LINK:
            raise OSError(errno.ELOOP, "it is a symbolic link", str(path)) from None
        raise


def unpack_gzip(content: bytes, most: int) -> bytes:
    """Return gzip's contents.

    Raises:
        OSError: it is damaged, or unpacks to more than `most` bytes.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"it unpacks to more than {most:,} bytes")
    return found


def parse_json(text: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is none, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_whole(
    path: Path, content: bytes | Iterable[bytes], *, private: bool = False, synced: bool = True
) -> None:
    """Write a file at once: whoever reads it finds the old content or the new, never a part.

    Args:
        content: all of it, or its parts in order.
        private: nobody but the user may read or write it; otherwise the process's mask says who.
        synced: it is on the disk before it takes its place, so that no power cut leaves it empty, and
            its place in the folder is before this returns.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    mode = 0o600 if private else 0o666
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            for part in (content,) if isinstance(content, bytes) else content:
                file.write(part)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if synced:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system can."""
    if os.name == "nt":  # where folders are not opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(file: IO[bytes]) -> None:
    """Hold a file until it is closed, or the process ends.

    Raises:
        BlockingIOError: somebody else holds it.
        OSError: files cannot be held here.
    """
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    at = file.tell()
    file.seek(_BEYOND)
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyrefly: ignore[missing-attribute]
    except PermissionError as error:  # what Windows says of a place that is held
        raise BlockingIOError(error.errno, error.strerror) from None
    finally:
        file.seek(at)


# open lock files; a set of weak references, since a lock ends with its file object
_HELD: Final = WeakSet[IO[bytes]]()


def hold(path: Path, mode: str = "ab") -> IO[bytes]:
    """Open a file, made if need be, and hold it until it is closed or the process ends.

    A process forked later does not hold it: there the file is closed.

    Raises:
        BlockingIOError: somebody else holds it.
        OSError: it cannot be made, or files cannot be held here.
    """
    file: IO[bytes] | None = None
    try:
        file = cast("IO[bytes]", open(path, mode, buffering=0, opener=_open_at_once))  # noqa: SIM115
        lock(file)
        _HELD.add(file)
        return file
    except BaseException:
        if file is not None:
            file.close()
        raise


def _open_at_once(name: str, flags: int) -> int:
    """Open a file for `open`; a link is refused, and a pipe without a reader."""
    return _open(name, flags | getattr(os, "O_NONBLOCK", 0) | _NO_LINK)


def _close_inherited() -> None:
    """Close inherited lock files in a forked child, so a lock ends with its own process."""
    for file in [*_HELD]:
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)


def clear_drafts(folder: Path, idle: float = 0.0) -> None:
    """Take away what was being written when somebody was cut off.

    Args:
        idle: seconds for which nothing was written to it, where others may be writing now.
    """
    for path in folder.iterdir():
        if _DRAFT.fullmatch(path.name):
            with suppress(
                FileNotFoundError
            ):  # its writer has moved it into place, or another was here
                if not idle or time.time() - path.stat().st_mtime > idle:
                    path.unlink()
