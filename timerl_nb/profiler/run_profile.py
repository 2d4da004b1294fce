"""A run, measured statement by statement, or where XLA runs the loop nest, call by call."""

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
    """What one statement, or one call to XLA, came to.

    Attributes:
        name: of the statement; `call 2` as `program.executable` counts them.
        sort: a kernel; a call; or something on the host.
        op_ids: the operations that it runs, those inside kernels among them.
        count: how often it ran.
        seconds: in all, each waited for.
        first: of these, the first time, in which it is compiled unless it was before.
        nbytes: the live bytes that it added in all; None of a call, whose buffers stay.
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
        """Seconds, of all times but the first; of that one where there is no other."""
        return (self.seconds - self.first) / (self.count - 1) if self.count > 1 else self.first

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "op_ids": list(self.op_ids), "mean": self.mean}


@dataclass(frozen=True, eq=False)
class Profile:
    """Where the time of a run went.

    Attributes:
        executor: `interpret`, whose rows are statements, or `xla`, whose rows are calls as the host
            sees them: what is inside of one is XLA's own.
        rows: the one that took longest first.
        seconds: the run took, measuring included.
        turns: of the outermost loop were made.
        copies: between device and host, where values are swapped.
    """

    executor: Literal["interpret", "xla"]
    rows: tuple[Row, ...]
    seconds: float
    turns: int
    copies: tuple[Copy, ...] = field(repr=False)
    _trace: Trace = field(repr=False)

    @property
    def busy(self) -> float:
        """The fraction of the time that was spent inside kernels or calls."""
        return sum(row.seconds for row in self.rows if row.sort != "host") / self.seconds

    @property
    def by_op(self) -> dict[int, float]:
        """By operation, the seconds of the kernels or calls that it is in."""
        found: dict[int, float] = {}
        for row in self.rows:
            for op_id in row.op_ids:
                found[op_id] = found.get(op_id, 0.0) + row.seconds
        return found

    def chrome_trace(self, path: str | os.PathLike[str], *streams: Report) -> Path:
        """Write what ran when, for chrome://tracing or Perfetto; returns the file.

        Tracks: turns and what ran in them; host functions; copies. Counters: live bytes, measured, or
        where XLA runs the nest predicted for its turns. Every item's `args` say `op_ids` and `point`.

        Args:
            streams: runs of streams (`trl.streams`), each a process beside it, with a track for each stream:
                those of the program, recorded, have its `op_ids`. All begin at 0.

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


def profile(program: Program, seed: int = 0, *, turns: int | None = None) -> Profile:
    """Run a program, and measure all that runs.

    Each kernel, or call to XLA, is waited for before the next; the interpreter also reports every
    read and write. So it takes longer than `execute`; what is measured of single kernels holds. Run a
    program once before for times without compiling.

    Args:
        seed: of all random streams.
        turns: stop after so many turns of the outermost loop; all by default.

    Raises:
        OptionError: `turns` is no positive number.
        BoundsError, BudgetError: as `program.start`.
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
