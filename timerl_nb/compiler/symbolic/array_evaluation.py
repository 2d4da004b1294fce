"""Evaluation of index expressions and conditions on arrays of points, with NumPy or JAX."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from timerl_nb.compiler.symbolic.index_expressions import (
    TRUE,
    And,
    Cmp,
    Cond,
    Div,
    Extremum,
    Lin,
    Mod,
    Pick,
    Sym,
)


def values(e: Lin | Cond, env: Mapping[str, Any], numpy: Any = np) -> Any:
    """Return the value of an expression or condition, elementwise for arrays.

    Args:
        e: an index expression or a condition.
        env: an integer or an array of integers per symbol; the arrays are broadcast against each
            other. For an expression that is a single symbol, the result is the array of `env`,
            without a copy.
        numpy: the array module, `numpy` or `jax.numpy`. Traced JAX arrays are supported.
    """
    if isinstance(e, Lin):
        parts: list[Any] = [_times(coef, _atom(atom, env, numpy)) for atom, coef in e.terms]
        return reduce(add, [*parts, e.const] if e.const or not parts else parts)
    if isinstance(e, Cmp):
        arg = values(e.arg, env, numpy)
        return arg >= 0 if e.rel == ">=" else arg == 0 if e.rel == "==" else arg != 0
    if not e.args:
        return e is TRUE
    conds: list[Any] = [values(part, env, numpy) for part in e.args]
    if isinstance(e, And):
        return reduce(lambda a, b: a & b, conds)
    return reduce(lambda a, b: a | b, conds)


def _times(coef: int, value: Any) -> Any:
    return value if coef == 1 else coef * value


def _atom(atom: Sym | Div | Mod | Extremum | Pick, env: Mapping[str, Any], numpy: Any) -> Any:
    if isinstance(atom, Sym):
        return env[atom.name]
    if isinstance(atom, Div):
        return values(atom.arg, env, numpy) // atom.by
    if isinstance(atom, Mod):
        return values(atom.arg, env, numpy) % atom.by
    if isinstance(atom, Extremum):
        join = numpy.minimum if atom.which == "min" else numpy.maximum
        return reduce(join, [values(arg, env, numpy) for arg in atom.args])
    chosen, then, other = (values(e, env, numpy) for e in (atom.cond, atom.then, atom.other))
    return numpy.where(chosen, then, other)
