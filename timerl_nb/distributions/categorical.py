"""Distributions over finite choices: `Categorical`, `MultiCategorical`, `Bernoulli`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import Any

import numpy as np
from ml_dtypes import finfo

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.ir.shapes import NUMPY, is_integer, same_size
from timerl_nb.compiler.language.argument_checks import integer, is_whole
from timerl_nb.compiler.language.inputs.tensor_sources import (
    random_gumbel,
    random_uniform,
    stack,
    where,
)
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand
from timerl_nb.distributions.distribution import Distribution, Stream, expect_draw, numbers


class Categorical(Distribution):
    """One of the positions of the last axis, with probability softmax(logits).

    A logit of -inf gives a position probability 0. A logit of inf makes a position certain; several
    have equal log-probabilities, and the first is drawn. Neither receives a gradient.

    Args:
        logits: unnormalised log-probabilities, shape (…, n).
        mask: the allowed positions: booleans, or zeros and ones, of the logits' shape or broadcast to
            it. The others have the logit -inf. At least one position of each row must be allowed.
            Constant masks are checked at once. If a row without an allowed position is computed, its
            log-probabilities are -inf, its entropy and divergence are 0, and its draw and its mode are
            position 0.

    Raises:
        ShapeError: the logits or the mask have another type or shape, or a constant mask allows none.
    """

    def __init__(self, logits: RecurrentTensor, mask: Any = None) -> None:
        logits = operand(None, logits)
        if not logits.rank:
            raise ShapeError(f"logits are floating-point and have at least one axis, not {logits}.")
        logits = numbers("logits", logits)
        if mask is not None:
            logits = _mask_logits(logits, allowed_positions(mask, logits))
        self.logits = logits
        # infinities are handled by detached operations; these add little to the gradients
        ends = finfo(NUMPY[logits.dtype])
        most = logits.max(axis=-1).unsqueeze(-1).detach()
        shifted = logits - most.maximum(float(ends.min))
        shifted = where(most == inf, where(logits == inf, 0.0, -inf), shifted)
        total = shifted.exp().sum(axis=-1).unsqueeze(-1)  # at least 1, or 0
        self._shifted = shifted
        self._log_total = (total + float(ends.smallest_normal)).log()
        self.log_probs = shifted - self._log_total

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
        return -(p * where(p <= 0.0, 0.0, self.log_probs)).sum(axis=-1)

    def mode(self) -> RecurrentTensor:
        """The most likely position."""
        return self.logits.argmax(-1)

    def _kl(self, other: Categorical) -> RecurrentTensor:
        finite = _finite(other._shifted) - other._log_total
        return _divergence(self.log_probs.exp(), self.log_probs, other.log_probs, finite).sum(
            axis=-1
        )


class MultiCategorical(Distribution):
    """Several positions at once, drawn apart: the actions of a `MultiDiscrete` space.

    Args:
        logits: shape (…, sum(sizes)), those of one choice after those of another.
        sizes: how many positions each choice has.
        mask: the allowed positions of all choices, side by side as the logits are; see `Categorical`.
    """

    def __init__(self, logits: RecurrentTensor, sizes: Sequence[int], mask: Any = None) -> None:
        logits = numbers("logits", logits)
        self.sizes = tuple(sizes) if isinstance(sizes, Sequence | np.ndarray) else ()
        counted = all(is_whole(n) and n > 0 for n in self.sizes)
        if not self.sizes or not counted or not logits.rank or logits.shape[-1] != sum(self.sizes):
            raise ShapeError(
                f"logits {logits.type} do not go with choices of {sizes!r} positions.",
                hint="their last axis is as long as all choices together.",
            )
        ends = list(accumulate(self.sizes))
        spans = [slice(hi - n, hi) for n, hi in zip(self.sizes, ends, strict=True)]
        if mask is not None:
            logits = _mask_logits(logits, allowed_positions(mask, logits, spans))
        self.parts = [Categorical(logits.slice(span.start, span.stop, -1)) for span in spans]

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
        a = expect_draw(a, self.logits)
        no = (-self.logits).log_sigmoid()
        if a.dtype == "bool":
            return where(a, self.logits.log_sigmoid(), no).sum()
        impossible = where(a == 0, no, -inf)
        return where(a == 1, self.logits.log_sigmoid(), impossible).sum()

    def entropy(self) -> RecurrentTensor:
        """In nats, of all elements together."""
        size = abs(self.logits)
        rare = (-size).sigmoid()  # the probability of the less likely value
        return ((-size).softplus() + rare * where(rare <= 0.0, 0.0, size)).sum()

    def mode(self) -> RecurrentTensor:
        """Yes where that is more likely than no."""
        return self.logits > 0.0

    def _kl(self, other: Bernoulli) -> RecurrentTensor:
        def given_sign(x: RecurrentTensor, y: RecurrentTensor) -> RecurrentTensor:
            log_q = y.log_sigmoid()
            return _divergence(x.sigmoid(), x.log_sigmoid(), log_q, _finite(log_q))

        no = given_sign(-self.logits, -other.logits)
        return (given_sign(self.logits, other.logits) + no).sum()


def _divergence(
    p: RecurrentTensor, log_p: RecurrentTensor, log_q: RecurrentTensor, finite: RecurrentTensor
) -> RecurrentTensor:
    """Return p * (log p - log q); for p = 0 its value and gradients are 0.

    Args:
        finite: log q, with a finite number for -inf. The gradients are computed from it, since infinite
            terms of opposite signs would have the gradient NaN.
    """
    none = p <= 0.0
    infinite = where(none, 0.0, where(log_q == -inf, inf, 0.0))
    return p * (where(none, 0.0, log_p) - where(none, 0.0, finite)) + infinite


def _finite(x: RecurrentTensor) -> RecurrentTensor:
    """Return `x` with a large negative number for -inf; sums weighted by probabilities stay finite."""
    return where(x == -inf, float(finfo(NUMPY[x.dtype]).min) / 4, x)


def _mask_logits(logits: RecurrentTensor, allowed: RecurrentTensor) -> RecurrentTensor:
    return where(allowed, logits, -inf)


def allowed_positions(
    mask: Any, logits: RecurrentTensor, spans: Sequence[slice] = (slice(None),)
) -> RecurrentTensor:
    """Return a mask of positions as booleans.

    Args:
        mask: booleans, or integers (0 means forbidden).
        logits: the tensor it applies to.
        spans: the parts of the last axis; each needs an allowed position.

    Raises:
        ShapeError: it has another type, a shape that does not broadcast, or its constant values allow
            no position of a part.
    """
    given = operand(logits.ctx, mask)
    if given.dtype != "bool" and not is_integer(given.dtype):
        raise ShapeError(
            f"a mask is boolean, or zeros and ones, not {given.type}.",
            hint="mask=m > 0 makes booleans; True allows a position.",
        )
    aligned = (1,) * (logits.rank - given.rank) + given.shape
    if len(aligned) != logits.rank or any(
        not (n == 1 or same_size(n, m)) for n, m in zip(aligned, logits.shape, strict=False)
    ):
        raise ShapeError(
            f"a mask {given.type} does not go with logits {logits.type}.",
            hint="its shape is that of the logits, or broadcasts to it.",
        )
    if given.op.kind in ("const", "data"):
        numbers = given.op.attrs.value.array
        if numbers.dtype.kind != "b" and ((numbers != 0) & (numbers != 1)).any():
            raise ShapeError(
                "a mask of integers holds zeros and ones alone.",
                hint="it says of each position whether it is allowed; mask=m > 0 makes booleans.",
            )
        values = np.atleast_1d(numbers != 0)
        for span in spans if values.shape[-1] > 1 else spans[:1]:
            barred = ~values[..., span].any(axis=-1)
            if barred.any():
                row = tuple(map(int, np.argwhere(barred)[0]))
                where_ = f"row {row} of the mask allows" if row else "the mask allows"
                part = "" if len(spans) == 1 else f" among {span.start} to {span.stop - 1}"
                raise ShapeError(
                    f"{where_} no position{part}.",
                    hint="allow at least one; a row that is not used may allow all.",
                )
    return given if given.dtype == "bool" else given != 0


def _total(parts: list[RecurrentTensor]) -> RecurrentTensor:
    return sum(parts[1:], parts[0])
