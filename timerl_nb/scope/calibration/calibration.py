"""Calibration: measured costs of recording, with a check of their validity for a recording."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from timerl_nb.base.atomic_files import (
    LONGEST_TEXT,
    parse_json,
    read_regular,
    user_path,
    write_whole,
)
from timerl_nb.base.errors import ExecutionError, explain_os_errors
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.scope.analysis.thread_timelines import Lanes
from timerl_nb.scope.storage.event_format import BLOCKS
from timerl_nb.scope.storage.json_validation import NUMBER, cause, of_version

CALL: Final = "call"  # cost of a wrapped call
ANNOTATION: Final = "annotation"  # cost of an operation or phase
API: Final = "API: "  # prefix of the cost of an interface call under a device tracer
TRACER: Final = "tracer of devices"  # key in `made_by` for traced recordings
_VERSION: Final = 1
_SHAPE: Final = {
    "way": str,
    "costs": {str: {"inside": NUMBER, "outside": NUMBER, "draws": [NUMBER]}},
    "silent": {str: NUMBER},
    "program": str,
    "made_by": {str: str},
    "measured": int,
}
_AGAIN: Final = "calibrate this program again: `timerl scope calibrate script.py ...`."


@dataclass(frozen=True)
class Cost:
    """Cost of recording one call or annotation, in nanoseconds.

    Attributes:
        inside: time between the begin and end event, measured as time of the callee.
        outside: time before the start and after the end event, measured as time of the caller.
        draws: bootstrap samples of `total`. Equal indices in all costs of a calibration belong to
            the same sample.

    Example:
        >>> trl.scope.Cost(inside=300.0, outside=200.0).total
        500.0
    """

    inside: float
    outside: float
    draws: tuple[float, ...] = ()

    @property
    def total(self) -> float:
        """Sum of both parts."""
        return self.inside + self.outside


@dataclass(frozen=True)
class Calibration:
    """Costs of recording a program.

    Attributes:
        way: name of the measurement method.
        costs: cost by kind: `call`, `annotation`, or `API: name` for a call of a device's
            interface.
        silent: cost of calls and annotations in disabled blocks, in nanoseconds.
        program: command of the program; "" for any program.
        made_by: recorder, Python, machine and versions of libraries; empty for any.
        measured: number of measured blocks or runs.

    Raises:
        ExecutionError: a cost is negative or not finite.
        CallError: `costs` is not a mapping from names to `Cost`.

    Example:
        >>> calibration = trl.scope.Calibration("by hand", {"call": trl.scope.Cost(300.0, 200.0)})
        >>> print(calibration)
        by hand, from 0 measurements
        call: 500 ns [500, 500], 300 of it inside
        >>> path = calibration.save("costs.json")
        >>> trl.scope.Calibration.load(path).costs["call"].total
        500.0
    """

    way: str
    costs: Mapping[str, Cost]
    silent: Mapping[str, float] = field(default_factory=dict)
    program: str = ""
    made_by: Mapping[str, str] = field(default_factory=dict)
    measured: int = 0

    def __post_init__(self) -> None:
        how = "Calibration.load(path) reads one, and `timerl scope calibrate` measures one."
        expect_type(self.costs, Mapping, "a mapping of costs", how)
        for kind, cost in self.costs.items():
            expect_type(cost, Cost, "a cost", "trl.scope.Cost(…).")
            if min(cost.inside, cost.outside) < 0 or not math.isfinite(cost.total):
                raise ExecutionError(
                    f"the calibrated cost of {kind!r} is invalid: {cost.total:,.0f} ns.",
                    hint="calibrate again on an idle machine.",
                )

    def check(self, recording: Lanes) -> None:
        """Check that the calibration is valid for a recording.

        Args:
            recording: the recording.

        Raises:
            ExecutionError: program, recorder, machine or library versions differ.
        """
        for process in recording.processes[:1]:
            if self.program and process.command != self.program:
                raise ExecutionError(
                    f"the calibration belongs to another program: {self.program}, not {process.command}.",
                    hint=f"costs differ several times between programs; {_AGAIN}",
                )
            tracers = ", ".join(sorted({one.tracer for one in recording.devices.traced_windows}))
            made_by = {**process.made_by, **({TRACER: tracers} if tracers else {})}
            for what in sorted({*self.made_by} & {*made_by}):
                here, there = made_by[what], self.made_by[what]
                if here != there:
                    if what == BLOCKS:
                        raise ExecutionError(
                            "only one of the calibration and the recording has disabled blocks.",
                            hint="record both with exact=True, or both without it.",
                        )
                    raise ExecutionError(
                        f"the calibration belongs to another {what}: {there}, not {here}.",
                        hint=_AGAIN,
                    )

    def __add__(self, other: Calibration) -> Calibration:
        """Combine calibrations of different kinds of costs, such as wrappers and a tracer.

        Raises:
            ExecutionError: both have a cost of the same kind, or programs or machines differ.
        """
        if both := {*self.costs} & {*other.costs}:
            raise ExecutionError(
                f"two calibrations have a cost of {min(both)!r}.", hint="use one of them."
            )
        differences = [
            x for x in {*self.made_by} & {*other.made_by} if self.made_by[x] != other.made_by[x]
        ]
        if differences or (self.program and other.program and self.program != other.program):
            raise ExecutionError(
                f"two calibrations differ in {min(differences, default='their programs')}.",
                hint=_AGAIN,
            )
        return Calibration(
            f"{self.way} and {other.way}",
            {**self.costs, **other.costs},
            {**self.silent, **other.silent},
            self.program or other.program,
            {**self.made_by, **other.made_by},
            self.measured + other.measured,
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the calibration to a file for `Calibration.load`, and return its path.

        Args:
            path: the file.

        Raises:
            ExecutionError: the file cannot be written.
        """
        content = json.dumps({"version": _VERSION, **asdict(self)}, indent=1).encode()
        with explain_os_errors(f"{path} cannot be written", hint="choose another file."):
            write_whole(user_path(path), content)
        return user_path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read a calibration from a file of `save`.

        Args:
            path: the file.

        Raises:
            ExecutionError: the file is not a valid calibration, or has an unsupported version.
        """
        try:
            found = of_version(
                parse_json(read_regular(user_path(path), LONGEST_TEXT)), (_VERSION,), _SHAPE, path
            )
        except (OSError, ValueError) as error:
            raise ExecutionError(
                f"{path} is not a valid calibration: {cause(error)}.", hint=_AGAIN
            ) from None
        costs = {
            kind: Cost(float(one["inside"]), float(one["outside"]), tuple(one["draws"]))
            for kind, one in found.pop("costs").items()
        }
        return cls(costs=costs, **found)

    def __str__(self) -> str:
        lines = [f"{self.way}, from {self.measured:,} measurements"]
        for kind, cost in self.costs.items():
            low, high = interval(cost.draws) if cost.draws else (cost.total, cost.total)
            parts = f"{cost.inside:,.0f} of it inside"
            lines.append(f"{kind}: {cost.total:,.0f} ns [{low:,.0f}, {high:,.0f}], {parts}")
        return "\n".join(lines)


def interval(draws: Any) -> tuple[float, float]:
    """Return the middle 95 % of bootstrap samples."""
    ordered = sorted(draws)
    cut = int(0.025 * len(ordered))
    return ordered[cut], ordered[-1 - cut]
