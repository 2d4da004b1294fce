"""The memory of a turn: which tensor holds how many bytes at every instant, and until when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from timerl_nb.compilation import device_limit
from timerl_nb.ir.ops import Op
from timerl_nb.memory.lifetimes import Tensor
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.memory.timeline import Away, Holder, Span
from timerl_nb.program import Program
from timerl_nb.schedule.clock import Clock
from timerl_nb.show.pictures import bytes_picture, largest
from timerl_nb.show.turn import LIMIT, Turn, first_instants, last_instants
from timerl_nb.show.view import Array, View, amounts, ints


@dataclass(frozen=True, eq=False)
class Life:
    """The values of tensors that live and die together, those that live during the turn.

    Attributes:
        born, dies: int32 (n,), the first and last instant of each value; -1 where it is born before
            the turn, the number of instants where it outlives it.
        reader: int32 (n,), which of the view's `readers` reads it last; -1 where it stays to the end.
        points: int32 (n, dimensions).
        offloads, fetches: int32 (m,), the instants at which values leave for the host, and return.
        moved: bytes of one such value.
    """

    name: str
    domain: tuple[str, ...]
    born: Array
    dies: Array
    reader: Array
    points: Array
    offloads: Array
    fetches: Array
    moved: int


@dataclass(frozen=True, eq=False)
class Held:
    """What one tensor holds during a turn.

    Attributes:
        op_ids: the operation that computes it, and the statement that makes it.
        life: which of the view's lives.
        value_bytes: bytes of one value (or block).
        held: int32 (instants,), how many of them are on the device at each instant.
    """

    tensor: Tensor
    name: str
    op_ids: tuple[int, ...]
    life: int
    store: str
    value_bytes: int
    held: Array

    @property
    def bytes(self) -> Array:
        """Live bytes on the device at each instant, float64 (instants,)."""
        return amounts(self.held.astype(np.float64) * self.value_bytes)


@dataclass(frozen=True, eq=False)
class MemoryView(View):
    """Predicted live bytes at every instant of a turn, by tensor.

    JSON: `{"view": "memory", "turn": {…}, "tensors": [{"tensor": [op_id, output], "name", "op_ids",
    "life", "store", "value_bytes", "held": [], "last_read_by": [op_id]}], "lives": [{"name",
    "domain", "born": [], "dies": [], "reader": [], "points": [[]], "offloads": [], "fetches": [],
    "moved"}], "readers": [{"op_id", "name"}], "bytes": [], "host": [], "gathered": [], "peak":
    {"bytes", "instant", "holders": [{"name", "bytes", "values"}]}, "program_peak": {"bytes", "time",
    "moment", "holders"}, "host_peak", "budget"}`. A tensor's bytes at an instant are `held` times
    `value_bytes`; `bytes` are those of all tensors and of the operands that are gathered meanwhile.
    The peak is the turn's, `program_peak` that of the whole run under the program's bounds.
    """

    turn: Turn
    tensors: tuple[Held, ...]
    lives: tuple[Life, ...]
    readers: tuple[Op, ...]
    bytes: Array
    host: Array
    gathered: Array
    budget: int | None

    @classmethod
    def of(
        cls,
        program: Program,
        dim: str | None = None,
        fixed: Mapping[str, int] | None = None,
        limit: int | None = LIMIT,
    ) -> MemoryView:
        """The memory of a turn; the arguments are those of `Turn.of`."""
        return cls.of_turn(Turn.of(program, dim, fixed, limit))

    @classmethod
    def of_turn(cls, turn: Turn) -> MemoryView:
        plan = turn.plan
        line = plan.timeline()
        readers = tuple(plan.constraints.ops[name] for name in plan.clock.ranks)
        who = _who(plan.clock)
        pairs = list(zip(plan.lifetimes.values(), line.spans, strict=True))
        tensors: list[Held] = []
        lives: list[Life] = []
        for k, (life, span) in enumerate(pairs):
            lives.append(_life(turn, life.name, life.domain, span, who))
            count = _held(turn, span.born, span.dies)
            away = sum((_away(turn, one) for one in span.away), np.zeros(len(turn), np.int64))
            whole = zip(life.tensors, span.tensors, span.moves, strict=True)
            for tensor, (name, nbytes), moves in whole:
                here = ints(count - away * moves)
                ids = tuple(dict.fromkeys((plan.behind(*tensor).id, tensor[0])))
                stored = turn.program.memory.stores[tensor].shape
                tensors.append(Held(tensor, name, ids, k, stored, nbytes, here))
        at = turn.ranks
        return cls(
            turn,
            tuple(tensors),
            tuple(lives),
            readers,
            amounts(line.bytes[at]),
            amounts(line.host[at]),
            amounts(line.transient[at]),
            device_limit(turn.program.options),
        )

    @property
    def plan(self) -> MemoryPlan:
        """The program's own plan."""
        return self.turn.program.memory

    @cached_property
    def peak_instant(self) -> int:
        """The instant at which most is live."""
        return int(self.bytes.argmax()) if len(self.bytes) else 0

    def live_at(self, instant: int) -> dict[str, int]:
        """The tensors that hold something at an instant, and how many bytes, the largest first."""
        found = {t.name: int(t.held[instant]) * t.value_bytes for t in self.tensors}
        return {n: b for n, b in sorted(found.items(), key=lambda item: (-item[1], item[0])) if b}

    def values_at(self, instant: int) -> dict[str, list[dict[str, int]]]:
        """The points whose values live at an instant, on the device or the host, by tensor."""
        found: dict[str, list[dict[str, int]]] = {}
        for t in self.tensors:
            life = self.lives[t.life]
            (rows,) = np.nonzero((life.born <= instant) & (life.dies >= instant))
            if len(rows):
                points = life.points[rows].tolist()
                found[t.name] = [dict(zip(life.domain, p, strict=True)) for p in points]
        return found

    def last_read_by(self, tensor: Held) -> tuple[Op, ...]:
        """The statements that read values of a tensor for the last time."""
        numbers = np.unique(self.lives[tensor.life].reader)
        return tuple(self.readers[k] for k in numbers if k >= 0)

    def values(self) -> dict[str, Any]:
        line, names = self.plan.timeline(), self.turn.program.schedule.names
        k = self.peak_instant
        live = self.live_at(k) if len(self.bytes) else {}
        count = {t.name: int(t.held[k]) for t in self.tensors} if live else {}
        return {
            "view": "memory",
            "turn": self.turn.json(),
            "tensors": [
                {
                    "tensor": list(t.tensor),
                    "name": t.name,
                    "op_ids": list(t.op_ids),
                    "life": t.life,
                    "store": t.store,
                    "value_bytes": t.value_bytes,
                    "held": t.held,
                    "last_read_by": [op.id for op in self.last_read_by(t)],
                }
                for t in self.tensors
            ],
            "lives": [
                {
                    "name": one.name,
                    "domain": list(one.domain),
                    "born": one.born,
                    "dies": one.dies,
                    "reader": one.reader,
                    "points": one.points,
                    "offloads": one.offloads,
                    "fetches": one.fetches,
                    "moved": one.moved,
                }
                for one in self.lives
            ],
            "readers": [{"op_id": op.id, "name": names[op.id]} for op in self.readers],
            "bytes": self.bytes,
            "host": self.host,
            "gathered": self.gathered,
            "peak": {
                "bytes": int(self.bytes.max(initial=0)),
                "instant": k,
                "holders": [
                    {"name": name, "bytes": held, "values": count[name]}
                    for name, held in live.items()
                ],
            },
            "program_peak": {
                "bytes": line.peak,
                "time": line.peak_time,
                "moment": self.plan.moment(line.peak_time) if len(line.time) else "",
                "holders": [_holder(h) for h in line.holders],
            },
            "host_peak": line.host_peak,
            "budget": self.budget,
        }

    def __str__(self) -> str:
        held = sorted(self.tensors, key=lambda t: (-float(t.bytes.max(initial=0)), t.name))
        peak = int(self.bytes.max(initial=0))
        lines = [f"memory of a turn: {len(self.turn)} instants, peak {peak:,} bytes"]
        for t in held:
            read = ", ".join(self.turn.program.schedule.names[op.id] for op in self.last_read_by(t))
            most = int(t.bytes.max(initial=0))
            lines.append(f"  {t.name}: at most {most:,} bytes, last read by {read or 'nobody'}")
        return "\n".join(lines)

    def to_svg(self) -> str:
        return self.picture()

    @property
    def series(self) -> list[tuple[str, Array]]:
        """What is drawn: the largest tensors' bytes by name, the rest as one, and what is gathered."""
        return largest({t.name: t.bytes for t in self.tensors}, self.gathered, 7)

    def picture(
        self, time: int = 0, highest: int = 0, colours: Mapping[str, int] | None = None
    ) -> str:
        """The view as SVG.

        Args:
            time, highest: where the axes end at least, in instants and bytes.
            colours: numbers of tensors' colours, by name.
        """
        turn = self.turn
        at = ", ".join(f"{d} = {value}" for d, value in turn.fixed.items())
        drawn = ", ".join(f"{name} = {turn.bounds[name]}" for name in turn.reduced)
        note = "; ".join([f"at {at}"] * bool(at) + [f"drawn for {drawn}"] * bool(drawn))
        peak = int(self.bytes.max(initial=0))
        return bytes_picture(
            self.series,
            self.bytes,
            peak,
            note=note,
            budget=self.budget,
            until=time,
            highest=highest,
            colours=colours,
        )


