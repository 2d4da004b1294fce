"""What a stage that is no graph consists of: lines of text, in sections, with the operations of each."""

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from timerl_nb.base.errors import OptionError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.compiler.loops.loop_nodes import Ast
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.scheduling.schedule_artifact import Schedule
from timerl_nb.driver.program import Program, a_program
from timerl_nb.driver.stages import Listing
from timerl_nb.runtime.executable import Executable
from timerl_nb.show.schedule.loop_view import LoopView
from timerl_nb.show.view_model import View

Place = tuple[str, int]  # a file and a line of it
AROUND: Final = 2  # lines without operations that are shown around those with some
_DETAILS: Final = {
    "jaxpr": "what JAX traces for call {}; traced when it is opened",
    "hlo": "what XLA makes of call {}; compiled anew when it is opened, which can take long",
}


@dataclass(frozen=True)
class OutlineLine:
    """A line, `depth` sections deep; what is deeper behind it can be folded into it.

    Attributes:
        op_ids: the operations that it stands for; empty for none.
        note: what is said beside it, such as the kind of a node.
        number: of a line of a file, else 0.
        figures: one for each of the view's columns, or none.
        folded: whether it is folded at first.
        detail: the name of what can be asked for here (`detail`), or nothing.
    """

    text: str
    depth: int = 0
    op_ids: tuple[int, ...] = ()
    note: str = ""
    number: int = 0
    figures: tuple[float | None, ...] = ()
    folded: bool = False
    detail: str = ""


@dataclass(frozen=True)
class Column:
    """What figures beside lines say, in `bytes`, `seconds`, or no unit for a count."""

    name: str
    unit: str


@dataclass(frozen=True)
class OutlineView(View):
    """A stage as foldable text."""

    view = "outline"

    stage: str
    lines: tuple[OutlineLine, ...]
    columns: tuple[Column, ...] = ()

    @classmethod
    def from_stage(cls, program: Program, stage: str) -> OutlineView | None:
        """A stage of a program; None of one that is a graph.

        Raises:
            OptionError: there is no such stage.
        """
        match program.stages[stage].artifact:
            case Listing():
                return source_view(program)
            case Pdg():
                return None
            case Schedule() as schedule:
                lines = _schedule(schedule)
            case Ast():
                lines = _nest(LoopView.from_program(program))
            case Executable() as executable:
                lines = _executable(executable)
            case MemoryPlan() as plan:
                lines = _memory(plan)
            case artifact:
                lines = _outline_lines(artifact.found_by())
        return cls(stage, tuple(lines))

    def __str__(self) -> str:
        return "\n".join(f"{'  ' * line.depth}{line.text}" for line in self.lines)


