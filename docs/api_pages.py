"""API reference pages, one per public module, generated from docstrings.

A page lists the names in a module's `__all__`: classes with their public methods, functions, and values. Sphinx's
autodoc renders the docstrings.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import timerl_nb as trl

PREFIX = "trl"


def public_modules() -> dict[str, ModuleType]:
    """Return the public modules by the name that a user types, `trl` first."""
    values = ((name, getattr(trl, name)) for name in trl.__all__)
    modules = {f"{PREFIX}.{name}": value for name, value in values if inspect.ismodule(value)}
    return {PREFIX: trl, **dict(sorted(modules.items()))}


def public_names(module: ModuleType) -> list[str]:
    """Return the names that a module exports, without submodules."""
    names = sorted(getattr(module, "__all__", dir(module)), key=str.lower)
    return [name for name in names if not inspect.ismodule(getattr(module, name))]


def directive(module: ModuleType, name: str) -> str:
    """Return the autodoc directive of one public name."""
    value: Any = getattr(module, name)
    kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
    options = "   :members:\n" if kind == "class" else ""
    if kind == "class" and (fields := getattr(value, "_fields", ())):  # described by Attributes
        options += f"   :exclude-members: {', '.join(fields)}\n"
    if module is not trl and getattr(trl, name, None) is value:  # described on the page of `trl`
        options += "   :no-index:\n"
    return f".. auto{kind}:: {module.__name__}.{name}\n{options}"


def page(title: str, module: ModuleType) -> str:
    """Return the reStructuredText page of one module."""
    groups: dict[str, list[str]] = {"Classes": [], "Functions": [], "Values": []}
    for name in public_names(module):
        value = getattr(module, name)
        kind = "Classes" if inspect.isclass(value) else "Functions" if callable(value) else "Values"
        groups[kind].append(name)
    parts = [
        f"{title}\n{'=' * len(title)}\n",
        f".. automodule:: {module.__name__}\n   :no-members:\n",
    ]
    for heading, names in groups.items():
        if names:
            parts.append(f"{heading}\n{'-' * len(heading)}\n")
            parts += [directive(module, name) for name in names]
    return "\n".join(parts)


def write_pages(folder: Path) -> None:
    """Write one page per public module into `folder`; pages of modules that no longer exist are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"{name}.rst": page(name, module) for name, module in public_modules().items()}
    for old in folder.glob("*.rst"):
        if old.name not in texts:
            old.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
