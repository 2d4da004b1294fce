"""A run as a view-model: its last frame, with the histories that charts need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.text_formatting import format_bytes
from timerl_nb.driver.program import Program
from timerl_nb.execution.telemetry.live_view_frames import Curve, Frame, Held, compiling_text
from timerl_nb.show.memory.store_view import Amount
from timerl_nb.show.schedule.points_of_one_iteration import Turn
from timerl_nb.show.view_model import View, amounts, ints

MOST: Final = 600  # points of a chart; a screen has not more columns


@dataclass(frozen=True, eq=False)
class TurnBytes:
    """What a run held during one turn of its outermost loop, by the instants of a `Turn`.

    Attributes:
        turn: the value of the outermost dimension; -1 where nothing can be said.
        first, last: int32 (n,), instants, `last` not included.
        bytes: float64 (n,), the most that was live meanwhile.
        reason: why nothing can be said; empty where it can.
    """

    turn: int
    first: Array
    last: Array
    bytes: Array
    reason: str = ""

    @property
    def instants(self) -> int:
        """How many instants something is known of."""
        return int((self.last - self.first).sum())


def nothing(reason: str) -> TurnBytes:
    """Of no turn, and why."""
    return TurnBytes(-1, ints([]), ints([]), amounts([]), reason)


class Turns:
    """Finds what a run held in its turns, in the instants of the one that is drawn of its program."""

    def __init__(self, program: Program) -> None:
        turn, plan = Turn.from_program(program), program.memory
        line = plan.point_by_point
        self._size, self._starts = len(turn), dict[int, int]()
        self._found: dict[int, TurnBytes] = {}
        self.reason = _unlike(turn, line.outer) or ("" if plan.fold is None else _LONG)
        if not self.reason:
            (begins,) = np.nonzero(np.diff(line.turn, prepend=-2))
            self._starts = {int(line.turn[k]): int(k) for k in begins if line.turn[k] >= 0}

    def latest_complete(self, held: Held | None) -> TurnBytes:
        """The latest turn that is known to its end, or else the one that goes on."""
        if held is None:
            return nothing(self.reason or _UNSEEN)
        known = {v: self._merge_frame(held, v) for v in self._latest_iterations(held)}
        if known:
            kept = {v: one for v, one in self._found.items() if v == min(known) - 1}
            self._found = {**kept, **known}
        whole = [one for one in self._found.values() if one.instants == self._size]
        shown = whole or list(self._found.values())
        return shown[-1] if shown else nothing(self.reason)

    def _latest_iterations(self, held: Held) -> list[int]:
        """The last two turns that some points of a frame belong to."""
        if not len(held.bytes):
            return []
        inside = [
            value
            for value, start in self._starts.items()
            if start < held.last and start + self._size > held.first
        ]
        return sorted(inside)[-2:]

    def _merge_frame(self, held: Held, value: int) -> TurnBytes:
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


_LONG: Final = "of so long a run no single turns are measured, see its own chart"
_UNSEEN: Final = "of a run with XLA the memory is seen in whole alone, see its own chart"
_PARTS = ("first", "last", "bytes")


def _unlike(turn: Turn, outer: str | None) -> str:
    """Why instants of a drawn turn are not points of a run; nothing where they are."""
    if outer is None or outer not in turn.fixed or not len(turn):
        return "a run is not made of such turns, see its own chart"
    if int(turn.ranks[-1] - turn.ranks[0]) + 1 != len(turn):
        return "turns of a run overlap, see its own chart"
    return ""


@dataclass(frozen=True, eq=False)
class HeldBytes:
    """Live bytes in equal parts of the executed points since the frame before, and as predicted."""

    first: int
    last: int
    bytes: Array
    predicted: Array


@dataclass(frozen=True, eq=False)
class Load:
    """Over elapsed seconds: the busy fraction of the device, that of the host's cores, the bytes that
    the process occupies, and those of its arrays on the device."""

    at: Array
    busy: Array
    host: Array
    resident: Array
    on_device: Array


@dataclass(frozen=True, eq=False)
class RunView(View):
    """A run's last frame, and what its charts show.

    Attributes:
        frame: with at most `MOST` points of each curve.
        predicted_peak: bytes.
        held: of the last frame that brought executed points; None where XLA runs the nest.
        over: what was held in a turn; see `TurnBytes`.
        amounts: what was measured of the program's memory, and what XLA states of it by now.
    """

    view = "run"

    frame: Frame
    predicted_peak: int
    held: HeldBytes | None
    load: Load
    over: TurnBytes
    amounts: tuple[Amount, ...]

    def __str__(self) -> str:
        frame = self.frame
        turns = f"{frame.turn}" if frame.turns is None else f"{frame.turn} of {frame.turns}"
        parts = [f"{frame.state} after turn {turns}, {frame.elapsed:.1f} s"]
        parts += [] if frame.compiling is None else [compiling_text(frame.compiling)]
        parts += [] if frame.held is None else [f"peak {format_bytes(frame.held.peak)} measured"]
        last = [f"{n} {c.values[-1]:.4g}" for n, c in frame.curves.items() if len(c)]
        others = [f"{name} {text}" for name, text in frame.outputs.items()]
        return ", ".join([*parts, *last, *others])


def downsample_curve(curve: Curve) -> Curve:
    """At most `MOST` points of a curve, evenly; the last always."""
    count = len(curve)
    keep = np.linspace(0, count - 1, min(count, MOST)).astype(int)
    return replace(curve, at=amounts(curve.at[keep]), values=amounts(curve.values[keep]))
