"""The page `docs/explanation/paper-000-timerl.md`, its tables and pictures, from the stored rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.line_chart import Curve, Panel, draw
from benchmarks.paper.findings import findings
from benchmarks.paper.model import error
from benchmarks.paper.rows import FOLDER, Results, read
from benchmarks.paper.tables import ALL

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "explanation" / "paper-000-timerl.md"
PICTURES: Final = DOCS / "pictures"
_PLACE: Final = re.compile(r"<!-- ([^>]+) -->\n.*?<!-- / -->", re.S)
GIB: Final = 2**30
LABELS: Final = {
    "steps": "episode length, steps",
    "width": "parameters per layer",
    "layers": "hidden layers",
    "envs": "environments at the paper's size",
}


def load(device: str) -> Results:
    """Return all stored rows of a device."""
    return Results(row for path in sorted(FOLDER.glob(f"*-{device}.csv")) for row in read(path))


def write() -> None:
    """Write the page and its pictures from the stored rows of the CPU.

    Raises:
        SystemExit: The page has other places than sections.
    """
    text = PAGE.read_text(encoding="utf-8")
    rows = load("cpu")
    PAGE.write_text(filled(text, rows), encoding="utf-8")
    for name, picture in pictures(rows).items():
        (PICTURES / name).write_text(picture, encoding="utf-8")


def filled(text: str, rows: Results) -> str:
    """Return the page's text with all tables."""
    found = [m[1] for m in _PLACE.finditer(text)]
    if sorted(found) != sorted(SECTIONS):
        raise SystemExit(
            f"{PAGE.name} has other places than sections: {set(found) ^ set(SECTIONS)}"
        )
    return _PLACE.sub(lambda m: f"<!-- {m[1]} -->\n\n{SECTIONS[m[1]](rows)}\n\n<!-- / -->", text)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def findings_table(rows: Results) -> str:
    lines = [
        [one.number, one.what, one.paper, one.found, f"{one.verdict}{_because(one.because)}"]
        for one in findings(rows)
    ]
    return _table(["", "finding", "published", "here", "verdict"], lines)


def _because(reason: str) -> str:
    return f", because {reason}" if reason else ""


def _fig9_times(rows: Results) -> str:
    chosen = rows.where(figure="fig9", quantity="iteration time", source="measured")
    systems = chosen.distinct("system")
    lines = []
    for axis, x in dict.fromkeys((row.axis, row.x) for row in chosen):
        cells = [chosen.where(axis=axis, x=x, system=system) for system in systems]
        lines.append([axis, f"{x:g}", *(_time(found) for found in cells)])
    return _table(["axis", "value", *systems], lines)


def _time(found: Results) -> str:
    if not found:
        return "–"
    row = found[0]
    spread = "" if row.least is None else f" [{row.least:.3g} to {row.greatest:.3g}]"
    return f"{row.value:.3g}{spread}"


def _fig9_others(rows: Results) -> str:
    chosen = rows.where(figure="fig9", source="measured")
    lines = []
    for system in chosen.distinct("system"):
        cells = [system]
        for quantity, show in (
            ("utilisation", lambda v: f"{100 * v:.0f} %"),
            ("first step", lambda v: f"{v:.1f} s"),
            ("peak memory", lambda v: f"{v / 2**20:,.0f} MiB"),
        ):
            values = [row.value for row in chosen.where(system=system, quantity=quantity)]
            text = f"{show(min(values))} to {show(max(values))}" if values else "–"
            cells.append(text)
        lines.append(cells)
    head = [
        "system",
        "utilisation, least to greatest of all cells",
        "first step",
        "resident peak above the start",
    ]
    return _table(head, lines)


def _fig10(rows: Results) -> str:
    lines = []
    chosen = rows.where(figure="fig10", axis="width")
    at_size = chosen.only(lambda r: r.condition.startswith("envs=256; steps=1000"))
    for x in dict.fromkeys(row.x for row in at_size):
        need = at_size.value(x=x, system="actor-learner, by formula")
        cells = [f"3x{x:g}x{x:g}", f"{(need or 0) / GIB:.1f}"]
        for budget in ("48", "40"):
            ours = at_size.where(x=x, system="ours").only(
                lambda r, b=budget: f"budget={b} " in r.condition
            )
            device, host = (ours.value(quantity=q) for q in ("peak memory", "host memory"))
            block, seconds = ours.value(quantity="block"), ours.value(quantity="iteration time")
            if device is None:
                cells += ["no plan", "–", "–", "–"]
                continue
            cells += [
                f"{device / GIB:.1f}",
                f"{(host or 0) / GIB:.1f}",
                f"{block:g}",
                f"{seconds:.3g}",
            ]
        lines.append(cells)
    one = ["device, GiB", "host, GiB", "block", "s"]
    head = ["observation", "actor-learner, GiB", *(f"{b} GiB: {c}" for b in (48, 40) for c in one)]
    return _table(head, lines)


