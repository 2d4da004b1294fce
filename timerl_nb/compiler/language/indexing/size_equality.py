"""Equality of symbolic sizes, decided by isl.

`t - max(t - 3, 0) + 1` and `min(t + 1, 4)` are different expressions with the same value at every point. Type rules
compare the expressions first.
"""

from __future__ import annotations

from timerl_nb.base.errors import point_text
from timerl_nb.compiler.ir.shapes import Size
from timerl_nb.compiler.isl.operation_limit import TooMuchWork, at_most
from timerl_nb.compiler.isl.sets_and_relations import Set
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.expression_evaluation import evaluate
from timerl_nb.compiler.symbolic.index_expressions import Cond, any_of, lin, lt, ne

_WORK = 1_000_000  # limit of isl operations per comparison; typical ones need some thousands


def difference(dims: Dims, domain: Domain, where: Cond, a: Size, b: Size) -> str | None:
    """Return a counterexample to two sizes being the same number of at least 0; None if there is none.

    The points are those of `domain` that satisfy `where`, under any bounds.
    """
    if isinstance(a, int) and isinstance(b, int):
        return None if a == b else f"{a} is not {b}"
    try:
        with at_most(_WORK):
            apart = any_of(ne(lin(a), b), lt(a, 0))
            there = (
                Set.from_condition(dims, domain, where) & Set.from_condition(dims, domain, apart)
            ).with_bounds({})
            point = there.sample_under_bounds()
    except TooMuchWork:
        return f"the equality of {a} and {b} could not be decided"
    if point is None:
        return None
    first, second = (evaluate(lin(size), point) for size in (a, b))
    at = f" at {point_text(point)}" if point else ""
    if first == second:
        return f"sample: {a} and {b} are both {first}{at}: such a range ends before it begins"
    shown = [
        f"{size} is {value}"
        for size, value in ((a, first), (b, second))
        if not isinstance(size, int)
    ]
    known = "".join(f", not {size}" for size in (a, b) if isinstance(size, int))
    return f"sample: {', and '.join(shown)}{known}{at}"
