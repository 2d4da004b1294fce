"""Queries of recordings: methods shared by `record` and `Recording`."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timerl_nb.base.display_registry import bundle
from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.errors import TimeRLError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.scope.analysis.gpu_utilization import Utilization, utilization
from timerl_nb.scope.analysis.library_transitions import transitions
from timerl_nb.scope.analysis.recording_comparison import Compared, compare_recordings
from timerl_nb.scope.analysis.thread_timelines import Lanes, Readable
from timerl_nb.scope.analysis.time_breakdown import Breakdown, overlap_of
from timerl_nb.scope.calibration.calibration import Calibration
from timerl_nb.scope.calibration.in_run_delta import in_run
from timerl_nb.scope.calibration.overhead_correction import Corrected, correct_overhead
from timerl_nb.scope.export.perfetto import MOST, perfetto
from timerl_nb.scope.storage.archive import save


class Recorded(Readable):
    """Base class of recordings with query methods."""

    @abstractmethod
    def read(self) -> Recording:
        """Return the recorded data, up to now if the recording is still open."""

    def table(self) -> Breakdown:
        """Return the time breakdown of all threads and processes."""
        return overlap_of(self.read())

    def corrected(
        self, calibration: Calibration | str | os.PathLike[str] | None = None
    ) -> Corrected:
        """Return the time breakdown without the overhead of recording.

        Args:
            calibration: costs of recording, or a file of `Calibration.save`. Default: estimated
                from the disabled blocks of this recording.

        Raises:
            ExecutionError: the calibration belongs to another program, or is contradictory; there
                are too few disabled blocks.
        """
        recording = self.read()
        if calibration is None:
            calibration = in_run(recording)
        elif not isinstance(calibration, Calibration):
            calibration = Calibration.load(calibration)
        return correct_overhead(recording, calibration)

    def transitions(self) -> dict[tuple[str, str, str], int]:
        """Count calls by operation, calling library and called library; see `transitions`."""
        return transitions(self.read())

    def compare(self, other: Recorded) -> Compared:
        """Compare this recording with another one, operation by operation.

        Args:
            other: another recording; differences are `other` minus this one.

        Raises:
            CallError: `other` is not a recording.
        """
        expect_type(other, Recorded, "a recording", "trl.scope.read(folder) returns one.")
        return compare_recordings(self.read(), other.read())

    def utilization(self, seconds: float = 1 / 6) -> dict[int, Utilization]:
        """Return the utilization of each traced device, real and as reported by `nvidia-smi`.

        Args:
            seconds: sampling period.

        Raises:
            OptionError: `seconds` is not positive.
        """
        return utilization(self.read(), seconds)

    def figure(self, what: str = "operations") -> Any:
        """Return a plotly figure; see `show.scope_figures`.

        Args:
            what: "operations", "transitions" or "processes".
        """
        return entry_point("recording.figure")(self.read(), what)

    def explore(self, **options: Any) -> Any:
        """Show processes, operations, transitions and timelines in a notebook widget.

        Args:
            options: options of `timerl_widgets.ScopeView`, such as an `explorer` to link the
                selection with.

        Raises:
            MissingPartError: the widgets are not installed.
        """
        return entry_point("recording.explore")(self.read(), **options)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the recording to one file and return its path.

        A Parquet table has one row per event: process, thread, ts (nanoseconds of CLOCK_MONOTONIC),
        kind, library, name, depth and value. `value` is a coordinate of a launch, the CPU time in
        nanoseconds at the start or end of a block, or the number of unwritten calls (depth 0) or
        operations (depth 1).

        Args:
            path: file name with suffix `.zip` (for `trl.scope.read`) or `.parquet`.

        Raises:
            OptionError: the suffix is unknown.
            MissingPartError: `pyarrow` is not installed (for Parquet).
            ExecutionError: the folder of the recording is missing, or the file cannot be written.
        """
        recording = self.read()
        return save(recording, recording.source, path)

    def perfetto(
        self,
        path: str | os.PathLike[str],
        begin: float | None = None,
        end: float | None = None,
        most: int = MOST,
    ) -> Path:
        """Write a Chrome trace for Perfetto and return its path.

        Args:
            path: file name with suffix `.json` or `.json.gz`.
            begin, end: seconds since the start of the recording; default: all of it. Slices are cut
                at both.
            most: maximum number of slices. The shortest ones are left out with a warning.

        Raises:
            OptionError: the suffix is unknown, the time window is empty, or `most` is not positive.
            ExecutionError: the file cannot be written.
        """
        return perfetto(self.read(), path, begin, end, most)

    def __str__(self) -> str:
        try:
            recording = self.read()
        except TimeRLError as error:  # nothing has been recorded, or the files are gone
            return error.what
        edges = sum(len(lane.edges) for lane in recording.lanes)
        counts = (
            (len(recording.processes), "process"),
            (len(recording.lanes), "thread"),
            (edges, "event"),
        )
        head = ", ".join(format_count(*one) for one in counts)
        return "\n".join([head, *map(str, recording.hosts), str(overlap_of(recording))])

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> Mapping[str, object]:
        return bundle(self, str(self), lambda: entry_point("recording.view")(self.read()).to_svg())


@dataclass(frozen=True, eq=False, repr=False)
class Recording(Recorded, Lanes):
    """A recording read from files.

    Attributes:
        lanes: event timelines of all threads.
        names: name table.
        processes: recorded processes.
        devices: traced operations of devices.
        hosts: clocks of the other hosts, with their accuracy.
        source: folder or zip file; None if it was created otherwise.

    Example:
        >>> with trl.scope.record("run"):
        ...     with trl.scope.operation("inference"):
        ...         total = sum(range(100))
        >>> recording = trl.scope.read("run")
        >>> len(recording.processes)
        1
        >>> print(recording.save("run.zip"))
        run.zip
    """

    source: Path | None = None

    def read(self) -> Recording:
        """Return this recording."""
        return self