def _fig10_scaled(rows: Results) -> str:
    chosen = rows.where(figure="fig10").only(lambda r: r.condition.endswith("bytes"))
    lines = []
    for x in dict.fromkeys(row.x for row in chosen):
        here = chosen.where(x=x)
        pairs = []
        for system, quantity in (
            ("ours, interpreted", "live bytes"),
            ("ours, interpreted", "host memory"),
        ):
            given = {"system": system, "quantity": quantity}
            pairs += [here.value(source=s, **given) for s in ("predicted", "measured")]
        pairs += [
            here.value(system="actor-learner, by formula"),
            here.value(system="jitted", quantity="peak memory"),
        ]
        lines.append([f"3x{x:g}x{x:g}", *(f"{(v or 0) / 2**20:.2f}" for v in pairs)])
    head = [
        "observation",
        "device: predicted",
        "device: measured",
        "host: predicted",
        "host: measured",
    ]
    return _table([*head, "actor-learner: formula", "jitted: stated by XLA"], lines)


def _fig11(rows: Results) -> str:
    chosen = rows.where(figure="fig11b")
    lines = []
    for system in chosen.distinct("system"):
        found = chosen.where(system=system)
        planned = found.where(source="predicted")
        device, host = (planned.value(quantity=q) or 0.0 for q in ("peak memory", "host memory"))
        share = planned.value(quantity="acting steps alongside learning") or 0.0
        predicted = planned.value(quantity="iteration time")
        measured = found.where(quantity="iteration time", source="measured")
        bytes_of = [found.value(quantity="live bytes", source=s) for s in ("predicted", "measured")]
        equal = [f"{b / 2**20:.1f}" if b is not None else "–" for b in bytes_of]
        lines.append(
            [system, f"{device / GIB:.1f}", f"{host / GIB:.1f}", f"{100 * share:.0f} %"]
            + [f"{predicted:.3g}" if predicted is not None else "–", _time(measured), *equal]
        )
    head = [
        "returns",
        "device, GiB",
        "host, GiB",
        "acting steps alongside learning",
        "s, predicted",
    ]
    return _table(
        [*head, "s, measured scaled down", "scaled: MiB predicted", "MiB measured"], lines
    )


def _compile_times(rows: Results) -> str:
    chosen = rows.where(figure="tables", axis="layers")
    lines = [
        [
            f"{x:g}",
            f"{chosen.value(x=x, quantity='operations'):g}",
            _time(chosen.where(x=x, quantity="compile time")),
        ]
        for x in dict.fromkeys(row.x for row in chosen)
    ]
    return _table(["hidden layers", "operations", "s"], lines)


def _passes(rows: Results) -> str:
    chosen = rows.where(figure="tables", axis="pass off")
    base = chosen.value(system=ALL, quantity="iteration time")
    lines = []
    for system in chosen.distinct("system"):
        found = chosen.where(system=system)
        kernels, launches = (found.value(quantity=q) or 0.0 for q in ("kernels", "launches"))
        bytes_of = found.value(quantity="live bytes") or 0.0
        seconds = found.value(quantity="iteration time")
        ratio = f"{seconds / base:.2f}" if seconds is not None and base else "–"
        lines.append([system, f"{kernels:g}", f"{launches:,.0f}", f"{bytes_of / 2**20:.2f}", ratio])
    return _table(
        ["passes", "kernels", "launches of an iteration", "MiB", "time, relative to all passes"],
        lines,
    )


def _launches(rows: Results) -> str:
    chosen = rows.where(
        figure="fig9", quantity="launches", source="predicted", system="ours, interpreted"
    )
    first: dict[tuple[str, float], float] = {}  # the rows at the paper's sizes are the first ones
    for row in chosen:
        first.setdefault((row.axis, row.x), row.value)
    lines = [[axis, f"{x:g}", f"{count:,.0f}"] for (axis, x), count in first.items()]
    return _table(["axis", "value", "launches of an iteration"], lines)


def _errors(rows: Results) -> str:
    lines = []
    for system in ("ours", "ours, interpreted"):
        for quantity, other in (
            ("iteration time", "iteration time"),
            ("peak memory", "XLA: temporaries and arguments"),
        ):
            chosen = rows.where(figure="fig9", system=system)
            measured = chosen.where(quantity=other, source="measured")
            pairs = [
                (p, row.value)
                for row in measured
                if (
                    p := chosen.value(
                        axis=row.axis,
                        x=row.x,
                        quantity=quantity,
                        source="predicted",
                        condition=row.condition,
                    )
                )
            ]
            if pairs:
                mean, least, greatest = error([p for p, _ in pairs], [m for _, m in pairs])
                lines.append(
                    [
                        system,
                        quantity,
                        str(len(pairs)),
                        f"{mean:.2f} [{least:.2f} to {greatest:.2f}]",
                    ]
                )
    return _table(
        ["system", "quantity", "cells", "predicted over measured, geometric mean [range]"], lines
    )


