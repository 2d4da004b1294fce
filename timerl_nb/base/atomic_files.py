"""Files for several processes: atomic writes, file locks, and reads that cannot block.

An atomic write fills a temporary file (a draft) next to the target, and then renames it.
"""

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

# Windows locks a range of bytes, unreadable for others. This byte lies behind the content.
_BEYOND: Final = 2**31 - 2
_NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_DRAFT: Final = re.compile(r"\..+\.[0-9a-f]{16}")


def user_path(given: str | os.PathLike[str]) -> Path:
    """Return a path, with `~` and `~name` expanded to home folders.

    Raises:
        CallError: the value is not a path.
    """
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
        raise CallError(
            f"{given!r} is not a path.", hint='pass a string or a pathlib.Path: "runs/first".'
        )
    path = Path(os.fspath(given))
    try:
        return path.expanduser()
    except RuntimeError:  # the user has no home folder
        return path


LONGEST_TEXT: Final = 256 << 20  # bytes; limit for files of names and numbers


def read_regular(
    path: Path, most: int | None = None, *, first: int | None = None, links: bool = True
) -> bytes:
    """Return the content of a regular file.

    Devices and pipes are refused, since reading one might never end.

    Args:
        path: the file.
        most: the largest accepted file size in bytes.
        first: the number of bytes to read from the beginning; None for all.
        links: whether the path may be a symbolic link.

    Raises:
        OSError: the file is not regular, is larger than `most` or the memory, or cannot be read.
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
            said = f"it has {found.st_size:,} bytes, more than the limit of {most:,}"
            raise OSError(errno.EFBIG, said, str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(found.st_size if first is None else min(first, found.st_size))
    except MemoryError:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), str(path)) from None
    finally:
        os.close(descriptor)


def _open(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a file by `os.open`; the error for a refused link says so."""
    try:
        return os.open(path, flags, mode)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & _NO_LINK:
            raise OSError(errno.ELOOP, "it is a symbolic link", str(path)) from None
        raise


def unpack_gzip(content: bytes, most: int) -> bytes:
    """Return the content of gzip data.

    Raises:
        OSError: the data are damaged, or unpack to more than `most` bytes.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"it unpacks to more than {most:,} bytes")
    return found


def parse_json(text: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON, or its nesting is too deep.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_whole(
    path: Path, content: bytes | Iterable[bytes], *, private: bool = False, synced: bool = True
) -> None:
    """Write a file atomically: a reader sees either the old content or the new content.

    Args:
        path: the file.
        content: all bytes, or their parts in order.
        private: whether only the user may read and write the file; otherwise the umask decides.
        synced: whether content and folder entry are flushed to disk, so that no power cut leaves an empty
            file.

    Raises:
        OSError: the file cannot be written. The old content remains.
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
    """Flush the entries of a folder to disk, if the system supports it."""
    if os.name == "nt":  # Windows cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(file: IO[bytes]) -> None:
    """Lock a file until it is closed or the process ends.

    Raises:
        BlockingIOError: another process holds the lock.
        OSError: the file system has no locks.
    """
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    at = file.tell()
    file.seek(_BEYOND)
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyrefly: ignore[missing-attribute]
    except PermissionError as error:  # Windows reports a held lock as PermissionError
        raise BlockingIOError(error.errno, error.strerror) from None
    finally:
        file.seek(at)


# Open lock files. The references are weak, since a lock ends with its file object.
_HELD: Final = WeakSet[IO[bytes]]()


def hold(path: Path, mode: str = "ab") -> IO[bytes]:
    """Open a file, create it if necessary, and lock it until it is closed or the process ends.

    A forked child does not inherit the lock: the file is closed there.

    Raises:
        BlockingIOError: another process holds the lock.
        OSError: the file cannot be created, or the file system has no locks.
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
    """Open a file without waiting; symbolic links, and pipes without a reader, are refused."""
    return _open(name, flags | getattr(os, "O_NONBLOCK", 0) | _NO_LINK)


def _close_inherited() -> None:
    """Close the lock files of the parent process in a forked child."""
    for file in [*_HELD]:
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)


def clear_drafts(folder: Path, idle: float = 0.0) -> None:
    """Remove drafts of interrupted writes.

    Args:
        folder: the folder of the drafts.
        idle: age in seconds since the last write; younger drafts stay, since a writer may be active.
    """
    for path in folder.iterdir():
        if _DRAFT.fullmatch(path.name):
            with suppress(FileNotFoundError):  # another process may have moved or removed it
                if not idle or time.time() - path.stat().st_mtime > idle:
                    path.unlink()
