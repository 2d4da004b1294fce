"""Export of a compilation as one self-contained HTML file.

The file contains all stages with text and picture, the steps and refusals of each pass, the loop nest, the
iteration space, the memory, and every operation from its source line to its kernel. Its content security
policy forbids all requests.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from timerl_nb.base.atomic_files import user_path
from timerl_nb.base.display_registry import Inspectable
from timerl_nb.base.errors import OptionError, explain_os_errors
from timerl_nb.base.text_formatting import format_bytes, format_count, format_milliseconds
from timerl_nb.compiler.ir.graph_text import op_line
from timerl_nb.compiler.ir.recorded_pass_decisions import Forecast
from timerl_nb.compiler.symbolic.dimensions import bounds_text
from timerl_nb.driver.program import Program, a_program
from timerl_nb.show.html_markup import Markup, Part, element, fold, table
from timerl_nb.show.memory.memory_view import MemoryView
from timerl_nb.show.memory.store_view import BufferRow, StoresView
from timerl_nb.show.schedule.iteration_space_view import IterationSpaceView
from timerl_nb.show.schedule.loop_view import Line, LoopView
from timerl_nb.show.schedule.points_of_one_iteration import Turn
from timerl_nb.show.stages.operation_inspector import InspectorView
from timerl_nb.show.stages.operation_lineage import Lineage
from timerl_nb.show.stages.pipeline_view import PipelineView, StageRow
from timerl_nb.show.stages.rewrite_steps import CandidateRow, StepsView, ids_text
from timerl_nb.show.view_model import View, write_text

HERE: Final = Path(__file__).parent
MANY = 400  # maximal number of listed steps per pass
_WHOSE: Final = {"xla": "XLA's buffer", "interpreter": "interpreter's store"}
_SORTS: Final = {"loop": "loop", "if": "loop", "else": "loop", "execute": "run"}


def export_html(program: Program, path: str | os.PathLike[str], title: str | None = None) -> Path:
    """Write a program's compilation to one HTML file.

    Args:
        program: the program.
        path: the file. Missing folders are created; `.html` is added to a name without an ending.
        title: the title of the page; by default the bounds.

    Returns:
        The path of the file.

    Raises:
        OptionError: the path is a folder or has another ending.
        ExecutionError: the file cannot be written; an older file remains.

    Example:
        >>> y = ctx.output("y", trl.random.normal((2,), domain=(t,)))
        >>> program = ctx.compile({B: 1, I: 1, T: 4})
        >>> trl.show.export_html(program, "program.html").name
        'program.html'
    """
    a_program(program)
    file = user_path(path)
    if file.is_dir() or file.suffix.lower() not in ("", ".html", ".htm"):
        raise OptionError(
            f"{str(file)!r} is not the path of an HTML file.",
            hint="pass a path such as 'runs/program.html'.",
        )
    file = file if file.suffix else file.with_suffix(".html")
    text = page(program, title)
    with explain_os_errors(
        f"the page {file} cannot be written",
        hint="choose a writable folder with free space.",
    ):
        write_text(file, text)
    return file


def page(program: Program, title: str | None = None) -> str:
    """Return the HTML text of a compilation."""
    name = title or f"Program({bounds_text(program.bounds)})"
    view = PipelineView.from_program(program)
    sections = [("overview", "Overview", overview(program, view))]
    for row in view.stages:
        if row.ran:
            sections.append((f"stage-{row.name}", row.name, stage_section(program, row)))
    turn = Turn.from_program(program)
    space = IterationSpaceView.of_turn(turn)
    sections += [
        ("loops", "Loops", loops(LoopView.from_program(program))),
        ("space", "Iteration space", space_section(space)),
        ("timeline", "Timeline", memory_section(MemoryView.of_turn(turn))),
        ("operations", "Operations", operation_section(program)),
    ]
    same = {f"stage-{row.name}" for row in view.stages if row.changed is False}
    links = [
        element("li", element("a", text, href=f"#{key}", class_="same" if key in same else None))
        for key, text, _ in sections
    ]
    script = (HERE / "page.js").read_text(encoding="utf-8")
    style = (HERE / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("title", name),
        element("style", Markup(style)),
    )
    body = element(
        "body",
        element(
            "header",
            element("h1", name),
            element("p", _subtitle(program, view), class_="faint"),
        ),
        element("nav", element("ul", links), aria_label="stages and views"),
        element(
            "main",
            [
                element("section", element("h2", text), content, id=key)
                for key, text, content in sections
            ],
        ),
        element("script", Markup(script)),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _subtitle(program: Program, view: PipelineView) -> str:
    ran = sum(row.ran for row in view.stages)
    peak = ", ".join((format_bytes(program.memory.peak), *program.memory.saved_by))
    return f"compiled in {format_milliseconds(view.seconds, '.0f')}, {ran} stages; predicted peak {peak}"


# --- overview ------------------------------------------------------------------------------------


def overview(program: Program, view: PipelineView) -> Part:
    most = max(row.seconds for row in view.stages)
    rows: list[list[Part]] = []
    for row in view.stages:
        name = element("a", row.name, href=f"#stage-{row.name}") if row.ran else row.name
        width = f"width: {row.seconds / most * 9:.2f}rem" if most else ""
        bar = element("span", class_="bar", style=width) if row.ran else None
        same = "changed nothing" if row.changed is False else row.summary
        rows.append([name, row.cost, bar, same])
    given = [option for option in view.options if option.value != option.default]
    bounds = [
        [b.name, f"{b.value:,}", ", ".join(b.dims), f"until {b.until}" if b.until else ""]
        for b in view.bounds
    ]
    holders = [
        [h.tensor, format_bytes(h.nbytes), f"{h.points:,}"] for h in program.memory.holders[:12]
    ]
    return [
        table(["stage", "time", "", "result"], rows, [1]),
        element("h3", "Bounds"),
        table(["bound", "value", "dimensions", ""], bounds, [1]),
        element("h3", "Options that differ from the default"),
        table(
            ["option", "value", "default"],
            [[o.name, repr(o.value), repr(o.default)] for o in given],
        )
        if given
        else element("p", "All options have their defaults.", class_="faint"),
        fold(
            "All options",
            table(
                ["option", "value", "meaning"],
                [[o.name, repr(o.value), o.doc] for o in view.options],
            ),
        ),
        element("h3", f"Tensors at the peak of {format_bytes(program.memory.peak)}"),
        *[element("p", f"{how}: {why}") for how, why in program.memory.saved_by.items()],
        table(["tensor", "bytes", "values"], holders, [1, 2]),
    ]


# --- stages --------------------------------------------------------------------------------------


def stage_section(program: Program, row: StageRow) -> Part:
    """Return the section of a stage: summary, picture, text, steps, choices and refusals."""
    stage = program.stages[row.name]
    parts: list[Part] = [
        element("p", f"{row.summary}; {format_milliseconds(row.seconds)}", class_="faint")
    ]
    if row.changed is False:
        parts.append(
            element("p", "The pass changed nothing: the graph is that of the previous stage.")
        )
    else:
        parts += [
            picture(stage.artifact, row.name),
            fold("Text", element("pre", str(stage.artifact))),
        ]
        counts, *changes = str(stage.diff()).splitlines()
        if changes:
            parts.append(fold(f"Operations: {counts}", element("pre", "\n".join(changes))))
    if stage.rewritten is not None or stage.choices:
        parts.append(steps(StepsView.from_stage(stage)))
    if row.name == "memory":
        parts.insert(1, stores_section(StoresView.from_program(program)))
    return parts


def picture(artifact: Inspectable | View, key: str) -> Markup:
    """Return the picture of an artifact, or a remark if drawing fails.

    Args:
        artifact: the artifact or view.
        key: the section; it prefixes the ids in the picture, which are equal in all pictures.
    """
    try:
        svg = re.sub(r'(<[^<>]*? id=")', lambda found: f"{found[1]}{key}-", artifact.to_svg())
    except Exception as error:  # the page is useful without one of its pictures
        what = f"No picture ({error!s:.200}); the text is below."
        return element("p", what, class_="faint")
    return element("div", Markup(svg), class_="picture")


def steps(view: StepsView) -> Part:
    shown = view.steps[:MANY]
    lines = "\n".join(f"{step.number:>4}  {step.text}" for step in shown)
    if len(shown) < len(view.steps):
        lines += f"\n      and {len(view.steps) - len(shown):,} more"
    parts: list[Part] = []
    if view.steps:
        parts += [
            element("h3", format_count(len(view.steps), "step")),
            table(
                ["rule", "times", "what it does"],
                [[one.rule, str(one.count), one.text] for one in view.rules],
                [1],
            ),
            fold("One after another", element("pre", lines)),
        ]
    for choice in view.choices:
        parts += [
            element("h3", f"Choice: {choice.what}"),
            element("p", f"{choice.taken}, because {choice.why}."),
            candidates(choice.candidates),
        ]
    if view.refused:
        reasons = [
            [
                one.reason,
                str(len(one.op_ids)),
                element("span", ids_text(one.op_ids, most=12), class_="code"),
            ]
            for one in sorted(view.refused, key=lambda one: -len(one.op_ids))
        ]
        parts += [
            element("h3", "Refused rewrites"),
            table(["reason", "operations", "which"], reasons, [1]),
        ]
    return parts


def candidates(found: Sequence[CandidateRow]) -> Markup:
    """Return the table of a pass's alternatives, with their forecasts."""
    rows: list[list[Part]] = []
    for one in found:
        row: list[Part] = [f"{one.name}{' (taken)' if one.taken else ''}", one.doc]
        cost = one.forecast
        if isinstance(cost, Forecast):
            row += [format_bytes(cost.peak), f"{cost.launches:,}", f"{cost.seconds:.3g}"]
        elif any(other.forecast for other in found):
            row += ["", "", "" if cost is None else cost.problem]
        rows.append(row)
    heads = ["candidate", "description", "peak", "launches", "forecast seconds"]
    return table(heads[: len(rows[0])], rows, [2, 3, 4])


