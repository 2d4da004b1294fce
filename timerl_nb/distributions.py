"""Probability distributions over recurrent tensors (`trl.distributions`)."""

from __future__ import annotations

from math import e, log, pi
from typing import Any

from timerl_nb.errors import ShapeError
from timerl_nb.frontend.foreign import module_names as _module_names
from timerl_nb.frontend.sources import random_gumbel, random_normal, where
from timerl_nb.frontend.tensor import RecurrentTensor, broadcast_to, one_hot, operand
from timerl_nb.ir.shapes import is_float, is_integer


class Categorical:
    """One of the positions of the last axis, with probability softmax(logits).

    Args:
        logits: unnormalised log-probabilities, shape (…, n).
    """

    def __init__(self, logits: RecurrentTensor) -> None:
        logits = operand(None, logits)
        if not logits.rank or not is_float(logits.dtype):
            raise ShapeError(f"logits are floating-point and have at least one axis, not {logits}.")
        self.logits = logits
        shifted = logits - logits.max(axis=-1).unsqueeze(-1).detach()
        self.log_probs = shifted - shifted.exp().sum(axis=-1).unsqueeze(-1).log()

    def sample(
        self, domain: Any = None, stream: int | str | None = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """A draw (int32, the shape without the last axis) at every point.

        Draws are independent over `domain`, by default the logits' own; to draw independently per
        environment from logits that do not vary over environments, name the dimension.
        """
        over = self.logits.domain if domain is None else domain
        noise = random_gumbel(self.logits.shape, domain=over, stream=stream, shared=shared)
        return (self.logits + noise).argmax(-1)

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """The log-probability of each position in `a` (integers)."""
        a = operand(self.logits.ctx, a)
        if not is_integer(a.dtype):
            raise ShapeError(f"positions are integers, not {a.type}.")
        chosen = one_hot(a, self.logits.shape[-1])
        return where(chosen, self.log_probs, 0.0).sum(axis=-1)  # impossible ones are -inf

    def entropy(self) -> RecurrentTensor:
        """-sum p log p, in nats."""
        p = self.log_probs.exp()
        return -where(p > 0.0, p * self.log_probs, 0.0).sum(axis=-1)

    def mode(self) -> RecurrentTensor:
        """The most likely position."""
        return self.logits.argmax(-1)


class Normal:
    """Independent normal numbers: one per element, together one draw.

    Args:
        mean: any shape.
        log_std: the logarithms of the standard deviations, of that shape or broadcast to it.
    """

    def __init__(self, mean: RecurrentTensor, log_std: Any) -> None:
        self.mean = operand(None, mean).floating()
        given = operand(self.mean.ctx, log_std)
        both = self.mean + given
        if not is_float(given.dtype) or both.shape != self.mean.shape:
            raise ShapeError(f"log_std is {given.type}, which does not go with {self.mean.type}.")
        self.log_std, self._domain = broadcast_to(given, both.shape), both.domain

    def sample(
        self, domain: Any = None, stream: int | str | None = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """A draw at every point of `domain`, by default the dimensions of mean and log_std.

        No gradient flows through it into the mean and the standard deviation.
        """
        over = self._domain if domain is None else domain
        noise = random_normal(self.mean.shape, domain=over, stream=stream, shared=shared)
        return (self.mean + self.log_std.exp() * noise).detach()

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """The log-density of `a`, whose elements are one draw."""
        a = operand(self.mean.ctx, a)
        if a.shape != self.mean.shape:
            raise ShapeError(f"a draw is {self.mean.type}, not {a.type}.")
        scaled = (a - self.mean) / self.log_std.exp()
        return (scaled.square() * -0.5 - self.log_std - 0.5 * log(2 * pi)).sum()

    def entropy(self) -> RecurrentTensor:
        """In nats, of all elements together."""
        return (self.log_std + 0.5 * log(2 * pi * e)).sum()

    def mode(self) -> RecurrentTensor:
        """The mean."""
        return self.mean


__getattr__ = _module_names(
    "trl.distributions", lambda: [name for name in globals() if name[0].isupper()]
)
