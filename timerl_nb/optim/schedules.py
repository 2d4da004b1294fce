"""Learning-rate schedules: tensors over the dimension of iterations.

Write `trl.optim.Adam(dnn.params, lr=trl.optim.schedules.linear(i, 3e-4, 0.0))`. Schedules are functions of the index
alone. A rate that depends on results is a recurrence, such as `lr[i + 1] = trl.where(worse, lr * 0.5, lr)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log, pi
from typing import Any

from timerl_nb.base.errors import DomainError, ShapeError
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.foreign_names import explain_call_errors
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.inputs.tensor_sources import value, where
from timerl_nb.compiler.language.program_context import current
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, constant, value_of


@explain_call_errors
def linear(i: Index, start: float, end: float, steps: Any = None) -> RecurrentTensor:
    """Interpolate linearly from `start` at 0 to `end` at `steps`; the rate is constant afterwards.

    Args:
        i: the variable of a dimension, or an index expression.
        start, end: the first and the last rate.
        steps: an integer, or an index expression such as I // 2; by default the dimension's bound.

    Example:
        >>> trl.optim.schedules.linear(i, 3e-4, 0.0)
        f32[] @ (i)
    """
    start, end = number("start", start), number("end", end)
    return _share(i, steps) * (end - start) + start


@explain_call_errors
def cosine(i: Index, start: float, end: float = 0.0, steps: Any = None) -> RecurrentTensor:
    """Interpolate from `start` at 0 to `end` at `steps` along half a period of the cosine.

    Args:
        i: the variable of a dimension, or an index expression.
        start, end: the first and the last rate.
        steps: an integer, or an index expression; by default the dimension's bound.

    Example:
        >>> trl.optim.schedules.cosine(i, 3e-4)
        f32[] @ (i)
    """
    start, end = number("start", start), number("end", end)
    return ((_share(i, steps) * pi).cos() + 1.0) * ((start - end) / 2) + end


@explain_call_errors
def exponential(i: Index, start: float, factor: float, steps: int = 1) -> RecurrentTensor:
    """Multiply the rate by `factor` over every `steps` steps, continuously.

    Args:
        i: the variable of a dimension, or an index expression.
        start: the first rate.
        factor: a positive number.
        steps: the number of steps per factor.

    Raises:
        ShapeError: the factor is not positive.

    Example:
        >>> trl.optim.schedules.exponential(i, 3e-4, 0.5, steps=100)
        f32[] @ (i)
    """
    start, factor = number("start", start), number("factor", factor)
    if not factor > 0:
        raise ShapeError(
            f"the factor of a rate must be positive, not {factor!r}.", hint="write factor=0.99."
        )
    return (_count(i) * (log(factor) / integer("steps", steps, least=1))).exp() * start


@explain_call_errors
def piecewise(i: Index, start: float, changes: Mapping[int, float]) -> RecurrentTensor:
    """Change the rate at given positions.

    Args:
        i: the variable of a dimension, or an index expression.
        start: the first rate.
        changes: new rates by the position from which they apply.

    Raises:
        ShapeError: `changes` is not a mapping.

    Example:
        >>> trl.optim.schedules.piecewise(i, 1e-3, {100: 3e-4, 500: 1e-4})
        f32[] @ (i)
    """
    if not isinstance(changes, Mapping):
        raise ShapeError(
            f"changes must map positions to rates, not {changes!r}.", hint="write {100: 1e-4}."
        )
    rate = constant(current(), number("start", start), "f32")
    for at in sorted(integer("a position", at) for at in changes):
        rate = where(value(i) >= at, changes[at], rate)
    return rate


@explain_call_errors
def warmup(i: Index, rate: float | RecurrentTensor, steps: Any) -> RecurrentTensor:
    """Increase the rate linearly from 0 over the first `steps` steps.

    Args:
        i: the variable of a dimension, or an index expression.
        rate: the rate afterwards, a number or another schedule.
        steps: an integer, or an index expression.

    Example:
        >>> trl.optim.schedules.warmup(i, trl.optim.schedules.cosine(i, 3e-4), 100)
        f32[] @ (i)
    """
    return _share(i, steps) * rate


def _count(i: Any) -> RecurrentTensor:
    if not isinstance(i, Index):
        raise ShapeError(
            f"a schedule needs an index, such as the variable of a dimension, not {i!r}.",
            hint="write (i, I) = ctx.dims[0], and schedules.linear(i, 3e-4, 0.0).",
        )
    return value(i).cast("f32")


def _share(i: Index, steps: Any) -> RecurrentTensor:
    """Return the fraction of `steps` that has passed, from 0 to 1."""
    count = _count(i)
    if steps is None:
        names = count.domain
        if len(names) != 1:
            raise DomainError(f"the number of steps of {i} is unknown.", hint="give steps=.")
        whole = value_of(count.ctx, count.ctx.space[names[0]].size).cast("f32")
    elif isinstance(steps, Index):
        whole = value(steps).cast("f32")
    else:
        whole = constant(current(), float(integer("steps", steps, least=1)), "f32")
    return (count / whole).clip(None, 1.0)
