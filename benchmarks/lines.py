"""Lines of code by package: `python -m benchmarks lines [folder of another checkout]`.

Blank lines, comments and docstrings do not count. Generated files (`widgets/src/models.ts`, the
built `static` folders) are excluded.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = ("timerl_nb", "widgets")
NOT_WRITTEN: Final = {"static", "node_modules", "build", "dist", "tests", "models.ts"}
_SILENT: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
# Matches strings first, so that `//` inside a string begins no comment.
_COMMENT: Final = re.compile(
    r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|/\*.*?\*/|//[^\n]*""", re.S
)


def code_lines(text: str, suffix: str) -> int:
    """Count the lines with code.

    Args:
        suffix: File extension: `.py`, or that of a language with C's comments.
    """
    if suffix != ".py":
        bare = _COMMENT.sub(lambda found: found[1] or "\n" * found[0].count("\n"), text)
        return sum(bool(line.strip()) for line in bare.splitlines())
    silent = {line for node in ast.walk(ast.parse(text)) for line in _docstring(node)}
    tokens = tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__)
    spoken = (t for t in tokens if t.type not in _SILENT)
    return len({n for t in spoken for n in range(t.start[0], t.end[0] + 1)} - silent)


def _docstring(node: ast.AST) -> range:
    """Return the lines of the docstring of a module, class or function."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    if not isinstance(node, kinds) or ast.get_docstring(node, clean=False) is None:
        return range(0)
    return range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def _files(root: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            inside = path.relative_to(root)
            if path.suffix in (".py", ".ts", ".js", ".mjs", ".css") and not NOT_WRITTEN & {
                *inside.parts
            }:
                yield inside


def count(root: Path) -> Counter[str]:
    """Return the lines of code of a checkout by package.

    A package is a folder in `timerl_nb`, `timerl_nb/compiler` or `widgets`, or the loose files of
    one of these.
    """
    found: Counter[str] = Counter()
    for path in _files(root):
        depth = 3 if path.parts[:2] == ("timerl_nb", "compiler") else 2
        package = "/".join(path.parts[: min(depth, len(path.parts) - 1)])
        found[package] += code_lines((root / path).read_text(encoding="utf-8"), path.suffix)
    return +found  # without packages that consist of a docstring


def main(*others: str) -> None:
    """Print the table of this checkout, or of another one, this one and the difference."""
    here = count(ROOT)
    before = [count(Path(other)) for other in others]
    packages = sorted({*here}.union(*before))
    titles = (*others, "lines of code", *(("change",) if before else ()))
    print(f"| package | {' | '.join(titles)} |\n|---|{'--:|' * len(titles)}")
    rows = [(name, [c[name] for c in (*before, here)]) for name in packages]
    rows.append(("**all**", [c.total() for c in (*before, here)]))
    for name, counts in rows:
        figures = [f"{n:,}" for n in counts] + [f"{counts[-1] - counts[0]:+,}"] * bool(before)
        print(f"| {name} | {' | '.join(figures)} |")
