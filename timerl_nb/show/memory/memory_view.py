"""View-model of the memory during a turn: live bytes by tensor at every instant, and lifetimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.memory_timeline import GATHERED, Span
from timerl_nb.compiler.memory.steady_state.extrapolated_plan import FoldedPlan
from timerl_nb.driver.program import Program
from timerl_nb.show.colours import Numbers, of_tensors, tensor_colour
from timerl_nb.show.memory.store_view import readers as readers_of
from timerl_nb.show.memory.whole_run_memory import WholeRun
from timerl_nb.show.schedule.points_of_one_iteration import (
    EXACT,
    Turn,
    first_instants,
    last_instants,
)
from timerl_nb.show.view_model import View, amounts, ints, shown


@dataclass(frozen=True, eq=False)
class TensorLiveRanges:
    """Live ranges of tensors with a common lifetime, limited to values that are live during the turn.

    If there are very many, or a column covers several instants, only the oldest values of each column are
    included.

    Attributes:
        born, dies: int32 (n,), the first and last instant of each value; -1 if it is older than the turn, the
            number of instants if it outlives the turn.
        reader: int32 (n,), index of the last reader in the view's `readers`; -1 if the value is kept to the
            end.
        points: int32 (n, dimensions).
        offloads, fetches: int32 (m,), the instants of transfers to the host and back.
        moved: the bytes of one transferred value.
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
class LiveTensor:
    """Memory of one tensor during a turn.

    Attributes:
        op_ids: the operation that computes it, and its statement.
        read_by: the statements that read it.
        life: index into the view's lives.
        why: the reason for the kind of `store`.
        place, line: the user's line that computes it, such as `train.py:12`, and the text of that line.
        last_read_by: the statements that read its values last.
        value_bytes: the bytes of one value (or block).
        held: int32 (columns,), the number of values on the device.
    """

    tensor: Tensor
    name: str
    op_ids: tuple[int, ...]
    read_by: tuple[int, ...]
    colour: str
    life: int
    store: str
    why: str
    place: str
    line: str
    value_bytes: int
    held: Array
    last_read_by: tuple[int, ...]

    @property
    def bytes(self) -> Array:
        """Live bytes on the device, float64 (columns,)."""
        return amounts(self.held.astype(np.float64) * self.value_bytes)


@dataclass(frozen=True)
class Reader:
    """Statement that may be the last reader of a value."""

    op_id: int
    name: str


@dataclass(frozen=True)
class LiveTensorAt:
    """Bytes and number of live values of a tensor."""

    name: str
    bytes: int
    values: int


@dataclass(frozen=True)
class Peak:
    """Peak of a turn, its instant, and the live tensors."""

    bytes: int
    instant: int
    holders: tuple[LiveTensorAt, ...]


@dataclass(frozen=True)
class ProgramPeak:
    """Peak of a run: its executed point, and the point in words."""

    bytes: int
    time: int
    moment: str
    holders: tuple[LiveTensorAt, ...]