# --- views ---------------------------------------------------------------------------------------


def loops(view: LoopView) -> Part:
    lines = [[Markup("  " * line.depth), _highlight_line(line), "\n"] for line in view.lines]
    return element("pre", lines)


def _highlight_line(line: Line) -> Markup:
    """Return a line with its numbers marked; the class depends on the kind of the line."""
    parts: list[Part] = []
    at = 0
    for start, end, sort in line.tokens:
        if sort == "number":
            parts += [line.text[at:start], element("span", line.text[start:end], class_="n")]
            at = end
    return element(
        "span",
        *parts,
        line.text[at:],
        class_=_SORTS.get(line.sort, "move"),
        title=", ".join(line.tensors) or None,
    )


def space_section(view: IterationSpaceView) -> Part:
    rows = [
        [
            one.name,
            " / ".join(one.region),
            f"{one.points:,}",
            f"each {view.turn.dim}" if one.each else "once",
            f"{one.times.min()} to {one.times.max()}",
        ]
        for one in view.statements
    ]
    heads = ["statement", "region", "points", "over", "instants"]
    return [
        picture(view, "space"),
        _about_turn(view.turn),
        fold(
            format_count(len(rows), "statement"), table(heads, rows, [2]), is_open=len(rows) <= 20
        ),
    ]


