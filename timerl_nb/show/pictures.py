"""The static pictures of artifacts: what a notebook shows of them, with or without a kernel."""

from __future__ import annotations

import numpy as np

from timerl_nb.inspectable import register_picture
from timerl_nb.ir.choice import Choice
from timerl_nb.ir.pdg import Pdg
from timerl_nb.loops.nodes import Ast, Execute, If, Loop, Transfer
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.memory.timeline import Timeline
from timerl_nb.runtime.executable import Executable
from timerl_nb.schedule.schedule import Schedule, StatementPoints
from timerl_nb.show.graph import graph_view
from timerl_nb.show.layout import layout_svg
from timerl_nb.show.svg import (
    BLUE,
    FAINT,
    GREY,
    SERIES,
    VERMILION,
    Axes,
    Svg,
    human_bytes,
)
from timerl_nb.stages import Listing

LINE = 17  # pixels per line of text
GLYPH = 7.25  # pixels per character of monospaced text
GATHERED = "gathered operands"


def pdg_picture(pdg: Pdg) -> str:
    """The graph, folded to fit."""
    return layout_svg(graph_view(pdg).to_dot())


def text_picture(text: str) -> str:
    """Lines of plain text."""
    lines = text.splitlines() or [""]
    svg = Svg(24 + GLYPH * max(map(len, lines)), 16 + LINE * len(lines))
    for k, line in enumerate(lines):
        svg.text(12, 12 + LINE * (k + 0.6), line, mono=True)
    return str(svg)


def ast_picture(ast: Ast) -> str:
    """The loop nest like code: loops and conditions in blue, launches dark, frees and moves in orange."""
    lines = ast.lines()
    width = max((2 * depth + len(text) for depth, text, _ in lines), default=10)
    svg = Svg(24 + GLYPH * width, 16 + LINE * len(lines), "loop nest")
    for k, (depth, text, node) in enumerate(lines):
        x, y = 12 + 2 * GLYPH * depth, 12 + LINE * (k + 0.6)
        for level in range(depth):
            at = 14 + 2 * GLYPH * level
            svg.line(at, y - 12, at, y + 5, "#e4e4e4")
        if isinstance(node, Loop | If):
            svg.text(x, y, text, mono=True, fill=BLUE)
        elif isinstance(node, Execute):
            svg.text(x, y, text, mono=True, bold=True)
        elif isinstance(node, Transfer):
            svg.text(x, y, text, mono=True, fill="#9a5b00")
    return str(svg)


# --- iteration space -----------------------------------------------------------------------------


def main_dimension(schedule: Schedule) -> str | None:
    """The innermost dimension that some statement varies over."""
    used = {d for op in schedule.statements.values() for d in op.domain}
    order = [d for d in schedule.constraints.pdg.dims.names if d in used]
    return order[-1] if order else None


def iteration_space(schedule: Schedule, dim: str | None = None, limit: int = 40) -> str:
    """Time across, one dimension up, one mark per executed point of one iteration.

    Statements that do not vary over the dimension but over the others are upright bars: they are
    vectorised over it, or belong to the iteration as a whole. Bounds above `limit` are drawn as
    `limit`: the schedule is the same for all bounds, and single points stay visible.

    Args:
        dim: the dimension that goes up; the innermost by default.
    """
    dim = dim or main_dimension(schedule)
    if dim is None:
        return text_picture(str(schedule))
    small = {name: min(value, limit) for name, value in schedule.bounds.items()}
    drawn = Schedule(schedule.constraints, schedule.tree, small)
    outer = {d for op in schedule.statements.values() for d in op.domain} - {dim}
    dims = schedule.constraints.pdg.dims
    fixed = {d: min(1, dims[d].count(small) - 1) for d in outer}
    # by name, so that programs that are much alike look alike side by side
    points = sorted((p for p in drawn.points(**fixed) if len(p)), key=lambda p: p.name)
    size = dims[dim].count(small)
    end = max((int(p.time.max()) for p in points), default=0) + 1
    svg = Svg(560, 70 + 250 + 18 * len(points), "iteration space")
    axes = Axes(svg, (52, 34, 490, 230), (0, end), (0, size))
    at = f" at {', '.join(f'{k} = {v}' for k, v in fixed.items())}" if fixed else ""
    for k, statement in enumerate(points):
        _marks(svg, axes, statement, dim, k)
    axes.frame(f"time: order of execution{at}", dim)
    bound = dims[dim].bound
    if small[bound] < schedule.bounds[bound]:
        note = f"drawn for {bound} = {small[bound]}; the program has {schedule.bounds[bound]}"
        svg.text(542, 26, note, size=10, anchor="end", fill=FAINT)
    for k, statement in enumerate(points):
        y = 322 + 18 * k
        _mark(svg, 62, y - 4, k, 5.0)
        over = f"each {dim}" if dim in statement.coordinates else "once"
        svg.text(
            76, y, f"{statement.name}  ({' / '.join(statement.region) or 'no region'}; {over})"
        )
    return str(svg)


