"""All that is known of operations: the user's line, type, history, neighbours, time, and memory."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from timerl_nb.errors import OptionError, Origin, one_of
from timerl_nb.ir.kinds import KINDS
from timerl_nb.ir.ops import OPERAND, DataflowAttrs, Op, Read, is_own
from timerl_nb.ir.pdg import Pdg
from timerl_nb.ir.text import attrs_text
from timerl_nb.loops.nodes import Execute
from timerl_nb.memory.sizes import Sizes
from timerl_nb.program import Program
from timerl_nb.show.lineage import Lineage, inside
from timerl_nb.show.steps import step_text
from timerl_nb.show.svg import text_picture
from timerl_nb.show.view import View
from timerl_nb.symbolic.expr import TRUE, index_text

AROUND = 3  # lines of the source before and behind the marked one
FEW = 12  # steps of one stage that a history shows


@dataclass(frozen=True)
class Neighbour:
    """An edge of the graph: who is at its other end, φ where it is not the reader's point, and ψ."""

    op_id: int
    name: str
    slot: int
    index: str
    cond: str


@dataclass(frozen=True)
class Chapter:
    """What became of an operation at one stage: its relatives there, and the rewrites they were in."""

    stage: str
    op_ids: tuple[int, ...]
    kernels: tuple[int, ...]
    steps: tuple[tuple[int, str], ...]
    more: int
    reason: str | None


