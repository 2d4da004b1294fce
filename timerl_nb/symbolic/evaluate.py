"""Index expressions as Python: the source, a function made from it, and the value at one point.

Programs for the interpreter contain the source; whatever asks for single values calls `evaluate`,
which compiles each distinct expression once. Arrays of points go through `symbolic.arrays`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from timerl_nb.symbolic.expr import And, Atom, Cmp, Cond, Div, Extremum, Lin, Mod, Sym


def python_source(node: Lin | Cond) -> str:
    """The expression as Python source over its symbols' names."""
    if isinstance(node, Lin):
        parts = [f"{coef}*{_source_atom(atom)}" for atom, coef in node.terms]
        if node.const or not parts:
            parts.append(str(node.const))
        text = "+".join(part.removeprefix("1*") for part in parts).replace("+-", "-")
        return f"({text})" if len(parts) > 1 else text
    if isinstance(node, Cmp):
        return f"({python_source(node.arg)} {node.rel} 0)"
    if not node.args:
        return str(isinstance(node, And))
    word = " and " if isinstance(node, And) else " or "
    return "(" + word.join(map(python_source, node.args)) + ")"


def _source_atom(atom: Atom) -> str:
    if isinstance(atom, Sym):
        return atom.name
    if isinstance(atom, Div):
        return f"(({python_source(atom.arg)})//{atom.by})"
    if isinstance(atom, Mod):
        return f"(({python_source(atom.arg)})%{atom.by})"
    if isinstance(atom, Extremum):
        return f"{atom.which}({', '.join(map(python_source, atom.args))})"
    then, other = python_source(atom.then), python_source(atom.other)
    return f"({then} if {python_source(atom.cond)} else {other})"


_COMPILED: dict[tuple[str, str], Callable[..., Any]] = {}


def compile_python(source: str, names: Iterable[str]) -> Callable[..., Any]:
    """A function of the named symbols, in that order, that evaluates `source`."""
    params = ", ".join(names)
    found = _COMPILED.get((params, source))
    if found is None:
        found = eval(f"lambda {params}: {source}", {"min": min, "max": max})
        _COMPILED[params, source] = found
    return found


def evaluate(node: Lin | Cond, env: Mapping[str, Any]) -> Any:
    """The value at `env`, which maps every symbol that occurs to an int; `//` and `%` floor."""
    if isinstance(node, Lin) and node.is_const:
        return node.const
    names, compiled = _compiled(node)
    return compiled(*[env[name] for name in names])


@cache  # nodes are kept for good, as they are
def _compiled(node: Lin | Cond) -> tuple[tuple[str, ...], Callable[..., Any]]:
    """The symbols that occur, and a function of them."""
    names = tuple(sorted(node.symbols))
    return names, compile_python(python_source(node), names)
