"""Index expressions as Python: the source, a function made from it, and the value at one point.

Programs for the interpreter contain the source; whatever asks for single values calls `evaluate`,
which compiles each distinct expression once. Arrays of points go through `symbolic.arrays`.
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

# Other names in generated programs (`runtime.source`): most end in the number of an operation or
# of a lifetime.
_OURS: Final = re.compile(r"(rt(_.*)?|program|range|min|max|__debug__|.*_V?\d+)_*")


def variable(symbol: str) -> str:
    """Return the Python variable that holds a symbol's value.

    Different symbols have different variables. That of a program's symbol is no other name of a
    generated program.
    """
    word = invented_word(symbol)
    if word is not None:
        return f"rt_{word}"
    return f"{symbol}_" if _OURS.fullmatch(symbol) else symbol


def python_source(node: Lin | Cond, texts: Mapping[str, str] = _NO_TEXTS) -> str:
    """Return the expression as Python source.

    Args:
        texts: the source of some symbols; others are variables.
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
    """Return a function of the named symbols, in that order, with the value of `source`."""
    params = ", ".join(map(variable, names))
    found = _COMPILED.get((params, source))
    if found is None:
        found = eval(f"lambda {params}: {source}", {"min": min, "max": max})
        _COMPILED[params, source] = found
    return found


def evaluate(node: Lin | Cond, env: Mapping[str, Any]) -> Any:
    """The value at `env`, which maps every symbol that occurs to an int; `//` and `%` floor."""
    if isinstance(node, Lin) and node.is_const:
        return node.const
    names, compiled = _compile_expression(node)
    return compiled(*[env[name] for name in names])


@cache  # nodes are kept for good, as they are
def _compile_expression(node: Lin | Cond) -> tuple[tuple[str, ...], Callable[..., Any]]:
    """The symbols that occur, and a function of them."""
    names = tuple(sorted(node.symbols))
    return names, compile_python(python_source(node), names)
