"""Rows for Weights & Biases: kept in a folder of this machine, unless the mode says otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timerl_nb.execution.logging.run_logger import TIMES, Row
from timerl_nb.logs.optional_packages import part


def wandb(project: str | None = None, *, mode: str = "offline", **options: Any) -> WandbRun:
    """A logger for `execute(log=…)`: a run of Weights & Biases.

    Offline nothing leaves the machine; `wandb sync` of the run's folder sends it when that is wanted. A run that
    is resumed has the same id, and the server knows the steps that were made again by their number.

    Args:
        project: what it belongs to.
        mode: as of `wandb.init`.
        options: others of `wandb.init`, such as `dir`, `name` and `tags`.

    Raises:
        MissingPartError: wandb is not installed.
    """
    return WandbRun({"project": project, "mode": mode, **options})


class WandbRun:
    """Writes a run of Weights & Biases; see `trl.logs.Logger`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._wandb = part("wandb", "wandb")
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
        for row in late:  # steps of wandb's own rise; curves are over the metric
            self._run.log(dict(row))
        self._run.summary.update({"ended": last["ended"], **last.get("outputs", {})})
        self._run.finish(exit_code=1 if last["ended"] == "failed" else 0)
