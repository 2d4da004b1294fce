"""Index expressions as Python source, compiled functions and values at single points.

Programs of the interpreter contain the source. Other callers use `evaluate`, which compiles each
distinct expression once. For arrays of points, see `array_evaluation`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

from timerl_nb.compiler.symbolic.index_expressions import (
    And,
    Atom,
    Cmp,
    Cond,
    Div,
    Extremum,
    Lin,
    Mod,
    Sym,
    invented_word,
)

_NO_TEXTS: Final[Mapping[str, str]] = {}

# All other names in the programs that `runtime.source` generates. Most of them end in the number of
# an operation or a lifetime.
_OURS: Final = re.compile(r"(rt(_.*)?|program|range|min|max|__debug__|.*_V?\d+)_*")


def variable(symbol: str) -> str:
    """Return the Python variable for a symbol.

    Different symbols get different variables, and no variable clashes with another name of a
    generated program.
    """
    word = invented_word(symbol)
    if word is not None:
        return f"rt_{word}"
    return f"{symbol}_" if _OURS.fullmatch(symbol) else symbol


def python_source(node: Lin | Cond, texts: Mapping[str, str] = _NO_TEXTS) -> str:
    """Return the expression as Python source.

    Args:
        node: an index expression or a condition.
        texts: the source for some symbols; all others become variables.
    """
    if isinstance(node, Lin):
        parts = [f"{coef}*{_source_atom(atom, texts)}" for atom, coef in node.terms]
        if node.const or not parts:
            parts.append(str(node.const))
        text = "+".join(part.removeprefix("1*") for part in parts).replace("+-", "-")
        return f"({text})" if len(parts) > 1 else text
    if isinstance(node, Cmp):
        return f"({python_source(node.arg, texts)} {node.rel} 0)"
    if not node.args:
        return str(isinstance(node, And))
    word = " and " if isinstance(node, And) else " or "
    return "(" + word.join(python_source(arg, texts) for arg in node.args) + ")"


def _source_atom(atom: Atom, texts: Mapping[str, str]) -> str:
    if isinstance(atom, Sym):
        return texts.get(atom.name) or variable(atom.name)
    if isinstance(atom, Div):
        return f"(({python_source(atom.arg, texts)})//{atom.by})"
    if isinstance(atom, Mod):
        return f"(({python_source(atom.arg, texts)})%{atom.by})"
    if isinstance(atom, Extremum):
        return f"{atom.which}({', '.join(python_source(arg, texts) for arg in atom.args)})"
    then, other = python_source(atom.then, texts), python_source(atom.other, texts)
    return f"({then} if {python_source(atom.cond, texts)} else {other})"


_COMPILED: dict[tuple[str, str], Callable[..., Any]] = {}


def compile_python(source: str, names: Iterable[str]) -> Callable[..., Any]:
    """Return a function that evaluates `source`; its parameters are the named symbols, in order."""
    params = ", ".join(map(variable, names))
    found = _COMPILED.get((params, source))
    if found is None:
        found = eval(f"lambda {params}: {source}", {"min": min, "max": max})
        _COMPILED[params, source] = found
    return found


def evaluate(node: Lin | Cond, env: Mapping[str, Any]) -> Any:
    """Return the value of an expression or condition at one point.

    Args:
        node: an index expression or a condition. Its `//` and `%` round towards minus infinity.
        env: an integer for every symbol of `node`.
    """
    if isinstance(node, Lin) and node.is_const:
        return node.const
    names, compiled = _compile_expression(node)
    return compiled(*[env[name] for name in names])


@cache  # nodes are never freed, so the cache may hold on to them
def _compile_expression(node: Lin | Cond) -> tuple[tuple[str, ...], Callable[..., Any]]:
    """Return the symbols of an expression, and a function of them."""
    names = tuple(sorted(node.symbols))
    return names, compile_python(python_source(node), names)
