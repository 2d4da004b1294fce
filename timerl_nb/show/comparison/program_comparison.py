"""View-model of the differences between two programs."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from timerl_nb.base.options import Options
from timerl_nb.base.text_formatting import format_bytes, format_count
from timerl_nb.driver.program import Program
from timerl_nb.show.colours import of_statements, of_tensors
from timerl_nb.show.memory.memory_view import MemoryView
from timerl_nb.show.schedule.iteration_space_view import IterationSpaceView
from timerl_nb.show.schedule.loop_view import LoopView
from timerl_nb.show.schedule.points_of_one_iteration import Turn
from timerl_nb.show.stages.operation_lineage import operations
from timerl_nb.show.stages.pipeline_view import json_value
from timerl_nb.show.view_model import HIDDEN, Key, View, shown

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Differing:
    """Option or bound that differs."""

    name: str
    values: Pair


@dataclass(frozen=True)
class DifferingCount:
    """Number of operations of a kind in stage `pdg` (as written) or `executable` (as executed)."""

    stage: str
    kind: str
    counts: tuple[int, int]


@dataclass(frozen=True)
class DifferingKernel:
    """Numbers of operations and outputs of a kernel."""

    name: str
    operations: tuple[int | None, int | None]
    outputs: tuple[int | None, int | None]


@dataclass(frozen=True)
class DifferingStore:
    """Storage kinds of a tensor, and its maximal bytes."""

    name: str
    kinds: tuple[str | None, str | None]
    bytes: tuple[int | None, int | None]


@dataclass(frozen=True)
class Cost:
    """Durations of a stage in seconds."""

    stage: str
    seconds: tuple[float | None, float | None]


@dataclass(frozen=True)
class Ends:
    """Common axis ends, counted from 0: instants, points of the vertical dimension, bytes."""

    time: int
    up: int
    bytes: int


@dataclass(frozen=True)
class LineOfBoth:
    """Line of two loop nests, with its number in each; None if the nest does not contain it."""

    text: str
    numbers: Annotated[tuple[int | None, int | None], Key("lines")]

    @shown
    def sign(self) -> str:
        """ " " for a line of both, "-" for a line of the first, "+" for a line of the second program."""
        return {(False, True): "-", (True, False): "+"}.get(
            (self.numbers[0] is None, self.numbers[1] is None), " "
        )


@dataclass(frozen=True, eq=False)
class ComparisonView(View):
    """Differences between two programs.

    Every pair has one entry per program, None if the program has none.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> a, b = ctx.compile({B: 1, I: 1, T: 4}), ctx.compile({B: 1, I: 1, T: 8})
        >>> view = trl.show.ComparisonView.from_programs(a, b)
        >>> view.bounds[0].values
        (4, 8)
    """

    view = "comparison"

    programs: Annotated[tuple[Program, Program], HIDDEN]
    titles: tuple[str, str]
    spaces: tuple[IterationSpaceView, IterationSpaceView]
    memories: tuple[MemoryView, MemoryView]

    @classmethod
    def from_programs(
        cls,
        a: Program,
        b: Program,
        titles: tuple[str, str] = ("a", "b"),
        dim: str | None = None,
        fixed: Mapping[str, int] | None = None,
        first: Program | None = None,
    ) -> ComparisonView:
        """Compare two programs.

        Args:
            a, b: the programs.
            titles: their titles.
            dim, fixed: the arguments of `Turn.from_program` for both programs.
            first: a program of an earlier comparison, whose operations and tensors keep their colours.
        """
        x, y = Turn.from_program(a, dim, fixed), Turn.from_program(b, dim, fixed)
        order = (a, b) if first is None else (first, b, a)
        looks = of_statements(*(program.schedule for program in order))
        fills = of_tensors(*(program.memory for program in order))
        return cls(
            (a, b),
            titles,
            (IterationSpaceView.of_turn(x, looks), IterationSpaceView.of_turn(y, looks)),
            (MemoryView.of_turn(x, fills), MemoryView.of_turn(y, fills)),
        )

    @shown
    def axes(self) -> Ends:
        return Ends(
            max(len(space.turn) for space in self.spaces),
            max(space.turn.size for space in self.spaces),
            max(1, *self.peak),
        )

    # --- differences ----------------------------------------------------------------------------

    @shown
    def same_graph(self) -> bool:
        """Whether both programs were compiled from one graph, so that their ids agree."""
        a, b = self.programs
        return a.pdg is b.pdg

    @shown
    def options(self) -> tuple[Differing, ...]:
        """The options that differ."""
        given = [
            {f.name: json_value(getattr(program.options, f.name)) for f in fields(Options)}
            for program in self.programs
        ]
        return tuple(Differing(*item) for item in _differing(*given))

    @shown
    def bounds(self) -> tuple[Differing, ...]:
        """The bounds that differ."""
        given = [{n: int(v) for n, v in p.bounds.items()} for p in self.programs]
        return tuple(Differing(*item) for item in _differing(*given))

    @shown
    def operations(self) -> tuple[DifferingCount, ...]:
        """The kinds of operations whose numbers differ."""
        found: list[DifferingCount] = []
        for stage in ("pdg", "executable"):
            graphs = [p.pdg if stage == "pdg" else p.fused for p in self.programs]
            a, b = (Counter(op.kind for op in operations(g).values()) for g in graphs)
            kinds = sorted(k for k in a.keys() | b.keys() if a[k] != b[k])
            found += [DifferingCount(stage, kind, (a[kind], b[kind])) for kind in kinds]
        return tuple(found)

    @shown
    def kernels(self) -> tuple[DifferingKernel, ...]:
        """The kernels that differ."""
        pairs = _differing(*(dict(_kernels(program)) for program in self.programs))
        return tuple(DifferingKernel(n, _part(pair, 0), _part(pair, 1)) for n, pair in pairs)

    @shown
    def stores(self) -> tuple[DifferingStore, ...]:
        """The tensors whose storage differs."""
        given = [
            {s.name: (s.shape, s.most * s.unit) for s in program.memory.stores.values()}
            for program in self.programs
        ]
        pairs = _differing(*given)
        return tuple(DifferingStore(n, _part(pair, 0), _part(pair, 1)) for n, pair in pairs)

    @shown
    def seconds(self) -> tuple[Cost, ...]:
        """The duration of each stage."""
        given = [{n: s.seconds for n, s in p.stages.items()} for p in self.programs]
        return tuple(Cost(*item) for item in _pair_by_name(*given))

    @shown
    def peak(self) -> tuple[int, int]:
        a, b = (program.memory.peak for program in self.programs)
        return a, b

    @shown
    def host_peak(self) -> tuple[int, int]:
        a, b = (program.memory.timeline().host_peak for program in self.programs)
        return a, b

    @shown
    def loops(self) -> tuple[LineOfBoth, ...]:
        """The lines of both loop nests in a common order."""
        old, new = (str(LoopView.from_program(program)).splitlines() for program in self.programs)
        found: list[LineOfBoth] = []
        match = difflib.SequenceMatcher(None, old, new, autojunk=False)
        for what, i, i_end, j, j_end in match.get_opcodes():
            if what == "equal":
                rows = zip(range(i, i_end), range(j, j_end), strict=True)
                found += [LineOfBoth(old[m], (m, n)) for m, n in rows]
                continue
            found += [LineOfBoth(old[m], (m, None)) for m in range(i, i_end)]
            found += [LineOfBoth(new[n], (None, n)) for n in range(j, j_end)]
        return tuple(found)

    # --- display ------------------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        first, second = self.titles
        yield f"{first} -> {second}"
        for title, rows in (("option", self.options), ("bound", self.bounds)):
            for row in rows:
                yield f"{title} {row.name}: {row.values[0]} -> {row.values[1]}"
        x, y = self.peak
        yield f"predicted peak: {x:,} -> {y:,} bytes{_times(x, y)}"
        how, other = (", ".join(p.memory.saved_by) or "nothing" for p in self.programs)
        if how != other:
            yield f"memory saved by: {how} -> {other}"
        for kernel in self.kernels:
            one, other = map(_kernel_text, kernel.operations, kernel.outputs)
            yield f"kernel {kernel.name}: {one} -> {other}"
        for row in self.operations:
            yield f"{row.kind} in {row.stage}: {row.counts[0]} -> {row.counts[1]}"
        for store in self.stores:
            one, other = map(_store_text, store.kinds, store.bytes)
            yield f"store {store.name}: {one} -> {other}"
        yield "loops:"
        for line in self.loops:
            yield f"{line.sign} {line.text}"


def _kernels(program: Program) -> Iterator[tuple[str, tuple[int, int]]]:
    for op in program.fused:
        if op.kind == "dataflow":
            yield program.ast.names[op.id], (len(op.op_ids) - 1, len(op.outputs))


def _pair_by_name(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, Pair]]:
    """Yield the values of two mappings under each name, None for a missing one."""
    for name in dict.fromkeys((*a, *b)):
        yield name, (a.get(name), b.get(name))


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, Pair]]:
    return ((name, (x, y)) for name, (x, y) in _pair_by_name(a, b) if x != y)


def _part(pair: Pair, k: int) -> Pair:
    one, other = (None if both is None else both[k] for both in pair)
    return one, other


def _times(x: int, y: int) -> str:
    if x == y or not x or not y:
        return ""
    return f" ({max(x, y) / min(x, y):.1f} times {'more' if y > x else 'less'})"


def _kernel_text(operations: int | None, outputs: int | None) -> str:
    return (
        "none"
        if operations is None
        else f"{format_count(operations, 'operation')}, {format_count(outputs or 0, 'output')}"
    )


def _store_text(kind: str | None, size: int | None) -> str:
    return "none" if kind is None or size is None else f"{kind}, {format_bytes(size)}"
