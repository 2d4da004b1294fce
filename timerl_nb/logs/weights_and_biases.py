"""Logging to Weights & Biases, offline by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timerl_nb.execution.logging.run_logger import TIMES, Row
from timerl_nb.logs.optional_packages import LOG_FOLDER, part


def wandb(project: str | None = None, *, mode: str = "offline", **options: Any) -> WandbRun:
    """Return a logger for `execute(log=…)` that records a run of Weights & Biases.

    Offline, no data leaves the machine; `wandb sync` uploads the run's folder later. A resumed run has the same id; the server
    recognises repeated steps by their number.

    Args:
        project: the project's name.
        mode: as for `wandb.init`.
        options: other arguments of `wandb.init`, such as `dir`, `name` and `tags`.

    Raises:
        MissingPartError: wandb is not installed.

    Example:
        >>> program.execute(log=trl.logs.wandb("cartpole"))  # doctest: +SKIP
    """
    return WandbRun({"project": project, "mode": mode, **options})


class WandbRun:
    """Writer of a run of Weights & Biases; see `trl.logs.Logger`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._wandb = part("wandb", "wandb", "trl.logs.wandb", LOG_FOLDER)
        self._run: Any = None
        self._along = ""

    def __repr__(self) -> str:
        return f"trl.logs.wandb({self._options['project']!r}, mode={self._options['mode']!r})"

    def begin(self, about: Mapping[str, Any], reached: int) -> None:
        given = {"id": about["run"], "resume": "allow", "config": dict(about), **self._options}
        self._run, self._along = self._wandb.init(**given), about["along"]
        self._run.define_metric(self._along)
        for name in (*about["columns"], *TIMES):
            self._run.define_metric(name, step_metric=self._along)

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._run.log(dict(row), step=row[self._along])

    def end(self, last: Mapping[str, Any], late: Sequence[Row]) -> None:
        if self._run is None:
            return
        for row in late:  # wandb's own step must increase; curves use the metric
            self._run.log(dict(row))
        self._run.summary.update({"ended": last["ended"], **last.get("outputs", {})})
        self._run.finish(exit_code=1 if last["ended"] == "failed" else 0)
