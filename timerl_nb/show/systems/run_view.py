"""View-model of a run: its last frame, and the data of its charts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.text_formatting import format_bytes
from timerl_nb.driver.program import Program
from timerl_nb.execution.telemetry.live_view_frames import (
    Curve,
    Frame,
    MeasuredBytes,
    compiling_text,
)
from timerl_nb.show.memory.store_view import Amount
from timerl_nb.show.schedule.points_of_one_iteration import Turn
from timerl_nb.show.view_model import View, amounts, ints

MOST: Final = 600  # points per chart, about one per screen column


@dataclass(frozen=True, eq=False)
class TurnBytes:
    """Live bytes of a run during one iteration of its outermost loop, by the instants of a `Turn`.

    Attributes:
        turn: the value of the outermost dimension; -1 without data.
        first, last: int32 (n,), ranges of instants; `last` is exclusive.
        bytes: float64 (n,), the maximum in each range.
        reason: why there is no data, else "".
    """

    turn: int
    first: Array
    last: Array
    bytes: Array
    reason: str = ""

    @property
    def instants(self) -> int:
        """The number of instants with data."""
        return int((self.last - self.first).sum())


def nothing(reason: str) -> TurnBytes:
    """Return an empty result with a reason."""
    return TurnBytes(-1, ints([]), ints([]), amounts([]), reason)


class Turns:
    """Maps the live bytes of a run to the instants of the iteration that the memory view draws."""

    def __init__(self, program: Program) -> None:
        turn, plan = Turn.from_program(program), program.memory
        line = plan.point_by_point
        self._size, self._starts = len(turn), dict[int, int]()
        self._found: dict[int, TurnBytes] = {}
        self.reason = _unlike(turn, line.outer) or ("" if plan.fold is None else _LONG)
        if not self.reason:
            (begins,) = np.nonzero(np.diff(line.turn, prepend=-2))
            self._starts = {int(line.turn[k]): int(k) for k in begins if line.turn[k] >= 0}

    def latest_complete(self, held: MeasuredBytes | None) -> TurnBytes:
        """Return the latest iteration with complete data, else the current one."""
        if held is None:
            return nothing(self.reason or _UNSEEN)
        known = {v: self._merge_frame(held, v) for v in self._latest_iterations(held)}
        if known:
            kept = {v: one for v, one in self._found.items() if v == min(known) - 1}
            self._found = {**kept, **known}
        whole = [one for one in self._found.values() if one.instants == self._size]
        shown = whole or list(self._found.values())
        return shown[-1] if shown else nothing(self.reason)

    def _latest_iterations(self, held: MeasuredBytes) -> list[int]:
        """Return the last two iterations with points in a frame."""
        if not len(held.bytes):
            return []
        inside = [
            value
            for value, start in self._starts.items()
            if start < held.last and start + self._size > held.first
        ]
        return sorted(inside)[-2:]

    def _merge_frame(self, held: MeasuredBytes, value: int) -> TurnBytes:
        start = self._starts[value]
        edges = np.linspace(held.first, held.last, len(held.bytes) + 1).astype(int)
        first = np.maximum(edges[:-1] - start, 0)
        last = np.minimum(edges[1:] - start, self._size)
        new = TurnBytes(value, ints(first), ints(last), amounts(held.bytes))
        before = self._found.get(value)
        parts = [one for one in (before, new) if one is not None]
        every = [np.concatenate([getattr(one, n) for one in parts]) for n in _PARTS]
        keep = every[0] < every[1]
        first, last, nbytes = (one[keep] for one in every)
        return TurnBytes(value, ints(first), ints(last), amounts(nbytes))


_LONG: Final = "single turns of a long run are not measured; see the chart of the whole run"
_UNSEEN: Final = "XLA runs are measured as a whole; see the chart of the whole run"
_PARTS = ("first", "last", "bytes")


def _unlike(turn: Turn, outer: str | None) -> str:
    """Return why the instants of a turn do not correspond to points of a run; "" if they do."""
    if outer is None or outer not in turn.fixed or not len(turn):
        return "the turn that is drawn is not one of the run; see the chart of the whole run"
    if int(turn.ranks[-1] - turn.ranks[0]) + 1 != len(turn):
        return "the turns of the run overlap; see the chart of the whole run"
    return ""


@dataclass(frozen=True, eq=False)
class LiveBytes:
    """Live bytes in equal ranges of the executed points since the previous frame, measured and predicted."""

    first: int
    last: int
    bytes: Array
    predicted: Array


@dataclass(frozen=True, eq=False)
class Load:
    """Utilisation over elapsed seconds: device busy fraction, host core fraction, resident bytes of the process,
    and bytes of its arrays on the device.
    """

    at: Array
    busy: Array
    host: Array
    resident: Array
    on_device: Array


@dataclass(frozen=True, eq=False)
class EarlierRun:
    """Curves of an earlier run, by the names of their outputs."""

    name: str
    curves: Mapping[str, Curve]


@dataclass(frozen=True, eq=False)
class RunView(View):
    """Last frame of a run with the data of its charts.

    Attributes:
        frame: the frame, with at most 600 points per curve.
        predicted_peak: the predicted peak in bytes.
        held: live bytes of the last frame with executed points; None if XLA runs the loop nest.
        load: utilisation over time.
        over: live bytes during one iteration.
        amounts: measured sizes of the program's memory, and sizes reported by XLA.
        earlier: the runs before it in the same widget, the last one last.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> trl.show.RunView.view
        'run'
    """

    view = "run"

    frame: Frame
    predicted_peak: int
    held: LiveBytes | None
    load: Load
    over: TurnBytes
    amounts: tuple[Amount, ...]
    earlier: tuple[EarlierRun, ...] = ()

    def __str__(self) -> str:
        frame = self.frame
        turns = f"{frame.turn}" if frame.turns is None else f"{frame.turn} of {frame.turns}"
        parts = [f"{frame.state} after turn {turns}, {frame.elapsed:.1f} s"]
        parts += (
            []
            if frame.compiling is None
            else [compiling_text(frame.compiling, frame.compiling_part)]
        )
        parts += [] if frame.held is None else [f"peak {format_bytes(frame.held.peak)} measured"]
        last = [f"{n} {c.values[-1]:.4g}" for n, c in frame.curves.items() if len(c)]
        others = [f"{name} {text}" for name, text in frame.outputs.items()]
        return ", ".join([*parts, *last, *others])


def downsample_curve(curve: Curve, most: int = MOST) -> Curve:
    """Return at most `most` evenly spaced points of a curve, including the last one."""
    count = len(curve)
    keep = np.linspace(0, count - 1, min(count, most)).astype(int)
    return replace(curve, at=amounts(curve.at[keep]), values=amounts(curve.values[keep]))