def detail(program: Program, name: str) -> OutlineView:
    """What a line of an outline stands for and has not said: `jaxpr 1`, `hlo 2`.

    An HLO is compiled anew; a line of it stands for the operations of its kernel.

    Raises:
        OptionError: there is no such detail.
    """
    a_program(program)
    expect_type(
        name, str, "the name of a detail", '"jaxpr 1" is one; `OutlineView.lines` name all.'
    )
    sort, _, number = name.partition(" ")
    lowered = program.executable.xla_program
    calls = 0 if lowered is None else len(lowered.calls)
    if sort not in _DETAILS or not number.isdecimal() or not 1 <= int(number) <= calls:
        raise OptionError(f"there is no detail {name!r}.", hint="`OutlineView.lines` name them.")
    assert lowered is not None
    text = lowered.jaxpr(int(number)) if sort == "jaxpr" else lowered.hlo(int(number))
    scopes = {f"/{program.ast.names[k]}/": program.fused[k].op_ids for k in program.ast.names}
    lines: list[OutlineLine] = []
    for line in text.splitlines():
        scope = re.search(r'op_name="([^"]*)"', line)
        ids = next((ids for s, ids in scopes.items() if scope and s in f"{scope[1]}/"), ())
        shown = re.sub(r", metadata=\{[^}]*\}", "", line)
        indent = len(shown) - len(shown.lstrip())
        if shown.strip():
            lines.append(OutlineLine(shown.strip(), indent // 2, ids))
    return OutlineView(name, tuple(lines))


# --- the user's lines ----------------------------------------------------------------------------


def source_view(program: Program, seconds: Mapping[int, float] | None = None) -> OutlineView:
    """The user's code, with what became of each line.

    A line's bytes are those of the stores of what it computes; its launches those of the kernels that
    run some of it, which other lines may share.

    Args:
        seconds: by operation, how long the kernels or calls that it is in took.
    """
    a_program(program)
    wrote: dict[str, dict[int, list[int]]] = {}
    for op in program.pdg:
        if op.origin.line:
            wrote.setdefault(op.origin.file, {}).setdefault(op.origin.line, []).append(op.id)
    figures = _Figures(program, seconds)
    lines: list[OutlineLine] = []
    for file, found in wrote.items():
        text, origin = linecache.getlines(file), program.pdg[min(min(found.values()))].origin
        lines.append(OutlineLine(origin.place.rpartition(":")[0]))
        shown = range(max(1, min(found) - AROUND), min(len(text), max(found) + AROUND) + 1)
        for k in shown if text else sorted(found):
            ids = tuple(found.get(k, ()))
            one = text[k - 1].rstrip() if text else ""
            lines.append(
                OutlineLine(one, 1, ids, "", k, figures.figures_of((file, k)) if ids else ())
            )
    return OutlineView("source", tuple(lines), figures.columns)


class _Figures:
    """What became of each line of the user's, by file and number."""

    def __init__(self, program: Program, seconds: Mapping[int, float] | None) -> None:
        plan = program.memory
        held, launches = Counter[Place](), Counter[Place]()
        spent: dict[Place, float] = {}
        for tensor, store in plan.stores.items():
            held[_place(plan.computing_operation(*tensor))] += store.most * store.unit
        for op in plan.statements.ops.values():
            count = prod(plan.pdg.dims[d].count(program.bounds) for d in op.domain)
            body = op.body or (op,)
            # a constant of another line is copied in, and does nothing there
            for place in {_place(one) for one in body if one.inputs or one.kind == "rng"}:
                launches[place] += count
                spent[place] = spent.get(place, 0.0) + (seconds or {}).get(op.id, 0.0)
        columns: list[tuple[Column, Mapping[Place, float]]] = [
            (Column("bytes", "bytes"), held),
            (Column("launches", ""), launches),
        ]
        columns += [(Column("time", "seconds"), spent)] if seconds else []
        self.columns = tuple(column for column, _ in columns)
        self._counts = tuple(counts for _, counts in columns)

    def figures_of(self, place: Place) -> tuple[float | None, ...]:
        return tuple(counts.get(place) for counts in self._counts)


def _place(op: Op) -> Place:
    return op.origin.file, op.origin.line


# --- the other stages ----------------------------------------------------------------------------


def _schedule(schedule: Schedule) -> Iterator[OutlineLine]:
    """The time of every statement, the loops (bands) that it stands in, and what it waits for."""
    names, ops = schedule.names, schedule.constraints.statements.ops
    times, loops = schedule.tree.times(), schedule.tree.loops()
    called = {key: f"{names[op.id]}({', '.join(op.domain)})" for key, op in ops.items()}
    yield OutlineLine(
        f"θ: the time of each of {format_count(len(ops), 'statement')}, compared entry by entry"
    )
    for key, op in ops.items():
        yield OutlineLine(f"{called[key]} -> ({', '.join(map(str, times[key]))})", 1, op.op_ids)
    bands = sorted({k for found in loops.values() for k, _ in found})
    yield OutlineLine(
        f"bands: {format_count(len(bands), 'loop')}, and at which turn of each a statement runs"
    )
    for k in bands:
        within = {key: dict(found)[k] for key, found in loops.items() if k in dict(found)}
        together = tuple(op_id for key in within for op_id in ops[key].op_ids)
        yield OutlineLine(
            f"loop {k + 1}, around {format_count(len(within), 'statement')}", 1, together
        )
        for key, at in within.items():
            yield OutlineLine(f"{called[key]} at turn {at}", 2, ops[key].op_ids)
    pairs: dict[tuple[str, str], dict[str, None]] = {}
    for edge in schedule.constraints.validity:
        text = re.sub(r"^\[[^]]*\] -> ", "", str(edge.pairs))
        pairs.setdefault((edge.source, edge.sink), {})[text] = None
    yield OutlineLine(f"dependences: {len(pairs)} pairs of statements, the first before the second")
    for (source, sink), texts in pairs.items():
        ids = (*ops[source].op_ids, *ops[sink].op_ids)
        yield OutlineLine(f"{called[source]} -> {called[sink]}", 1, ids, folded=True)
        yield from (OutlineLine(text, 2) for text in texts)


def _memory(plan: MemoryPlan) -> Iterator[OutlineLine]:
    """The plan's own text, with what each of its lines is about."""
    made = {store.name: tensor for tensor, store in plan.stores.items()}
    for line in _outline_lines(plan.found_by()):
        tensor = made.get(line.text.partition(":")[0])
        if tensor is None or line.op_ids:
            yield line
        else:
            yield replace(line, op_ids=(plan.computing_operation(*tensor).id,))


def _nest(view: LoopView) -> Iterator[OutlineLine]:
    for line in view.lines:
        region = " / ".join(line.region)
        note = f"{line.sort} in {region}" if region else line.sort
        yield OutlineLine(line.text, line.depth, line.op_ids or line.inside, note)


def _executable(executable: Executable) -> Iterator[OutlineLine]:
    yield OutlineLine(executable.how)
    yield from _outline_lines(executable.found_by())
    for call in executable.xla_program.calls if executable.xla_program is not None else ():
        for sort, what in _DETAILS.items():
            text = what.format(call.number)
            yield OutlineLine(
                f"{sort} of call {call.number}", note=text, detail=f"{sort} {call.number}"
            )


def _outline_lines(found: Iterable[tuple[str, Sequence[str]]]) -> Iterator[OutlineLine]:
    """Lines of an artifact, with the operations that each can be found by."""
    for text, about in found:
        shown = text.lstrip()
        ids = tuple(int(part[1:]) for part in about if re.fullmatch(r"%\d+", part))
        yield OutlineLine(shown, (len(text) - len(shown)) // 2, ids)
