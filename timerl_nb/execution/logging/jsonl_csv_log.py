"""Log of one run in a folder: `log.jsonl`, and the same rows as `log.csv`.

The first line of `log.jsonl` describes the run, the last line its end. Lines are appended whole, so a
program that follows the file never reads a partial row. If a run was killed inside a line, resuming it
removes that line.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from timerl_nb.base.atomic_files import clear_drafts, hold, user_path, write_whole
from timerl_nb.base.errors import ExecutionError, OptionError, warn
from timerl_nb.execution.logging.run_logger import TIMES, Row

JSONL: Final = "log.jsonl"
CSV: Final = "log.csv"
FORMAT: Final = "timerl log"
VERSION: Final = 1
_ODD: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class LogFolder:
    """Logger to a folder; see `run_logger.Logger`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not os.fspath(path):
            raise OptionError(
                "log='' is not a folder.", hint="pass a path, such as log='runs/first'."
            )
        self.path = user_path(path)
        self._lines: _Lines | None = None
        self._cells: _Lines | None = None
        self._columns: list[str] = []
        self._late: list[Row] = []  # rows to be written
        self._warned = False

    def __repr__(self) -> str:
        return f"LogFolder({os.fspath(self.path)!r})"

    def begin(self, about: Mapping[str, Any], reached: int) -> Row | None:
        """Start the log, or continue the log of the same run.

        Raises:
            ExecutionError: The folder has the log of another run, or cannot be written.
        """
        head = {"format": FORMAT, "version": VERSION, **about}
        self._columns = [about["along"], *TIMES, *about["columns"]]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lines = lines = _Lines(self.path / JSONL)
        except BlockingIOError:
            raise ExecutionError(
                f"another run is writing its log to {self.path}.", hint=_OWN_FOLDER
            ) from None
        except OSError as error:
            raise self._make_write_error(error) from None
        try:
            kept = self._read_kept_rows(lines.content(), head, reached)
            clear_drafts(self.path)
            if kept is None:
                lines.truncate(0)
                lines.add(_line(head))
            else:
                lines.truncate(kept.end)
            rows = [] if kept is None else kept.rows
            write_whole(self.path / CSV, self._header() + self._csv(rows), synced=False)
            self._cells = _Lines(self.path / CSV)
            return rows[-1] if rows else {self._columns[0]: -1}
        except BaseException as error:
            self._close()
            if isinstance(error, OSError):
                raise self._make_write_error(error) from None
            raise

    def write(self, rows: Sequence[Row]) -> None:
        self._late += rows
        try:
            self._add()
        except OSError as error:
            self._warn(error)

    def end(self, last: Mapping[str, Any], late: Sequence[Row]) -> None:
        if self._lines is None or self._cells is None:
            self._close()  # an interrupt ended `begin`
            return
        try:
            self._add()
            if late:
                self._fill(late, _line(last))
            else:
                self._lines.add(_line(last))
        except OSError as error:
            with suppress(OSError):  # remove a partial line
                self._lines.truncate(self._lines.size)
                self._cells.truncate(self._cells.size)
            self._warn(error)
        finally:
            self._close()

    def _close(self) -> None:
        """Close both files and release their locks."""
        if self._lines is not None:
            self._lines.close()
        if self._cells is not None:
            self._cells.close()
        self._lines = self._cells = None

    # --- writing -------------------------------------------------------------------------------------

    def _add(self) -> None:
        """Append the pending rows; on failure, write nothing."""
        assert self._lines is not None and self._cells is not None
        if self._late:
            before = self._lines.size
            self._lines.add(b"".join(map(_line, self._late)))
            try:
                self._cells.add(self._csv(self._late))
            except OSError:
                self._lines.truncate(before)
                raise
            self._late = []

    def _fill(self, late: Sequence[Row], last: bytes) -> None:
        """Rewrite both files at the end of the run, with its late columns."""
        assert self._lines is not None
        along = self._columns[0]
        head, *lines = self._lines.content().splitlines(keepends=True)
        rows = {row[along]: row for row in map(_row, lines) if row is not None}
        for row in late:
            rows[row[along]] = {**rows.get(row[along], {}), **row}
        made = [rows[k] for k in sorted(rows)]
        write_whole(self.path / JSONL, b"".join([head, *map(_line, made), last]))
        write_whole(self.path / CSV, self._header() + self._csv(made))

    def _header(self) -> bytes:
        return _cells([self._columns])

    def _csv(self, rows: Sequence[Row]) -> bytes:
        return _cells([[_cell(row.get(name)) for name in self._columns] for row in rows])

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            warn(
                f"the log in {self.path} cannot be written: {error.strerror}. The run continues, and "
                "writes the missing rows as soon as it can."
            )

    # --- reading -------------------------------------------------------------------------------------

    def _read_kept_rows(
        self, content: bytes, head: Mapping[str, Any], reached: int
    ) -> _StoredRows | None:
        """Return the stored rows to keep; None to start the log from the beginning.

        Raises:
            ExecutionError: The files belong to another run, or are not a log.
        """
        if not content and (self.path / CSV).exists():
            raise self._folder_taken_error(f"{CSV} exists, but no {JSONL}")
        first, *lines = content.splitlines(keepends=True) or [b""]
        found = _row(first)
        if content and (found is None or found.get("format") != FORMAT):
            raise self._folder_taken_error(f"{JSONL} is not a log of TimeRL-nb")
        if found is None:
            return None
        kept = _StoredRows(len(first))
        for line in lines:
            row = _row(line)
            if row is None or row.get(self._columns[0]) != len(kept.rows):
                break
            kept.add(row, len(line))
        if found.get("run") != head["run"]:
            if kept.rows or found.get("version") != VERSION:
                raise self._folder_taken_error("it has the log of another run")
            return None  # that log has no rows
        for name in ("version", "along", "columns"):
            if found.get(name) != head[name]:
                raise ExecutionError(
                    f"the log in {self.path} has {name} {found.get(name)!r}, but this run has "
                    f"{head[name]!r}.",
                    hint="resume with the same outputs, or " + _OWN_FOLDER,
                )
        kept.truncate(reached)
        return kept

    def _folder_taken_error(self, what: str) -> ExecutionError:
        return ExecutionError(
            f"the folder {self.path} cannot be used for this log: {what}.", hint=_OWN_FOLDER
        )

    def _make_write_error(self, error: OSError) -> ExecutionError:
        return ExecutionError(
            f"the run cannot write its log in {self.path}: {error.strerror}.",
            hint="choose a writable folder, on a disk with free space.",
        )


