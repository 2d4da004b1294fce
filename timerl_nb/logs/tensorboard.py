"""Event files for TensorBoard, written by TensorBoard's own writer."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.errors import CallError, ExecutionError, explain_os_errors
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.execution.logging.run_logger import Row
from timerl_nb.logs.optional_packages import LOG_FOLDER, part

_EVENTS: Final = "tfevents"


@explain_call_errors
def tensorboard(folder: str | os.PathLike[str]) -> EventFiles:
    """Return a logger for `execute(log=…)` that writes TensorBoard event files.

    The files contain one scalar per output and iteration. Show them by `tensorboard --logdir FOLDER`, also for a folder of
    several runs. A resumed run continues in its folder; repeated iterations replace the earlier ones.

    Args:
        folder: the folder, one per run.

    Raises:
        MissingPartError: TensorBoard is not installed. TensorFlow is not needed.
        CallError: `folder` is not a path.

    Example:
        >>> program.execute(log=trl.logs.tensorboard("runs/first"))  # doctest: +SKIP
    """
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        raise CallError(
            f"{folder!r} is not a folder.", hint='write trl.logs.tensorboard("runs/first").'
        )
    return EventFiles(user_path(folder))


class EventFiles:
    """Writer of event files; see `trl.logs.Logger`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing = _part("tensorboard.summary.writer.event_file_writer")
        self._events = _part("tensorboard.compat.proto.event_pb2")
        self._summaries = _part("tensorboard.compat.proto.summary_pb2")
        self._writer: Any = None
        self._along = ""
        self._last = 0

    def __repr__(self) -> str:
        return f"trl.logs.tensorboard({os.fspath(self.path)!r})"

    def begin(self, about: Mapping[str, Any], reached: int) -> None:
        """Begin a file; later events in earlier files become invalid.

        Raises:
            ExecutionError: the folder contains another run, or cannot be written.
        """
        suffix = f".{about['run']}"
        with explain_os_errors(
            f"the run cannot write its events in {self.path}",
            hint="choose a writable folder with enough space.",
        ):
            self.path.mkdir(parents=True, exist_ok=True)
            others = [path.name for path in self.path.iterdir() if _EVENTS in path.name]
            if any(not name.endswith(suffix) for name in others):
                raise ExecutionError(
                    f"{self.path} contains the events of another run.",
                    hint="use one folder per run; TensorBoard compares the folders inside a folder.",
                )
            self._writer = self._writing.EventFileWriter(
                os.fspath(self.path), filename_suffix=suffix
            )
        self._along = about["along"]
        if others:
            session = self._events.SessionLog
            self._add(reached, session_log=session(status=session.START))
        self._writer.flush()

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._scalars(row[self._along], row)
        self._writer.flush()

    def end(self, last: Mapping[str, Any], late: Sequence[Row]) -> None:
        if self._writer is not None:
            for row in late:
                self._scalars(row[self._along], row)
            self._add_scalars(self._last, last.get("outputs", {}))
            self._writer.close()

    def _scalars(self, step: int, found: Mapping[str, Any]) -> None:
        others = (self._along, "turn", "seconds")
        self._add_scalars(step, {n: x for n, x in found.items() if n not in others})

    def _add_scalars(self, step: int, found: Mapping[str, Any]) -> None:
        values = [
            self._summaries.Summary.Value(tag=name, simple_value=float(value))
            for name, value in found.items()
        ]
        if values:
            self._last = max(self._last, step)
            self._add(step, summary=self._summaries.Summary(value=values))

    def _add(self, step: int, **what: Any) -> None:
        self._writer.add_event(self._events.Event(wall_time=time.time(), step=step, **what))


def _part(module: str) -> Any:
    return part(module, "tensorboard", "trl.logs.tensorboard", LOG_FOLDER)
