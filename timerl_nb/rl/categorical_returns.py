"""Categorical distributions over returns. Source: Bellemare et al. 2017 (C51)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.inputs.tensor_sources import constant
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor


@dataclass(frozen=True)
class Support:
    """Equidistant returns with probabilities: the support of a categorical distribution.

    Args:
        low, high: the smallest and the greatest return.
        atoms: the number of returns, at least 2.

    Raises:
        ShapeError: `low` is not less than `high`, or there are fewer than two returns.
    """

    low: float
    high: float
    atoms: int

    def __post_init__(self) -> None:
        integer("atoms", self.atoms, least=2)
        if not self.low < self.high:
            raise ShapeError(
                f"the support of returns is empty: its ends are {self.low:g} and {self.high:g}.",
                hint="give the smallest and the greatest return: support=(0.0, 100.0).",
            )

    @property
    def returns(self) -> RecurrentTensor:
        """The returns: f32 [atoms]."""
        return constant(np.linspace(self.low, self.high, self.atoms), "f32")

    def mean(self, logits: RecurrentTensor) -> RecurrentTensor:
        """Return the means of distributions: logits [..., atoms] to values [...]."""
        return (logits.softmax(-1) * self.returns).sum(axis=-1)

    def project(
        self, probability: RecurrentTensor, reward: RecurrentTensor, discount: RecurrentTensor
    ) -> RecurrentTensor:
        """Return the distribution of reward + discount * return, projected onto the support.

        Each new return lies between two returns of the support, or is clipped to its ends. Its probability is divided
        between both by linear interpolation.

        Args:
            probability: the probabilities of the returns, f32 [..., atoms].
            reward: the sums of rewards, f32 [...].
            discount: the discounts of the later returns, f32 [...].

        Returns:
            probabilities, f32 [..., atoms].
        """
        returns = reward.unsqueeze(-1) + discount.unsqueeze(-1) * self.returns
        gap = (self.high - self.low) / (self.atoms - 1)
        distance = abs(returns.clip(self.low, self.high).unsqueeze(-1) - self.returns) / gap
        weight = (1.0 - distance).clip(0.0, 1.0)  # [..., from, to]
        return (probability.unsqueeze(-1) * weight).sum(axis=-2)