_OWN_FOLDER: Final = (
    "pass a new folder for this run. A resumed run continues the log that it has started."
)


class _StoredRows:
    """Stored rows of a resumed log, and the end of each in bytes."""

    def __init__(self, head: int) -> None:
        self.rows: list[dict[str, Any]] = []
        self._ends = [head]

    @property
    def end(self) -> int:
        return self._ends[len(self.rows)]

    def add(self, row: dict[str, Any], size: int) -> None:
        self.rows.append(row)
        self._ends.append(self._ends[-1] + size)

    def truncate(self, count: int) -> None:
        del self.rows[count:]


class _Lines:
    """File for whole lines, with a lock against other writers.

    Attributes:
        size: Number of bytes that are complete lines.
    """

    def __init__(self, path: Path) -> None:
        # this mode creates the file, never truncates it, and writes at its end
        self._file: IO[bytes] = hold(path, "a+b")
        try:
            self.size = os.fstat(self._file.fileno()).st_size
        except BaseException:
            self._file.close()
            raise

    def content(self) -> bytes:
        self._file.seek(0)
        return self._file.read()[: self.size]

    def truncate(self, size: int) -> None:
        self._file.truncate(size)
        self.size = size

    def add(self, lines: bytes) -> None:
        """Append lines, after the removal of a partial line from an earlier failure."""
        if os.fstat(self._file.fileno()).st_size != self.size:
            self._file.truncate(self.size)
        done = 0
        while done < len(lines):
            done += self._file.write(lines[done:])
        self.size += len(lines)

    def close(self) -> None:
        self._file.close()


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(_plain(row), allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    """Convert a value to JSON types; infinities and NaN become strings."""
    if isinstance(value, Mapping):
        return {str(name): _plain(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _row(line: bytes) -> dict[str, Any] | None:
    """Parse a line; return None if it is incomplete."""
    if not line.endswith(b"\n"):
        return None
    try:
        found: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    return {k: _ODD.get(x, x) if isinstance(x, str) else x for k, x in found.items()}


def _cell(value: Any) -> str:
    return "" if value is None else repr(value)


def _cells(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
