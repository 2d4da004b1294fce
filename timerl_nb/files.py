"""Files that are written whole or not at all: beside their place first, and then moved there."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: Path, content: bytes, *, private: bool = False, synced: bool = True) -> None:
    """Write a file at once: whoever reads it finds the old content or the new, never a part.

    Args:
        private: nobody but the user may read or write it; otherwise the process's mask says who.
        synced: it is on the disk before it takes its place, so that no power cut leaves it empty.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    mode = 0o600 if private else 0o666
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
