"""Mutated source files, with line names that are stable under edits elsewhere in the file."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from tests.mutants.behaviours import BEHAVIOURS

ROOT: Final = Path(__file__).parents[2]

GROUPS: Final = {
    "passes": ("compiler/passes/**/*.py",),
    "schedule": ("compiler/scheduling/*.py",),
    "layout": ("compiler/memory/**/*.py",),
    "lowering": ("runtime/xla/**/*.py",),
    "gradients": (
        "compiler/language/autodiff/reverse_mode.py",
        "compiler/language/autodiff/vjp_rules.py",
        "compiler/language/autodiff/index_adjoints.py",
    ),
    "statements": ("compiler/scheduling/statements.py",),
}

# group of each file, by path from the root
FILES: Final = {
    path.relative_to(ROOT).as_posix(): group
    for group, patterns in GROUPS.items()
    for pattern in patterns
    for path in sorted((ROOT / "timerl_nb").glob(pattern))
}
OTHERS: Final = tuple({b.file for b in BEHAVIOURS.values()}.difference(FILES))


def places(text: str) -> list[str]:
    """Return each line's function, text and occurrence number."""
    lines = text.splitlines()
    functions = [""] * (len(lines) + 1)

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}".lstrip(".")
                for k in range(child.body[0].lineno, (child.end_lineno or 0) + 1):
                    functions[k] = inner
            visit(child, inner)

    visit(ast.parse(text), "")
    return ["", *(f"{functions[k]}: {line.strip()}" for k, line in enumerate(lines, 1))]
