"""Command that makes files of `datasets` again, and updates their checksums in its README."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

from benchmarks.datasets import curves, trajectories

FOLDER: Final = Path(__file__).parents[2] / "datasets"
MAKERS: Final[Mapping[str, Callable[[Path], None]]] = {
    **{
        f"trajectories/{name}.npz": partial(trajectories.write, name) for name in trajectories.TASKS
    },
    **{f"curves/{name}.csv": partial(curves.write, name) for name in curves.TASKS},
}
ROW: Final = re.compile(
    r"^\| `(?P<file>[^`]+)` \| (?P<origin>[^|]+) \| (?P<command>[^|]+) \| (?P<licence>[^|]+) "
    r"\| `(?P<checksum>\w{64})` \|$",
    re.M,
)


def rows(text: str) -> dict[str, Mapping[str, str]]:
    """Return the rows of the README's tables by their files.

    Raises:
        ValueError: a file has two rows.
    """
    found = [match.groupdict() for match in ROW.finditer(text)]
    by_file = {row["file"]: row for row in found}
    if len(by_file) < len(found):
        raise ValueError("datasets/README.md has two rows of one file.")
    return by_file


def main(*names: str, folder: Path = FOLDER) -> None:
    """Make the named files again, all trajectories and curves by default.

    Args:
        names: names of data sets, such as `curves/dqn`, or of folders, such as `curves`.
        folder: the folder of the data sets.

    Raises:
        SystemExit: A file has another command, which is printed, or does not exist.
    """
    readme = folder / "README.md"
    listed = rows(readme.read_text(encoding="utf-8"))
    files = [file for name in names for file in _files(name, listed)] if names else [*MAKERS]
    print("| file | bytes | s | values |\n|---|---|---|---|")
    for file in files:
        path = folder / file
        began = time.perf_counter()
        path.parent.mkdir(exist_ok=True)
        MAKERS[file](path)
        seconds = time.perf_counter() - began
        is_same = update_checksum(path, folder) == listed[file]["checksum"]
        judged = "as before" if is_same else "changed"
        print(f"| {file} | {path.stat().st_size:,} | {seconds:.0f} | {judged} |", flush=True)


def update_checksum(path: Path, folder: Path = FOLDER) -> str:
    """Write the checksum of a file into its row of the README, and return it."""
    readme, file = folder / "README.md", path.relative_to(folder).as_posix()
    checksum = sha256(path.read_bytes()).hexdigest()

    def updated(row: re.Match[str]) -> str:
        return row[0].replace(row["checksum"], checksum) if row["file"] == file else row[0]

    readme.write_text(ROW.sub(updated, readme.read_text(encoding="utf-8")), encoding="utf-8")
    return checksum


def _files(name: str, listed: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the files of a data set or a folder."""
    found = [file for file in listed if file.startswith((f"{name}.", f"{name}/"))]
    if not found:
        sys.exit(f"datasets/README.md has no row of {name!r}.")
    if other := [file for file in found if file not in MAKERS]:
        sys.exit("\n".join(f"{file}: {listed[file]['command']}" for file in other))
    return found
