"""A recorded folder as one file, to share: `rec.save("ppo.scope.zip")`."""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from pathlib import Path
from typing import IO, Final

from timerl_nb.errors import ExecutionError, OptionError
from timerl_nb.files import write_whole

_OURS: Final = re.compile(r"\d+[.-].*")  # files of a process


def save(source: Path | None, path: str | os.PathLike[str]) -> Path:
    """Write what was recorded as a zip, which `trl.scope.read` reads; returns the file.

    Args:
        source: the folder, or a zip of it.
        path: the file; its name must end in `.zip`.

    Raises:
        OptionError: it ends otherwise.
        ExecutionError: the recording has no folder, or that is gone; the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() != ".zip":
        raise OptionError(
            f"a recording is saved as a zip, not as {path.name!r}.",
            hint=f"save it as {path.with_suffix('.scope.zip').name!r}; .perfetto(path) writes a trace.",
        )
    if source is None or not source.exists():
        gone = "was not read from a folder" if source is None else f"was in {source}, which is gone"
        raise ExecutionError(
            f"this recording {gone}.", hint="record into a folder of your own, and save that."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile() as file:
            if source.is_file():
                file.write(source.read_bytes())
            else:
                _zip(source, file)
            file.seek(0)
            write_whole(path, iter(lambda: file.read(1 << 20), b""))
    except OSError as error:
        raise ExecutionError(
            f"{path} cannot be written: {error.strerror or error}.",
            hint="choose a folder that exists, with space left.",
        ) from None
    return path


def _zip(folder: Path, into: IO[bytes]) -> None:
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in sorted(folder.iterdir()):
            if _OURS.fullmatch(file.name):
                archive.write(file, file.name)
