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
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.compiler.language.inputs.tensor_sources import (
    random_gumbel,
    random_uniform,
    stack,
    where,
)
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand
from timerl_nb.distributions.distribution import Distribution, Stream, expect_draw, numbers


@explain_constructor
class Categorical(Distribution):
    """Categorical distribution over the positions of the last axis, with probabilities softmax(logits).

    A logit of -inf gives a position probability 0. A logit of inf makes a position certain; several such positions have
    equal log-probabilities, and the first is drawn. Neither receives a gradient.

    Args:
        logits: unnormalised log-probabilities, shape (…, n).
        mask: the allowed positions: booleans, or zeros and ones, that broadcast to the logits' shape. The other
            positions have the logit -inf. Each row needs an allowed position; constant masks are checked
            immediately. A row without one has log-probabilities of -inf, entropy and divergence 0, and
            position 0 as draw and mode.

    Raises:
        ShapeError: the logits or the mask have an unsuitable type or shape, or a row of a constant mask allows no
            position.

    Example:
        >>> d = trl.distributions.Categorical(trl.zeros((3, 4)))
        >>> d.sample(domain=t)
        i32[3] @ (t)
        >>> d.entropy()
        f32[3] @ ()
    """

    def __init__(self, logits: RecurrentTensor, mask: Any = None) -> None:
        logits = operand(None, logits)
        if not logits.rank:
            raise ShapeError(
                f"logits must be floating-point and have at least one axis, not {logits}.",
                hint="give log-probabilities of shape (…, n).",
            )
        logits = numbers("logits", logits)
        if mask is not None:
            logits = _mask_logits(logits, allowed_positions(mask, logits))
        self.logits = logits
        # Infinities are handled by detached operations with a negligible effect on gradients.
        ends = finfo(NUMPY[logits.dtype])
        most = logits.max(axis=-1).unsqueeze(-1).detach()
        shifted = logits - most.maximum(float(ends.min))
        shifted = where(most == inf, where(logits == inf, 0.0, -inf), shifted)
        total = shifted.exp().sum(axis=-1).unsqueeze(-1)  # at least 1; 0 without allowed positions
        self._shifted = shifted
        self._log_total = (total + float(ends.smallest_normal)).log()
        self.log_probs = shifted - self._log_total

    def sample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """Draw positions as int32, of the shape without the last axis."""
        over = self.logits.domain if domain is None else domain
        noise = random_gumbel(self.logits.shape, domain=over, stream=stream, shared=shared)
        return (self.logits + noise).argmax(-1)

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """Return the log-probability of each position in `a`, given as integers."""
        a = operand(self.logits.ctx, a)
        if not is_integer(a.dtype):
            raise ShapeError(
                f"positions must be integers, not {a.type}.", hint='cast them: a.cast("i32").'
            )
        size = integer("the number of positions", self.logits.shape[-1])
        beyond = where((a < 0) | (a >= size), -inf, 0.0).unsqueeze(-1)
        # impossible positions have -inf, too
        return where(a.one_hot(size, "bool"), self.log_probs, beyond).sum(axis=-1)

    def entropy(self) -> RecurrentTensor:
        """Return the entropy in nats, of the shape without the last axis."""
        p = self.log_probs.exp()
        return -(p * where(p <= 0.0, 0.0, self.log_probs)).sum(axis=-1)

    def mode(self) -> RecurrentTensor:
        """Return the most likely position."""
        return self.logits.argmax(-1)

    def _kl(self, other: Categorical) -> RecurrentTensor:
        finite = _finite(other._shifted) - other._log_total
        return _divergence(self.log_probs.exp(), self.log_probs, other.log_probs, finite).sum(
            axis=-1
        )


@explain_constructor
class MultiCategorical(Distribution):
    """Several independent categorical draws: the actions of a `MultiDiscrete` space.

    Args:
        logits: shape (…, sum(sizes)): the logits of all choices, one after the other.
        sizes: the number of positions of each choice.
        mask: the allowed positions of all choices, in the order of the logits; see `Categorical`.

    Raises:
        ShapeError: the logits do not match the sizes, or a mask is invalid.

    Example:
        >>> d = trl.distributions.MultiCategorical(trl.zeros(5), (3, 2))
        >>> d.sample(domain=t)
        i32[2] @ (t)
    """

    def __init__(self, logits: RecurrentTensor, sizes: Sequence[int], mask: Any = None) -> None:
        logits = numbers("logits", logits)
        self.sizes = tuple(sizes) if isinstance(sizes, Sequence | np.ndarray) else ()
        counted = all(is_whole(n) and n > 0 for n in self.sizes)
        if not self.sizes or not counted or not logits.rank or logits.shape[-1] != sum(self.sizes):
            raise ShapeError(
                f"logits {logits.type} do not match choices of {sizes!r} positions.",
                hint="give logits whose last axis has the size sum(sizes).",
            )
        ends = list(accumulate(self.sizes))
        spans = [slice(hi - n, hi) for n, hi in zip(self.sizes, ends, strict=True)]
        if mask is not None:
            logits = _mask_logits(logits, allowed_positions(mask, logits, spans))
        self.parts = [Categorical(logits.slice(span.start, span.stop, -1)) for span in spans]

    def sample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """Draw positions as int32, shape (…, number of choices)."""
        streams = [stream if stream is None else f"{stream}[{k}]" for k in range(len(self.parts))]
        pairs = zip(self.parts, streams, strict=True)
        return stack([part.sample(domain, name, shared=shared) for part, name in pairs], axis=-1)

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """Return the log-probability of all choices together; `a` has the shape of a draw."""
        a = operand(self.parts[0].logits.ctx, a)
        if not a.rank or a.shape[-1] != len(self.parts):
            raise ShapeError(
                f"a draw must have a last axis of {len(self.parts)}, not {a.type}.",
                hint="give one position per choice.",
            )
        chosen = zip(self.parts, a.unstack(axis=-1), strict=True)
        return _total([part.log_prob(one) for part, one in chosen])

    def entropy(self) -> RecurrentTensor:
        """Return the entropy of all choices together, in nats."""
        return _total([part.entropy() for part in self.parts])

    def mode(self) -> RecurrentTensor:
        """Return the most likely positions."""
        return stack([part.mode() for part in self.parts], axis=-1)

    def _kl(self, other: MultiCategorical) -> RecurrentTensor:
        if other.sizes != self.sizes:
            raise ShapeError(
                f"choices of {self.sizes} and {other.sizes} positions cannot be compared.",
                hint="compare distributions over the same choices.",
            )
        return _total([p.kl(q) for p, q in zip(self.parts, other.parts, strict=True)])


