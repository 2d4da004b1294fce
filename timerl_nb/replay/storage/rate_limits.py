"""Limits on the ratio of drawn to inserted rows, and schedules of the exponent beta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.foreign_names import explain_constructor

Beta = float | Callable[[int], float]


@explain_constructor
@dataclass(frozen=True)
class SampleToInsertRatio:
    """Limit on the number of drawn rows per inserted row, for `trl.Replay(…, limiter=)`.

    With d = samples_per_insert * (inserted - min_size_to_sample) - sampled, `insert` waits while d is above
    `error_buffer`, and `sample` waits while d is below `-error_buffer`. The check precedes a call, so one call can
    exceed the limit. Before the buffer has `min_size_to_sample` rows, `sample` waits and `insert` never does.
    The arguments have the names of Reverb's limiter.

    Source: Cassirer et al. 2021.

    Attributes:
        samples_per_insert: the number of drawn rows per inserted row.
        min_size_to_sample: the number of inserted rows before the first draw.
        error_buffer: the tolerance in drawn rows.
        timeout: the longest wait in seconds, then the call raises an error; None for no limit.

    Raises:
        ShapeError: a number is out of range.

    Example:
        >>> limiter = trl.replay.SampleToInsertRatio(samples_per_insert=8, min_size_to_sample=100, error_buffer=64)
        >>> limiter.can_sample(inserted=100, sampled=0), limiter.can_sample(inserted=100, sampled=65)
        (True, False)
    """

    samples_per_insert: float
    min_size_to_sample: int
    error_buffer: float
    timeout: float | None = 60.0

    def __post_init__(self) -> None:
        number("samples_per_insert", self.samples_per_insert, least=0)
        integer("min_size_to_sample", self.min_size_to_sample, least=1)
        number("error_buffer", self.error_buffer, least=0)
        if self.timeout is not None:
            number("timeout", self.timeout, least=0)

    def can_insert(self, inserted: int, sampled: int) -> bool:
        """Return whether `insert` need not wait.

        Args:
            inserted, sampled: the numbers of inserted and of drawn rows so far.
        """
        return (
            inserted < self.min_size_to_sample
            or self._excess(inserted, sampled) <= self.error_buffer
        )

    def can_sample(self, inserted: int, sampled: int) -> bool:
        """Return whether `sample` need not wait.

        Args:
            inserted, sampled: the numbers of inserted and of drawn rows so far.
        """
        return (
            inserted >= self.min_size_to_sample
            and self._excess(inserted, sampled) >= -self.error_buffer
        )

    def _excess(self, inserted: int, sampled: int) -> float:
        return self.samples_per_insert * (inserted - self.min_size_to_sample) - sampled


@explain_constructor
@dataclass(frozen=True)
class LinearSchedule:
    """Linear schedule of the exponent beta, for `sample(beta=)` and `trl.replay.train(beta=)`.

    Source: Schaul et al. 2016, §3.4.

    Attributes:
        first, last: the values for the first batch, and after `batches` batches.
        batches: the number of batches between them.

    Raises:
        ShapeError: a number is out of range.

    Example:
        >>> beta = trl.replay.LinearSchedule(first=0.4, last=1.0, batches=1000)
        >>> beta(0), beta(500), beta(2000)
        (0.4, 0.7, 1.0)
    """

    first: float = 0.4
    last: float = 1.0
    batches: int = 100_000

    def __post_init__(self) -> None:
        number("first", self.first, least=0)
        number("last", self.last, least=0)
        integer("batches", self.batches, least=1)

    def __call__(self, batch: int) -> float:
        """Return the exponent for a batch.

        Args:
            batch: the number of batches drawn before.
        """
        share = min(batch / self.batches, 1.0)
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


_HINT = "pass a number such as 0.4, or trl.replay.LinearSchedule(0.4, 1.0, batches=100_000)."
