"""What can be asked of a recording, be it one that goes on (`record`) or one that was read (`Recording`)."""

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
    """A recording to ask."""

    @abstractmethod
    def read(self) -> Recording:
        """What was recorded, so far or in all."""

    def table(self) -> Breakdown:
        """Where the time of all its threads and processes went."""
        return overlap_of(self.read())

    def corrected(
        self, calibration: Calibration | str | os.PathLike[str] | None = None
    ) -> Corrected:
        """The same without what recording has added.

        Args:
            calibration: what recording costs, or a file of that; by default as the recording's own silent blocks say.

        Raises:
            ExecutionError: the calibration is of something else, or contradicts itself; there are too few
                silent blocks.
        """
        recording = self.read()
        if calibration is None:
            calibration = in_run(recording)
        elif not isinstance(calibration, Calibration):
            calibration = Calibration.load(calibration)
        return correct_overhead(recording, calibration)

    def transitions(self) -> dict[tuple[str, str, str], int]:
        """How often what was on top was left for a library: by (operation, from, to), the most first."""
        return transitions(self.read())

    def compare(self, other: Recorded) -> Compared:
        """It beside another recording: the same operations, and by how much they take longer there.

        Raises:
            CallError: `other` is no recording.
        """
        expect_type(other, Recorded, "a recording", "trl.scope.read(folder) gives one.")
        return compare_recordings(self.read(), other.read())

    def utilization(self, seconds: float = 1 / 6) -> dict[int, Utilization]:
        """Of each device what `nvidia-smi` would have said, and what it was; none where none was traced.

        Args:
            seconds: of a sampling period.

        Raises:
            OptionError: `seconds` is not positive.
        """
        return utilization(self.read(), seconds)

    def figure(self, what: str = "operations") -> Any:
        """A plotly figure: of "operations", "transitions" or "processes"; see `show.scope_figures`."""
        return entry_point("recording.figure")(self.read(), what)

    def explore(self, **options: Any) -> Any:
        """The recording in a widget for a notebook: processes, operations, transitions and lanes.

        Args:
            options: those of `timerl_widgets.ScopeView`, such as an `explorer` to be linked with.

        Raises:
            MissingPartError: the widgets are not installed.
        """
        return entry_point("recording.explore")(self.read(), **options)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write what was recorded as one file; returns it.

        Args:
            path: ends in `.zip`, which `trl.scope.read` reads; or in `.parquet`, for a table of all edges: process, thread,
                ts (nanoseconds of CLOCK_MONOTONIC), kind, library, name, depth, and value: a coordinate of a
                launch's point, CPU time in nanoseconds where a block begins or ends, or how much passed unwritten: calls
                at depth 0, operations at 1.

        Raises:
            OptionError: the name ends otherwise.
            MissingPartError: Parquet is asked for, and `pyarrow` is not installed.
            ExecutionError: the recording has no folder to zip, or that is gone; the file cannot be written.
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
        """Write a Chrome trace, for Perfetto; returns the file.

        Args:
            path: ends in `.json` or `.json.gz`.
            begin, end: seconds since the recording began; by default all of it. Slices are cut at both.
            most: slices that are written; the shortest are left out, with a warning.

        Raises:
            OptionError: the name ends otherwise; the stretch is none, or `most` is not positive.
            ExecutionError: the file cannot be written.
        """
        return perfetto(self.read(), path, begin, end, most)

    def __str__(self) -> str:
        try:
            recording = self.read()
        except TimeRLError as error:  # nothing has been recorded, or it cannot be read any more
            return error.what
        edges = sum(len(lane.edges) for lane in recording.lanes)
        counts = (
            (len(recording.processes), "process"),
            (len(recording.lanes), "thread"),
            (edges, "edge"),
        )
        head = ", ".join(format_count(*one) for one in counts)
        return f"{head}\n{overlap_of(recording)}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> Mapping[str, object]:
        return bundle(self, str(self), lambda: entry_point("recording.view")(self.read()).to_svg())


@dataclass(frozen=True, eq=False, repr=False)
class Recording(Recorded, Lanes):
    """A recording as it was read.

    Args:
        source: the folder or zip that it was read from; None of what was made otherwise.
    """

    source: Path | None = None

    def read(self) -> Recording:
        """Itself."""
        return self
