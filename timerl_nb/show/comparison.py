"""Two programs beside each other: all that differs, and what has to be locked to see it."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from timerl_nb.config import Options
from timerl_nb.program import Program
from timerl_nb.show.lineage import inside, operations
from timerl_nb.show.loop import LoopView
from timerl_nb.show.memory import MemoryView
from timerl_nb.show.pipeline import json_value
from timerl_nb.show.space import IterationSpaceView
from timerl_nb.show.svg import beside, human_bytes, stacked, text_picture
from timerl_nb.show.turn import LIMIT, Turn
from timerl_nb.show.view import View

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class LineOfBoth:
    """A line of two loop nests: its number in each that has it, else None."""

    text: str
    numbers: tuple[int | None, int | None]

    @property
    def sign(self) -> str:
        """ " " where both have it, "-" where the first alone does, "+" where the second does."""
        return {(False, True): "-", (True, False): "+"}.get(
            (self.numbers[0] is None, self.numbers[1] is None), " "
        )


@dataclass(frozen=True, eq=False)
class ComparisonView(View):
    """What differs between two programs.

    JSON: `{"view": "comparison", "titles": [a, b], "same_graph", "options": [{"name", "values"}],
    "bounds": [{"name", "values"}], "operations": [{"stage", "kind", "counts"}], "kernels": [{"name",
    "operations", "outputs"}], "loops": [{"sign", "text", "lines"}], "peak", "host_peak", "seconds":
    [{"stage", "seconds"}], "stores": [{"name", "kinds", "bytes"}], "axes": {"time", "up", "bytes"},
    "spaces": [IterationSpaceView, …], "memories": [MemoryView, …]}`. Whatever has two entries has one
    for each program, null where it has no such thing. `options`, `bounds`, `operations`, `kernels`
    and `stores` list what differs; `axes` are the ends, from 0, of axes that show both.
    """

    programs: tuple[Program, Program]
    titles: tuple[str, str]
    spaces: tuple[IterationSpaceView, IterationSpaceView]
    memories: tuple[MemoryView, MemoryView]

    @classmethod
    def of(
        cls,
        a: Program,
        b: Program,
        titles: tuple[str, str] = ("a", "b"),
        dim: str | None = None,
        fixed: Mapping[str, int] | None = None,
        limit: int | None = LIMIT,
    ) -> ComparisonView:
        """Compare two programs; the other arguments are those of `Turn.of`, for both."""
        turns = Turn.of(a, dim, fixed, limit), Turn.of(b, dim, fixed, limit)
        x, y = turns
        return cls(
            (a, b),
            titles,
            (IterationSpaceView.of_turn(x), IterationSpaceView.of_turn(y)),
            (MemoryView.of_turn(x), MemoryView.of_turn(y)),
        )

    @property
    def axes(self) -> dict[str, int]:
        """The ends of axes that show both: instants, the dimension that goes up, bytes."""
        return {
            "time": max(len(space.turn) for space in self.spaces),
            "up": max(space.turn.size for space in self.spaces),
            "bytes": max(int(memory.bytes.max(initial=1)) for memory in self.memories),
        }

    # --- what differs ----------------------------------------------------------------------------

    def options(self) -> dict[str, Pair]:
        """The options that differ, by name."""
        a, b = (program.options for program in self.programs)
        pairs = {f.name: (getattr(a, f.name), getattr(b, f.name)) for f in fields(Options)}
        return {n: (json_value(x), json_value(y)) for n, (x, y) in pairs.items() if x != y}

    def bounds(self) -> dict[str, Pair]:
        """The bounds that differ, by name."""
        found = _paired(*({n: int(v) for n, v in p.bounds.items()} for p in self.programs))
        return _differing(found)

    def operations(self) -> dict[tuple[str, str], Pair]:
        """How many operations of a kind there are where that differs, as written and as they run."""
        found: dict[tuple[str, str], Pair] = {}
        for stage in ("pdg", "executable"):
            graphs = [p.pdg if stage == "pdg" else p.fused for p in self.programs]
            counts = [Counter(op.kind for op in operations(g).values()) for g in graphs]
            for kind in sorted(counts[0].keys() | counts[1].keys()):
                found[stage, kind] = counts[0][kind], counts[1][kind]
        return _differing(found)

    def kernels(self) -> dict[str, Pair]:
        """What differs of kernels, by name: how many operations and outputs they have."""
        return _differing(_paired(*(dict(_kernels(program)) for program in self.programs)))

    def stores(self) -> dict[str, Pair]:
        """What differs of stores, by tensor: their kinds and the bytes that they hold at most."""
        found = _paired(
            *(
                {s.name: (s.shape, s.most * s.unit) for s in program.memory.stores.values()}
                for program in self.programs
            )
        )
        return _differing(found)

    def seconds(self) -> dict[str, Pair]:
        """What each stage cost."""
        return _paired(*({n: s.seconds for n, s in p.stages.items()} for p in self.programs))

    def loops(self) -> tuple[LineOfBoth, ...]:
        """The lines of both loop nests, in an order that is that of both."""
        old, new = (str(LoopView.of(program)).splitlines() for program in self.programs)
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

    # --- how it shows itself ---------------------------------------------------------------------

    def values(self) -> dict[str, Any]:
        a, b = self.programs
        return {
            "view": "comparison",
            "titles": list(self.titles),
            "same_graph": a.pdg is b.pdg,
            "options": _rows(self.options()),
            "bounds": _rows(self.bounds()),
            "operations": [
                {"stage": stage, "kind": kind, "counts": list(pair)}
                for (stage, kind), pair in self.operations().items()
            ],
            "kernels": [
                {"name": name, "operations": _part(pair, 0), "outputs": _part(pair, 1)}
                for name, pair in self.kernels().items()
            ],
            "loops": [
                {"sign": line.sign, "text": line.text, "lines": list(line.numbers)}
                for line in self.loops()
            ],
            "peak": [a.memory.peak, b.memory.peak],
            "host_peak": [p.memory.timeline().host_peak for p in self.programs],
            "seconds": [
                {"stage": name, "seconds": list(pair)} for name, pair in self.seconds().items()
            ],
            "stores": [
                {"name": name, "kinds": _part(pair, 0), "bytes": _part(pair, 1)}
                for name, pair in self.stores().items()
            ],
            "axes": self.axes,
            "spaces": [space.values() for space in self.spaces],
            "memories": [memory.values() for memory in self.memories],
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        first, second = self.titles
        yield f"{first} -> {second}"
        for title, rows in (("option", self.options()), ("bound", self.bounds())):
            for name, (x, y) in rows.items():
                yield f"{title} {name}: {x} -> {y}"
        x, y = (program.memory.peak for program in self.programs)
        yield f"predicted peak: {x:,} -> {y:,} bytes{_times(x, y)}"
        for name, (one, other) in self.kernels().items():
            yield f"kernel {name}: {_kernel_text(one)} -> {_kernel_text(other)}"
        for (stage, kind), (one, other) in self.operations().items():
            yield f"{kind} in {stage}: {one} -> {other}"
        for name, (one, other) in self.stores().items():
            yield f"store {name}: {_store_text(one)} -> {_store_text(other)}"
        yield "loops:"
        for line in self.loops():
            yield f"{line.sign} {line.text}"

    def to_svg(self) -> str:
        """The spaces and the memories with their axes locked, and the differences as text."""
        axes, (first, second) = self.axes, self.titles
        spaces = [space.picture(axes["time"], axes["up"]) for space in self.spaces]
        names = dict.fromkeys(name for memory in self.memories for name, _ in memory.series)
        colours = {name: k for k, name in enumerate(names)}
        held = [memory.picture(axes["time"], axes["bytes"], colours) for memory in self.memories]
        above, below = beside(spaces, [first, second]), beside(held, [first, second])
        return stacked([above, below, text_picture(str(self), most=120)])


def _kernels(program: Program) -> Iterator[tuple[str, tuple[int, int]]]:
    for op in program.fused:
        if op.kind == "dataflow":
            yield program.ast.names[op.id], (len(inside(op)) - 1, len(op.outputs))


def _paired(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> dict[Any, Pair]:
    """What two mappings have under each name, None where one has nothing."""
    return {name: (a.get(name), b.get(name)) for name in dict.fromkeys((*a, *b))}


def _differing(pairs: Mapping[Any, Pair]) -> dict[Any, Pair]:
    return {name: (x, y) for name, (x, y) in pairs.items() if x != y}


def _rows(pairs: Mapping[str, Pair]) -> list[dict[str, Any]]:
    return [{"name": name, "values": list(pair)} for name, pair in pairs.items()]


def _part(pair: Pair, k: int) -> list[Any]:
    return [None if one is None else one[k] for one in pair]


def _times(x: int, y: int) -> str:
    if x == y or not x or not y:
        return ""
    return f" ({max(x, y) / min(x, y):.1f} times {'more' if y > x else 'less'})"


def _kernel_text(one: tuple[int, int] | None) -> str:
    return "none" if one is None else f"{one[0]} operations, {one[1]} outputs"


def _store_text(one: tuple[str, int] | None) -> str:
    return "none" if one is None else f"{one[0]}, {human_bytes(one[1])}"
