"""Details of operations: source line, type, history, neighbours, schedule and storage."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Annotated

from timerl_nb.base.errors import OptionError, Origin, one_of
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operation_kinds import KINDS
from timerl_nb.compiler.ir.operations import OPERAND, Op, Read, Tensor, is_own
from timerl_nb.compiler.loops.loop_nodes import Execute
from timerl_nb.compiler.memory.byte_sizes import Sizes
from timerl_nb.compiler.symbolic.index_expressions import TRUE, index_text
from timerl_nb.driver.program import Program
from timerl_nb.show.stages.operation_lineage import Lineage
from timerl_nb.show.stages.rewrite_steps import step_text
from timerl_nb.show.view_model import HIDDEN, View, shown

AROUND = 3  # source lines shown before and after the marked one
FEW = 12  # steps shown per stage of a history


@dataclass(frozen=True)
class Neighbour:
    """Edge of the graph: the operation at the other end, the index expression φ unless it is the reader's point,
    and the condition ψ.
    """

    op_id: int
    name: str
    slot: int
    index: str
    cond: str


@dataclass(frozen=True)
class Chapter:
    """History of an operation at one stage: its relatives there, and the rewrites they took part in."""

    stage: str
    op_ids: tuple[int, ...]
    kernels: tuple[int, ...]
    steps: tuple[Numbered, ...]
    more: int
    reason: str | None


@dataclass(frozen=True)
class Numbered:
    """Step of a pass, with its number."""

    number: int
    text: str


@dataclass(frozen=True)
class Made:
    """Output of an operation, with the bytes of one point and the number of points."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    domain: tuple[str, ...]
    reduce: str | None
    point_bytes: int
    points: int

    @shown
    def bytes(self) -> int:
        return self.point_bytes * self.points


@dataclass(frozen=True)
class SourceLine:
    """Line of the user's file."""

    number: int
    text: str
    marked: bool


@dataclass(frozen=True)
class Source:
    """Lines of the user's file around a place; empty if the file cannot be read."""

    place: str
    line: int
    lines: tuple[SourceLine, ...]


@dataclass(frozen=True)
class Scheduled:
    """Schedule of a statement: its time, and its lines in the loop nest."""

    statement: str
    op_id: int
    time: tuple[str, ...]
    lines: tuple[int, ...]


@dataclass(frozen=True)
class Stored:
    """Storage of a value: kind, size, lifetime and last readers."""

    tensor: Tensor
    name: str
    kind: str
    slots: int
    value_bytes: int
    bytes: int
    lifetime: str
    born: str
    last_readers: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Inspected:
    """Details of one operation at one stage, or only of the given `tensor` of it."""

    op_id: int
    op_ids: tuple[int, ...]
    name: str
    kind: str
    doc: str
    attrs: str
    region: tuple[str, ...]
    domain: tuple[str, ...]
    where: str
    tensor: str | None
    stage: str
    kernel: int | None
    outputs: tuple[Made, ...]
    source: Source
    reads: tuple[Neighbour, ...]
    readers: tuple[Neighbour, ...]
    history: tuple[Chapter, ...]
    schedule: Scheduled | None
    stores: tuple[Stored, ...]