@dataclass(frozen=True)
class InspectorView(View):
    """What there is to know of some operations.

    Each is taken from the stage that is asked for, or from the last stage that has it.

    JSON: `{"view": "inspector", "ops": [{"op_id", "op_ids", "name", "kind", "doc", "attrs", "region",
    "domain", "where", "stage", "kernel", "outputs": [{"shape", "dtype", "domain", "reduce",
    "point_bytes", "points", "bytes"}], "source": {"place", "line", "lines": [{"number", "text",
    "marked"}]}, "reads": [{"op_id", "name", "slot", "index", "cond"}], "readers": [the same],
    "history": [{"stage", "op_ids", "kernels", "steps": [{"number", "text"}], "more", "reason"}],
    "schedule": {"statement", "op_id", "time", "lines"} or null, "stores": [{"tensor", "name", "kind",
    "slots", "value_bytes", "bytes", "lifetime", "born", "last_readers", "why"}]}]}`.
    """

    program: Program
    op_ids: tuple[int, ...]
    stage: str | None = None
    lineage: Lineage | None = None

    @classmethod
    def of(
        cls,
        program: Program,
        op_ids: Iterable[int],
        stage: str | None = None,
        lineage: Lineage | None = None,
    ) -> InspectorView:
        """What is known of operations of any stages.

        Args:
            stage: the stage to see them in, where they are there.
            lineage: the program's, if it has been made.

        Raises:
            OptionError: there is no such operation in any stage, or no such stage.
        """
        lineage = lineage or Lineage.of(program)
        known = {op_id for one in lineage.generations for op_id in one.ops}
        ids = tuple(dict.fromkeys(op_ids))
        for op_id in ids:
            if op_id not in known:
                raise OptionError(f"there is no operation %{op_id} in any stage.")
        if stage is not None and stage not in program.stages:
            names = list(program.stages)
            raise OptionError(f"there is no stage {stage!r}.", hint=one_of(stage, names))
        return cls(program, ids, stage, lineage)

    def values(self) -> dict[str, Any]:
        return {"view": "inspector", "ops": [self._op(op_id) for op_id in self.op_ids]}

    def history(self, op_id: int) -> tuple[Chapter, ...]:
        """An operation through all stages, from those that it was made of to those that it is in."""
        assert self.lineage is not None
        relatives = self.lineage.relatives([op_id])
        found: list[Chapter] = []
        before: frozenset[int] = frozenset()
        for one in self.lineage.generations:
            ids = relatives[one.stage]
            stage = self.program.stages[one.stage]
            steps = [
                (k, step_text(step, before | ids))
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
        """The graphs of all stages that have one of their own, and their operations."""
        assert self.lineage is not None
        found: dict[str, tuple[Pdg, Mapping[int, Op]]] = {}
        for one in self.lineage.generations:
            artifact = self.program.stages[one.stage].artifact
            if isinstance(artifact, Pdg) or one.stage == "memory":
                pdg = artifact if isinstance(artifact, Pdg) else self.program.memory.pdg
                found[one.stage] = pdg, one.ops
        return found

    def _where(self, op_id: int) -> str:
        """The stage in which an operation is shown."""
        last = {"source": "pdg", "schedule": list(self._graphs)[-2]}
        wanted = last.get(self.stage or "", self.stage or "")
        if wanted in self._graphs and op_id in self._graphs[wanted][1]:
            return wanted
        return next(name for name, (_, ops) in reversed(self._graphs.items()) if op_id in ops)

    @cached_property
    def _runs(self) -> dict[int, tuple[Op, ...]]:
        """For every operation inside statements, the statements that run it."""
        found: dict[int, tuple[Op, ...]] = {}
        for op in self.program.memory.constraints.ops.values():
            for op_id in inside(op):
                found[op_id] = (*found.get(op_id, ()), op)
        return found

    @cached_property
    def _times(self) -> dict[int, tuple[str, ...]]:
        """The time of every statement."""
        schedule = self.program.schedule
        times = schedule.tree.times()
        return {op.id: tuple(map(str, times[k])) for k, op in schedule.constraints.ops.items()}

    @cached_property
    def _lines(self) -> dict[int, list[int]]:
        """The lines of the loop nest that run each statement."""
        found: dict[int, list[int]] = {}
        for k, (_, _, node) in enumerate(self.program.ast.lines()):
            if isinstance(node, Execute):
                found.setdefault(node.op_id, []).append(k)
        return found

    def _op(self, op_id: int) -> dict[str, Any]:
        stage = self._where(op_id)
        pdg, ops = self._graphs[stage]
        op, kernel = ops[op_id], _kernel(pdg, op_id)
        body = op.attrs.body if isinstance(op.attrs, DataflowAttrs) else ()
        return {
            "op_id": op_id,
            "op_ids": [op_id, *(inner.id for inner in body)],
            "name": op.name,
            "kind": op.kind,
            "doc": KINDS[op.kind].doc if op.kind in KINDS else "operations that run as one kernel",
            "attrs": attrs_text(op.attrs),
            "region": list(op.region),
            "domain": list(op.domain),
            "where": "" if op.where is TRUE else str(op.where),
            "stage": stage,
            "kernel": None if kernel is None else kernel.id,
            "outputs": self._outputs(pdg, op),
            "source": source_of(body) if body else source_lines(op.origin),
            "reads": [_edge(one) for one in reads(pdg, op, kernel)],
            "readers": [_edge(one) for one in readers(pdg, op, kernel)],
            "history": [
                {
                    "stage": one.stage,
                    "op_ids": list(one.op_ids),
                    "kernels": list(one.kernels),
                    "steps": [{"number": k, "text": text} for k, text in one.steps],
                    "more": one.more,
                    "reason": one.reason,
                }
                for one in self.history(op_id)
            ],
            "schedule": self._schedule(op_id),
            "stores": list(self._stores(op_id)),
        }

    def _outputs(self, pdg: Pdg, op: Op) -> list[dict[str, Any]]:
        sizes, found = Sizes(pdg, self.program.bounds), []
        for out, output in enumerate(op.outputs):
            one = sizes.output_bytes(op, out)
            points = prod(pdg.dims[d].count(self.program.bounds) for d in output.domain)
            found.append(
                {
                    "shape": [s if isinstance(s, int) else str(s) for s in output.type.shape],
                    "dtype": output.type.dtype,
                    "domain": list(output.domain),
                    "reduce": output.reduce,
                    "point_bytes": one,
                    "points": points,
                    "bytes": one * points,
                }
            )
        return found

    def _schedule(self, op_id: int) -> dict[str, Any] | None:
        assert self.lineage is not None
        relatives = sorted(self.lineage.relatives([op_id])["executable"])
        op = next((op for k in relatives for op in self._runs.get(k, ())), None)
        if op is None:
            return None
        return {
            "statement": f"{self.program.schedule.names[op.id]}({', '.join(op.domain)})",
            "op_id": op.id,
            "time": list(self._times[op.id]),
            "lines": self._lines.get(op.id, []),
        }

    def _stores(self, op_id: int) -> Iterator[dict[str, Any]]:
        plan = self.program.memory
        for tensor, store in plan.stores.items():
            if op_id not in (plan.behind(*tensor).id, tensor[0]):
                continue
            life = plan.lifetimes[store.lifetime]
            yield {
                "tensor": list(tensor),
                "name": store.name,
                "kind": store.shape,
                "slots": store.most,
                "value_bytes": store.unit,
                "bytes": store.most * store.unit,
                "lifetime": store.lifetime,
                "born": self.program.schedule.names[plan.constraints.ops[life.producer].id],
                "last_readers": list(last_readers(self.program, store.lifetime)),
                "why": store.why,
            }

    # --- how it shows itself ---------------------------------------------------------------------

    def text(self, op_id: int) -> str:
        """What is known of one of the operations."""
        return "\n".join(_text(self._op(op_id)))

    def __str__(self) -> str:
        return "\n\n".join(map(self.text, self.op_ids))

    def to_svg(self) -> str:
        return text_picture(str(self), most=120)


def source_lines(origin: Origin, around: int = AROUND) -> dict[str, Any]:
    """The user's line with those around it; none where the source cannot be read."""
    lines = linecache.getlines(origin.file)
    first, last = max(1, origin.line - around), min(len(lines), origin.line + around)
    return {
        "place": origin.place,
        "line": origin.line,
        "lines": [
            {"number": k, "text": lines[k - 1].rstrip("\n"), "marked": k == origin.line}
            for k in range(first, last + 1)
        ]
        if lines and origin.line
        else [],
    }


def last_readers(program: Program, lifetime: str) -> tuple[str, ...]:
    """The statements that read values of a lifetime for the last time."""
    names, ops = program.schedule.names, program.memory.constraints.ops
    life = program.memory.lifetimes[lifetime]
    last = (names[ops[edge.sink].id] for edge in (*life.frees, *life.taken))
    return tuple(dict.fromkeys(last))


def source_of(body: Sequence[Op]) -> dict[str, Any]:
    """The user's lines that a kernel runs: of the file that most of its operations are from."""
    file, _ = Counter(op.origin.file for op in body).most_common(1)[0]
    places = {op.origin.line: op.origin for op in body if op.origin.file == file and op.origin.line}
    lines = linecache.getlines(file)
    shown = [places[k] for k in sorted(places) if k <= len(lines)]
    return {
        "place": shown[0].place if shown else Origin(file).place,
        "line": shown[0].line if shown else 0,
        "lines": [
            {"number": one.line, "text": lines[one.line - 1].rstrip("\n"), "marked": True}
            for one in shown
        ],
    }


def _kernel(pdg: Pdg, op_id: int) -> Op | None:
    """The kernel inside which an operation is, if it is in one."""
    if op_id in pdg.ops:
        return None
    return next(op for op in pdg if op_id in {inner.id for inner in _body(op)})


def _body(op: Op) -> tuple[Op, ...]:
    return op.attrs.body if isinstance(op.attrs, DataflowAttrs) else ()


def reads(pdg: Pdg, op: Op, kernel: Op | None) -> Iterator[Neighbour]:
    """What an operation reads; of one inside a kernel, through the kernel's operands."""
    local = {inner.id: inner for inner in _body(kernel)} if kernel is not None else {}
    for slot, read in enumerate(op.inputs):
        outside = kernel.inputs[read.out] if kernel and read.source == OPERAND else None
        read = outside or read
        if outside is None and read.source in local:
            yield _neighbour(local[read.source], local[read.source], slot, read)
        else:
            yield _neighbour(pdg[read.source], pdg[read.source], slot, read)


def readers(pdg: Pdg, op: Op, kernel: Op | None) -> Iterator[Neighbour]:
    """Who reads an operation; of one inside a kernel, also who reads the kernel's output of it."""
    outs: set[int] | None = None
    if kernel is not None:
        for inner in _body(kernel):
            for slot, read in enumerate(inner.inputs):
                if read.source == op.id:
                    yield _neighbour(inner, op, slot, read)
        attrs = kernel.attrs
        outs = {k for k, (source, _) in enumerate(attrs.results) if source == op.id}
    source = kernel or op
    for reader, slot in pdg.readers[source.id]:
        read = pdg[reader].inputs[slot]
        if outs is None or read.out in outs:
            yield _neighbour(pdg[reader], source, slot, read)


def _neighbour(other: Op, source: Op, slot: int, read: Read) -> Neighbour:
    domain = source.outputs[read.out].domain
    own = is_own(read.index, domain)
    cond = "" if read.cond is TRUE else str(read.cond)
    return Neighbour(other.id, other.name, slot, "" if own else index_text(read.index), cond)


def _edge(one: Neighbour) -> dict[str, Any]:
    return {
        "op_id": one.op_id,
        "name": one.name,
        "slot": one.slot,
        "index": one.index,
        "cond": one.cond,
    }


def _text(op: dict[str, Any]) -> Iterator[str]:
    region = " / ".join(op["region"])
    yield f"{op['name']}: {op['kind']} {op['attrs']}".rstrip() + f"{'  in ' * bool(region)}{region}"
    for output in op["outputs"]:
        shape = ",".join(map(str, output["shape"]))
        each = f"{output['point_bytes']:,} bytes at each of {output['points']:,} points"
        yield f"  {output['dtype']}[{shape}] @ ({', '.join(output['domain'])}): {each}"
    source = op["source"]
    yield f"  {source['place']}"
    for line in source["lines"]:
        yield f"  {'>' if line['marked'] else ' '} {line['number']:>4}  {line['text']}"
    for title in ("reads", "readers"):
        for one in op[title]:
            cond = f" if {one['cond']}" if one["cond"] else ""
            yield f"  {title}: {one['name']}{one['index']}{cond}"
    for chapter in op["history"]:
        ids = ", ".join(f"%{k}" for k in chapter["op_ids"][:8]) or "gone"
        yield f"  {chapter['stage']}: {ids}"
        yield from (f"    {step['text']}" for step in chapter["steps"])
        if chapter["reason"]:
            yield f"    left alone: {chapter['reason']}"
    if op["schedule"]:
        when = op["schedule"]
        yield f"  runs as {when['statement']} at ({', '.join(when['time'])})"
    for store in op["stores"]:
        last = ", ".join(store["last_readers"]) or "nobody: it stays"
        yield f"  {store['name']}: {store['kind']}, {store['bytes']:,} bytes, last read by {last}"