def _marks(svg: Svg, axes: Axes, statement: StatementPoints, dim: str, k: int) -> None:
    if dim not in statement.coordinates:
        for time in statement.time[:200]:
            x = axes.px(float(time) + 0.5)
            svg.rect(
                x - 2, axes.box[1], 4, axes.box[3], SERIES[k % len(SERIES)], tip=statement.name
            )
        return
    up = statement.coordinates[dim]
    keep = np.unique(np.linspace(0, len(up) - 1, min(len(up), 260)).astype(int))
    for n in keep:
        x, y = axes.px(float(statement.time[n]) + 0.5), axes.py(float(up[n]) + 0.5)
        _mark(svg, x, y, k, 3.0 if len(up) <= 60 else 1.6)


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
    shown = line.bytes[start:end]
    series = top_series(line, limit, start, end)
    svg = Svg(620, 330 + 18 * len(series), "predicted memory")
    axes = Axes(svg, (70, 34, 530, 230), (start, end), (0, max(line.peak, 1) * 1.12))
    # one column per few pixels, each at its own greatest moment
    edges = np.linspace(0, len(shown), min(len(shown), 530) + 1).astype(int)
    moments = [a + int(shown[a:b].argmax()) for a, b in zip(edges, edges[1:], strict=False)]
    base = np.zeros(len(moments))
    for k, (name, values) in enumerate(series):
        top = base + values[moments]
        svg.path(_area(axes, edges + start, base, top), _colour(name, k), tip=name, opacity=0.85)
        base = top
    y = axes.py(line.peak)
    svg.line(70, y, 600, y, VERMILION, "4 3")
    svg.text(598, y - 6, f"peak {human_bytes(line.peak)}", size=11, anchor="end", fill=VERMILION)
    axes.frame("time: executed points, in order", "live bytes, predicted", as_bytes=True)
    if (start, end) != (0, len(line.time)):
        turn = int(line.turn[start])
        total = int(line.turn.max()) + 1
        note = f"one turn of the outermost loop: {line.outer} = {turn} of {total}"
        svg.text(598, 26, note, size=10, anchor="end", fill=FAINT)
    for k, (name, values) in enumerate(series):
        at = 326 + 18 * k
        svg.rect(70, at - 10, 12, 12, _colour(name, k))
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
    ranked = sorted(spans.items(), key=lambda item: (-float(item[1].max()), item[0]))
    shown = list(ranked[:limit])
    if len(ranked) > limit:
        rest = sum((v for _, v in ranked[limit:]), np.zeros_like(line.bytes[start:end]))
        shown.append((f"{len(ranked) - limit} others", rest))
    gathered = line.transient[start:end]
    if gathered.any():
        shown.append((GATHERED, gathered))
    return shown


def _area(axes: Axes, edges: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    up = [
        f"{axes.px(float(e)):.1f} {axes.py(float(h)):.1f}"
        for e, h in zip(edges, high, strict=False)
    ]
    down = [
        f"{axes.px(float(e)):.1f} {axes.py(float(v)):.1f}" for e, v in zip(edges, low, strict=False)
    ]
    last = axes.px(float(edges[-1]))
    up.append(f"{last:.1f} {axes.py(float(high[-1])):.1f}")
    down.append(f"{last:.1f} {axes.py(float(low[-1])):.1f}")
    return f"M{' L'.join(up)} L{' L'.join(reversed(down))} Z"


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