@dataclass(frozen=True)
class InspectorView(View):
    """Details of some operations, each from the requested stage or from the last stage that contains it.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> view = trl.show.InspectorView.from_program(program, [1])
        >>> view.ops[0].op_id
        1
    """

    view = "inspector"

    program: Annotated[Program, HIDDEN]
    op_ids: Annotated[tuple[int, ...], HIDDEN]
    stage: Annotated[str | None, HIDDEN] = None
    lineage: Annotated[Lineage | None, HIDDEN] = None
    tensors: Annotated[tuple[Tensor, ...], HIDDEN] = ()

    @classmethod
    def from_program(
        cls,
        program: Program,
        op_ids: Iterable[int],
        stage: str | None = None,
        lineage: Lineage | None = None,
        tensors: Iterable[Tensor] = (),
    ) -> InspectorView:
        """Return the details of operations.

        Args:
            program: the program.
            op_ids: ids of operations of any stages.
            stage: the preferred stage.
            lineage: the program's lineage, if it already exists.
            tensors: stored outputs of statements; for their operations the view contains only details of
                these tensors.

        Raises:
            OptionError: an operation or the stage is unknown.
        """
        lineage = lineage or Lineage.from_program(program)
        known = {op_id for one in lineage.generations for op_id in one.ops}
        ids = tuple(dict.fromkeys(op_ids))
        for op_id in ids:
            if op_id not in known:
                raise OptionError(
                    f"no stage contains the operation %{op_id}.",
                    hint='find ids by name: program.pdg.find("name").',
                )
        if stage is not None and stage not in program.stages:
            names = list(program.stages)
            raise OptionError(f"the stage {stage!r} is unknown.", hint=one_of(stage, names))
        stored = (tensor for tensor in tensors if tensor in program.memory.stores)
        return cls(program, ids, stage, lineage, tuple(stored))

    @shown
    def ops(self) -> tuple[Inspected, ...]:
        return tuple(map(self._op, self.op_ids))

    def history(self, op_id: int) -> tuple[Chapter, ...]:
        """Return the history of an operation through all stages, from its ancestors to its descendants."""
        assert self.lineage is not None
        relatives = self.lineage.relatives([op_id])
        found: list[Chapter] = []
        before: frozenset[int] = frozenset()
        for one in self.lineage.generations:
            ids = relatives[one.stage]
            stage = self.program.stages[one.stage]
            steps = [
                Numbered(k, step_text(step, before | ids))
                for k, step in enumerate(stage.steps)
                if before.intersection(step.before) or op_id in step.after
            ]
            why = next((w for w in map(stage.why, sorted(before | ids)) if w), None)
            kernels = tuple(k for k in sorted(ids) if one.ops[k].kind == "dataflow")
            found.append(
                Chapter(
                    one.stage,
                    tuple(sorted(ids)),
                    kernels,
                    tuple(steps[:FEW]),
                    len(steps) - len(steps[:FEW]),
                    why,
                )
            )
            before = ids
        return tuple(found)

    # --- one operation ---------------------------------------------------------------------------

    @cached_property
    def _graphs(self) -> dict[str, tuple[Pdg, Mapping[int, Op]]]:
        """The graphs of all stages with a separate graph, and their operations."""
        assert self.lineage is not None
        found: dict[str, tuple[Pdg, Mapping[int, Op]]] = {}
        for one in self.lineage.generations:
            artifact = self.program.stages[one.stage].artifact
            if isinstance(artifact, Pdg) or one.stage == "memory":
                pdg = artifact if isinstance(artifact, Pdg) else self.program.memory.pdg
                found[one.stage] = pdg, one.ops
        return found

    def _stage_of(self, op_id: int) -> str:
        """Return the stage in which an operation is shown."""
        last = {"source": "pdg", "schedule": list(self._graphs)[-2]}
        wanted = last.get(self.stage or "", self.stage or "")
        if wanted in self._graphs and op_id in self._graphs[wanted][1]:
            return wanted
        return next(name for name, (_, ops) in reversed(self._graphs.items()) if op_id in ops)

    @cached_property
    def _runs(self) -> dict[int, tuple[Op, ...]]:
        """For every operation inside statements, the statements that execute it."""
        found: dict[int, tuple[Op, ...]] = {}
        for op in self.program.memory.statements.ops.values():
            for op_id in op.op_ids:
                found[op_id] = (*found.get(op_id, ()), op)
        return found

    @cached_property
    def _times(self) -> dict[int, tuple[str, ...]]:
        """The time of every statement."""
        schedule = self.program.schedule
        times = schedule.tree.times()
        return {
            op.id: tuple(map(str, times[k]))
            for k, op in schedule.constraints.statements.ops.items()
        }

    @cached_property
    def _lines(self) -> dict[int, list[int]]:
        """For each statement, the lines of the loop nest that execute it."""
        found: dict[int, list[int]] = {}
        for k, (_, _, node) in enumerate(self.program.ast.lines()):
            if isinstance(node, Execute):
                found.setdefault(node.op_id, []).append(k)
        return found

    def _op(self, op_id: int) -> Inspected:
        """Return the details of an operation, from the stage in which it is shown."""
        stage = self._stage_of(op_id)
        pdg, ops = self._graphs[stage]
        op, kernel = ops[op_id], _kernel(pdg, op_id)
        body = op.body
        told = self._represented_tensors(op_id)
        plan = self.program.memory
        outs = {plan.computed(*tensor)[1] for tensor in told}
        return Inspected(
            op_id,
            op.op_ids,
            pdg.names[op_id],
            op.kind,
            KINDS[op.kind].doc if op.kind in KINDS else "operations that run as one kernel",
            str(op.attrs),
            op.region,
            tuple(op.domain),
            "" if op.where is TRUE else str(op.where),
            ", ".join(plan.names[tensor] for tensor in told) or None,
            stage,
            None if kernel is None else kernel.id,
            tuple(self._outputs(pdg, op, outs)),
            source_of(body) if body else source_lines(op.origin),
            tuple(reads(pdg, op, kernel)),
            tuple(readers(pdg, op, kernel, outs)),
            self.history(op_id),
            self._schedule(op_id),
            tuple(self._stores(told or self._stored_tensors(op_id))),
        )

    def _represented_tensors(self, op_id: int) -> list[Tensor]:
        """Return the requested tensors that an operation computes."""
        plan = self.program.memory
        return [tensor for tensor in self.tensors if plan.computing_operation(*tensor).id == op_id]

    def _stored_tensors(self, op_id: int) -> list[Tensor]:
        plan = self.program.memory
        return [
            tensor
            for tensor in plan.stores
            if op_id in (plan.computing_operation(*tensor).id, tensor[0])
        ]

    def _outputs(self, pdg: Pdg, op: Op, outs: Collection[int]) -> Iterator[Made]:
        sizes = Sizes(pdg, self.program.bounds)
        for out, (name, output) in enumerate(zip(pdg.names.outputs(op), op.outputs, strict=True)):
            if outs and out not in outs:
                continue
            yield Made(
                name,
                tuple(s if isinstance(s, int) else str(s) for s in output.type.shape),
                output.type.dtype,
                tuple(output.domain),
                output.reduce,
                sizes.output_bytes(op, out),
                prod(pdg.dims[d].count(self.program.bounds) for d in output.domain),
            )

    def _schedule(self, op_id: int) -> Scheduled | None:
        assert self.lineage is not None
        relatives = sorted(self.lineage.relatives([op_id])["executable"])
        op = next((op for k in relatives for op in self._runs.get(k, ())), None)
        if op is None:
            return None
        name = f"{self.program.schedule.names[op.id]}({', '.join(op.domain)})"
        return Scheduled(name, op.id, self._times[op.id], tuple(self._lines.get(op.id, ())))

    def _stores(self, tensors: Iterable[Tensor]) -> Iterator[Stored]:
        plan = self.program.memory
        for tensor in tensors:
            store = plan.stores[tensor]
            life = plan.lifetimes[store.lifetime]
            yield Stored(
                tensor,
                store.name,
                store.shape,
                store.most,
                store.unit,
                store.most * store.unit,
                store.lifetime,
                self.program.schedule.names[plan.statements.ops[life.producer].id],
                last_readers(self.program, store.lifetime),
                store.why,
            )

    # --- display ------------------------------------------------------------------------------

    def text(self, op_id: int) -> str:
        """Return the details of one operation as text."""
        return "\n".join(_text(self.ops[self.op_ids.index(op_id)]))

    def __str__(self) -> str:
        return "\n\n".join(map(self.text, self.op_ids))


