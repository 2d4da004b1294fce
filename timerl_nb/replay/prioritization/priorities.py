"""Proportional priorities, and the importance-sampling weights that correct for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timerl_nb.base.array_conversion import Array, convert_array
from timerl_nb.base.errors import OptionError, ShapeError
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import explain_constructor


@explain_constructor
@dataclass(frozen=True)
class Proportional:
    """Proportional prioritisation: the priority of a row is `(|error| + eps) ** alpha`.

    Source: Schaul et al., Prioritized Experience Replay, §3.3.

    Attributes:
        alpha: the exponent; 0 samples uniformly, 1 in proportion to the errors.
        eps: a constant that keeps the priority of rows with a zero error positive.

    Raises:
        OptionError: `alpha` or `eps` is negative or infinite.

    Example:
        >>> priorities, greatest = trl.replay.Proportional(alpha=1.0).from_errors([0.5, -2.0])
        >>> greatest
        2.0
    """

    alpha: float = 0.6
    eps: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("alpha", "eps"):
            value = number(name, getattr(self, name))
            if not 0 <= value < np.inf:
                raise OptionError(
                    f"{name}={value!r} is out of range.",
                    hint=f"choose a finite {name} of 0 or more.",
                )

    def from_errors(self, errors: Array) -> tuple[Array, float]:
        """Return the priorities of rows with these errors, f64, and the greatest absolute error (0 without
        errors).

        Args:
            errors: TD errors of any sign.

        Raises:
            ShapeError: an error is NaN or infinite.
        """
        errors = convert_array("the errors", errors, np.dtype(np.float64))
        size = np.abs(errors)
        greatest = float(size.max(initial=0.0))
        if not greatest < np.inf:  # also true for NaN
            at = int(np.argmin(np.isfinite(size)))
            raise ShapeError(
                f"the error at index {at} is {errors.reshape(-1)[at]}; nothing has changed.",
                hint="check the loss for NaN or infinite values.",
            )
        size += self.eps
        if self.alpha <= 1:
            return size**self.alpha, greatest
        with np.errstate(over="ignore"):  # the tree reports entries with an infinite priority
            return size**self.alpha, greatest


def importance_weights(priorities: Array, least: float, beta: float) -> Array:
    """Return the importance-sampling weights `(priorities / least) ** -beta`, f64.

    They equal `(N * p) ** -beta` divided by the greatest such weight, the one of priority `least`. Source:
    Schaul et al., Prioritized Experience Replay, §3.4.
    """
    weights = priorities / least
    weights **= -beta
    return weights
