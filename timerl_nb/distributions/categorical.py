"""Distributions over what is counted: `Categorical`, `MultiCategorical`, `Bernoulli`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import Any

import numpy as np

from timerl_nb.distributions.distribution import Distribution, Stream, expect_draw, numbers
from timerl_nb.errors import ShapeError
from timerl_nb.frontend.arguments import integer, is_whole
from timerl_nb.frontend.sources import random_gumbel, random_uniform, stack, where
from timerl_nb.frontend.tensor import RecurrentTensor, operand
from timerl_nb.ir.shapes import is_integer


class Categorical(Distribution):
    """One of the positions of the last axis, with probability softmax(logits).

    Args:
        logits: unnormalised log-probabilities, shape (…, n).
    """

    def __init__(self, logits: RecurrentTensor) -> None:
        logits = operand(None, logits)
        if not logits.rank:
            raise ShapeError(f"logits are floating-point and have at least one axis, not {logits}.")
        self.logits = numbers("logits", logits)
        shifted = logits - logits.max(axis=-1).unsqueeze(-1).detach()
        self.log_probs = shifted - shifted.exp().sum(axis=-1).unsqueeze(-1).log()

    def sample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """A position (int32), the shape without the last axis."""
        over = self.logits.domain if domain is None else domain
        noise = random_gumbel(self.logits.shape, domain=over, stream=stream, shared=shared)
        return (self.logits + noise).argmax(-1)

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """The log-probability of each position in `a` (integers)."""
        a = operand(self.logits.ctx, a)
        if not is_integer(a.dtype):
            raise ShapeError(f"positions are integers, not {a.type}.")
        size = integer("the number of positions", self.logits.shape[-1])
        beyond = where((a < 0) | (a >= size), -inf, 0.0).unsqueeze(-1)
        # impossible ones are -inf as well
        return where(a.one_hot(size, "bool"), self.log_probs, beyond).sum(axis=-1)

    def entropy(self) -> RecurrentTensor:
        """-sum p log p, in nats, the shape without the last axis."""
        p = self.log_probs.exp()
        return -where(p <= 0.0, 0.0, p * self.log_probs).sum(axis=-1)

    def mode(self) -> RecurrentTensor:
        """The most likely position."""
        return self.logits.argmax(-1)

    def _kl(self, other: Categorical) -> RecurrentTensor:
        p = self.log_probs.exp()
        apart = where(p <= 0.0, 0.0, p * (self.log_probs - other.log_probs))
        return apart.sum(axis=-1)


class MultiCategorical(Distribution):
    """Several positions at once, drawn apart: the actions of a `MultiDiscrete` space.

    Args:
        logits: shape (…, sum(sizes)), those of one choice after those of another.
        sizes: how many positions each choice has.
    """

    def __init__(self, logits: RecurrentTensor, sizes: Sequence[int]) -> None:
        logits = numbers("logits", logits)
        self.sizes = tuple(sizes) if isinstance(sizes, Sequence | np.ndarray) else ()
        counted = all(is_whole(n) and n > 0 for n in self.sizes)
        if not self.sizes or not counted or not logits.rank or logits.shape[-1] != sum(self.sizes):
            raise ShapeError(
                f"logits {logits.type} do not go with choices of {sizes!r} positions.",
                hint="their last axis is as long as all choices together.",
            )
        ends = list(accumulate(self.sizes))
        self.parts = [
            Categorical(logits.slice(hi - n, hi, -1))
            for n, hi in zip(self.sizes, ends, strict=True)
        ]

    def sample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """Positions (int32), shape (…, number of choices)."""
        streams = [stream if stream is None else f"{stream}[{k}]" for k in range(len(self.parts))]
        pairs = zip(self.parts, streams, strict=True)
        return stack([part.sample(domain, name, shared=shared) for part, name in pairs], axis=-1)

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """The log-probability of all choices together; `a` has the shape of a draw."""
        a = operand(self.parts[0].logits.ctx, a)
        if not a.rank or a.shape[-1] != len(self.parts):
            raise ShapeError(f"a draw has a last axis of {len(self.parts)}, not {a.type}.")
        chosen = zip(self.parts, a.unstack(axis=-1), strict=True)
        return _total([part.log_prob(one) for part, one in chosen])

    def entropy(self) -> RecurrentTensor:
        """In nats, of all choices together."""
        return _total([part.entropy() for part in self.parts])

    def mode(self) -> RecurrentTensor:
        """The most likely positions."""
        return stack([part.mode() for part in self.parts], axis=-1)

    def _kl(self, other: MultiCategorical) -> RecurrentTensor:
        if other.sizes != self.sizes:
            raise ShapeError(f"choices of {self.sizes} and {other.sizes} positions do not compare.")
        return _total([p.kl(q) for p, q in zip(self.parts, other.parts, strict=True)])


class Bernoulli(Distribution):
    """Yes or no, with probability sigmoid(logits): one per element, together one draw.

    Args:
        logits: log(p / (1 - p)), any shape.
    """

    def __init__(self, logits: RecurrentTensor) -> None:
        self.logits = numbers("logits", logits)

    def sample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """Booleans, of the shape of the logits."""
        over = self.logits.domain if domain is None else domain
        drawn = random_uniform(self.logits.shape, domain=over, stream=stream, shared=shared)
        return drawn < self.logits.sigmoid()

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """The log-probability of `a`, booleans or zeros and ones, whose elements are one draw."""
        yes = expect_draw(a, self.logits)
        yes = yes if yes.dtype == "bool" else yes != 0
        return where(yes, self.logits.log_sigmoid(), (-self.logits).log_sigmoid()).sum()

    def entropy(self) -> RecurrentTensor:
        """In nats, of all elements together."""
        p = self.logits.sigmoid()
        return (self.logits.softplus() - p * self.logits).sum()

    def mode(self) -> RecurrentTensor:
        """Yes where that is more likely than no."""
        return self.logits > 0.0

    def _kl(self, other: Bernoulli) -> RecurrentTensor:
        p = self.logits.sigmoid()
        apart = p * (self.logits - other.logits) + other.logits.softplus() - self.logits.softplus()
        return apart.sum()


def _total(parts: list[RecurrentTensor]) -> RecurrentTensor:
    return sum(parts[1:], parts[0])
