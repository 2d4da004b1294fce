"""Limits on the ratio of drawn to inserted rows, and schedules of the exponent beta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from timerl_nb.compiler.language.argument_checks import integer, number

Beta = float | Callable[[int], float]


@dataclass(frozen=True)
class SampleToInsertRatio:
    """Limit on the number of drawn rows per inserted row, for `trl.Replay(…, limiter=)`.

    With d = ratio * (inserted - least) - sampled, `insert` waits while d is above `error`, and `sample` waits
    while d is below `-error`. The check precedes a call, so one call can exceed the limit. Before the buffer
    has `least` rows, `sample` waits and `insert` never does.

    Source: Cassirer et al. 2021.

    Attributes:
        ratio: the number of drawn rows per inserted row.
        least: the number of inserted rows before the first draw.
        error: the tolerance in drawn rows.
        timeout: the longest wait in seconds, then the call raises an error; None for no limit.

    Raises:
        ShapeError: a number is out of range.

    Example:
        >>> limiter = trl.replay.SampleToInsertRatio(ratio=8, least=100, error=64)
        >>> limiter.can_sample(inserted=100, sampled=0), limiter.can_sample(inserted=100, sampled=65)
        (True, False)
    """

    ratio: float
    least: int
    error: float
    timeout: float | None = 60.0

    def __post_init__(self) -> None:
        number("ratio", self.ratio, least=0)
        integer("least", self.least, least=1)
        number("error", self.error, least=0)
        if self.timeout is not None:
            number("timeout", self.timeout, least=0)

    def can_insert(self, inserted: int, sampled: int) -> bool:
        """Return whether `insert` need not wait.

        Args:
            inserted, sampled: the numbers of inserted and of drawn rows so far.
        """
        return inserted < self.least or self._excess(inserted, sampled) <= self.error

    def can_sample(self, inserted: int, sampled: int) -> bool:
        """Return whether `sample` need not wait.

        Args:
            inserted, sampled: the numbers of inserted and of drawn rows so far.
        """
        return inserted >= self.least and self._excess(inserted, sampled) >= -self.error

    def _excess(self, inserted: int, sampled: int) -> float:
        return self.ratio * (inserted - self.least) - sampled


@dataclass(frozen=True)
class LinearSchedule:
    """Linear schedule of the exponent beta, for `sample(beta=)` and `trl.replay.train(beta=)`.

    Source: Schaul et al. 2016, §3.4.

    Attributes:
        first, last: the values for the first batch, and after `draws` batches.
        draws: the number of batches between them.

    Raises:
        ShapeError: a number is out of range.

    Example:
        >>> beta = trl.replay.LinearSchedule(first=0.4, last=1.0, draws=1000)
        >>> beta(0), beta(500), beta(2000)
        (0.4, 0.7, 1.0)
    """

    first: float = 0.4
    last: float = 1.0
    draws: int = 100_000

    def __post_init__(self) -> None:
        number("first", self.first, least=0)
        number("last", self.last, least=0)
        integer("draws", self.draws, least=1)

    def __call__(self, draw: int) -> float:
        """Return the exponent for a batch.

        Args:
            draw: the number of batches drawn before.
        """
        share = min(draw / self.draws, 1.0)
        return self.first * (1 - share) + self.last * share


def check_beta(beta: Any) -> Beta:
    """Check that an argument is an exponent or a function of the number of earlier batches.

    Raises:
        ShapeError: it is neither.
    """
    return beta if callable(beta) else number("beta", beta, _HINT, least=0)


def beta_at(beta: Any, draw: int) -> float:
    """Return the exponent at a draw.

    Raises:
        ShapeError: it is negative, infinite or no number.
    """
    value = beta(draw) if callable(beta) else beta
    return number("beta", value, _HINT, least=0, most=inf)


_HINT = "pass a number such as 0.4, or trl.replay.LinearSchedule(0.4, 1.0, draws=100_000)."
