"""A folder with the log of one run: `log.jsonl`, and the same rows as `log.csv`.

The first line of `log.jsonl` says what run it is, the last how it ended. Rows are added by whole lines, so
that who follows a file sees no part of one; a line that was cut off is taken away when the run is resumed.
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
    """Writes the log of a run; see `run_log.Logger`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not os.fspath(path):
            raise OptionError("log='' is no folder.", hint="pass a path.")
        self.path = user_path(path)
        self._lines: _Lines | None = None
        self._cells: _Lines | None = None
        self._columns: list[str] = []
        self._late: list[Row] = []  # rows that could not be written yet
        self._warned = False

    def __repr__(self) -> str:
        return f"LogFolder({os.fspath(self.path)!r})"

    def begin(self, about: Mapping[str, Any], reached: int) -> Row | None:
        """Begin the log, or go on with that of the same run.

        Raises:
            ExecutionError: there is a log of another run, or none can be written.
        """
        head = {"format": FORMAT, "version": VERSION, **about}
        self._columns = [about["along"], *TIMES, *about["columns"]]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lines = lines = _Lines(self.path / JSONL)
        except BlockingIOError:
            raise ExecutionError(
                f"another run writes its log in {self.path}.", hint=_OWN_FOLDER
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
            self._close()  # an interrupt has ended `begin`
            return
        try:
            self._add()
            if late:
                self._fill(late, _line(last))
            else:
                self._lines.add(_line(last))
        except OSError as error:
            with suppress(OSError):  # no part of a line stays
                self._lines.truncate(self._lines.size)
                self._cells.truncate(self._cells.size)
            self._warn(error)
        finally:
            self._close()

    def _close(self) -> None:
        """Let another run write here."""
        if self._lines is not None:
            self._lines.close()
        if self._cells is not None:
            self._cells.close()
        self._lines = self._cells = None

    # --- writing -------------------------------------------------------------------------------------

    def _add(self) -> None:
        """Add the rows that are not written yet; nothing of them where that fails."""
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
        """Write both files anew, with what is known only now in its rows."""
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
                f"the log in {self.path} cannot be written: {error.strerror}. The run goes on, and its rows "
                "are written when that is possible again."
            )

    # --- reading -------------------------------------------------------------------------------------

    def _read_kept_rows(
        self, content: bytes, head: Mapping[str, Any], reached: int
    ) -> _StoredRows | None:
        """The rows that are there and stay; None where the log begins.

        Raises:
            ExecutionError: the files are of another run, or no log.
        """
        if not content and (self.path / CSV).exists():
            raise self._folder_taken_error(f"there is {CSV}, which no {JSONL} tells of")
        first, *lines = content.splitlines(keepends=True) or [b""]
        found = _row(first)
        if content and (found is None or found.get("format") != FORMAT):
            raise self._folder_taken_error(f"{JSONL} is no log of this kind")
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
                raise self._folder_taken_error("there is the log of another run")
            return None  # which has told nothing
        for name in ("version", "along", "columns"):
            if found.get(name) != head[name]:
                raise ExecutionError(
                    f"the log in {self.path} has other {name}: {found.get(name)!r}, and now "
                    f"{head[name]!r}.",
                    hint="resume with the same outputs, or " + _OWN_FOLDER,
                )
        kept.truncate(reached)
        return kept

    def _folder_taken_error(self, what: str) -> ExecutionError:
        return ExecutionError(f"{what} in {self.path}.", hint=_OWN_FOLDER)

    def _make_write_error(self, error: OSError) -> ExecutionError:
        return ExecutionError(
            f"the run cannot write its log in {self.path}: {error.strerror}.",
            hint="choose a folder that exists or can be made, with space left.",
        )


_OWN_FOLDER: Final = (
    "give this run a folder of its own. A run that is resumed goes on in the log that it has begun."
)


class _StoredRows:
    """The rows of a log that stay, and where the last of them ends."""

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
    """A file to which whole lines are added, and which nobody else writes to.

    Attributes:
        size: the bytes that are lines.
    """

    def __init__(self, path: Path) -> None:
        # opened so that it is made, and never cut; written at its end alone
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
        """Add lines at once; what was written of others before that failed is taken away."""
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
    """A value as JSON has it, which knows no infinities."""
    if isinstance(value, Mapping):
        return {str(name): _plain(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _row(line: bytes) -> dict[str, Any] | None:
    """What a line says; None where it was cut off."""
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