def _about_turn(turn: Turn) -> Markup:
    at = ", ".join(f"{d} = {value}" for d, value in turn.fixed.items())
    text = f"One turn{' at ' + at if at else ''}: {len(turn):,} executed points."
    return element("p", text, class_="faint")


def memory_section(view: MemoryView) -> Part:
    return [picture(view, "turn"), _about_turn(view.turn)]


def stores_section(view: StoresView) -> Part:
    """Return the section of storage: the layout of every tensor, and totals."""
    amounts = [[a.part, format_bytes(a.bytes), a.known, a.about] for a in view.amounts]
    heads = ["tensor", "layout", "bytes", _WHOSE[view.executor], "why", "last read by"]
    heads.append("shares its slots with")
    rows = [list(_place(one, view.executor == "xla")) for one in view.places]
    kind = "buffer" if view.executor == "xla" else "store"
    return [
        table(["", "bytes", "source", ""], amounts, [1]),
        element("p", f"{format_count(len(rows), kind)}, {format_bytes(view.bytes)}; {view.how}"),
        fold("Storage of tensors", table(heads, rows, [2]), is_open=True),
    ]


def _place(one: BufferRow, is_buffer: bool) -> Iterator[Part]:
    own = one.tensors[0]
    yield own.name
    yield one.layout
    yield format_bytes(one.bytes)
    yield one.name if is_buffer else own.kind
    yield one.why
    yield ", ".join(own.last_read_by)
    said = [(f"{other.how} {other.name}", other.why) for other in one.shared]
    said += [("on the host", text) for text in own.waits]
    said += [("not taken over", text) for text in own.not_given]
    yield [element("div", f"{how}: ", element("span", why, class_="faint")) for how, why in said]


def operation_section(program: Program) -> Part:
    """Return the table of all operations with their kernels."""
    lineage = Lineage.from_program(program)
    names = program.schedule.names
    runs: dict[int, list[int]] = {}
    for kernel in program.fused:
        for op_id in kernel.op_ids:
            runs.setdefault(op_id, []).append(kernel.id)
    rows: list[Part] = []
    for op in program.pdg:
        became = sorted(k for k in lineage.relatives([op.id])["executable"] if k not in names)
        found = dict.fromkeys(
            kernel for k in became for kernel in runs.get(k, ()) if kernel in names
        )
        kernels = [element("a", names[k], href=f"#kernel-{k}") for k in found]
        rows.append(
            element(
                "tr",
                element("td", f"%{op.id}", class_="number"),
                element("td", op_line(program.pdg.ops, op), class_="code"),
                element("td", " / ".join(op.region)),
                element("td", op.origin.place, title=op.origin.text),
                element("td", ids_text(tuple(became)) or "gone"),
                element("td", [[k, " "] for k in kernels]),
                id=f"operation-{op.id}",
            )
        )
    heads = ["id", "as written", "region", "line", "runs as", "kernel"]
    head = element("thead", element("tr", [element("th", text) for text in heads]))
    ask = element("input", type="search", placeholder="filter by any text", aria_label="filter")
    return [
        element("p", ask, class_="asks"),
        element("table", head, element("tbody", rows)),
        *kernels_of(program, lineage),
    ]


def kernels_of(program: Program, lineage: Lineage) -> Iterator[Part]:
    """Yield all kernels with their details."""
    kernels = [op.id for op in program.fused if op.kind == "dataflow"]
    view = InspectorView.from_program(program, kernels, lineage=lineage)
    for op_id in kernels:
        yield element("h3", program.schedule.names[op_id], id=f"kernel-{op_id}")
        yield element("pre", view.text(op_id))
