"""The static pictures of artifacts: what a notebook shows of them, with or without a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from timerl_nb.inspectable import register_picture
from timerl_nb.ir.choice import Choice
from timerl_nb.ir.pdg import Pdg
from timerl_nb.loops.nodes import Ast, Execute, If, Loop
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.memory.timeline import Timeline
from timerl_nb.runtime.executable import Executable
from timerl_nb.schedule.schedule import Schedule, StatementPoints
from timerl_nb.show.graph import graph_view, laid_out
from timerl_nb.show.layout import layout_svg
from timerl_nb.show.svg import (
    BLUE,
    FAINT,
    GLYPH,
    GREY,
    INK,
    LINE,
    SERIES,
    VERMILION,
    Axes,
    Svg,
    human_bytes,
    text_picture,
)
from timerl_nb.show.turn import LIMIT, Turn, main_dimension, outer_dimensions
from timerl_nb.stages import Listing

GATHERED = "gathered operands"
MOST_STATEMENTS = 16  # that a legend names one by one


def pdg_picture(pdg: Pdg) -> str:
    """The graph, folded to fit."""
    _, svg = laid_out(graph_view(pdg))
    return svg


def ast_picture(ast: Ast) -> str:
    """The loop nest like code."""
    sorts = {Loop: "loop", If: "if", Execute: "execute"}
    return nest_picture([(d, text, sorts.get(type(node), "free")) for d, text, node in ast.lines()])


def nest_picture(lines: Sequence[tuple[int, str, str]]) -> str:
    """Lines as (depth, text, sort): loops and conditions in blue, launches dark, frees and moves in
    orange."""
    width = max((2 * depth + len(text) for depth, text, _ in lines), default=10)
    svg = Svg(24 + GLYPH * width, 16 + LINE * len(lines), "loop nest")
    looks = {"loop": BLUE, "if": BLUE, "else": BLUE, "execute": INK}
    for k, (depth, text, sort) in enumerate(lines):
        x, y = 12 + 2 * GLYPH * depth, 12 + LINE * (k + 0.6)
        for level in range(depth):
            at = 14 + 2 * GLYPH * level
            svg.line(at, y - 12, at, y + 5, "#e4e4e4")
        fill = looks.get(sort, "#9a5b00")
        svg.text(x, y, text, mono=True, fill=fill, bold=sort == "execute")
    return str(svg)


# --- iteration space -----------------------------------------------------------------------------


def iteration_space(schedule: Schedule, dim: str | None = None, limit: int = LIMIT) -> str:
    """Time across, one dimension up, one mark per executed point of one iteration.

    Bounds above `limit` are drawn as `limit`: the schedule is the same for all bounds, and single
    points stay visible.

    Args:
        dim: the dimension that goes up; the innermost by default.
    """
    dim = dim or main_dimension(schedule)
    if dim is None:
        return text_picture(str(schedule))
    small = {name: min(value, limit) for name, value in schedule.bounds.items()}
    drawn = Schedule(schedule.constraints, schedule.tree, small)
    dims = schedule.constraints.pdg.dims
    fixed = {d: min(1, dims[d].count(small) - 1) for d in outer_dimensions(schedule, dim)}
    note = _drawn_for(dims[dim].bound, small, schedule.bounds)
    return space_picture(drawn.points(**fixed), dim, dims[dim].count(small), fixed, note)


def _drawn_for(bound: str, drawn: Mapping[str, int], own: Mapping[str, int]) -> str:
    if drawn[bound] >= own[bound]:
        return ""
    return f"drawn for {bound} = {drawn[bound]}; the program has {own[bound]}"


def turn_picture(turn: Turn, time: int = 0, up: int = 0) -> str:
    """The iteration space of a turn; its axes end at `time` and `up` where these are greater."""
    if turn.dim is None:
        return text_picture(str(turn.program.schedule))
    note = _drawn_for(turn.dims[turn.dim].bound, turn.bounds, turn.program.bounds)
    return space_picture(turn.points, turn.dim, max(up, turn.size), turn.fixed, note, time)


def space_picture(
    points: Sequence[StatementPoints],
    dim: str,
    size: int,
    fixed: Mapping[str, int],
    note: str = "",
    until: int = 0,
) -> str:
    """Time across (to `until` at least), one dimension up, one mark per executed point.

    Statements that do not vary over the dimension but over the others are upright bars: they are
    vectorised over it, or belong to the iteration as a whole.
    """
    # by name, so that programs that are much alike look alike side by side
    shown = sorted((p for p in points if len(p)), key=lambda p: p.name)
    groups = _groups(shown, dim)
    end = max(until, *(int(p.time.max()) + 1 for p in shown), 1)
    svg = Svg(560, 70 + 250 + 18 * len(groups), "iteration space")
    axes = Axes(svg, (52, 34, 490, 230), (0, end), (0, size))
    at = f" at {', '.join(f'{k} = {v}' for k, v in fixed.items())}" if fixed else ""
    for k, group in enumerate(groups.values()):
        for statement in group:
            _marks(svg, axes, statement, dim, k, end)
    axes.frame(f"time: order of execution{at}", dim)
    svg.text(542, 26, note, size=10, anchor="end", fill=FAINT)
    for k, title in enumerate(groups):
        y = 322 + 18 * k
        _mark(svg, 62, y - 4, k, 5.0)
        svg.text(76, y, title)
    return str(svg)


def _groups(shown: Sequence[StatementPoints], dim: str) -> dict[str, list[StatementPoints]]:
    """What looks alike, by its line in the legend: each statement, or, of many, those of a region."""
    found: dict[str, list[StatementPoints]] = {}
    for one in shown:
        over = f"each {dim}" if dim in one.coordinates else "once"
        region = " / ".join(one.region) or "no region"
        found.setdefault(f"{one.name}  ({region}; {over})", []).append(one)
    if len(found) <= MOST_STATEMENTS:
        return found
    by_region: dict[str, list[StatementPoints]] = {}
    for one in shown:
        by_region.setdefault(" / ".join(one.region) or "no region", []).append(one)
    return {
        f"{region}  ({len(group)} statement{'s' * (len(group) > 1)})": group
        for region, group in sorted(by_region.items())
    }


def _marks(
    svg: Svg, axes: Axes, statement: StatementPoints, dim: str, k: int, instants: int
) -> None:
    if dim not in statement.coordinates:
        width = max(0.5, min(4.0, 0.8 * axes.box[2] / instants))
        for time in statement.time[:200]:
            x = axes.px(float(time) + 0.5) - width / 2
            fill = SERIES[k % len(SERIES)]
            svg.rect(x, axes.box[1], width, axes.box[3], fill, tip=statement.name)
        return
    up = statement.coordinates[dim]
    keep = np.unique(np.linspace(0, len(up) - 1, min(len(up), 260)).astype(int))
    for n in keep:
        x, y = axes.px(float(statement.time[n]) + 0.5), axes.py(float(up[n]) + 0.5)
        _mark(svg, x, y, k, 3.0 if len(up) <= 60 and instants <= 400 else 1.6)


def _mark(svg: Svg, x: float, y: float, k: int, r: float) -> None:
    """Marks differ by shape as well as by colour."""
    fill = SERIES[k % len(SERIES)]
    shape = k % 4
    if shape == 0:
        svg.add(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" fill="{fill}"/>')
    elif shape == 1:
        svg.rect(x - r, y - r, 2 * r, 2 * r, fill)
    elif shape == 2:
        svg.path(f"M{x:.1f} {y - r:.1f} l{r} {2 * r} h{-2 * r} z", fill)
    else:
        svg.path(f"M{x:.1f} {y - r:.1f} l{r} {r} l{-r} {r} l{-r} {-r} z", fill)


# --- memory --------------------------------------------------------------------------------------


def memory_picture(plan: MemoryPlan, limit: int = 7) -> str:
    """Predicted live bytes over schedule time, by tensor, with the peak and who holds it.

    Of a program with many turns of its outermost loop, one in the middle is drawn.
    """
    line = plan.timeline()
    start, end = _one_turn(line)
    note = ""
    if (start, end) != (0, len(line.time)):
        turn = int(line.turn[start])
        total = int(line.turn.max()) + 1
        note = f"one turn of the outermost loop: {line.outer} = {turn} of {total}"
    series = top_series(line, limit, start, end)
    return bytes_picture(series, line.bytes[start:end], line.peak, start, note)


def bytes_picture(
    series: Sequence[tuple[str, np.ndarray]],
    total: np.ndarray,
    peak: int,
    start: int = 0,
    note: str = "",
    budget: int | None = None,
    until: int = 0,
    highest: int = 0,
    colours: Mapping[str, int] | None = None,
) -> str:
    """Live bytes over time: areas on each other, the peak, and the budget where it is near.

    Args:
        series: by name, the bytes at every instant.
        total: those of all series together.
        start: the number of the first instant.
        until, highest: where the axes end at least.
        colours: numbers of colours by name; in the order of the series by default.
    """
    series = list(series) if len(total) else []
    number = {name: k for k, (name, _) in enumerate(series)} | dict(colours or {})
    end = max(start + len(total), until)
    near = budget is not None and budget <= 2 * peak
    top = max(peak, highest, budget if near and budget else 0, 1) * 1.12
    svg = Svg(620, 330 + 18 * len(series), "predicted memory")
    axes = Axes(svg, (70, 34, 530, 230), (start, end), (0, top))
    # one column per few pixels, each at its own greatest moment
    edges = np.linspace(0, len(total), min(len(total), 530) + 1).astype(int)
    moments = [a + int(total[a:b].argmax()) for a, b in zip(edges, edges[1:], strict=False)]
    base = np.zeros(len(moments))
    for name, values in series:
        top_of, fill = base + values[moments], _colour(name, number[name])
        svg.path(_area(axes, edges + start, base, top_of), fill, tip=name, opacity=0.85)
        base = top_of
    y = axes.py(peak)
    svg.line(70, y, 600, y, VERMILION, "4 3")
    svg.text(598, y - 6, f"peak {human_bytes(peak)}", size=11, anchor="end", fill=VERMILION)
    if near and budget:
        y = axes.py(budget)
        svg.line(70, y, 600, y, INK, "8 3")
        svg.text(76, y - 6, f"budget {human_bytes(budget)}", size=11)
    axes.frame("time: executed points, in order", "live bytes, predicted", as_bytes=True)
    svg.text(598, 26, note, size=10, anchor="end", fill=FAINT)
    for k, (name, values) in enumerate(series):
        at = 326 + 18 * k
        svg.rect(70, at - 10, 12, 12, _colour(name, number[name]))
        svg.text(88, at, f"{name}: at most {human_bytes(float(values.max()))}")
    return str(svg)


def _colour(name: str, k: int) -> str:
    if name == GATHERED:
        return "#444444"
    return GREY if name.endswith(" others") else SERIES[k % (len(SERIES) - 1)]


def _one_turn(line: Timeline) -> tuple[int, int]:
    """The executed points of a turn in the middle; all where there are few turns."""
    turns = int(line.turn.max(initial=-1)) + 1
    if turns < 4:
        return 0, len(line.time)
    inside = np.flatnonzero(line.turn == turns // 2)
    return int(inside[0]), int(inside[-1]) + 1


def top_series(
    line: Timeline, limit: int, start: int = 0, end: int | None = None
) -> list[tuple[str, np.ndarray]]:
    """The tensors with the largest use of memory in a span of time, and the rest as one."""
    spans = {name: values[start:end] for name, values in line.by_tensor.items()}
    return largest(spans, line.transient[start:end], limit)


def largest(
    tensors: Mapping[str, np.ndarray], gathered: np.ndarray, limit: int
) -> list[tuple[str, np.ndarray]]:
    """The tensors with the largest use of memory, the rest as one, and what is gathered."""
    ranked = sorted(tensors.items(), key=lambda item: (-float(item[1].max(initial=0)), item[0]))
    shown = list(ranked[:limit])
    if len(ranked) > limit:
        rest = sum((v for _, v in ranked[limit:]), np.zeros_like(gathered))
        shown.append((f"{len(ranked) - limit} others", rest))
    if gathered.any():
        shown.append((GATHERED, gathered))
    return shown


def _area(axes: Axes, edges: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    """What lies between two curves that keep their values from each edge to the next."""
    start = f"M{axes.px(float(edges[0])):.1f} {axes.py(float(low[0])):.1f}"
    ends = list(edges[1:])
    up = _stairs(axes, high, ends)
    down = _stairs(axes, low[::-1], list(edges[:-1])[::-1])
    return f"{start} {up} {down} Z"


def _stairs(axes: Axes, heights: np.ndarray, ends: list[float]) -> str:
    """From wherever one is, at each height to its end; runs of one height are one line."""
    parts: list[str] = []
    for k, (height, end) in enumerate(zip(heights, ends, strict=False)):
        if k + 1 < len(heights) and heights[k + 1] == height:
            continue
        parts.append(f"V{axes.py(float(height)):.1f} H{axes.px(float(end)):.1f}")
    return " ".join(parts)


def executable_picture(executable: Executable) -> str:
    """The kernels, and who feeds whom."""
    return layout_svg(executable.to_dot())


def listing_picture(listing: Listing) -> str:
    return text_picture(str(listing))


def register() -> None:
    """Let artifacts draw themselves with these pictures."""
    register_picture(Pdg, pdg_picture)
    register_picture(Ast, ast_picture)
    register_picture(Schedule, iteration_space)
    register_picture(MemoryPlan, memory_picture)
    register_picture(Executable, executable_picture)
    register_picture(Listing, listing_picture)
    register_picture(Choice, lambda choice: text_picture(str(choice)))
