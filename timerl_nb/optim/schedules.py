"""Learning rates that change over iterations: each a tensor over the dimension that is counted.

`trl.optim.Adam(dnn.params, lr=trl.optim.schedules.linear(i, 3e-4, 0.0))`. They are functions of the
index alone; a rate that follows from what happens is a recurrence like any other,
`lr[i + 1] = trl.where(worse, lr * 0.5, lr)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log, pi
from typing import Any

from timerl_nb.base.errors import DomainError, ShapeError
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.inputs.tensor_sources import value, where
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, constant, value_of


def linear(i: Index, start: float, end: float, steps: Any = None) -> RecurrentTensor:
    """From `start` at 0 to `end` at `steps` in equal parts, and `end` from there on.

    Args:
        i: what counts: a dimension's variable, or an index expression.
        steps: an integer, or an index expression such as I // 2; by default the dimension's bound.
    """
    start, end = number("start", start), number("end", end)
    return _share(i, steps) * (end - start) + start


def cosine(i: Index, start: float, end: float = 0.0, steps: Any = None) -> RecurrentTensor:
    """From `start` at 0 to `end` at `steps` along half a period of the cosine."""
    start, end = number("start", start), number("end", end)
    return ((_share(i, steps) * pi).cos() + 1.0) * ((start - end) / 2) + end


def exponential(i: Index, start: float, factor: float, steps: int = 1) -> RecurrentTensor:
    """`start`, times `factor` every `steps` (and its root between)."""
    start, factor = number("start", start), number("factor", factor)
    if not factor > 0:
        raise ShapeError(f"a rate is multiplied by a positive factor, not {factor!r}.")
    return (_count(i) * (log(factor) / integer("steps", steps, least=1))).exp() * start


def piecewise(i: Index, start: float, changes: Mapping[int, float]) -> RecurrentTensor:
    """`start`, and from each position in `changes` on the rate that is given there."""
    if not isinstance(changes, Mapping):
        raise ShapeError(f"changes are rates by position, not {changes!r}.", hint="{100: 1e-4}")
    rate = constant(current(), number("start", start), "f32")
    for at in sorted(integer("a position", at) for at in changes):
        rate = where(value(i) >= at, changes[at], rate)
    return rate


def warmup(i: Index, rate: float | RecurrentTensor, steps: Any) -> RecurrentTensor:
    """`rate`, which may be another schedule, grown from 0 in equal parts over the first `steps`."""
    return _share(i, steps) * rate


def _count(i: Any) -> RecurrentTensor:
    if not isinstance(i, Index):
        raise ShapeError(
            f"a schedule counts an index such as the variable of a dimension, not {i!r}.",
            hint="write (i, I) = ctx.dims[0], and schedules.linear(i, 3e-4, 0.0).",
        )
    return value(i).cast("f32")


def _share(i: Index, steps: Any) -> RecurrentTensor:
    """Which part of `steps` has passed, from 0 to 1."""
    count = _count(i)
    if steps is None:
        names = count.domain
        if len(names) != 1:
            raise DomainError(f"how many steps {i} makes is not said.", hint="give steps=.")
        whole = value_of(count.ctx, count.ctx.space[names[0]].size).cast("f32")
    elif isinstance(steps, Index):
        whole = value(steps).cast("f32")
    else:
        whole = constant(current(), float(integer("steps", steps, least=1)), "f32")
    return (count / whole).clip(None, 1.0)
