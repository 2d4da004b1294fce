"""What recording costs, by kind of book-keeping: a calibration, of what it is, and when it is refused."""

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
from timerl_nb.scope.storage.json_validation import NUMBER, cause, of_version

CALL: Final = "call"  # a tap's
ANNOTATION: Final = "annotation"  # of an operation or a phase
API: Final = (
    "API: "  # ahead of the name of a call of a device's interface, which a tracer makes dearer
)
TRACER: Final = "tracer of devices"  # in `made_by`, of what was traced
_VERSION: Final = 1
_SHAPE: Final = {
    "way": str,
    "costs": {str: {"inside": NUMBER, "outside": NUMBER, "draws": [NUMBER]}},
    "silent": {str: NUMBER},
    "program": str,
    "made_by": {str: str},
    "measured": int,
}
_AGAIN: Final = "calibrate this program anew: `timerl scope calibrate script.py ...`."


@dataclass(frozen=True)
class Cost:
    """What one call or annotation costs, in nanoseconds.

    Attributes:
        inside: between its two edges, so that it lies in the callee's time.
        outside: ahead of the first and behind the second one, in the caller's.
        draws: the sum of both, as other samples of the same measurement would have it; all costs of a calibration
            have as many, which belong together.
    """

    inside: float
    outside: float
    draws: tuple[float, ...] = ()

    @property
    def total(self) -> float:
        """Both parts."""
        return self.inside + self.outside


@dataclass(frozen=True)
class Calibration:
    """What recording costs a program.

    Attributes:
        way: how it was found.
        costs: by kind: `call`, `annotation`, `API: name` of a call of a device's interface.
        silent: of calls and annotations the same in blocks that are silent.
        program: its command; "" of any.
        made_by: the recorder, Python, the machine and versions of libraries; empty of any.
        measured: how many blocks or runs it is from.
    """

    way: str
    costs: Mapping[str, Cost]
    silent: Mapping[str, float] = field(default_factory=dict)
    program: str = ""
    made_by: Mapping[str, str] = field(default_factory=dict)
    measured: int = 0

    def __post_init__(self) -> None:
        how = "Calibration.load(path) reads one, and `timerl scope calibrate` measures it."
        expect_type(self.costs, Mapping, "a mapping of costs", how)
        for kind, cost in self.costs.items():
            expect_type(cost, Cost, "a cost", "trl.scope.Cost(…).")
            if min(cost.inside, cost.outside) < 0 or not math.isfinite(cost.total):
                raise ExecutionError(
                    f"a calibration says that {kind!r} costs {cost.total:,.0f} ns, which cannot be.",
                    hint="calibrate anew, on a machine that does less meanwhile.",
                )

    def check(self, recording: Lanes) -> None:
        """Say that this is of a recording.

        Raises:
            ExecutionError: it is of another program, recorder, machine or other versions.
        """
        for process in recording.processes[:1]:
            if self.program and process.command != self.program:
                raise ExecutionError(
                    f"the calibration is of another program: {self.program}, and not {process.command}.",
                    hint=f"what recording costs differs between programs by several times; {_AGAIN}",
                )
            tracers = ", ".join(sorted({one.tracer for one in recording.devices.traced_windows}))
            made_by = {**process.made_by, **({TRACER: tracers} if tracers else {})}
            for what in sorted({*self.made_by} & {*made_by}):
                here, there = made_by[what], self.made_by[what]
                if here != there:
                    raise ExecutionError(
                        f"the calibration is of another {what}: {there}, and not {here}.",
                        hint=_AGAIN,
                    )

    def __add__(self, other: Calibration) -> Calibration:
        """Costs of both: such as of taps, and of a tracer of devices.

        Raises:
            ExecutionError: both have costs of the same kind, or they are of different things.
        """
        if both := {*self.costs} & {*other.costs}:
            raise ExecutionError(
                f"two calibrations say what {min(both)!r} costs.", hint="give one of them."
            )
        apart = [
            x for x in {*self.made_by} & {*other.made_by} if self.made_by[x] != other.made_by[x]
        ]
        if apart or (self.program and other.program and self.program != other.program):
            raise ExecutionError(
                f"two calibrations are of different {min(apart, default='programs')}.", hint=_AGAIN
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
        """Write it to a file, which `Calibration.load` reads.

        Raises:
            ExecutionError: the file cannot be written.
        """
        content = json.dumps({"version": _VERSION, **asdict(self)}, indent=1).encode()
        with explain_os_errors(f"{path} cannot be written", hint="name another file."):
            write_whole(user_path(path), content)
        return user_path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read what `save` has written.

        Raises:
            ExecutionError: the file holds no calibration, one of another version, or one that cannot be.
        """
        try:
            found = of_version(
                parse_json(read_regular(user_path(path), LONGEST_TEXT)), (_VERSION,), _SHAPE, path
            )
        except (OSError, ValueError) as error:
            raise ExecutionError(
                f"{path} holds no calibration: {cause(error)}.", hint=_AGAIN
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
    """The middle 95 % of some draws."""
    ordered = sorted(draws)
    cut = int(0.025 * len(ordered))
    return ordered[cut], ordered[-1 - cut]
