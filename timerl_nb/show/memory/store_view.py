"""View-model of storage: layout of all tensors, shared slots with reasons, and totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from timerl_nb.base.text_formatting import format_bytes
from timerl_nb.compiler.ir.operations import Tensor
from timerl_nb.compiler.memory.budget.kernel_temporaries import UNCERTAIN
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.buffer import Buffer
from timerl_nb.compiler.memory.placement.buffer_layout import Layout, buffer_name, latest_name
from timerl_nb.compiler.memory.placement.ring_sizes import Axis
from timerl_nb.compiler.memory.placement.shared_buffers import (
    How,
    Sharing,
    by_donation,
    holders,
    in_buffers,
    not_given,
)
from timerl_nb.driver.program import Program, a_program
from timerl_nb.execution.telemetry.live_view_frames import Frame
from timerl_nb.show.colours import Numbers, of_tensors, tensor_colour
from timerl_nb.show.stages.operation_inspector import last_readers
from timerl_nb.show.view_model import HIDDEN, View, shown

Known = Literal["planned", "laid out", "estimated", "given", "stated", "measured"]


@dataclass(frozen=True)
class Amount:
    """Bytes of a part of a program's memory, with their source.

    Attributes:
        part: `carried` between kernels, `temporaries` inside kernels, `constants`, `needed` in total, or the
            whole `process`.
        known: `planned` exactly, `laid out` in XLA's buffers, `estimated` before compilation by XLA, `given`
            to the program, `stated` by XLA, or `measured` in a run.
        about: a description.
    """

    part: Literal["carried", "temporaries", "constants", "needed", "process"]
    bytes: int
    known: Known
    about: str


@dataclass(frozen=True)
class BufferAxis:
    """Slots along a dimension: `size` slots from the point `first` on, reused cyclically if `ring`.

    The first `prologue` slots of a ring belong to one point each; only later values leave the device.
    """

    dim: str
    size: int
    first: int
    ring: bool
    prologue: int

    def __str__(self) -> str:
        if self.ring and not self.prologue:
            return f"ring of {self.size:,} along {self.dim}"
        begin = f" from {self.first}" if self.first else ""
        behind = f", then a ring of {self.size - self.prologue:,}" if self.prologue else ""
        return f"{self.prologue or self.size:,} slots along {self.dim}{begin}{behind}"


@dataclass(frozen=True)
class StoredTensor:
    """Tensor stored in a buffer.

    Attributes:
        op_ids: the operation that computes it, and its statement.
        read_by: the statements that read it.
        last_read_by: the statements that read its values last, by name.
        kind: the storage kind in the plan, with its size if any.
        values: the maximal number of live values (or blocks), of `value_bytes` each.
        why: the reason for the kind.
        waits: the periods in which it is only on the host.
        not_given: the reasons that kernels cannot reuse its memory in place, if kernels run one by one.
    """

    tensor: Tensor
    name: str
    op_ids: tuple[int, ...]
    read_by: tuple[int, ...]
    last_read_by: tuple[str, ...]
    colour: str
    kind: str
    values: int
    value_bytes: int
    why: str
    waits: tuple[str, ...]
    not_given: tuple[str, ...]


@dataclass(frozen=True)
class SharedBuffer:
    """Tensor whose values used the same slots earlier, with the reason.

    Attributes:
        how: see `timerl_nb.compiler.memory.placement.shared_buffers`.
        op_ids: the operation that computes the tensor, and its statement.
    """

    how: How
    name: str
    op_ids: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class BufferRow:
    """Buffer of XLA, or store of the interpreter.

    Attributes:
        name: the name of the buffer; of a store, that of its tensor.
        tensors: the tensors stored in it; it was created for the first one.
        axes: outermost first; none for a single slot, or for a map from points to values.
        bytes: the size of the buffer, or of the maximal number of live values in the store.
        why: the reason for the axes.
        shared: the tensors that used it earlier.
    """

    name: str
    tensors: tuple[StoredTensor, ...]
    axes: tuple[BufferAxis, ...]
    bytes: int
    why: str
    shared: tuple[SharedBuffer, ...]

    @shown
    def layout(self) -> str:
        """The axes in words."""
        if not self.axes and self.tensors[0].kind == "point" and self.tensors[0].values > 1:
            return f"by point, at most {self.tensors[0].values:,}"
        return " × ".join(str(axis) for axis in self.axes if axis.size > 1) or "one slot"


@dataclass(frozen=True)
class StoresView(View):
    """Storage of all tensors of a program, the largest first, with totals.

    Attributes:
        how: the executor, with the reason for its choice.
        executor: the executor whose buffers these are.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4}, trl.Options(executor="xla"))
        >>> trl.show.StoresView.from_program(program).executor
        'xla'
    """

    view = "stores"

    program: Annotated[Program, HIDDEN]
    how: str
    executor: Literal["xla", "interpreter"]
    places: tuple[BufferRow, ...]
    amounts: tuple[Amount, ...]

    @classmethod
    def from_program(cls, program: Program, colours: Numbers | None = None) -> StoresView:
        """Return the storage of a program under its executor.

        Args:
            program: the program.
            colours: numbers by tensor name; by default those of the program.
        """
        executable = a_program(program).executable
        lowered = executable.xla_program
        found = _Places(program, colours or of_tensors(program.memory))
        places = found.stores() if lowered is None else found.buffers(lowered.layout)
        return cls(
            program,
            executable.how,
            "interpreter" if lowered is None else "xla",
            tuple(sorted(places, key=lambda place: (-place.bytes, place.name))),
            tuple(predicted_amounts(program)),
        )

    @shown
    def bytes(self) -> int:
        """The bytes of all buffers; the stores of the interpreter are never all full simultaneously."""
        return sum(place.bytes for place in self.places)

    def __str__(self) -> str:
        lines = [f"{self.executor}: {self.how}", *map(amount_text, self.amounts)]
        for place in self.places:
            names = " and ".join(one.name for one in place.tensors)
            named = "" if place.name == place.tensors[0].name else f"{place.name}: "
            lines.append(f"{named}{names}: {place.layout}, {place.bytes:,} bytes ({place.why})")
            lines += [f"  {one.how} {one.name}: {one.why}" for one in place.shared]
            for one in place.tensors:
                lines += [f"  on the host {text}" for text in one.waits]
                lines += [f"  not reused in place: {text}" for text in one.not_given]
        return "\n".join(lines)


def amount_text(amount: Amount) -> str:
    """Format an amount as `carried: 12.3 KiB planned, at sample(i = 1, t = 3)`."""
    about = f", {amount.about}" if amount.about else ""
    return f"{amount.part}: {format_bytes(amount.bytes)} {amount.known}{about}"


def predicted_amounts(program: Program) -> Iterator[Amount]:
    """Yield the amounts known before a run, without waiting for XLA."""
    plan, lowered = program.memory, program.executable.xla_program
    line = plan.timeline()
    moment = f"at {plan.moment(line.peak_time)}" if len(plan.clock) else ""
    yield Amount("carried", line.peak, "planned", moment)
    if lowered is not None:
        away = ", and on the way to the host and back" if plan.bytes_in_transfer else ""
        yield Amount("carried", lowered.nbytes, "laid out", f"in XLA's buffers, in total{away}")
    where = f"the most in {plan.temporaries_in}" if plan.temporaries else "no kernel stores any"
    if plan.unknown_in:
        where += f"; uncertain in {', '.join(plan.unknown_in)}, where {UNCERTAIN}"
    yield Amount("temporaries", plan.temporaries, "estimated", where)
    yield Amount("constants", plan.constants, "given", "arrays passed to the program")
    yield Amount("needed", plan.needed, "estimated", "carried, temporaries and constants")
    yield from stated_amounts(program)


def stated_amounts(program: Program) -> Iterator[Amount]:
    """Yield the amounts that XLA has reported, if it has compiled the program."""
    plan, lowered = program.memory, program.executable.xla_program
    temporaries = None if lowered is None else lowered.reported_temporaries
    if lowered is not None and temporaries is not None:
        yield Amount("temporaries", temporaries, "stated", "by XLA, for the largest call")
        total = lowered.nbytes + temporaries + plan.constants
        yield Amount("needed", total, "stated", "buffers, temporaries and constants")


def measured_amounts(frame: Frame) -> Iterator[Amount]:
    """Yield the amounts measured in a run up to a frame."""
    if frame.held is not None:
        yield Amount(
            "carried", frame.held.peak, "measured", "by the interpreter's accounting, maximum"
        )
    process = frame.process
    if process.resident is not None:
        about = "resident: Python, XLA and all arrays"
        yield Amount("process", process.resident, "measured", about)
    if process.on_device is not None:
        yield Amount("process", process.on_device, "measured", "of its arrays on the device")


class _Places:
    """Buffers of a program, with names of their tensors."""

    def __init__(self, program: Program, colours: Numbers) -> None:
        self.program, self.plan, self._colours = program, program.memory, colours

    def buffers(self, layout: Layout) -> Iterator[BufferRow]:
        shared = in_buffers(layout)
        for (name, buffer), held in zip(layout.buffers.items(), holders(layout), strict=True):
            own = held[0]
            axes = self._axes(own, buffer.axes)
            kept = tuple(self._describe_tensor(tensor, ()) for tensor in held)
            yield BufferRow(
                name,
                kept,
                axes,
                buffer.nbytes,
                self._explain_slots(own, buffer),
                self._describe_sharing(shared[name]),
            )

    def stores(self) -> Iterator[BufferRow]:
        taken, kept = by_donation(self.plan), not_given(self.plan)
        names = self.plan.pdg.names
        for tensor, store in self.plan.stores.items():
            axes = self._axes(tensor, store.axes) if store.traits.has_slots else ()
            why = [f"{names[op_id]}: {text}" for op_id, text in kept.get(tensor, {}).items()]
            yield BufferRow(
                store.name,
                (self._describe_tensor(tensor, why),),
                axes,
                store.most * store.unit,
                store.why,
                self._describe_sharing(taken.get(tensor, ())),
            )

    def _explain_slots(self, own: Tensor, buffer: Buffer) -> str:
        """Return the reason for a buffer's slots: that of the plan, and differences from the plan."""
        store = self.plan.stores[own]
        if buffer.name == latest_name(buffer_name(own)):
            return f"in addition to {buffer_name(own)}: the value written last"
        if store.traits.is_cyclic and not buffer.axes and not buffer.beyond:
            return "each value is computed from the whole previous value"
        return "; ".join(filter(None, (store.why, buffer.beyond)))

    def _axes(self, tensor: Tensor, axes: Sequence[Axis]) -> tuple[BufferAxis, ...]:
        domain = self.plan.stores[tensor].domain
        return tuple(
            BufferAxis(domain[one.coordinate], one.size, one.first, one.ring, one.prologue)
            for one in axes
        )

    def _ids(self, tensor: Tensor) -> tuple[int, ...]:
        return tuple(dict.fromkeys((self.plan.computing_operation(*tensor).id, tensor[0])))

    def _describe_tensor(self, tensor: Tensor, why: Sequence[str]) -> StoredTensor:
        store = self.plan.stores[tensor]
        return StoredTensor(
            tensor,
            store.name,
            self._ids(tensor),
            self._readers.get(tensor, ()),
            last_readers(self.program, store.lifetime),
            tensor_colour(self._colours[store.name]),
            store.shape,
            store.most,
            store.unit,
            store.why,
            self.plan.waits(tensor),
            tuple(why),
        )

    def _describe_sharing(self, found: Sequence[Sharing]) -> tuple[SharedBuffer, ...]:
        names = self.plan.names
        return tuple(
            SharedBuffer(one.how, names[one.before], self._ids(one.before), one.why)
            for one in found
        )

    @cached_property
    def _readers(self) -> Mapping[Tensor, tuple[int, ...]]:
        return readers(self.plan)


def readers(plan: MemoryPlan) -> Mapping[Tensor, tuple[int, ...]]:
    """Return the statements that read each tensor."""
    found: dict[Tensor, dict[int, None]] = {}
    for use in plan.constraints.uses:
        found.setdefault(use.tensor, {})[use.reader] = None
    return {tensor: tuple(ones) for tensor, ones in found.items()}