def source_lines(origin: Origin, around: int = AROUND) -> Source:
    """Return the user's line with surrounding lines; empty if the source cannot be read."""
    lines = linecache.getlines(origin.file)
    first, last = max(1, origin.line - around), min(len(lines), origin.line + around)
    shown = range(first, last + 1) if lines and origin.line else range(0)
    return Source(origin.place, origin.line, tuple(_lines(lines, shown, [origin.line])))


def _lines(
    lines: Sequence[str], shown: Iterable[int], marked: Container[int]
) -> Iterator[SourceLine]:
    for k in shown:
        yield SourceLine(k, lines[k - 1].rstrip("\n"), k in marked)


def last_readers(program: Program, lifetime: str) -> tuple[str, ...]:
    """Return the statements that read the values of a lifetime last."""
    names, ops = program.schedule.names, program.memory.statements.ops
    life = program.memory.lifetimes[lifetime]
    last = (names[ops[edge.sink].id] for edge in (*life.frees, *life.taken))
    return tuple(dict.fromkeys(last))


def source_of(body: Sequence[Op]) -> Source:
    """Return the user's lines of a kernel, from the file with most of its operations."""
    file, _ = Counter(op.origin.file for op in body).most_common(1)[0]
    places = {op.origin.line: op.origin for op in body if op.origin.file == file and op.origin.line}
    lines = linecache.getlines(file)
    shown = [k for k in sorted(places) if k <= len(lines)]
    first = places[shown[0]] if shown else Origin(file)
    return Source(first.place, shown[0] if shown else 0, tuple(_lines(lines, shown, shown)))


