"""Loop nests in the pages of `docs/algorithms`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import timerl_nb as trl
from timerl_nb.compiler.loops.loop_nodes import Ast, Execute, If, Loop, Node, Sequence

PAGES: Final = Path(__file__).parents[1] / "docs" / "algorithms"


def nest(ast: Ast) -> str:
    """Return the loops of a program with the names of their kernels, each name once per loop."""
    counters = {id(n): text.split()[1] for _, text, n in ast.lines() if isinstance(n, Loop)}
    return "\n".join(_lines(ast, counters, ast.root, 0))


def _lines(ast: Ast, counters: Mapping[int, str], node: Node, depth: int) -> list[str]:
    found: list[str] = []
    for one in _flat(node):
        if isinstance(one, Loop):
            inner = _lines(ast, counters, one.body, depth + 1)
            found += [f"{'  ' * depth}for {counters[id(one)]}:", *inner] if inner else []
        elif isinstance(one, Execute):
            name = ast.names[one.op_id]
            if not any(name == line.strip() for line in found):
                found.append("  " * depth + name)
    return found


def _flat(node: Node | None) -> list[Node]:
    if isinstance(node, Sequence):
        return [one for part in node.parts for one in _flat(part)]
    if isinstance(node, If):
        return [*_flat(node.then), *_flat(node.other)]
    return [] if node is None else [node]


def assert_page_shows_loops(name: str, program: trl.Program) -> None:
    """Check that the page of an algorithm contains the loop nest of this program."""
    page = PAGES / f"{name.replace('_', '-')}.md"
    found = nest(program.ast)
    assert f"```text\n{found}\n```" in page.read_text(), (
        f"{page.name} shows other loops than\n{found}"
    )
