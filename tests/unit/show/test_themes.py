"""Colours of figures and pictures on light and dark pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import pytest

import timerl_nb as trl
from tests.reinforce import reinforce
from tests.unit.show.test_replay_figures import links, published
from timerl_nb.replay import SumTree
from timerl_nb.show.colours import SERIES, TENSORS
from timerl_nb.show.recording.recording_figures import scope_figure

PAGES = ("#ffffff", "#111111")  # of JupyterLab


@pytest.fixture(scope="module")
def program() -> trl.Program:
    return reinforce(5, hidden=(4,)).compile({"B": 3, "I": 4, "T": 12})


def luminance(colour: str) -> float:
    parts = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def least(colour: str) -> float:
    return min(contrast(colour, page) for page in PAGES)


def coloured(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield all colours of a figure's data, with their paths."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from coloured(one, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for one in value:
            yield from coloured(one, path)
    elif isinstance(value, str) and path.endswith("color"):
        yield path, value


def test_series_are_visible_on_light_and_dark_pages() -> None:
    assert {one: least(one) for one in (*SERIES, *TENSORS) if least(one) < 2.2} == {}


def test_plotly_figures_are_legible_on_light_and_dark_pages(program: trl.Program) -> None:
    def family(width: int) -> trl.Context:
        with trl.Context("t") as ctx:
            x = trl.random.normal((width,), domain=ctx.dims[0][:1])
            ctx.output("y", trl.exp(x))
        return ctx

    swept = trl.sweep(family, {"T": 4}, width=[1, 2], measure=0, progress=False)
    tree = SumTree(8)
    tree.insert(0, np.arange(1.0, 9.0))
    recording = program.scope()
    figures: dict[str, go.Figure] = {
        "space": trl.show.iteration_space({"a": program}),
        "memory": trl.show.memory_timeline({"a": program}),
        "curves": trl.show.learning_curves({"a": [np.arange(3.0)]}, goal=1),
        "sweep": trl.show.sweep(swept),
        "tree": trl.show.tree(tree, 0.5),
        "mapping": trl.show.mapping(published(), links()),
        **{what: scope_figure(recording.read(), what) for what in ("operations", "processes")},
    }
    for name, figure in figures.items():
        layout = figure.to_dict()["layout"]
        theme = layout["template"]["layout"]
        assert theme["paper_bgcolor"] == theme["plot_bgcolor"] == "rgba(0, 0, 0, 0)", name
        assert least(theme["font"]["color"]) > 3.5, name
        said = [one for path, one in coloured(layout) if ".font" in path]
        assert all(least(one) > 3.5 for one in said), (name, said)
        if name in ("tree", "mapping"):
            continue  # their marks lie on cells
        marks = {one for path, one in coloured(figure.to_dict()["data"]) if one.startswith("#")}
        assert marks and not {one for one in marks if least(one) < 2.2}, (name, marks)


def test_pictures_have_a_dark_and_a_light_colour_for_text_and_background(
    program: trl.Program,
) -> None:
    for artifact in (program.pdg, program.ast, program.schedule, program.memory):
        svg = artifact.to_svg()
        rules = re.findall(r'\[fill="([^"]+)"\]\{fill:light-dark\(([^,]+),([^)]+)\)\}', svg)
        dark = {light: (shown, other) for light, shown, other in rules}
        root = ElementTree.fromstring(svg)
        assert root.get("class") == "trl-static"
        fills = {one.get("fill") for one in root.iter() if one.tag.endswith("text")} - {None}
        fills |= {one.get("fill") for one in root.iter() if one.tag.endswith("tspan")}
        assert all(light == shown for light, (shown, _) in dark.items())
        paper = dark.get("#ffffff", dark["white"])[1]
        for fill in fills - {None}:
            _, shown = dark.get(str(fill), (fill, fill))
            assert contrast(str(shown), paper) > 4.5, fill
