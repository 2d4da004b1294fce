"""Distributions of continuous actions: `Normal`, and `TanhNormal` between two ends."""

from __future__ import annotations

from abc import abstractmethod
from math import e, inf, log, pi
from typing import Any

from ml_dtypes import finfo

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.ir.shapes import NUMPY
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.inputs.tensor_sources import random_normal, where
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand
from timerl_nb.distributions.distribution import INSIDE, Distribution, Stream, alike, expect_draw


class _Reparametrised(Distribution):
    """Draws that are functions of the parameters and of noise."""

    @abstractmethod
    def rsample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """A draw through which gradients flow into mean and log_std."""

    def sample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """A draw of the shape of the mean."""
        return self.rsample(domain, stream, shared=shared).detach()


class Normal(_Reparametrised):
    """Independent normal numbers: one per element, together one draw.

    Args:
        mean: any shape.
        log_std: the logarithms of the standard deviations, of that shape or broadcast to it.
    """

    def __init__(self, mean: RecurrentTensor, log_std: Any) -> None:
        given = operand(None, mean).floating()
        self.mean, self.log_std, self._domain = alike(("mean", "log_std"), given, log_std)

    def rsample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """A draw through which gradients flow into mean and log_std (mean + std * noise)."""
        over = self._domain if domain is None else domain
        noise = random_normal(self.mean.shape, domain=over, stream=stream, shared=shared)
        return self.mean + self.log_std.exp() * noise

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """The log-density of `a`, whose elements are one draw."""
        return self._log_density(expect_draw(a, self.mean)).sum()

    def _log_density(self, a: RecurrentTensor) -> RecurrentTensor:
        scaled = _in_deviations(a - self.mean, self.log_std)
        return scaled.square() * -0.5 - self.log_std - 0.5 * log(2 * pi)

    def entropy(self) -> RecurrentTensor:
        """In nats, of all elements together."""
        return (self.log_std + 0.5 * log(2 * pi * e)).sum()

    def mode(self) -> RecurrentTensor:
        """The mean."""
        return self.mean

    def _kl(self, other: Normal) -> RecurrentTensor:
        apart = _in_deviations(self.mean - other.mean, other.log_std)
        wider = self.log_std - other.log_std
        grown = (wider * 2.0).expm1()  # infinite if `wider` is: not inf - inf
        return ((grown + apart.square()) * 0.5 - where(wider == inf, 0.0, wider)).sum()


class TanhNormal(_Reparametrised):
    """Normal numbers drawn into an interval by tanh: the policy of soft actor-critics.

    Args:
        mean, log_std: of the normal numbers, as for `Normal`.
        low, high: the ends of the interval.
    """

    def __init__(
        self, mean: RecurrentTensor, log_std: Any, low: float = -1.0, high: float = 1.0
    ) -> None:
        low, high = number("low", low), number("high", high)
        if not low < high:
            raise ShapeError(f"an interval has its low end below the high one, not {low}, {high}.")
        self.normal = Normal(mean, log_std)
        self._middle, self._half = (high + low) / 2, (high - low) / 2

    def rsample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """A draw through which gradients flow into mean and log_std."""
        return self._squash(self.normal.rsample(domain, stream, shared=shared))

    def rsample_and_log_prob(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> tuple[RecurrentTensor, RecurrentTensor]:
        """A draw as of `rsample`, and its log-density, exact also where tanh has saturated."""
        drawn = self.normal.rsample(domain, stream, shared=shared)
        return self._squash(drawn), self._log_density(drawn)

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """The log-density of `a`, whose elements are one draw between the ends.

        It finds the normal number again, which float32 only tells to some digits near the ends:
        `rsample_and_log_prob` knows it.
        """
        unit = (expect_draw(a, self.normal.mean) - self._middle) / self._half
        return self._log_density(unit.clip(-INSIDE, INSIDE).arctanh())

    def _squash(self, x: RecurrentTensor) -> RecurrentTensor:
        return x.tanh() * self._half + self._middle

    def _log_density(self, x: RecurrentTensor) -> RecurrentTensor:
        """Of the draw that the normal number `x` makes: log(1 - tanh(x)**2) without cancellation."""
        slope = (x + (x * -2.0).softplus() - log(2)) * -2.0
        return (self.normal._log_density(x) - slope - log(self._half)).sum()

    def entropy(self) -> RecurrentTensor:
        """It has no closed form.

        Raises:
            ShapeError: always; with what to do instead.
        """
        raise self._unknown("entropy")

    def mode(self) -> RecurrentTensor:
        """Where the mean goes: the median, by which one acts without chance."""
        return self._squash(self.normal.mean)

    def _kl(self, other: TanhNormal) -> RecurrentTensor:
        if (self._middle, self._half) != (other._middle, other._half):
            raise ShapeError("two intervals with other ends do not compare.")
        return self.normal.kl(other.normal)  # tanh is one to one


def _in_deviations(distance: RecurrentTensor, log_std: RecurrentTensor) -> RecurrentTensor:
    """Return the distance divided by the standard deviation, also where that is 0 or infinite.

    The distance is multiplied twice by the root of the inverse, which has half the exponent. A limit keeps the
    root finite, since 0 times infinity is NaN. The gradient by `log_std` passes the limit through a factor of 1.
    """
    most = log(float(finfo(NUMPY[log_std.dtype]).max)) - 0.5
    root = (log_std * -0.5).clip(-most, most).detach().exp()
    within = where(abs(log_std) < inf, log_std, 0.0)
    one = (within.detach() - within).exp()
    return distance * root * root * one
