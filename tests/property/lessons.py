"""Programs of the lessons that are compiled by one call of a function, by name."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "notebooks"
LESSONS = ("00_the_one_line_change", "10_the_explorer")


def _kept(path: Path) -> list[ast.stmt]:
    """Execute the imports and definitions of a lesson, and the programs built by its functions."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    lines = [line for c in cells if c["cell_type"] == "code" for line in (*c["source"], "\n")]
    body = ast.parse("".join(lines)).body
    functions = {s.name for s in body if isinstance(s, ast.FunctionDef)}
    return [
        statement
        for statement in body
        if isinstance(statement, ast.Import | ast.FunctionDef)
        or (
            isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Call)
            and isinstance(statement.value.func, ast.Name)
            and statement.value.func.id in functions
        )
    ]


def names() -> list[tuple[str, str]]:
    """Return the lessons' programs as pairs of lesson and name."""
    return [
        (lesson, target.id)
        for lesson in LESSONS
        for statement in _kept(FOLDER / f"{lesson}.ipynb")
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    ]


def program(lesson: str, name: str) -> Any:
    """Compile a lesson's program with the lesson's options."""
    wanted = [
        s
        for s in _kept(FOLDER / f"{lesson}.ipynb")
        if not isinstance(s, ast.Assign)
        or [t.id for t in s.targets if isinstance(t, ast.Name)] == [name]
    ]
    space: dict[str, Any] = {}
    exec(compile(ast.Module(wanted, []), lesson, "exec"), space)
    return space[name]