def _kernel(pdg: Pdg, op_id: int) -> Op | None:
    """Return the kernel that contains an operation, or None."""
    if op_id in pdg.ops:
        return None
    return next(op for op in pdg if op_id in {inner.id for inner in op.body})


def reads(pdg: Pdg, op: Op, kernel: Op | None) -> Iterator[Neighbour]:
    """Yield the reads of an operation; inside a kernel, through the kernel's operands."""
    local = {inner.id: inner for inner in kernel.body} if kernel is not None else {}
    for slot, read in enumerate(op.inputs):
        outside = kernel.inputs[read.out] if kernel and read.source == OPERAND else None
        read = outside or read
        if outside is None and read.source in local:
            source = local[read.source]
            yield _neighbour(source, source, slot, read, pdg.names[source.id])
        else:
            source = pdg[read.source]
            yield _neighbour(source, source, slot, read, pdg.names.output(source.id, read.out))


def readers(pdg: Pdg, op: Op, kernel: Op | None, of: Collection[int] = ()) -> Iterator[Neighbour]:
    """Yield the readers of an operation; inside a kernel, also the readers of the kernel's output.

    Args:
        of: the relevant outputs; empty for all.
    """
    outs: set[int] | None = None
    if kernel is not None:
        for inner in kernel.body:
            for slot, read in enumerate(inner.inputs):
                if read.source == op.id and (not of or read.out in of):
                    yield _neighbour(inner, op, slot, read, pdg.names[inner.id])
        attrs = kernel.attrs
        results = enumerate(attrs.results)
        outs = {k for k, (source, out) in results if source == op.id and (not of or out in of)}
    elif of:
        outs = {*of}
    source = kernel or op
    for reader, slot in pdg.readers[source.id]:
        read = pdg[reader].inputs[slot]
        if outs is None or read.out in outs:
            yield _neighbour(pdg[reader], source, slot, read, pdg.names[reader])


def _neighbour(other: Op, source: Op, slot: int, read: Read, name: str) -> Neighbour:
    domain = source.outputs[read.out].domain
    own = is_own(read.index, domain)
    cond = "" if read.cond is TRUE else str(read.cond)
    return Neighbour(other.id, name, slot, "" if own else index_text(read.index), cond)


def _text(op: Inspected) -> Iterator[str]:
    """Yield the lines of an operation's details as text."""
    region = " / ".join(op.region)
    yield f"{op.name}: {op.kind} {op.attrs}".rstrip() + f"{'  in ' * bool(region)}{region}"
    for output in op.outputs:
        shape = ",".join(map(str, output.shape))
        each = f"{output.point_bytes:,} bytes at each of {output.points:,} points"
        yield f"  {output.name}: {output.dtype}[{shape}] @ ({', '.join(output.domain)}): {each}"
    yield f"  {op.source.place}"
    for line in op.source.lines:
        yield f"  {'>' if line.marked else ' '} {line.number:>4}  {line.text}"
    for title, edges in (("reads", op.reads), ("readers", op.readers)):
        for one in edges:
            cond = f" if {one.cond}" if one.cond else ""
            yield f"  {title}: {one.name}{one.index}{cond}"
    for chapter in op.history:
        ids = ", ".join(f"%{k}" for k in chapter.op_ids[:8]) or "gone"
        yield f"  {chapter.stage}: {ids}"
        yield from (f"    {step.text}" for step in chapter.steps)
        if chapter.reason:
            yield f"    refused: {chapter.reason}"
    if op.schedule:
        yield f"  runs as {op.schedule.statement} at ({', '.join(op.schedule.time)})"
    for store in op.stores:
        last = ", ".join(store.last_readers) or "none: needed until the end"
        yield f"  {store.name}: {store.kind}, {store.bytes:,} bytes, last read by {last}"