@dataclass(frozen=True, eq=False)
class MemoryView(View):
    """Predicted live bytes at every instant of a turn, by tensor.

    A column is one instant. In a turn with many instants, a column covers several from `first` on, and shows
    the instant `at` with the most live bytes. A tensor's bytes in a column are `held` times `value_bytes`;
    `bytes` is the sum over tensors, plus operands that are being gathered. `run` is the whole run if it is
    longer than the turn.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> trl.show.MemoryView.from_program(program).peak.bytes
        32
    """

    view = "memory"

    turn: Turn
    first: Array
    at: Array
    tensors: tuple[LiveTensor, ...]
    lives: tuple[TensorLiveRanges, ...]
    readers: tuple[Reader, ...]
    bytes: Array
    host: Array
    gathered: Array
    budget: int | None
    run: WholeRun | None

    @classmethod
    def from_program(
        cls,
        program: Program,
        dim: str | None = None,
        fixed: Mapping[str, int] | None = None,
    ) -> MemoryView:
        """Return the memory of a turn; the arguments are those of `Turn.from_program`."""
        return cls.of_turn(Turn.from_program(program, dim, fixed))

    @classmethod
    def of_turn(cls, turn: Turn, colours: Numbers | None = None) -> MemoryView:
        """Return the memory of a turn.

        Args:
            turn: the turn, with a memory plan.
            colours: numbers by tensor name; by default those of the program.
        """
        plan = turn.plan
        assert plan is not None
        colours = colours or of_tensors(plan)
        line, exactly = plan.timeline(), plan.point_by_point
        first, at = turn.columns(line.bytes_at(turn.ranks))
        shown = turn.ranks[at]
        # in a long run, the enumerated turns determine the number of live values in all others
        known = line.held_at(shown) if isinstance(plan, FoldedPlan) else None
        ops, names = plan.statements.ops, turn.schedule.names
        readers = tuple(Reader(ops[n].id, names[ops[n].id]) for n in plan.clock.ranks)
        who = _who(plan)
        users = readers_of(plan)
        tensors: list[LiveTensor] = []
        lives: list[TensorLiveRanges] = []
        spans = _spans(turn, EXACT if len(at) == len(turn) else 0)
        pairs = zip(plan.lifetimes.values(), spans, strict=True) if len(turn) else ()
        for k, (life, span) in enumerate(pairs):
            lives.append(_life(turn, life.name, life.domain, span, who, at))
            last = tuple(readers[n].op_id for n in np.unique(lives[k].reader) if n >= 0)
            count = _count_live(shown, span.birth_times, span.dies)
            away = np.zeros(len(shown), np.int64)  # values that are only on the host
            for one in span.away:
                away += _count_live(shown, one.gone, np.maximum(one.gone, one.back) - 1)
            whole = zip(life.tensors, span.tensors, span.moves, strict=True)
            for tensor, (name, _), moves in whole:
                nbytes, origin = plan.value_bytes[tensor], plan.origin(tensor)
                held = count - away * moves if known is None else known[name] // max(nbytes, 1)
                tensors.append(
                    LiveTensor(
                        tensor,
                        name,
                        tuple(dict.fromkeys((plan.computing_operation(*tensor).id, tensor[0]))),
                        users.get(tensor, ()),
                        tensor_colour(colours[name]),
                        k,
                        plan.stores[tensor].shape,
                        plan.stores[tensor].why,
                        origin.place,
                        origin.text,
                        nbytes,
                        ints(held),
                        last,
                    )
                )
        return cls(
            turn,
            first,
            at,
            tuple(tensors),
            tuple(lives),
            readers,
            amounts(line.bytes_at(shown)),
            amounts(exactly.host[shown] if known is None else np.zeros(len(shown))),
            amounts(exactly.transient[shown] if known is None else known[GATHERED]),
            turn.budget,
            WholeRun.from_plan(plan, turn.ranks),
        )

    @property
    def plan(self) -> MemoryPlan:
        """The memory plan of the program."""
        assert self.turn.plan is not None
        return self.turn.plan

    def column(self, instant: int) -> int:
        """Return the column of an instant."""
        return int(np.searchsorted(self.first, instant, side="right")) - 1

    def live_at(self, instant: int) -> dict[str, int]:
        """Return the live bytes of each tensor with live values, the largest first.

        The values are those of the instant's column; a column of several instants shows its maximum.
        """
        k = self.column(instant)
        found = {t.name: int(t.held[k]) * t.value_bytes for t in self.tensors}
        return {n: b for n, b in sorted(found.items(), key=lambda item: (-item[1], item[0])) if b}

    @shown
    def peak(self) -> Peak:
        """The peak of the turn."""
        if not len(self.at):
            return Peak(0, 0, ())
        k = int(self.bytes.argmax())
        count = {t.name: int(t.held[k]) for t in self.tensors}
        live = self.live_at(int(self.at[k]))
        holders = tuple(LiveTensorAt(name, held, count[name]) for name, held in live.items())
        return Peak(int(self.bytes[k]), int(self.at[k]), holders)

    @shown
    def program_peak(self) -> ProgramPeak:
        """The peak of the whole run under the program's bounds."""
        line = self.plan.timeline()
        moment = self.plan.moment(line.peak_time) if len(self.plan.clock) else ""
        holders = tuple(LiveTensorAt(h.tensor, h.nbytes, h.points) for h in line.holders)
        return ProgramPeak(line.peak, line.peak_time, moment, holders)

    @shown
    def saved_by(self) -> Mapping[str, str]:
        """The measures that reduce the peak of the run, and their reasons."""
        return self.plan.saved_by

    @shown
    def host_peak(self) -> int:
        return self.plan.timeline().host_peak

    def __str__(self) -> str:
        held = sorted(self.tensors, key=lambda t: (-float(t.bytes.max(initial=0)), t.name))
        peak = int(self.bytes.max(initial=0))
        told = ", ".join((f"peak {peak:,} bytes", *self.plan.saved_by))
        lines = [f"memory of a turn: {format_count(len(self.turn), 'instant')}, {told}"]
        lines += [self.turn.problem] * bool(self.turn.problem)
        names = {one.op_id: one.name for one in self.readers}
        for t in held:
            read = ", ".join(names[op_id] for op_id in t.last_read_by)
            most = int(t.bytes.max(initial=0))
            lines.append(f"  {t.name}: at most {most:,} bytes, last read by {read or 'nobody'}")
        return "\n".join(lines)


