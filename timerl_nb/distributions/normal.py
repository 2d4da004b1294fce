"""Distributions of continuous actions: `Normal`, and `TanhNormal` on an interval."""

from __future__ import annotations

from abc import abstractmethod
from math import e, inf, log, pi
from typing import Any

from ml_dtypes import finfo

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.compiler.language.inputs.tensor_sources import random_normal, where
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand
from timerl_nb.distributions.distribution import INSIDE, Distribution, Stream, alike, expect_draw


class _Reparametrised(Distribution):
    """Distribution whose draws are functions of the parameters and of noise."""

    @abstractmethod
    def rsample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """Draw a value through which gradients flow into mean and log_std."""

    def sample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """Draw a value of the shape of the mean."""
        return self.rsample(domain, stream, shared=shared).detach()


@explain_constructor
class Normal(_Reparametrised):
    """Normal distributions, independent per element; all elements together are one draw.

    Args:
        mean: numbers of any shape.
        log_std: the logarithms of the standard deviations, which broadcast to this shape.

    Raises:
        ShapeError: the shapes do not match.

    Example:
        >>> d = trl.distributions.Normal(trl.zeros(2), 0.0)
        >>> d.sample(domain=t)
        f32[2] @ (t)
        >>> d.entropy()
        f32[] @ ()
    """

    def __init__(self, mean: RecurrentTensor, log_std: Any) -> None:
        given = operand(None, mean).floating()
        self.mean, self.log_std, self._domain = alike(("mean", "log_std"), given, log_std)

    def rsample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """Draw mean + std * noise; gradients flow into mean and log_std."""
        over = self._domain if domain is None else domain
        noise = random_normal(self.mean.shape, domain=over, stream=stream, shared=shared)
        return self.mean + self.log_std.exp() * noise

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """Return the log-density of `a`, summed over its elements."""
        return self._log_density(expect_draw(a, self.mean)).sum()

    def _log_density(self, a: RecurrentTensor) -> RecurrentTensor:
        scaled = _in_deviations(a - self.mean, self.log_std)
        return scaled.square() * -0.5 - self.log_std - 0.5 * log(2 * pi)

    def entropy(self) -> RecurrentTensor:
        """Return the entropy of all elements together, in nats."""
        return (self.log_std + 0.5 * log(2 * pi * e)).sum()

    def mode(self) -> RecurrentTensor:
        """Return the mean."""
        return self.mean

    def _kl(self, other: Normal) -> RecurrentTensor:
        distance = _in_deviations(self.mean - other.mean, other.log_std)
        wider = self.log_std - other.log_std
        grown = (wider * 2.0).expm1()  # infinite if `wider` is; avoids inf - inf
        return ((grown + distance.square()) * 0.5 - where(wider == inf, 0.0, wider)).sum()


@explain_constructor
class TanhNormal(_Reparametrised):
    """Normal numbers mapped into an interval by tanh: the policy of soft actor-critic.

    Args:
        mean, log_std: the parameters of the normal numbers, as for `Normal`.
        low, high: the ends of the interval.

    Raises:
        ShapeError: `low` is not below `high`, or the shapes do not match.

    Example:
        >>> d = trl.distributions.TanhNormal(trl.zeros(2), 0.0, low=-2.0, high=2.0)
        >>> a, log_prob = d.rsample_and_log_prob(domain=t)
        >>> a, log_prob
        (f32[2] @ (t), f32[] @ (t))
    """

    def __init__(
        self, mean: RecurrentTensor, log_std: Any, low: float = -1.0, high: float = 1.0
    ) -> None:
        low, high = number("low", low), number("high", high)
        if not low < high:
            raise ShapeError(
                f"low must be below high, but they are {low} and {high}.",
                hint="give the ends in this order: low=-1.0, high=1.0.",
            )
        self.normal = Normal(mean, log_std)
        self._middle, self._half = (high + low) / 2, (high - low) / 2

    def rsample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """Draw a value through which gradients flow into mean and log_std."""
        return self._squash(self.normal.rsample(domain, stream, shared=shared))

    def rsample_and_log_prob(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> tuple[RecurrentTensor, RecurrentTensor]:
        """Draw a value as `rsample` does, and return it with its log-density, accurate even if tanh saturates."""
        drawn = self.normal.rsample(domain, stream, shared=shared)
        return self._squash(drawn), self._log_density(drawn)

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """Return the log-density of `a`, summed over its elements.

        It inverts tanh, which is inaccurate in float32 near the ends; `rsample_and_log_prob` does not.
        """
        unit = (expect_draw(a, self.normal.mean) - self._middle) / self._half
        return self._log_density(unit.clip(-INSIDE, INSIDE).arctanh())

    def _squash(self, x: RecurrentTensor) -> RecurrentTensor:
        return x.tanh() * self._half + self._middle

    def _log_density(self, x: RecurrentTensor) -> RecurrentTensor:
        """Return the log-density of the draw from `x`, with log(1 - tanh(x)**2) computed without cancellation."""
        slope = (x + (x * -2.0).softplus() - log(2)) * -2.0
        return (self.normal._log_density(x) - slope - log(self._half)).sum()

    def entropy(self) -> RecurrentTensor:
        """Raise an error: the entropy has no closed form.

        Raises:
            ShapeError: always; the hint names an alternative.
        """
        raise self._unknown("entropy")

    def mode(self) -> RecurrentTensor:
        """Return the median, the image of the mean: the action of a deterministic policy."""
        return self._squash(self.normal.mean)

    def _kl(self, other: TanhNormal) -> RecurrentTensor:
        if (self._middle, self._half) != (other._middle, other._half):
            raise ShapeError(
                "distributions on different intervals cannot be compared.",
                hint="give both the same low and high.",
            )
        return self.normal.kl(other.normal)  # tanh is bijective


def _in_deviations(distance: RecurrentTensor, log_std: RecurrentTensor) -> RecurrentTensor:
    """Return the distance divided by the standard deviation, also if that is 0 or infinite.

    The distance is multiplied twice by the root of the inverse, which has half the exponent. A limit keeps the root finite,
    since 0 times infinity is NaN. The gradient by `log_std` bypasses the limit through a factor of 1.
    """
    most = log(float(finfo(NUMPY[log_std.dtype]).max)) - 0.5
    root = (log_std * -0.5).clip(-most, most).detach().exp()
    within = where(abs(log_std) < inf, log_std, 0.0)
    one = (within.detach() - within).exp()
    return distance * root * root * one
