"""Graph layout: pictures, limits, and guaranteed termination."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from timerl_nb.base.errors import DrawingError
from timerl_nb.base.graphviz_text import Dot
from timerl_nb.show import layout_svg, offline_rendering
from timerl_nb.show.graph.graph_layout import LayoutTimeout
from timerl_nb.show.offline_rendering import Context


def chain(count: int) -> str:
    """Return many nodes, each with edges to several earlier ones."""
    graph = Dot("chain")
    for k in range(count):
        graph.node(f"n{k}", f"node {k}")
        for step in (1, 7, 31):
            if k >= step:
                graph.edge(f"n{k - step}", f"n{k}")
    return str(graph)


def test_a_picture_is_one_svg_element_of_text() -> None:
    graph = Dot("names")
    graph.node("a", "<img src=x onerror=alert(1)> \u03c6 \u2192 \\N é", element="first")
    graph.edge("a", "a", "<b>ψ</b>")
    root = ET.fromstring(layout_svg(str(graph)))
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    texts = [(element.text or "").strip() for element in root.iter(f"{space}text")]
    assert texts == ["<img src=x onerror=alert(1)> \u03c6 \u2192 \\N é", "<b>ψ</b>"]
    assert [e.get("id") for e in root.iter(f"{space}g") if e.get("class") == "node"] == ["first"]


def test_the_same_graph_is_laid_out_once() -> None:
    text = chain(60)
    first = layout_svg(text)
    assert layout_svg(text) is first


def test_what_takes_too_long_is_stopped_and_the_next_is_drawn() -> None:
    begin = time.perf_counter()
    with pytest.raises(LayoutTimeout, match="exceeded 0.2 s"):
        layout_svg(chain(900), seconds=0.2)
    assert time.perf_counter() - begin < 5
    assert "<svg" in layout_svg(chain(2))


def test_what_is_no_graph_is_an_error() -> None:
    with pytest.raises(DrawingError, match="syntax error"):
        layout_svg("digraph {")


def test_an_unbuilt_program_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(offline_rendering, "PROGRAM", tmp_path / "offline_rendering.js")
    with pytest.raises(DrawingError, match="python widgets/bundle.py"):
        Context().call("layout", ("digraph {}",), 1)


def test_a_running_loop_is_not_waited_for() -> None:
    async def main() -> str:
        return Context().call("layout", ("digraph { a }",), 10)

    # in a new thread, because this one may be running Playwright's loop
    with ThreadPoolExecutor(1) as thread:
        assert "<svg" in thread.submit(lambda: asyncio.run(main())).result()


def test_the_interpreter_ends_and_forked_processes_draw() -> None:
    code = """
import multiprocessing, sys
from timerl_nb.show import layout_svg

def draw(name):
    return len(layout_svg(f"digraph {{ {name} }}"))

if __name__ == "__main__":
    draw("a")
    if sys.platform == "linux":
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.map(draw, ["b"], chunksize=1)[0] > 100
    print("done")
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "done\n" and done.returncode == 0, done.stderr