def _who(plan: MemoryPlan) -> Callable[[Array], Array]:
    """Return a function from times to the numbers of the statements that run; -1 after the last one."""
    if isinstance(plan, FoldedPlan):
        return plan.points.statements
    found = np.full(len(plan.clock) + 1, -1, np.int32)
    for k, ranks in enumerate(plan.clock.ranks.values()):
        found[ranks] = k
    return lambda times: found[times]


def _spans(turn: Turn, few: int) -> Iterator[Span]:
    """Yield the live ranges, at least those during the turn, and not many more than are drawn."""
    plan = turn.plan
    assert plan is not None
    for name, span in zip(plan.lifetimes, plan.point_by_point.spans, strict=True):
        if isinstance(plan, FoldedPlan):
            first, last = (int(turn.ranks[k]) for k in (0, -1))
            yield replace(span, lives=plan.live_ranges_between(name, first, last, few))
        else:
            yield span


def _count_live(shown: Array, born: Array, dies: Array) -> Array:
    """Return the number of ranges from `born` to `dies` (inclusive) that contain each rank."""
    begun = np.searchsorted(np.sort(born), shown, side="right")
    return begun - np.searchsorted(np.sort(dies), shown, side="left")


def _oldest(born: Array, dies: Array, shown: Array) -> Array:
    """Return the indices of the oldest values that are live at some ranks."""
    order = np.argsort(born, kind="stable")
    reach = np.maximum.accumulate(dies[order]) if len(order) else dies
    found = np.unique(np.searchsorted(reach, shown))
    return np.sort(order[found[found < len(order)]])


def _life(
    turn: Turn,
    name: str,
    domain: tuple[str, ...],
    span: Span,
    who: Callable[[Array], Array],
    at: Array,
) -> TensorLiveRanges:
    """Return the live ranges of the values of a tensor or lifetime within a turn; a selection of them if there are many."""
    (here,) = np.nonzero((span.birth_times <= turn.ranks[-1]) & (span.dies >= turn.ranks[0]))
    if len(here) > EXACT or len(at) < len(turn):
        here = here[_oldest(span.birth_times[here], span.dies[here], turn.ranks[at])]
    last = span.last_use_times[here]
    reader = who(last)
    leave = [first_instants(turn, one.gone[one.back > one.gone]) for one in span.away]
    back = [first_instants(turn, one.back[one.back > one.gone]) for one in span.away]
    return TensorLiveRanges(
        name,
        domain,
        first_instants(turn, span.birth_times[here]),
        last_instants(turn, span.dies[here]),
        ints(reader),
        ints(span.points[here]),
        _select_instants(turn, leave),
        _select_instants(turn, back),
        sum(nbytes for (_, nbytes), moves in zip(span.tensors, span.moves, strict=True) if moves),
    )


def _select_instants(turn: Turn, instants: list[Array]) -> Array:
    """Return the instants inside the turn, in order."""
    if not instants:
        return ints([])
    found = np.sort(np.concatenate(instants))
    return ints(found[(found >= 0) & (found < len(turn))])
