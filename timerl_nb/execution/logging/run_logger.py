"""A run that tells what happens: rows of its outputs, one for each point of its outermost dimension.

Values are read where the run keeps them, between two turns, as frames read theirs; so none is lost where
turns are faster than rows can be written. Whoever takes rows is a `Logger`.
"""

from __future__ import annotations

import platform
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError, warn
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.execution.telemetry.program_live_frames import Watched
from timerl_nb.runtime.output_assembly import Outputs
from timerl_nb.runtime.run_protocol import RunProtocol

Row = Mapping[str, Any]
TIMES: Final = ("turn", "seconds", "turns_per_second")
_REST: Final = 20  # rows are written again after so many times what writing them has taken
_SOON: Final = 0.5  # seconds until that is known
_ALL: Final = 1 << 62


@runtime_checkable
class Logger(Protocol):
    """Takes the rows of a run, on the run's thread; any object with these methods is one.

    A row has, by name, the point of the outermost dimension that it is of (`about["along"]` is its name);
    an output's value there, a number or a truth value, where it is defined and known by then; and, but for
    rows that were made before the run was resumed, the `turn` after which it was written, the `seconds` since
    the beginning, and `turns_per_second`. Rows come in order, each once.
    """

    def begin(self, about: Mapping[str, Any], reached: int) -> Row | None:
        """The run begins, or goes on where so many rows were known: those follow that one has not.

        Args:
            about: the `run`'s name, which it keeps when it is resumed; its `program`, `bounds`, `options` and
                `seed`; what rows are `along`, the outputs that are `columns`, and those that are
                `not_logged`.

        Returns the last row that one has and keeps, one of these; None for all that there may be.
        """
        ...

    def write(self, rows: Sequence[Row]) -> None: ...

    def end(self, last: Mapping[str, Any], late: Sequence[Row]) -> None:
        """The run has `ended`: finished, stopped or failed.

        Args:
            last: that, its `error`, and the `outputs` that are one number of the whole run.
            late: what is known only now, of rows that were written before.
        """
        ...


class Calling:
    """A function that is called with every row."""

    def __init__(self, function: Callable[[Row], object]) -> None:
        self._function = function

    def begin(self, about: Mapping[str, Any], reached: int) -> None:
        pass

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._function(row)

    def end(self, last: Mapping[str, Any], late: Sequence[Row]) -> None:
        self.write(late)

    def __repr__(self) -> str:
        return repr(self._function)