SECTIONS: Final[Mapping[str, Callable[[Results], str]]] = {
    "findings": findings_table,
    "fig9 times": _fig9_times,
    "fig9 others": _fig9_others,
    "fig10": _fig10,
    "fig10 scaled": _fig10_scaled,
    "fig11": _fig11,
    "compile times": _compile_times,
    "passes": _passes,
    "launches": _launches,
    "errors": _errors,
}


# --- pictures --------------------------------------------------------------------------------------


def pictures(rows: Results) -> dict[str, str]:
    """Return the SVG of each figure by its file name."""
    return {
        "paper-fig9.svg": draw(_fig9_panels(rows)),
        "paper-fig10.svg": draw(_fig10_panels(rows)),
        "paper-fig11.svg": draw(_fig11_panels(rows)),
    }


def _fig9_panels(rows: Results) -> list[Panel]:
    panels = []
    for axis, label in LABELS.items():
        chosen = rows.where(figure="fig9", axis=axis, quantity="iteration time", source="measured")
        curves = [Curve(s, list(chosen.curve(system=s).items())) for s in chosen.distinct("system")]
        panels.append(Panel(f"Iteration time, {axis}", label, "seconds", curves))
    for axis in ("width", "envs"):
        chosen = rows.where(figure="fig9", axis=axis, quantity="utilisation")
        curves = [Curve(s, list(chosen.curve(system=s).items())) for s in chosen.distinct("system")]
        panels.append(
            Panel(f"Utilisation, {axis}", LABELS[axis], "fraction", curves, is_log_y=False)
        )
    return panels


def _fig10_panels(rows: Results) -> list[Panel]:
    at_size = rows.where(figure="fig10").only(
        lambda r: r.condition.startswith("envs=256; steps=1000")
    )
    widths = at_size.where(axis="width")
    curves = []
    for name, system, quantity in (
        ("ours, device", "ours", "peak memory"),
        ("ours, host", "ours", "host memory"),
        ("actor-learner, by formula", "actor-learner, by formula", "peak memory"),
    ):
        chosen = widths.only(lambda r: "40 GiB" not in r.condition).curve(
            system=system, quantity=quantity
        )
        curves.append(Curve(name, _in_gib(chosen), "predicted"))
    panels = [
        Panel("Memory against observation", "width of 3 x w x w", "GiB", curves, {"48 GiB": 48.0})
    ]
    for system in at_size.where(axis="time").distinct("system"):
        chosen = at_size.where(axis="time", system=system)
        lines = [
            Curve("ours, device", _in_gib(chosen.curve(quantity="device memory")), "predicted"),
            Curve(
                "ours, host", _in_gib(chosen.curve(quantity="host memory over time")), "predicted"
            ),
        ]
        panels.append(
            _over_time(f"Memory over an iteration, {system.split(', ')[1]}", "GiB", lines)
        )
    return panels


def _over_time(title: str, unit: str, curves: Sequence[Curve]) -> Panel:
    is_predicted = any(curve.source == "predicted" for curve in curves)
    x = "seconds, without copies" if is_predicted else "seconds"
    return Panel(title, x, unit, curves, is_log_x=False, is_log_y=False)


def _in_gib(curve: Mapping[float, float]) -> list[tuple[float, float]]:
    return [(x, value / GIB) for x, value in curve.items()]


def _fig11_panels(rows: Results) -> list[Panel]:
    panels = []
    curves = rows.where(figure="fig11a")
    for source, title in (("predicted", "at the paper's size"), ("measured", "scaled down")):
        chosen = curves.where(source=source)
        systems = chosen.distinct("system")
        if not systems:
            continue
        memory = [
            Curve(s, _in_gib(chosen.curve(system=s, quantity="device memory")), source)
            for s in systems
        ]
        busy = [
            Curve(s, list(chosen.curve(system=s, quantity="utilisation").items()), source)
            for s in systems
        ]
        panels.append(_over_time(f"Device memory, {title}", "GiB", memory))
        panels.append(_over_time(f"Utilisation, {title}", "fraction", busy))
        times = rows.where(figure="fig11b", quantity="iteration time", source=source)
        if times:
            points = [Curve("iteration time", list(times.curve().items()), source)]
            label = "n (last: Monte Carlo)"
            name = f"Iteration time over n, {title}"
            panels.append(Panel(name, label, "seconds", points, is_log_y=False))
    return panels
