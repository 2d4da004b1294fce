"""View-model of stages without a graph: foldable lines of text with their operations."""

from __future__ import annotations

import difflib
import linecache
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from timerl_nb.base.errors import OptionError
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_text import op_line, op_lines
from timerl_nb.compiler.ir.operations import Op
from timerl_nb.compiler.language.foreign_names import expect_type
from timerl_nb.compiler.loops.loop_nodes import Ast
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.scheduling.schedule_artifact import Schedule
from timerl_nb.driver.program import Program, a_program
from timerl_nb.driver.stages import Listing, Stage
from timerl_nb.runtime.executable import Executable
from timerl_nb.show.schedule.loop_view import LoopView
from timerl_nb.show.stages.operation_costs import CostView, computing_operations
from timerl_nb.show.view_model import View

Place = tuple[str, int]  # a file and a line of it
FEW: Final = 5  # operations of a step
AROUND: Final = 2  # lines shown around lines with operations
_DETAILS: Final = {
    "jaxpr": "the jaxpr of call {}; traced when opened",
    "hlo": "the HLO of call {}; compiled again when opened, which can take long",
}


@dataclass(frozen=True)
class OutlineLine:
    """Line of an outline at nesting level `depth`; deeper lines below it can be folded.

    Attributes:
        op_ids: the operations of the line, possibly none.
        note: a remark beside it, such as the kind of a node.
        number: the line number in a file, else 0.
        figures: one value per column of the view, or none.
        folded: whether it is folded initially.
        detail: the name of a detail that can be requested (`detail`), or "".
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
    """Column of figures; the unit is `bytes`, `seconds`, or "" for a count."""

    name: str
    unit: str


@dataclass(frozen=True)
class OutlineView(View):
    """A stage as foldable text.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> trl.show.OutlineView.from_stage(program, "schedule").stage
        'schedule'
    """

    view = "outline"

    stage: str
    lines: tuple[OutlineLine, ...]
    columns: tuple[Column, ...] = ()

    @classmethod
    def from_stage(cls, program: Program, stage: str) -> OutlineView | None:
        """Return the outline of a stage; None if the stage is a graph.

        Raises:
            OptionError: the stage is unknown.
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
                lines = _outline_lines(artifact.searchable_lines())
        return cls(stage, tuple(lines))

    def __str__(self) -> str:
        return "\n".join(f"{'  ' * line.depth}{line.text}" for line in self.lines)


def detail(program: Program, name: str) -> OutlineView:
    """Return a detail that an outline omits: the jaxpr or the HLO of one XLA call, or the text difference of a pass.

    HLO is compiled again. Its lines refer to the operations of their kernels. The detail "diff fuse" has the
    lines that the pass `fuse` removes ("-") and adds ("+"), between unchanged ones. The detail "step fuse 3" has the
    first operations that step 3 of this pass replaces, and the first new ones. Operations that another step has made or
    removed are absent.

    Args:
        program: the program.
        name: the name of the detail, such as "jaxpr 1", "hlo 2" or "diff fuse"; `OutlineView.lines` contain the
            names of the first two.

    Raises:
        OptionError: the detail does not exist.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> len(trl.show.detail(program, "jaxpr 1").lines) > 1
        True
    """
    a_program(program)
    expect_type(
        name, str, "the name of a detail", '"jaxpr 1" is one; `OutlineView.lines` name all.'
    )
    sort, _, number = name.partition(" ")
    stage, _, step = number.rpartition(" ")
    if sort == "step" and stage in program.stages:
        of = program.stages[stage]
        if step in map(str, range(len(of.steps))):
            return OutlineView(name, tuple(_step_lines(of, int(step))))
    if sort == "diff" and number in program.stages:
        return OutlineView(name, tuple(_changed_lines(program.stages[number])))
    lowered = program.executable.xla_program
    calls = 0 if lowered is None else len(lowered.calls)
    if sort not in _DETAILS or number not in map(str, range(1, calls + 1)):
        raise OptionError(
            f"the detail {name!r} does not exist.", hint="use a `detail` of `OutlineView.lines`."
        )
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


def _step_lines(stage: Stage, number: int) -> Iterator[OutlineLine]:
    """Yield the first operations that a step replaces, and the first new ones, as text in the pass's graphs."""
    if stage.previous is None or stage.rewritten is None:
        return
    step = stage.steps[number]
    for sign, graph, ids in (
        ("-", stage.previous, step.before),
        ("+", stage.rewritten.pdg, step.after),
    ):
        there = [k for k in ids if k in graph.ops]
        for k in there[:FEW]:
            yield OutlineLine(f"{sign} {op_line(graph.ops, graph[k])}", op_ids=(k,))
        if len(there) > FEW:
            yield OutlineLine(f"{sign} and {len(there) - FEW} more")


