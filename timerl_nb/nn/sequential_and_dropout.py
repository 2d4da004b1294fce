"""`Sequential`, which calls one after another, and `Dropout`, which leaves out by chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timerl_nb.base.errors import ShapeError
from timerl_nb.compiler.language.argument_checks import number
from timerl_nb.compiler.language.inputs.tensor_sources import random_uniform, where
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor, operand
from timerl_nb.nn.module import Module

Layer = Callable[[RecurrentTensor], RecurrentTensor]


class Sequential(Module):
    """Layers, and functions such as `trl.RecurrentTensor.relu`, each given what the last one made."""

    def __init__(self, *layers: Layer) -> None:
        wrong = [layer for layer in layers if not callable(layer)]
        if wrong:
            raise ShapeError(
                f"{wrong[0]!r} cannot be called.", hint="give layers or functions of one tensor."
            )
        self.layers = list(layers)

    def __call__(self, x: RecurrentTensor) -> RecurrentTensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Dropout(Module):
    """Elements set to 0 with a probability, the others scaled so that the mean stays.

    Args:
        rate: the probability, from 0 to below 1.
    """

    def __init__(self, rate: float = 0.5) -> None:
        self.rate = number("a rate of dropout", rate)
        if not 0 <= self.rate < 1:
            raise ShapeError(f"a rate of dropout is from 0 to below 1, not {rate!r}.")

    def __call__(
        self, x: RecurrentTensor, *, domain: Any = None, stream: int | str | None = None
    ) -> RecurrentTensor:
        """x with elements left out, drawn anew at every point of `domain`, by default that of x.

        Where one acts, call what comes before and after it without it.
        """
        x = operand(None, x).floating()
        if not self.rate:
            return x
        over = x.domain if domain is None else domain
        kept = random_uniform(x.shape, domain=over, stream=stream) >= self.rate
        return where(kept, x * (1 / (1 - self.rate)), 0.0)
