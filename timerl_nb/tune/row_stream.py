"""Rows of a run on the caller's thread. The run waits while the caller handles a row."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from timerl_nb.base.errors import OptionError, one_of, warn
from timerl_nb.driver.program import Program
from timerl_nb.execution.logging.run_logger import Row
from timerl_nb.execution.results.run_result import Result


@dataclass(frozen=True)
class ReportedRow:
    """A row of a run that has the metric.

    Attributes:
        point: the iteration of the outermost loop.
        value: the metric; with several seeds, their mean.
        row: all scalar outputs of this iteration.
    """

    point: int
    value: float
    row: Row


def warn_of_nan(trial: str, metric: str, point: int) -> None:
    """Warn that a trial ends because its metric is NaN."""
    warn(
        f"{trial} ends at iteration {point}: {metric!r} is NaN.",
        hint="narrow the search space; or pass stop_at_nan=False, if a number can follow a NaN.",
    )


class RowStream:
    """Iterator over the rows of a new run that have a metric. As a context manager, it stops the run on exit.

    The run waits from the delivery of a row until the next one is requested. A run that is stopped in between
    therefore ends with this row's call to XLA.

    Args:
        program: the program.
        metric: the output; only rows with a value of it are delivered.
        interval: the minimal number of iterations between two rows. The last row is always delivered.
        last: the iteration of the last row that the caller has received, if the run is resumed or repeated.
        log: further loggers, as for `program.start`.
        options: other arguments of `program.start`.

    Raises:
        OptionError: the metric is no output with one number per iteration, or an argument is invalid.
    """

    def __init__(
        self,
        program: Program,
        metric: str,
        interval: int = 1,
        last: int = -1,
        *,
        log: Any = (),
        **options: Any,
    ) -> None:
        has_seeds, is_resumed = program.seeds is not None, "resume" in options
        self._handover = _Handover(
            metric, interval, last, has_seeds=has_seeds, is_resumed=is_resumed
        )
        self._is_over = self._is_held = False
        self._run = program.start(log=[self._handover, log], **options)

    def __iter__(self) -> Iterator[ReportedRow]:
        return self

    def __next__(self) -> ReportedRow:
        if self._is_held:
            self._handover.handled.release()
        found = None if self._is_over else self._handover.rows.get()
        self._is_held = found is not None
        if found is None:
            if self._handover.is_late and not self._is_over:
                warn(
                    f"the output {self._handover.metric!r} is computed after the last iteration, so no run can be "
                    "stopped early.",
                    hint='compile with trl.Options(lift=False, vectorize=("b", "t")), which keeps it in the loop.',
                )
            self._is_over = True
            raise StopIteration
        return found

    def result(self) -> Result:
        """Return the result of the ended run, or raise its error."""
        return self._run.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run.stop()
        self._handover.close()
        self._run.__exit__(kind, error, trace)


class _Handover:
    """Logger that passes rows to another thread, and waits until each of them is handled."""

    def __init__(
        self, metric: str, interval: int, last: int, *, has_seeds: bool, is_resumed: bool
    ) -> None:
        self.metric = metric
        self.rows: SimpleQueue[ReportedRow | None] = SimpleQueue()
        self.handled = threading.Semaphore(0)
        self.is_late = False
        self.interval, self._last, self._has_seeds = interval, last, has_seeds
        self._is_resumed = is_resumed
        self._along = ""
        self._columns: list[str] = []  # one per seed
        self._undue: ReportedRow | None = None  # the newest row, if it came too soon
        self._is_closed = False

    def __repr__(self) -> str:
        return f"trl.tune, metric={self.metric!r}"

    def close(self) -> None:
        """Let the run continue without delivering further rows."""
        self._is_closed = True
        self.handled.release()

    # --- on the run's thread ---------------------------------------------------------------------

    def begin(self, about: Mapping[str, Any], reached: int) -> Row | None:
        names: dict[str, list[str]] = {}
        for column in about["columns"]:
            name = column.rpartition("/")[0] if self._has_seeds else column
            names.setdefault(name, []).append(column)
        if self.metric in about["not_logged"]:
            raise OptionError(
                f"the output {self.metric!r} is not one number per iteration.",
                hint=f"reduce it, for example ctx.output({self.metric!r}, x.mean(over=b)).",
            )
        if self.metric not in names:
            raise OptionError(
                f"there is no output {self.metric!r} with one number per iteration.",
                hint=one_of(self.metric, list(names)),
            )
        self._along, self._columns = about["along"], names[self.metric]
        return {self._along: self._last} if self._is_resumed and self._last >= 0 else None

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if not self._is_closed and self._deliver(row):
                self.handled.acquire()

    def end(self, last: Mapping[str, Any], late: Sequence[Row]) -> None:
        if last["ended"] == "finished" and not self._is_closed:
            self.is_late = any(self._columns[0] in row for row in late)
            for row in late:
                self._deliver(row)
            if self._undue is not None:
                self.rows.put(self._undue)
        self.rows.put(None)

    def _deliver(self, row: Row) -> bool:
        """Deliver a row if it is due, and return whether it was."""
        values = [row[column] for column in self._columns if column in row]
        if not values:
            return False
        found = ReportedRow(int(row[self._along]), sum(values) / len(values), row)
        if found.point <= self._last:  # an early row that lacked the metric when it was delivered
            return False
        if (found.point + 1) // self.interval <= (self._last + 1) // self.interval:
            self._undue = found
            return False
        self._undue, self._last = None, found.point
        self.rows.put(found)
        return True
