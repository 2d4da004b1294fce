"""Measurement of a run: per statement with the interpreter, per call with XLA."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from timerl_nb.base.chrome_trace import write_events
from timerl_nb.base.text_formatting import (
    align_columns,
    format_bytes,
    format_count,
    format_duration,
)
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.driver.program import Program
from timerl_nb.driver.program_runs.run_observation import Names, Sort, run_observed
from timerl_nb.execution.telemetry.program_live_frames import Watched
from timerl_nb.profiler.chrome_trace_export import Trace
from timerl_nb.profiler.event_listener import Recording
from timerl_nb.runtime.interpreter.swap_transfers import Copy
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.xla.execution.lowered_run import LoweredRun
from timerl_nb.streams.run_report import Report


@dataclass(frozen=True)
class Row:
    """Measurements of one statement, or of one call to XLA.

    Attributes:
        name: the statement's name; `call 2` is numbered as in `program.executable`.
        sort: kernel, call or host.
        op_ids: its operations, including those inside kernels.
        count: the number of executions.
        seconds: the total time; each execution is waited for.
        first: the time of the first execution, which may include compilation.
        nbytes: the total of live bytes added; None for a call, whose buffers persist.
    """

    name: str
    sort: Sort
    op_ids: tuple[int, ...]
    count: int
    seconds: float
    first: float
    nbytes: int | None

    @property
    def mean(self) -> float:
        """Mean seconds per execution, without the first one if there are several."""
        return (self.seconds - self.first) / (self.count - 1) if self.count > 1 else self.first

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "op_ids": list(self.op_ids), "mean": self.mean}


@dataclass(frozen=True, eq=False)
class Profile:
    """Time per statement or call of a run, returned by `trl.profile`.

    Printing it shows a table; notebooks display it.

    Attributes:
        executor: "interpret", with one row per statement, or "xla", with one row per call as the host sees it.
        rows: the measurements, the longest first.
        seconds: the duration of the run, measurement included.
        turns: the number of iterations of the outermost loop.
        copies: copies between device and host by swapping.

    Example:
        >>> x = trl.data(np.ones(8, "f4"), domain=t)
        >>> ctx.output("y", x.exp().sum(over=t))
        >>> profile: trl.Profile = trl.profile(ctx.compile({B: 1, I: 1, T: 8}))
        >>> 0.0 < profile.busy <= 1.0
        True
    """

    executor: Literal["interpret", "xla"]
    rows: tuple[Row, ...]
    seconds: float
    turns: int
    copies: tuple[Copy, ...] = field(repr=False)
    _trace: Trace = field(repr=False)

    @property
    def busy(self) -> float:
        """The fraction of the time spent inside kernels or calls."""
        return sum(row.seconds for row in self.rows if row.sort != "host") / self.seconds

    @property
    def by_op(self) -> dict[int, float]:
        """Seconds by operation, of the kernels or calls that contain it."""
        found: dict[int, float] = {}
        for row in self.rows:
            for op_id in row.op_ids:
                found[op_id] = found.get(op_id, 0.0) + row.seconds
        return found

    def chrome_trace(self, path: str | os.PathLike[str], *streams: Report) -> Path:
        """Write a trace for chrome://tracing or Perfetto.

        Tracks: iterations and their kernels, host functions, copies. Counters: live bytes, measured by the interpreter or
        predicted for XLA. The `args` of every item contain `op_ids` and `point`.

        Args:
            path: the file.
            streams: reports of streams (`trl.streams`), shown as further processes with one track per stream. All
                begin at 0.

        Returns:
            the file's path.

        Raises:
            ExecutionError: the file cannot be written.
        """
        beside = (run.events(process) for process, run in enumerate(streams, 2))
        return write_events(path, chain(self._trace.events(), *beside))

    def to_json(self) -> dict[str, Any]:
        return {
            "executor": self.executor,
            "seconds": self.seconds,
            "turns": self.turns,
            "busy": self.busy,
            "rows": [row.to_json() for row in self.rows],
            "copies": [dict(copy.__dict__) for copy in self.copies],
        }

    def __str__(self) -> str:
        where = "calls to XLA, seen from the host" if self.executor == "xla" else "kernels"
        head = f"{format_count(self.turns, 'turn')} in {format_duration(self.seconds)}, {self.busy:.0%} of it in {where}"
        table = [("", "", "times", "total", "share", "first", "then each", "added")]
        for row in self.rows:
            share, written = row.seconds / self.seconds, row.nbytes
            times = (
                format_duration(row.seconds),
                f"{share:.0%}",
                format_duration(row.first),
                format_duration(row.mean),
            )
            nbytes = "" if written is None else format_bytes(written)
            table.append((row.name, row.sort, f"{row.count:,}", *times, nbytes))
        if self.copies:
            spent, moved = sum(c.seconds for c in self.copies), sum(c.nbytes for c in self.copies)
            times = (format_duration(spent), f"{spent / self.seconds:.0%}", "", "")
            table.append(
                ("copies", "transfer", f"{len(self.copies):,}", *times, format_bytes(moved))
            )
        return "\n".join([head, *align_columns(table, left=(0, 1))])

    __repr__ = __str__


@explain_call_errors
def profile(program: Program, seed: int = 0, *, turns: int | None = None) -> Profile:
    """Run a program and measure each kernel or call.

    Each kernel, or call to XLA, is waited for before the next one, and the interpreter reports every read and write.
    Therefore the run takes longer than `execute`; the times of single kernels are valid. Run the program once before to
    exclude compilation.

    Args:
        program: the program.
        seed: the seed of all random streams.
        turns: the number of iterations of the outermost loop; all by default.

    Returns:
        a `Profile`.

    Raises:
        OptionError: `turns` is not a positive number.
        BoundsError, BudgetError: as for `program.start`.

    Example:
        >>> x = trl.data(np.ones(8, "f4"), domain=t)
        >>> ctx.output("y", x.exp().sum(over=t))
        >>> program = ctx.compile({B: 1, I: 1, T: 8})
        >>> len(trl.profile(program).rows) > 0
        True
    """
    recording = Recording()

    def on_turn(run: RunProtocol, count: int) -> None:
        recording.on_turn(perf_counter() - run.began, count)

    run, begun, end = run_observed(program, seed, turns, recording, on_turn)
    about = Names(program)
    copies = tuple(run.copies)
    trace = Trace(
        recording,
        {name: (about.sort(name), about.op_ids(name)) for name in recording.launches},
        about.tensors,
        tuple((c, c.begun - run.began) for c in copies),
        begun,
        end,
        Watched(program.source_graph, program.memory, program.executable.progress())
        if isinstance(run, LoweredRun)
        else None,
    )
    made = recording.turns[-1][1] if recording.turns else 0
    executor = "xla" if isinstance(run, LoweredRun) else "interpret"
    return Profile(executor, _rows(about, recording), end - begun, made, copies, trace)


def _rows(about: Names, recording: Recording) -> tuple[Row, ...]:
    seconds: dict[str, list[float]] = {name: [] for name in recording.launches}
    for one in recording.slices:
        seconds[one.name].append(one.seconds)
    rows = [
        Row(
            name,
            about.sort(name),
            about.op_ids(name),
            count,
            sum(seconds[name]),
            seconds[name][0] if seconds[name] else 0.0,
            None if about.sort(name) == "call" else recording.written.get(name, 0),
        )
        for name, count in recording.launches.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.name)))