class RunLog:
    """Tells loggers of one run.

    Args:
        names: the outputs that it returns; all by default.
        about: what is said of it besides its outputs.
    """

    def __init__(
        self,
        loggers: Sequence[Logger],
        watched: Watched,
        names: Sequence[str] | None,
        about: Mapping[str, Any],
    ) -> None:
        self._watched, self._columns = watched, watched.curves(names)
        self._numbers, self._along = watched.numbers(names), watched.outer or "point"
        known = {*self._columns, *self._numbers}
        self._rows_of = watched.rows
        self._about = {
            **about,
            "along": self._along,
            "columns": [column for name in self._columns for column in self._names(name)],
            "not_logged": [name for name in watched.outputs(names) if name not in known],
            "turns": watched.progress.turns,
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": _versions(),
        }
        self._check_names()
        self._live = self._in_turns()
        self._waiting = list(loggers)
        self._told: list[_Told] = []
        self._run: RunProtocol | None = None
        self._turn = self._known = 0
        self._start = time.perf_counter()
        self._last = self._turn, 0.0  # what rates are counted from
        self._free = 0.0  # when rows may be written again

    def _names(self, name: str) -> list[str]:
        """The columns of an output: one of each seed, where there are several."""
        rows = self._rows_of
        return [name] if rows is None else [f"{name}/{seed}" for seed in rows.seeds]

    def _in_turns(self) -> dict[str, Op]:
        """The columns that are known turn by turn, and not only once others are known whole."""
        early = {n: op for n, op in self._columns.items() if not self._watched.is_late(op)}
        begins = {name: self._first_turn(op) for name, op in early.items()}
        first = min(early, key=lambda name: begins[name], default=None)
        if first is None:
            return {}
        count = self._count
        return {
            name: op
            for name, op in early.items()
            if self._points(early[first], max(0, begins[name] - 1)) < count
        }

    def _first_turn(self, op: Op) -> int:
        """After how many turns something of an output is known."""
        turns = range(1, (self._watched.progress.turns or 0) + 1)
        return 1 + bisect_left(turns, 1, key=lambda turn: self._points(op, turn))

    def _points(self, op: Op, turns: int) -> int:
        return self._watched.progress.points(op, turns) if turns else 0

    @property
    def _count(self) -> int:
        """How many rows there are at most."""
        pdg, bounds = self._watched.pdg, self._watched.plan.bounds
        return pdg.dims[self._along].count(bounds)

    def _check_names(self) -> None:
        """Refuse equal names of two columns.

        Raises:
            OptionError: an output or the outermost dimension has the name of another column.
        """
        if self._along in TIMES:
            raise OptionError(
                f"the dimension {self._along!r} has the name of another column of the log.",
                hint=f"give the dimension another name: {', '.join(TIMES)} are columns of every log.",
            )
        for name in (*TIMES, self._along):
            if name in self._columns:
                raise OptionError(
                    f"the output {name!r} has the name of another column of the log.",
                    hint="name it otherwise.",
                )

    # --- around the run ----------------------------------------------------------------------------

    def begin(self, turn: int, *, over: bool = False) -> None:
        """Begin the log ahead of the run. If an error or an interrupt ends this, call `fail`.

        Args:
            turn: how many turns were done before.
            over: it had come to its end.
        """
        self._turn, self._known = turn, _ALL if over else self._count_known_rows(turn)
        for logger in self._waiting:
            told = _Told(logger, self._known)
            self._told.append(told)
            try:
                last = logger.begin(self._about, self._known)
            except Exception:  # it has not begun; one that was interrupted may have
                self._told.remove(told)
                raise
            if last is not None:
                told.next = self._row_point(last) + 1
                self._start = min(self._start, time.perf_counter() - last.get("seconds", 0.0))
        self._last = turn, self._seconds

    def attach(self, run: RunProtocol) -> None:
        """It is this run."""
        self._run = run

    def on_turn(self, count: int = 1) -> None:
        """The run has made so many turns."""
        self._turn += count
        begun = time.perf_counter()
        if begun >= self._free and self._told:
            self._write_live()
            now = time.perf_counter()
            rest = _REST * (now - begun)
            # what is made once for all, such as what copies buffers, is made when rows are written first
            self._free = now + (rest if self._free else min(rest, _SOON))

    def finish(self, values: Outputs, state: str) -> None:
        """The run has finished or stopped with these outputs."""
        assert self._run is not None
        columns, numbers, live = dict[str, Mapping[int, Any]](), dict[str, Any](), set[str]()
        for name in self._columns:
            if ("output", name) in values:
                columns |= self._by_point(name, values["output", name])
            if name in self._live:
                live.update(self._names(name))
        for name in self._numbers:
            if ("output", name) in values:
                found = np.atleast_1d(values["output", name])
                numbers |= dict(zip(self._names(name), map(number, found), strict=True))
        ends = {name: max(found, default=-1) + 1 for name, found in columns.items()}
        # what is made ahead of the turns, of those that were not made, is no row
        whole = live if live and state != "finished" else columns
        end = max((ends[name] for name in whole if name in ends), default=0)
        end = max(end, self._count_known_rows(self._turn))
        rows = self._rows(range(self._first_undelivered, end), columns, self._turn)
        late = {name: found for name, found in columns.items() if name not in live}
        for told in tuple(self._told):
            before = self._rows(range(min(told.next, end)), late)
            self._write(told, rows)
            known = [row for row in before if len(row) > 1]
            self._end(told, {"ended": state, "outputs": numbers}, known)

    def fail(self, error: BaseException) -> None:
        """The run has failed: what is left of it is written."""
        if self._run is not None:
            with suppress(Exception):  # where what failed has taken over the memory
                self._write_live()
        for told in tuple(self._told):
            self._end(told, {"ended": "failed", "error": f"{type(error).__name__}: {error}"}, ())

    # --- rows --------------------------------------------------------------------------------------

    def _length(self, s: int) -> int | None:
        """How many rows there are in all of a seed, where a dynamic bound says so."""
        bound = self._watched.stacked_over.bound
        found = None if self._run is None or bound is None else self._run.lengths().get(bound)
        if found is not None and self._rows_of is not None:
            found = found[s]
        return None if found is None or found.ndim else int(found)

    @property
    def _seconds(self) -> float:
        return time.perf_counter() - self._start

    def _row_point(self, row: Row) -> int:
        return int(row[self._along])

    def _count_known_rows(self, turn: int) -> int:
        """How many rows are known after so many turns."""
        if not self._live or not turn:
            return 0
        return min(self._count, *(self._points(op, turn) for op in self._live.values()))

    def _write_live(self) -> None:
        """Write the rows that are known by now."""
        assert self._run is not None
        there, first = self._count_known_rows(self._turn), self._first_undelivered
        if first >= there:
            return
        points = {n: self._watched.points(op, range(first, there)) for n, op in self._live.items()}
        wanted = [(self._live[name], at) for name, at in points.items() if at]
        brought = iter(self._run.peek(wanted)() if wanted else ())
        columns = dict[str, Mapping[int, Any]]()
        for name, at in points.items():
            found = [np.atleast_1d(x) for x in (next(brought) if at else ())]
            for s, column in enumerate(self._names(name)):
                columns[column] = dict(zip(at, (number(x[s]) for x in found), strict=True))
        rows = self._rows(range(first, there), columns, self._turn)
        for told in tuple(self._told):
            self._write(told, rows)

    def _rows(
        self, points: range, columns: Mapping[str, Mapping[int, Any]], turn: int | None = None
    ) -> list[Row]:
        """Rows, with the times of now where a turn is given."""
        times: dict[str, Any] = {}
        if turn is not None and points:
            (before, then), now = self._last, self._seconds
            if turn > before:
                self._last = turn, now
            rate = (turn - before) / (now - then) if now > then else 0.0
            times = dict(zip(TIMES, (turn, round(now, 6), round(rate, 6)), strict=True))
        return [
            {
                self._along: k,
                **(times if k >= self._known else {}),
                **{name: found[k] for name, found in columns.items() if k in found},
            }
            for k in points
        ]

    def _by_point(self, name: str, values: Array) -> dict[str, Mapping[int, Any]]:
        """An output's columns by point."""
        assert self._run is not None
        rows, everywhere = self._rows_of, self._run.coordinates.get(name)
        found = dict[str, Mapping[int, Any]]()
        for s, column in enumerate(self._names(name)):
            x, at = (values, everywhere) if rows is None else rows.select_run(s, values, everywhere)
            if at is not None:
                found[column] = dict(zip(at[self._along].tolist(), map(number, x), strict=True))
            else:
                found[column] = dict(enumerate(map(number, x[: self._length(s)])))
        return found

    # --- loggers -----------------------------------------------------------------------------------

    @property
    def _first_undelivered(self) -> int:
        """The row that somebody has not got yet."""
        return min((told.next for told in self._told), default=0)

    def _write(self, told: _Told, rows: Sequence[Row]) -> None:
        rows = [row for row in rows if self._row_point(row) >= told.next]
        if rows:
            self._call(told, lambda: told.logger.write(rows))
            told.next = self._row_point(rows[-1]) + 1

    def _end(self, told: _Told, last: Mapping[str, Any], late: Sequence[Row]) -> None:
        times = dict(zip(TIMES, (self._turn, round(self._seconds, 6)), strict=False))
        self._call(told, lambda: told.logger.end({**last, **times}, late))
        if told in self._told:
            self._told.remove(told)

    def _call(self, told: _Told, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # what is told of a run must not end it
            self._told.remove(told)
            warn(f"the logger {told.logger!r} failed, and is told no more of the run: {error!r}")


class _Told:
    """A logger, and the point of the row that it gets next."""

    def __init__(self, logger: Logger, following: int) -> None:
        self.logger, self.next = logger, following


def number(value: Any) -> bool | int | float:
    """A number as Python has it, of as few digits as tell it from all others of its element type."""
    x = np.asarray(value)
    if x.dtype.kind in "biu":
        return x.item()
    return float(x) if x.dtype == np.float64 else float(str(x.astype(np.float32)[()]))


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("timerl-nb", "jax", "numpy"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def loggers_of(given: Any, folder: Callable[[Any], Logger]) -> list[Logger]:
    """What `log=` asks for: a folder, a logger or a function, or several of these.

    Args:
        folder: makes the logger of a path.

    Raises:
        OptionError: it is none of them.
    """
    if isinstance(given, list | tuple):
        return [one for each in given for one in loggers_of(each, folder)]
    if isinstance(given, str) or hasattr(given, "__fspath__"):
        return [folder(given)]
    if isinstance(given, Logger) and not isinstance(given, type):
        return [given]
    if callable(given) and not isinstance(given, type):
        return [Calling(given)]
    raise OptionError(
        f"log={given!r} takes no rows.",
        hint='log="runs/first" is a folder, log=print a function of a row; a logger has begin, write and '
        "end, as trl.logs.Logger says; and there may be a list of them.",
    )
