"""Write `docs/reference/messages.md`: every error and warning of the library, with its remedy.

The page is read from the sources, so that no message is missing. `…` is a value that a message inserts.

Usage: python -m docs.generate_messages (part of `make format`)
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from timerl_nb.base import errors

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "messages.md"
WARNING = "TimeRLWarning"
KINDS = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, (errors.TimeRLError, errors.TimeRLWarning))
}
LISTED = "use one of the legal values, which the message lists."
# Functions that make errors: the class, and the positions of the text and of the remedy.
MAKERS = {
    "_refuse": ("IndexExpressionError", 0, 1),
    "_tell": (WARNING, 0, None),
    "damaged_run_file_error": ("ExecutionError", 1, None),
    "expect_type": ("CallError", 2, 3),
    "warn": (WARNING, 0, None),
    **dict.fromkeys(KINDS, ("", 0, None)),
}
BEFORE = {"damaged_run_file_error": "… {}.", "expect_type": "… is not {}."}
INTRODUCTION = """# Errors and warnings

Every error is a `trl.errors.TimeRLError`. Its text has four parts: the problem, the line of your program, the evidence
(a sample point, the shapes or the legal values), and a remedy. This page lists the problem and the
remedy of each message by its class. An ellipsis (…) is a value from your program.
"""


@dataclass(frozen=True, order=True)
class Message:
    """One message of the library: its class, text, remedy and module."""

    kind: str
    text: str
    remedy: str
    module: str


def template(node: ast.expr | None) -> str:
    """Return the text of a message's expression, with `…` for inserted values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "one_of":
        return LISTED
    if isinstance(node, ast.IfExp):
        choices = [template(node.body), template(node.orelse)]
        return " / ".join(choice for choice in choices if choice)
    return "" if node is None else "…"


def constant_remedies(trees: Iterable[ast.Module]) -> dict[str, str]:
    """Return the remedy of each function in `MAKERS` that adds the same one to all its errors."""
    found = dict[str, str]()
    for tree in trees:
        constants = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef) or function.name not in MAKERS:
                continue
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            given = [key.value for one in calls for key in one.keywords if key.arg == "hint"]
            for value in (*given, *function.args.defaults):
                value = constants.get(value.id, value) if isinstance(value, ast.Name) else value
                if text := template(value).strip("… "):
                    found[function.name] = text
    return found


def messages() -> Iterator[Message]:
    """Yield the messages with a literal text, in the order of the sources."""
    paths = sorted((ROOT / "timerl_nb").rglob("*.py"))
    trees = {path: ast.parse(path.read_text()) for path in paths}
    constant = constant_remedies(trees.values())
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name not in MAKERS:
                continue
            kind, at, remedy_at = MAKERS[name]
            args = dict(enumerate(node.args))
            text = BEFORE.get(name, "{}").replace("{}", template(args.get(at)))
            remedy = next((k.value for k in node.keywords if k.arg == "hint"), args.get(remedy_at))
            hint = template(remedy) or constant.get(name, "")
            if re.search(r"[a-z]{3}", text):
                yield Message(kind or name, text, hint, str(path.relative_to(ROOT)))


def page() -> str:
    """Return the page's Markdown."""
    kinds = defaultdict[str, set[Message]](set)
    for message in messages():
        kinds[message.kind].add(message)
    parts = [INTRODUCTION]
    for kind in sorted(kinds):
        summary = (inspect.getdoc(KINDS[kind]) or "").split("\n\n")[0].replace("\n", " ")
        parts.append(f"## {kind}\n\n{summary}\n")
        seen: set[str] = set()
        for message in sorted(kinds[kind]):
            line = f"- {escape(message.text)}"
            if message.remedy.strip("… "):
                line += f"\n  *Remedy:* {escape(message.remedy)}"
            if line not in seen:
                seen.add(line)
                parts.append(line)
        parts.append("")
    return "\n".join(parts)


def escape(text: str) -> str:
    """Return a message as one line of Markdown; code in backticks stays as it is."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()).replace("](", "] ("))
    return "".join(
        p if p.startswith("`") else re.sub(r"([*_<>\[\]{}$|\\])", r"\\\1", p) for p in pieces
    )


if __name__ == "__main__":
    PAGE.write_text(page())
