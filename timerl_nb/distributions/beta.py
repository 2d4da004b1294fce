"""The beta distribution, for actions in an interval."""

from __future__ import annotations

from math import log, pi
from typing import Any, Final

from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.compiler.language.inputs.tensor_sources import random_normal, random_uniform, where
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.distributions.distribution import (
    INSIDE,
    Distribution,
    Stream,
    alike,
    expect_draw,
    numbers,
)

_TRIES: Final = 12  # each is accepted with probability > 0.95: all fail once in 10**15
_TINY: Final = 2.0**-100
_LEAST: Final = 2.0**-126  # smallest normal float32


@explain_constructor
class Beta(Distribution):
    """Beta distributions, independent per element; all elements together are one draw.

    Args:
        alpha: positive numbers of any shape.
        beta: positive numbers that broadcast to this shape.

    Raises:
        ShapeError: a parameter is not floating-point, or the shapes do not match.

    Example:
        >>> d = trl.distributions.Beta(trl.full(2, 3.0), 1.5)
        >>> d.sample(domain=t)
        f32[2] @ (t)
        >>> d.log_prob(trl.full(2, 0.5))
        f32[] @ ()
    """

    def __init__(self, alpha: RecurrentTensor, beta: Any) -> None:
        given = numbers("alpha", alpha)
        self.alpha, self.beta, self._domain = alike(("alpha", "beta"), given, beta)

    def sample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """Draw numbers of the shape of alpha, as X / (X + Y) with gamma-distributed X and Y."""
        over = self._domain if domain is None else domain
        names = [stream if stream is None else f"{stream} {part}" for part in ("alpha", "beta")]
        x, y = (
            _log_gamma_draw(shape.detach(), over, name, shared)
            for shape, name in zip((self.alpha, self.beta), names, strict=True)
        )
        return (x - y).sigmoid().detach().clip(_LEAST, INSIDE)

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """Return the log-density of `a`, summed over its elements."""
        a = expect_draw(a, self.alpha)
        # 0**0 is 1: a parameter of 1 contributes nothing at the end of the interval.
        low, high = (self.alpha == 1.0) & (a == 0.0), (self.beta == 1.0) & (a == 1.0)
        first = (self.alpha - 1.0) * where(low, 1.0, a).log()
        second = (self.beta - 1.0) * (-where(high, 0.0, a)).log1p()
        return (first + second - self._log_norm()).sum()

    def _log_norm(self) -> RecurrentTensor:
        whole = log_gamma(self.alpha + self.beta)
        return log_gamma(self.alpha) + log_gamma(self.beta) - whole

    def entropy(self) -> RecurrentTensor:
        """Return the entropy of all elements together, in nats."""
        a, b = self.alpha, self.beta
        slopes = (a - 1.0) * digamma(a) + (b - 1.0) * digamma(b) - (a + b - 2.0) * digamma(a + b)
        return (self._log_norm() - slopes).sum()

    def mode(self) -> RecurrentTensor:
        """Return the mode for alpha, beta > 1, and the mean otherwise."""
        a, b = self.alpha, self.beta
        peaked = (a > 1.0) & (b > 1.0)
        return where(peaked, (a - 1.0) / where(peaked, a + b - 2.0, 1.0), a / (a + b))

    def _kl(self, other: Beta) -> RecurrentTensor:
        a, b, c, d = self.alpha, self.beta, other.alpha, other.beta
        slopes = (a - c) * digamma(a) + (b - d) * digamma(b) + (c - a + d - b) * digamma(a + b)
        return (other._log_norm() - self._log_norm() + slopes).sum()


def log_gamma(x: RecurrentTensor) -> RecurrentTensor:
    """Return the logarithm of the gamma function of positive numbers, by Stirling's series above 6."""
    above = x + 6.0
    inverse = 1.0 / above
    ratios = [(x + float(k)) * inverse for k in range(6)]  # a product of the x + k may overflow
    first, second = (ratios[k] * ratios[k + 1] * ratios[k + 2] for k in (0, 3))
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260)))
    return (
        (above - 6.5) * above.log()
        - above
        + 0.5 * log(2 * pi)
        + series
        - first.log()
        - second.log()
    )


def digamma(x: RecurrentTensor) -> RecurrentTensor:
    """Return the derivative of `log_gamma`."""
    above, below = x + 6.0, 1.0 / x
    for k in range(1, 6):
        below = below + 1.0 / (x + float(k))
    inverse = 1.0 / above
    square = inverse * inverse
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252)))
    return above.log() - inverse * 0.5 - series - below


def _log_gamma_draw(
    shape: RecurrentTensor, domain: Any, stream: str | None, shared: bool
) -> RecurrentTensor:
    """Draw the logarithm of a gamma-distributed number (Marsaglia and Tsang 2000).

    All candidates are drawn together; the first accepted one is the result.
    """

    def name_of(part: str) -> str | None:
        return None if stream is None else f"{stream} {part}"

    small = shape < 1.0
    d = where(small, shape + 1.0, shape) - 1 / 3
    several = (_TRIES, *shape.shape)
    z = random_normal(several, domain=domain, stream=name_of("normal"), shared=shared)
    u = random_uniform(several, domain=domain, stream=name_of("accepted"), shared=shared)
    v = 1.0 + z / (d * 9.0).sqrt()
    log_v = v.clip(_TINY, None).log() * 3.0
    fits = u.log() < z.square() * 0.5 + d * (1.0 - log_v.exp() + log_v)
    tried = zip((fits & (v > 0.0)).unstack(), log_v.unstack(), strict=True)
    *others, (_, found) = list(tried)
    for accepted, candidate in reversed(others):
        found = where(accepted, candidate, found)
    # converts a draw for shape + 1 to one for shape
    lift = (
        random_uniform(shape.shape, domain=domain, stream=name_of("below 1"), shared=shared).log()
        / shape
    )
    return d.log() + found + where(small, lift, 0.0)
