"""A run as a view-model: its last frame, with the histories that charts need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from timerl_nb.frames import Frame, Held
from timerl_nb.program import Program
from timerl_nb.show.svg import FAINT, SERIES, Axes, Svg, human_bytes
from timerl_nb.show.turn import Turn
from timerl_nb.show.view import Array, View, amounts, ints

MOST: Final = 600  # points of a chart; a screen has not more columns
_WIDE, _HIGH = 330, 236
_DASHES = ("", "6 3", "2 3", "10 4 2 4")

Line = tuple[str, Array, Array]  # name, across, up


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

    def values(self) -> dict[str, Any]:
        return {
            "turn": self.turn,
            "first": self.first,
            "last": self.last,
            "bytes": self.bytes,
            "reason": self.reason,
        }

    @property
    def instants(self) -> int:
        """How many instants something is known of."""
        return int((self.last - self.first).sum())


class Turns:
    """Finds what a run held in its turns, in the instants of the one that is drawn of its program."""

    def __init__(self, program: Program) -> None:
        turn, line = Turn.of(program), program.memory.timeline()
        self._size, self._starts = len(turn), dict[int, int]()
        self._found: dict[int, TurnBytes] = {}
        self.reason = _unlike(turn, line.outer)
        if not self.reason:
            (begins,) = np.nonzero(np.diff(line.turn, prepend=-2))
            self._starts = {int(line.turn[k]): int(k) for k in begins if line.turn[k] >= 0}

    def after(self, held: Held) -> TurnBytes:
        """The latest turn that is known to its end, or else the one that goes on."""
        known = {v: self._with(held, v) for v in self._touched(held)}
        if known:
            kept = {v: one for v, one in self._found.items() if v == min(known) - 1}
            self._found = {**kept, **known}
        whole = [one for one in self._found.values() if one.instants == self._size]
        shown = whole or list(self._found.values())
        return shown[-1] if shown else TurnBytes(-1, ints([]), ints([]), amounts([]), self.reason)

    def _touched(self, held: Held) -> list[int]:
        """The last two turns that some points of a frame belong to."""
        if not len(held.bytes):
            return []
        inside = [
            value
            for value, start in self._starts.items()
            if start < held.last and start + self._size > held.first
        ]
        return sorted(inside)[-2:]

    def _with(self, held: Held, value: int) -> TurnBytes:
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


_PARTS = ("first", "last", "bytes")


def _unlike(turn: Turn, outer: str | None) -> str:
    """Why instants of a drawn turn are not points of a run; nothing where they are."""
    if turn.reduced:
        drawn = ", ".join(f"{name} = {turn.bounds[name]}" for name in turn.reduced)
        return f"drawn for {drawn}: a run is on another scale, see its own chart"
    if outer is None or outer not in turn.fixed or not len(turn):
        return "a run is not made of such turns, see its own chart"
    if int(turn.ranks[-1] - turn.ranks[0]) + 1 != len(turn):
        return "turns of a run overlap, see its own chart"
    return ""


@dataclass(frozen=True, eq=False)
class RunView(View):
    """A run's last frame, and what its charts show.

    Attributes:
        predicted_peak: bytes.
        held: of the last frame that brought executed points.
        predicted: float64, the most that was predicted in each part of `held`.
        load: float64 (frames, 3): elapsed seconds, the busy fraction of the device, that of the host.
        over: what was held in a turn; see `TurnBytes`.
    """

    frame: Frame
    predicted_peak: int
    held: Held
    predicted: Array
    load: Array
    over: TurnBytes

    def values(self) -> dict[str, Any]:
        frame, held = self.frame, self.frame.held
        return {
            "view": "run",
            "state": frame.state,
            "turn": frame.turn,
            "turns": frame.turns,
            "elapsed": frame.elapsed,
            "turns_per_second": frame.turns_per_second,
            "steps_per_second": frame.steps_per_second,
            "busy": frame.busy,
            "cpu": frame.process.cpu,
            "cores": frame.process.cores,
            "resident": frame.process.resident,
            "live": held.live,
            "peak": held.peak,
            "source": held.source,
            "predicted_peak": self.predicted_peak,
            "devices": [device.to_json() for device in frame.devices],
            "error": frame.error,
            "curves": [
                {
                    "name": name,
                    "at": amounts(thinned(c.at)),
                    "values": amounts(thinned(c.values)),
                    "late": c.is_late,
                }
                for name, c in frame.curves.items()
            ],
            "held": {
                "first": self.held.first,
                "last": self.held.last,
                "bytes": amounts(self.held.bytes),
                "predicted": amounts(self.predicted),
            },
            "load": {
                "at": amounts(self.load[:, 0]),
                "busy": amounts(self.load[:, 1]),
                "host": amounts(self.load[:, 2]),
            },
            "over": self.over.values(),
        }

    def __str__(self) -> str:
        frame = self.frame
        turns = f"{frame.turn}" if frame.turns is None else f"{frame.turn} of {frame.turns}"
        peak = f"peak {human_bytes(frame.held.peak)} {frame.held.source}"
        last = [f"{n} {c.values[-1]:.4g}" for n, c in frame.curves.items() if len(c)]
        return ", ".join([f"{frame.state} after turn {turns}, {frame.elapsed:.1f} s", peak, *last])

    def to_svg(self) -> str:
        """Learning curves, live bytes over what was predicted, and the load, side by side."""
        svg = Svg(3 * _WIDE, _HIGH, str(self))
        curves = [(n, thinned(c.at), thinned(c.values)) for n, c in self.frame.curves.items()]
        held = self.held
        part = (held.last - held.first) / max(len(held.bytes), 1)
        at = held.first + (np.arange(len(held.bytes)) + 0.5) * part
        measured = "measured" if held.source == "measured" else "predicted, at measured speed"
        live = [
            ("predicted", at[: len(self.predicted)], self.predicted),
            (measured, at, held.bytes),
        ]
        seconds = self.load[:, 0]
        load = [("kernels", seconds, self.load[:, 1]), ("host cores", seconds, self.load[:, 2])]
        _chart(svg, 0, curves, "turn", "outputs")
        _chart(svg, 1, live, "executed point", "live bytes", least=1.0, as_bytes=True)
        _chart(svg, 2, load, "seconds", "busy", least=1.0)
        svg.text(12, _HIGH - 10, str(self), size=11)
        return str(svg)


def _chart(
    svg: Svg,
    column: int,
    lines: Sequence[Line],
    across: str,
    title: str,
    *,
    least: float | None = None,
    as_bytes: bool = False,
) -> None:
    """One of three charts; amounts start at zero, and end at `least` at the least."""
    finite = [(name, x[np.isfinite(y)], y[np.isfinite(y)]) for name, x, y in lines]
    known = [line for line in finite if len(line[1])]
    xs = np.concatenate([x for _, x, _ in known]) if known else np.zeros(1)
    ys = np.concatenate([y for _, _, y in known]) if known else np.zeros(1)
    low, high = float(ys.min()), float(ys.max())
    if least is not None:
        low, high = 0.0, max(high * 1.05, least)
    box = (column * _WIDE + 66.0, 26.0, _WIDE - 84.0, _HIGH - 110.0)
    axes = Axes(svg, box, (float(xs.min()), float(xs.max())), (low, high))
    for k, (name, x, y) in enumerate(known):
        look = f'stroke="{SERIES[k % len(SERIES)]}" stroke-dasharray="{_DASHES[k % len(_DASHES)]}"'
        points = " ".join(f"{axes.px(a):.1f},{axes.py(b):.1f}" for a, b in zip(x, y, strict=True))
        svg.add(f'<polyline points="{points}" fill="none" stroke-width="1.6" {look}/>')
        if len(x) == 1:
            svg.rect(axes.px(x[0]) - 2, axes.py(y[0]) - 2, 4, 4, SERIES[k % len(SERIES)])
        left = box[0] + k * 100
        svg.add(
            f'<line x1="{left}" x2="{left + 18}" y1="{_HIGH - 35}" y2="{_HIGH - 35}" '
            f'stroke-width="1.6" {look}/>'
        )
        svg.text(left + 22, _HIGH - 31, name, size=10)
    axes.frame(across, title, as_bytes=as_bytes)
    if not known:
        svg.text(
            box[0] + box[2] / 2, box[1] + box[3] / 2, "nothing yet", anchor="middle", fill=FAINT
        )


def thinned(values: Array) -> Array:
    """At most `MOST` of some values, evenly; the last always."""
    if len(values) <= MOST:
        return values
    return values[np.linspace(0, len(values) - 1, MOST).astype(int)]
