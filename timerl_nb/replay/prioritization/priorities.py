"""Priorities of entries, and the importance-sampling weights that correct for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timerl_nb.base.array_conversion import Array, convert_array
from timerl_nb.base.errors import OptionError, ShapeError
from timerl_nb.compiler.language.argument_checks import number


@dataclass(frozen=True)
class Proportional:
    """In proportion to (|error| + eps) ** alpha.

    Attributes:
        alpha: 0 draws all alike, 1 in proportion to their errors.
        eps: what keeps entries without an error in play.

    Raises:
        OptionError: one of them is negative.
    """

    alpha: float = 0.6
    eps: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("alpha", "eps"):
            value = number(name, getattr(self, name))
            if not 0 <= value < np.inf:
                raise OptionError(f"{name}={value!r} is none.", hint=f"{name} is 0 or more.")

    def from_errors(self, errors: Array) -> tuple[Array, float]:
        """The priorities of entries with such errors, f64, and the greatest of the errors, of any sign; 0 of none.

        Raises:
            ShapeError: one is NaN or infinite.
        """
        errors = convert_array("the errors", errors, np.dtype(np.float64))
        size = np.abs(errors)
        greatest = float(size.max(initial=0.0))
        if not greatest < np.inf:  # as NaN is not
            at = int(np.argmin(np.isfinite(size)))
            raise ShapeError(
                f"the error at place {at} is {errors.reshape(-1)[at]}; nothing was changed.",
                hint="look at the loss that it comes from.",
            )
        size += self.eps
        if self.alpha <= 1:
            return size**self.alpha, greatest
        with np.errstate(over="ignore"):  # the tree says of which entry it is too much
            return size**self.alpha, greatest


def importance_weights(priorities: Array, least: float, beta: float) -> Array:
    """Importance-sampling weights `(priorities / least) ** -beta`, f64 (Schaul et al. 2016, §3.4).

    They are `(N * p) ** -beta` divided by the greatest such weight, that of priority `least`.
    """
    weights = priorities / least
    weights **= -beta
    return weights
