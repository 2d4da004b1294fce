"""Write the generated parts of ARCHITECTURE.md and docs/layout.md: `python -m docs.generate_map`.

The diagram shows the imports between packages. The map lists every folder with the first sentence of
its docstring, and every module. A test compares both with the sources.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping, Set
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "timerl_nb"
BEGIN, END = "<!-- generated: python -m docs.generate_map -->", "<!-- end -->"


def area(module: str) -> str:
    """The node of the diagram for a module below `timerl_nb`."""
    first, _, rest = module.partition(".")
    return f"compiler/{rest.partition('.')[0]}" if first == "compiler" else first


def package_imports() -> dict[str, set[str]]:
    """Return the imported packages of each package, both as nodes of the diagram."""
    found = defaultdict[str, set[str]](set)
    for path in PACKAGE.glob("*/**/*.py"):
        here = area(".".join(path.relative_to(PACKAGE).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("timerl_nb."):
                there = area((node.module or "").removeprefix("timerl_nb."))
                if {here, there}.isdisjoint({"base", "compiler/__init__"}) and here != there:
                    found[here].add(there)
    return dict(found)


def reduced(edges: Mapping[str, Set[str]]) -> list[tuple[str, str]]:
    """Return the edges that no longer path implies, sorted."""

    def reachable(node: str) -> set[str]:
        direct = edges.get(node, set())
        return set(direct).union(*(reachable(other) for other in direct))

    return sorted(
        (node, other)
        for node, others in edges.items()
        for other in others
        if not any(other in reachable(between) for between in others)
    )


def diagram() -> str:
    lines = ["```mermaid", "graph BT"]
    lines += [
        f"    {a.replace('/', '.')} --> {b.replace('/', '.')}"
        for a, b in reduced(package_imports())
    ]
    return "\n".join([*lines, "```"])


def first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())


def folder_map() -> str:
    lines = ["| folder | purpose | modules |", "|---|---|---|"]
    for page in sorted(PACKAGE.rglob("__init__.py")):
        folder = page.parent
        modules = sorted(p.stem for p in folder.glob("*.py") if p.stem.strip("_") == p.stem)
        name = folder.relative_to(ROOT).as_posix()
        names = " ".join(f"`{module}`" for module in modules)
        lines.append(f"| `{name}` | {first_sentence(page)} | {names} |")
    return "\n".join(lines)


def with_part(text: str, part: str) -> str:
    """A page with its generated part replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{part}\n{END}{after}"


PAGES = {ROOT / "ARCHITECTURE.md": diagram, ROOT / "docs/layout.md": folder_map}


def main() -> None:
    for page, part in PAGES.items():
        page.write_text(with_part(page.read_text(), part()))


if __name__ == "__main__":
    main()