@explain_constructor
class Bernoulli(Distribution):
    """Booleans with probabilities sigmoid(logits), independent per element; all elements together are one draw.

    Args:
        logits: log(p / (1 - p)), of any shape.

    Raises:
        ShapeError: the logits are not floating-point.

    Example:
        >>> d = trl.distributions.Bernoulli(trl.zeros(3))
        >>> d.sample(domain=t)
        bool[3] @ (t)
    """

    def __init__(self, logits: RecurrentTensor) -> None:
        self.logits = numbers("logits", logits)

    def sample(
        self, domain: Any = None, stream: Stream = None, *, shared: bool = False
    ) -> RecurrentTensor:
        """Draw booleans of the shape of the logits."""
        over = self.logits.domain if domain is None else domain
        drawn = random_uniform(self.logits.shape, domain=over, stream=stream, shared=shared)
        return drawn < self.logits.sigmoid()

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """Return the log-probability of `a`, booleans or zeros and ones, summed over its elements."""
        a = expect_draw(a, self.logits)
        no = (-self.logits).log_sigmoid()
        if a.dtype == "bool":
            return where(a, self.logits.log_sigmoid(), no).sum()
        impossible = where(a == 0, no, -inf)
        return where(a == 1, self.logits.log_sigmoid(), impossible).sum()

    def entropy(self) -> RecurrentTensor:
        """Return the entropy of all elements together, in nats."""
        size = abs(self.logits)
        rare = (-size).sigmoid()  # the probability of the less likely value
        return ((-size).softplus() + rare * where(rare <= 0.0, 0.0, size)).sum()

    def mode(self) -> RecurrentTensor:
        """Return the more likely value of each element."""
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
    """Return p * (log p - log q), with value and gradients 0 for p = 0.

    Args:
        finite: log q, with a finite number for -inf. Gradients are computed from it, because infinite terms of
            opposite signs would have the gradient NaN.
    """
    none = p <= 0.0
    infinite = where(none, 0.0, where(log_q == -inf, inf, 0.0))
    return p * (where(none, 0.0, log_p) - where(none, 0.0, finite)) + infinite


def _finite(x: RecurrentTensor) -> RecurrentTensor:
    """Replace -inf by a large negative number, so that sums weighted by probabilities are finite."""
    return where(x == -inf, float(finfo(NUMPY[x.dtype]).min) / 4, x)


def _mask_logits(logits: RecurrentTensor, allowed: RecurrentTensor) -> RecurrentTensor:
    return where(allowed, logits, -inf)


def allowed_positions(
    mask: Any, logits: RecurrentTensor, spans: Sequence[slice] = (slice(None),)
) -> RecurrentTensor:
    """Convert a mask of positions to booleans.

    Args:
        mask: booleans, or integers (0 forbids a position).
        logits: the masked tensor.
        spans: the parts of the last axis; each needs an allowed position.

    Raises:
        ShapeError: the mask has an unsuitable type or shape, or its constant values allow no position of a part.
    """
    given = operand(logits.ctx, mask)
    if given.dtype != "bool" and not is_integer(given.dtype):
        raise ShapeError(
            f"a mask must be boolean, or zeros and ones, not {given.type}.",
            hint="write mask=m > 0; True allows a position.",
        )
    aligned = (1,) * (logits.rank - given.rank) + given.shape
    if len(aligned) != logits.rank or any(
        not (n == 1 or same_size(n, m)) for n, m in zip(aligned, logits.shape, strict=False)
    ):
        raise ShapeError(
            f"a mask {given.type} does not broadcast to logits {logits.type}.",
            hint="give a mask of the logits' shape, or of one that broadcasts to it.",
        )
    if given.op.kind in ("const", "data"):
        numbers = given.op.attrs.value.array
        if numbers.dtype.kind != "b" and ((numbers != 0) & (numbers != 1)).any():
            raise ShapeError(
                "a mask of integers has values other than 0 and 1.",
                hint="write mask=m > 0; a mask states for each position whether it is allowed.",
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
                    hint="allow at least one position per row; allow all in an unused row.",
                )
    return given if given.dtype == "bool" else given != 0


def _total(parts: list[RecurrentTensor]) -> RecurrentTensor:
    return sum(parts[1:], parts[0])
