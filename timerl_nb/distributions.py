"""Probability distributions over recurrent tensors (`trl.distributions`)."""

from __future__ import annotations

from typing import Any

from timerl_nb.errors import ShapeError
from timerl_nb.frontend.sources import random_gumbel, where
from timerl_nb.frontend.tensor import RecurrentTensor, one_hot, operand
from timerl_nb.ir.shapes import is_float


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

    def sample(self, domain: Any = None, stream: int | str | None = None) -> RecurrentTensor:
        """A draw (int32, the shape without the last axis) at every point.

        Draws are independent over `domain`, by default the logits' own; to draw independently per
        environment from logits that do not vary over environments, name the dimension.
        """
        over = self.logits.domain if domain is None else domain
        noise = random_gumbel(self.logits.shape, domain=over, stream=stream)
        return (self.logits + noise).argmax(-1)

    def log_prob(self, a: RecurrentTensor) -> RecurrentTensor:
        """The log-probability of each position in `a` (integers)."""
        a = operand(self.logits.ctx, a)
        if a.dtype not in ("i32", "u32"):
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