def _holder(holder: Holder) -> dict[str, Any]:
    return {"name": holder.tensor, "bytes": holder.nbytes, "values": holder.points}


def _who(clock: Clock) -> Array:
    """For every place in the order of all points, the number of the statement that runs there."""
    found = np.full(len(clock), -1, np.int32)
    for k, ranks in enumerate(clock.ranks.values()):
        found[ranks] = k
    return found


def _held(turn: Turn, born: Array, dies: Array) -> Array:
    """How many of what lasts from `born` to `dies`, both included, there are at every instant."""
    begun = np.searchsorted(np.sort(born), turn.ranks, side="right")
    return begun - np.searchsorted(np.sort(dies), turn.ranks, side="left")


def _away(turn: Turn, away: Away) -> Array:
    """How many values are on the host alone at every instant."""
    return _held(turn, away.gone, np.maximum(away.gone, away.back) - 1)


def _life(turn: Turn, name: str, domain: tuple[str, ...], span: Span, who: Array) -> Life:
    here = np.zeros(len(span.born), bool)
    if len(turn):
        here = (span.born <= turn.ranks[-1]) & (span.dies >= turn.ranks[0])
    last = span.last[here]
    ends = len(who)
    reader = np.where(last < ends, who[np.minimum(last, ends - 1)], -1) if ends else last
    leave = [first_instants(turn, one.gone[one.back > one.gone]) for one in span.away]
    back = [first_instants(turn, one.back[one.back > one.gone]) for one in span.away]
    return Life(
        name,
        domain,
        first_instants(turn, span.born[here]),
        last_instants(turn, span.dies[here]),
        ints(reader),
        ints(span.points[here]),
        _within(turn, leave),
        _within(turn, back),
        sum(nbytes for (_, nbytes), moves in zip(span.tensors, span.moves, strict=True) if moves),
    )


def _within(turn: Turn, instants: list[Array]) -> Array:
    """The instants that are in the turn, in order."""
    if not instants:
        return ints([])
    found = np.sort(np.concatenate(instants))
    return ints(found[(found >= 0) & (found < len(turn))])
