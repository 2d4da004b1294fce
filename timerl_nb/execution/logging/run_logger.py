"""Log of a run: a row of scalar outputs for each point of the outermost dimension.

The run copies the values between two iterations, as it does for live frames. No row is lost if
iterations are faster than the loggers. Loggers implement the `Logger` protocol.
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
_REST: Final = 20  # pause between two writes, as a multiple of the duration of a write
_SOON: Final = (
    0.5  # longest first pause in seconds, as the first write takes longer than later ones
)
_ALL: Final = 1 << 62


@runtime_checkable
class Logger(Protocol):
    """Receiver of the rows of a run. Any object with these methods is a logger.

    The methods are called on the run's thread. A row is a dictionary with these entries:

    - the point of the outermost dimension, under the name `about["along"]`;
    - the scalar outputs (numbers or booleans) defined and known at this point;
    - `turn`: the iteration after which the row was written; `seconds` since the start of the run; and
      `turns_per_second`. Rows from before a run was resumed lack these three.

    Rows arrive in order, each of them once. One call may contain the rows of several fast iterations. A logger
    with an attribute `apart`, a number of iterations, receives its rows at the end of every such interval.

    Example:
        >>> class Printer:
        ...     def begin(self, about, reached):
        ...         print(about["columns"])
        ...     def write(self, rows):
        ...         print([row["root"] for row in rows])
        ...     def end(self, last, late):
        ...         print(last["ended"])
        >>> isinstance(Printer(), trl.logs.Logger)
        True
    """

    def begin(self, about: Mapping[str, Any], reached: int) -> Row | None:
        """Start a log, or continue the log of a resumed run.

        Args:
            about: Description of the run. `run` is its identifier, which stays the same when it is
                resumed. `program`, `bounds`, `options` and `seed` describe the program. `along` is the
                dimension of the rows, `columns` the logged outputs, and `not_logged` the other outputs.
            reached: Number of known rows before the run was resumed; 0 for a new run.

        Returns:
            The last row that the logger already has. The run then sends the rows after it. None
            requests all rows.
        """
        ...

    def write(self, rows: Sequence[Row]) -> None: ...

    def end(self, last: Mapping[str, Any], late: Sequence[Row]) -> None:
        """End the log.

        Args:
            last: The state `ended` ("finished", "stopped" or "failed"), the `error` if the run failed,
                and scalar `outputs` of the whole run.
            late: Values known only at the end, for earlier rows.
        """
        ...


class Calling:
    """Logger to a function of one row."""

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
    """Sends the rows of one run to its loggers.

    Args:
        loggers: Receivers of the rows.
        watched: The program.
        names: Names of the returned outputs; all by default.
        about: Description of the run, without its outputs.
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
        # the shortest interval of iterations after which a logger needs its rows; 0 for none
        self._apart = min((n for one in loggers if (n := getattr(one, "apart", 0))), default=0)
        self._attached: list[_AttachedLogger] = []
        self._run: RunProtocol | None = None
        self._turn = self._known = 0
        self._start = time.perf_counter()
        self._last = self._turn, 0.0  # iteration and time of the last row, for rates
        self._free = 0.0  # earliest time of the next write

    def _names(self, name: str) -> list[str]:
        """Return the columns of an output: one, or one per seed."""
        rows = self._rows_of
        return [name] if rows is None else [f"{name}/{seed}" for seed in rows.seeds]

    def _in_turns(self) -> dict[str, Op]:
        """Return the columns known during the run, and not only after its end."""
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
        """Return the number of iterations after which the first value of an output is known."""
        turns = range(1, (self._watched.progress.turns or 0) + 1)
        return 1 + bisect_left(turns, 1, key=lambda turn: self._points(op, turn))

    def _points(self, op: Op, turns: int) -> int:
        return self._watched.progress.points(op, turns) if turns else 0

    @property
    def _count(self) -> int:
        """Maximum number of rows."""
        pdg, bounds = self._watched.pdg, self._watched.plan.bounds
        return pdg.dims[self._along].count(bounds)

    def _check_names(self) -> None:
        """Check that no output or dimension has the name of another column.

        Raises:
            OptionError: Two columns have the same name.
        """
        if self._along in TIMES:
            raise OptionError(
                f"the dimension {self._along!r} has the name of another column of the log.",
                hint=f"rename the dimension: {', '.join(TIMES)} are columns of every log.",
            )
        for name in (*TIMES, self._along):
            if name in self._columns:
                raise OptionError(
                    f"the output {name!r} has the name of another column of the log.",
                    hint="rename the output.",
                )

    # --- around the run ----------------------------------------------------------------------------

    def begin(self, turn: int, *, over: bool = False) -> None:
        """Start all logs before the run starts. If this fails or is interrupted, call `fail`.

        Args:
            turn: Number of iterations completed before.
            over: Whether the resumed run had already finished.
        """
        self._turn, self._known = turn, _ALL if over else self._count_known_rows(turn)
        for logger in self._waiting:
            attached = _AttachedLogger(logger, self._known)
            self._attached.append(attached)
            try:
                last = logger.begin(self._about, self._known)
            except Exception:  # this logger has not started; an interrupted logger may have
                self._attached.remove(attached)
                raise
            if last is not None:
                attached.next = self._row_point(last) + 1
                self._start = min(self._start, time.perf_counter() - last.get("seconds", 0.0))
        self._last = turn, self._seconds

    def attach(self, run: RunProtocol) -> None:
        """Set the run."""
        self._run = run

    def on_turn(self, count: int = 1) -> None:
        """Count completed iterations, and write rows if a write is due."""
        self._turn += count
        begun, apart = time.perf_counter(), self._apart
        is_due = apart and self._turn // apart > (self._turn - count) // apart
        if self._attached and (is_due or begun >= self._free):
            self._write_live()
            now = time.perf_counter()
            rest = _REST * (now - begun)
            # the first write includes one-time work, such as the compilation of copies
            self._free = now + (rest if self._free else min(rest, _SOON))

    def finish(self, values: Outputs, state: str) -> None:
        """Write the remaining rows after the run has finished or stopped."""
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
        # a batch may have computed values of later iterations before the run was stopped
        whole = live if live and state != "finished" else columns
        end = max((ends[name] for name in whole if name in ends), default=0)
        end = max(end, self._count_known_rows(self._turn))
        rows = self._rows(range(self._first_undelivered, end), columns, self._turn)
        late = {name: found for name, found in columns.items() if name not in live}
        for attached in tuple(self._attached):
            before = self._rows(range(min(attached.next, end)), late)
            self._write(attached, rows)
            known = [row for row in before if len(row) > 1]
            self._end(attached, {"ended": state, "outputs": numbers}, known)

    def fail(self, error: BaseException) -> None:
        """Write the remaining rows after a failure."""
        if self._run is not None:
            with suppress(Exception):  # the failed iteration may have overwritten the values
                self._write_live()
        for attached in tuple(self._attached):
            self._end(
                attached, {"ended": "failed", "error": f"{type(error).__name__}: {error}"}, ()
            )

    # --- rows --------------------------------------------------------------------------------------

    def _length(self, s: int) -> int | None:
        """Return the number of rows of a seed if a dynamic bound limits it; None otherwise."""
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
        """Return the number of known rows after some iterations."""
        if not self._live or not turn:
            return 0
        return min(self._count, *(self._points(op, turn) for op in self._live.values()))

    def _write_live(self) -> None:
        """Write all known rows."""
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
        for attached in tuple(self._attached):
            self._write(attached, rows)

    def _rows(
        self, points: range, columns: Mapping[str, Mapping[int, Any]], turn: int | None = None
    ) -> list[Row]:
        """Build rows; with `turn`, they include the current times."""
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
        """Return the columns of an output, by point."""
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
        """First row missing in some logger."""
        return min((attached.next for attached in self._attached), default=0)

    def _write(self, attached: _AttachedLogger, rows: Sequence[Row]) -> None:
        rows = [row for row in rows if self._row_point(row) >= attached.next]
        if rows:
            self._call(attached, lambda: attached.logger.write(rows))
            attached.next = self._row_point(rows[-1]) + 1

    def _end(self, attached: _AttachedLogger, last: Mapping[str, Any], late: Sequence[Row]) -> None:
        times = dict(zip(TIMES, (self._turn, round(self._seconds, 6)), strict=False))
        self._call(attached, lambda: attached.logger.end({**last, **times}, late))
        if attached in self._attached:
            self._attached.remove(attached)

    def _call(self, attached: _AttachedLogger, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # a failing logger must not end the run
            self._attached.remove(attached)
            warn(f"the logger {attached.logger!r} failed, and receives no more rows: {error!r}")


class _AttachedLogger:
    """A logger, and the point of its next row."""

    def __init__(self, logger: Logger, following: int) -> None:
        self.logger, self.next = logger, following


def number(value: Any) -> bool | int | float:
    """Convert to a Python number, with the shortest decimal form that is unique in its element type."""
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
    """Return the loggers for the option `log=`: a folder, a logger, a function, or a list of them.

    Args:
        given: Value of the option.
        folder: Creates the logger of a path.

    Raises:
        OptionError: The value is of another kind.
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
        f"log={given!r} is not a logger.",
        hint='pass a folder (log="runs/first"), a function of a row (log=print), an object with the methods '
        "of trl.logs.Logger (begin, write, end), or a list of these.",
    )