def _changed_lines(stage: Stage) -> Iterator[OutlineLine]:
    """Yield the differing lines of a pass's graphs, with their surroundings."""
    if stage.previous is None or stage.rewritten is None:
        return
    old, new = (
        [(line, op.op_ids) for op in graph for line in op_lines(graph.ops, op)]
        for graph in (stage.previous, stage.rewritten.pdg)
    )
    match = difflib.SequenceMatcher(
        None, [text for text, _ in old], [text for text, _ in new], autojunk=False
    )

    def signed(sign: str, lines: Iterable[tuple[str, tuple[int, ...]]]) -> Iterator[OutlineLine]:
        return (OutlineLine(f"{sign} {text}", 0, ids) for text, ids in lines)

    for what, i, i_end, j, j_end in match.get_opcodes():
        if what != "equal":
            yield from signed("-", old[i:i_end])
            yield from signed("+", new[j:j_end])
            continue
        before = AROUND if i else 0  # a change precedes the lines
        after = AROUND if i_end < len(old) or j_end < len(new) else 0
        hidden = j_end - j - before - after
        if hidden <= 1:
            yield from signed(" ", new[j:j_end])
            continue
        yield from signed(" ", new[j : j + before])
        yield OutlineLine(f"  … {format_count(hidden, 'equal line')}")
        yield from signed(" ", new[j_end - after : j_end])


# --- the user's lines ----------------------------------------------------------------------------


def source_view(
    program: Program, seconds: Mapping[int, float] | None = None, costs: CostView | None = None
) -> OutlineView:
    """Return the user's code with the bytes, launches and time of each line.

    A line's bytes are those of the tensors that it computes. Its launches are those of the kernels that
    execute a part of it; other lines may share these kernels.

    Args:
        program: the program.
        seconds: by operation, the time of the kernels or calls that contain it.
        costs: the costs of the program with these times, if they are known already.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> trl.show.source_view(program).stage
        'source'
    """
    a_program(program)
    wrote: dict[str, dict[int, list[int]]] = {}
    for op in program.pdg:
        if op.origin.line:
            wrote.setdefault(op.origin.file, {}).setdefault(op.origin.line, []).append(op.id)
    figures = _Figures(program, costs or CostView.from_program(program, seconds))
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
    """Figures of the user's lines, by file and line number."""

    def __init__(self, program: Program, view: CostView) -> None:
        plan = program.memory
        costs = {one.name: one for one in view.measures}
        held: dict[Place, float] = {}
        for tensor, row in zip(plan.stores, costs["bytes"].rows, strict=True):
            place = _place(plan.computing_operation(*tensor))
            held[place] = held.get(place, 0.0) + row.value
        columns: list[tuple[Column, Mapping[Place, float]]] = [(Column("bytes", "bytes"), held)]
        for name, title in (("launches", "launches"), ("measured time", "time")):
            if name not in costs:
                continue
            found: dict[Place, float] = {}
            for op, row in zip(plan.statements.ops.values(), costs[name].rows, strict=True):
                for place in {_place(one) for one in computing_operations(op)}:
                    found[place] = found.get(place, 0.0) + row.value
            columns.append((Column(title, costs[name].unit), found))
        self.columns = tuple(column for column, _ in columns)
        self._counts = tuple(counts for _, counts in columns)

    def figures_of(self, place: Place) -> tuple[float | None, ...]:
        return tuple(counts.get(place) for counts in self._counts)


def _place(op: Op) -> Place:
    return op.origin.file, op.origin.line


# --- the other stages ----------------------------------------------------------------------------


def _schedule(schedule: Schedule) -> Iterator[OutlineLine]:
    """Yield the time of every statement, its loops (bands), and its dependences."""
    names, ops = schedule.names, schedule.constraints.statements.ops
    times, loops = schedule.tree.times(), schedule.tree.loops()
    called = {key: f"{names[op.id]}({', '.join(op.domain)})" for key, op in ops.items()}
    yield OutlineLine(
        f"θ: the time of each of {format_count(len(ops), 'statement')}, compared lexicographically"
    )
    for key, op in ops.items():
        yield OutlineLine(f"{called[key]} -> ({', '.join(map(str, times[key]))})", 1, op.op_ids)
    bands = sorted({k for found in loops.values() for k, _ in found})
    yield OutlineLine(
        f"bands: {format_count(len(bands), 'loop')}, with the iteration in which each statement runs"
    )
    for k in bands:
        within = {key: dict(found)[k] for key, found in loops.items() if k in dict(found)}
        together = tuple(op_id for key in within for op_id in ops[key].op_ids)
        yield OutlineLine(
            f"loop {k + 1}, around {format_count(len(within), 'statement')}", 1, together
        )
        for key, at in within.items():
            yield OutlineLine(f"{called[key]} in iteration {at}", 2, ops[key].op_ids)
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
    """Yield the lines of the plan's text with their operations."""
    made = {store.name: tensor for tensor, store in plan.stores.items()}
    for line in _outline_lines(plan.searchable_lines()):
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
    yield from _outline_lines(executable.searchable_lines())
    for call in executable.xla_program.calls if executable.xla_program is not None else ():
        for sort, what in _DETAILS.items():
            text = what.format(call.number)
            yield OutlineLine(
                f"{sort} of call {call.number}", note=text, detail=f"{sort} {call.number}"
            )


def _outline_lines(found: Iterable[tuple[str, Sequence[str]]]) -> Iterator[OutlineLine]:
    """Yield the lines of an artifact with their operations."""
    for text, about in found:
        shown = text.lstrip()
        ids = tuple(int(part[1:]) for part in about if re.fullmatch(r"%\d+", part))
        yield OutlineLine(shown, (len(text) - len(shown)) // 2, ids)
